"""The requests that change topics, carried out in the writer's transaction; each adds one line to the memory journal.

One line, so that a kill leaves all of a change or nothing of it.
"""

import apsw

from klaw.domain.names import UserId
from klaw.domain.topic import MAX_SUMMARY_CHARS, Topic, TopicId
from klaw.errors import NoSuchTopic, StorageError, TopicChanged
from klaw.store.journal import Entry
from klaw.store.memory_commit import journal
from klaw.store.sql import forgetting, topic_vectors, topics
from klaw.store.sql.topic_vectors import TopicVector
from klaw.store.topic_records import TopicEntry, TopicState
from klaw.store.topic_requests import (
    MarkTopic,
    MergeTopics,
    OfTopics,
    RebuildTopics,
    RemoveTopic,
    StoreTopics,
    StoreTopicVectors,
    TopicDraft,
    UndoneTopics,
    UndoTopics,
)
from klaw.store.topic_undo import rebuild, undo


def execute_of_topics(
    connection: apsw.Connection, request: OfTopics, entries: list[Entry]
) -> list[Topic] | Topic | int | bool | list[int] | UndoneTopics:
    """Carry out a request inside a savepoint.

    Raises:
        KlawError: it is refused; the caller takes back what was done.
        ValueError, TypeError, LookupError, apsw.ConstraintError: likewise, a value cannot be stored.
    """
    match request:
        case StoreTopics():
            return _store(connection, request, entries)
        case MergeTopics():
            return _merge(connection, request, entries)
        case MarkTopic():
            return _mark(connection, request, entries)
        case RemoveTopic():
            return _remove(connection, request, entries)
        case StoreTopicVectors():
            return topic_vectors.store(connection, request.model_id, request.vectors, request.as_of)
        case RebuildTopics():
            return rebuild(connection, request, entries)
        case UndoTopics():
            return undo(connection, request, entries)


def _store(connection: apsw.Connection, request: StoreTopics, entries: list[Entry]) -> list[Topic]:
    user, chat = request.user, request.chat
    rowids = [rowid for draft in request.drafts for rowid in draft.members]
    if not request.drafts or any(not draft.members for draft in request.drafts) or len(rowids) != len(set(rowids)):
        raise StorageError("topics have messages, and each message is in one of them")
    for draft in request.drafts:
        _check_summary(draft.summary)
    if request.replaces is not None:
        before = _present(connection, request.user, request.replaces)
        if before.chat != chat:
            raise StorageError("a topic is replaced by topics of its chat")
        if set(topics.members(connection, user, before.id)) - set(rowids):
            raise TopicChanged("every message of the replaced topic needs a new one")
    _check_nothing_forgotten(connection, user, request.as_of)
    if not topics.are_free(connection, user, chat, rowids, request.replaces):
        raise TopicChanged("some of the messages are in a topic already, or not the user's, or not of the chat")
    first = topics.last_id(connection) + 1
    states = [
        TopicState(
            id=TopicId(first + place),
            summary=draft.summary,
            general=draft.general,
            members=tuple(sorted(draft.members)),
            consolidated=draft.consolidated,
            facts=draft.facts,
        )
        for place, draft in enumerate(request.drafts)
    ]
    entry = TopicEntry(
        entry=0,
        time=request.at,
        user=user,
        op="put",
        id=states[0].id,
        chat=chat,
        topics=tuple(states),
        ended=() if request.replaces is None else (request.replaces,),
        by=request.by,
    )
    journal(connection, entries, entry)
    _store_vectors(connection, request, states)
    return [_present(connection, user, state.id) for state in states]


def _store_vectors(connection: apsw.Connection, request: StoreTopics, states: list[TopicState]) -> None:
    pairs: list[tuple[TopicState, TopicDraft]] = list(zip(states, request.drafts, strict=True))
    made = [TopicVector(state.id, request.at, draft.vector) for state, draft in pairs if draft.vector is not None]
    if request.model_id is not None:
        topic_vectors.store(connection, request.model_id, made)


def _merge(connection: apsw.Connection, request: MergeTopics, entries: list[Entry]) -> Topic:
    sources, target = request.sources, request.target
    ids = [each.id for each in (*sources, target)]
    if (
        not sources
        or len(set(ids)) < len(ids)
        or any((each.user, each.chat) != (target.user, target.chat) for each in sources)
    ):
        raise StorageError("only different topics of one user and one chat can be merged")
    _check_summary(request.summary)
    for each in (*sources, target):
        if _present(connection, each.user, each.id) != each:
            raise TopicChanged("a topic has changed since the merge was decided")
    _check_nothing_forgotten(connection, target.user, request.as_of)
    state = TopicState(
        id=target.id,
        summary=request.summary,
        general=all(each.general for each in (*sources, target)),
        members=tuple(sorted(rowid for each in sources for rowid in topics.members(connection, each.user, each.id))),
        consolidated=True,
        facts=all(each.facts for each in (*sources, target)),
    )
    entry = TopicEntry(
        entry=0,
        time=request.at,
        user=target.user,
        op="merge",
        id=target.id,
        chat=target.chat,
        topics=(state,),
        ended=tuple(each.id for each in sources),
        by=request.by,
    )
    journal(connection, entries, entry)
    if request.vector is not None and request.model_id is not None:
        made = TopicVector(target.id, request.at, request.vector)
        topic_vectors.store(connection, request.model_id, [made])
    return _present(connection, target.user, target.id)


def _mark(connection: apsw.Connection, request: MarkTopic, entries: list[Entry]) -> bool:
    present = topics.get(connection, request.user, request.id)
    if present is None:
        return False
    consolidated, facts = request.step == "consolidated", request.step == "facts"
    if (consolidated and not present.consolidated) or (facts and not present.facts):
        entry = TopicEntry(
            entry=0,
            time=request.at,
            user=request.user,
            op="mark",
            id=request.id,
            consolidated=consolidated,
            facts=facts,
        )
        journal(connection, entries, entry)
    return True


def _remove(connection: apsw.Connection, request: RemoveTopic, entries: list[Entry]) -> Topic:
    present = _present(connection, request.user, request.id)
    journal(connection, entries, TopicEntry(entry=0, time=request.at, user=request.user, op="remove", id=request.id))
    return present


def _present(connection: apsw.Connection, user: UserId, topic: TopicId) -> Topic:
    found = topics.get(connection, user, topic)
    if found is None:
        raise NoSuchTopic
    return found


def _check_nothing_forgotten(connection: apsw.Connection, user: UserId, as_of: int | None) -> None:
    """A model may have quoted what is forgotten since."""
    if as_of is not None and forgetting.last_of(connection, user) > as_of:
        raise TopicChanged("something was forgotten since the messages were read")


def _check_summary(summary: str) -> None:
    if not summary.strip() or len(summary) > MAX_SUMMARY_CHARS:
        raise StorageError(f"summary: a topic's summary has 1 to {MAX_SUMMARY_CHARS} characters")
