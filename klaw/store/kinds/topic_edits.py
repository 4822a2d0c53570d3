"""Changes of topics. Each is one line of the memory journal, so that a kill leaves all of it or nothing."""

from collections.abc import Sequence
from typing import Literal

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import MAX_SUMMARY_CHARS, Topic, TopicId
from klaw.errors import NoSuchChange, NoSuchTopic, StorageError, TopicChanged
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import topic_changes, topic_vectors, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.kinds.topics import Author, TopicMark, TopicsPut, TopicVersion

_MOST = 1 << 62


@attrs.frozen(kw_only=True)
class TopicDraft:
    summary: str
    general: bool
    members: tuple[int, ...]
    """Row ids of its messages, ascending, never empty."""
    consolidated: bool = False
    facts: bool = False
    vector: bytes | None = None
    """Little-endian float32, if there is one already."""


@attrs.frozen(kw_only=True)
class UndoneTopics:
    undone: int
    """Entry of the change that was undone."""
    entry: int
    """Entry of the undoing."""
    topics: tuple[Topic, ...]
    """Restored, as far as their messages are there."""
    ended: tuple[TopicId, ...]


def store(
    tx: Transaction,
    user: UserId,
    chat: ChatId,
    drafts: Sequence[TopicDraft],
    at: str,
    *,
    replaces: TopicId | None = None,
    model_id: str | None = None,
    as_of: int | None = None,
    by: Author = "archivist",
) -> list[Topic]:
    """Store topics with their messages.

    Args:
        drafts: each message of them has no topic yet, or is one of the replaced topic's.
        replaces: a topic that is split into these, all of it.
        model_id: what made the drafts' vectors.
        as_of: the memory journal's last entry before the messages were read for the drafts.

    Raises:
        TopicChanged: a message has a topic meanwhile, or is another user's or chat's, or the user has forgotten
            something since ``as_of``.
        NoSuchTopic: the replaced one is not there.
        StorageError: a draft has no messages or no summary, or two have the same message.
    """
    rowids = [rowid for draft in drafts for rowid in draft.members]
    if not drafts or any(not draft.members for draft in drafts) or len(rowids) != len(set(rowids)):
        raise StorageError("topics have messages, and each message is in one of them")
    for draft in drafts:
        _check_summary(draft.summary)
    if replaces is not None:
        before = _present(tx, user, replaces)
        if before.chat != chat:
            raise StorageError("a topic is replaced by topics of its chat")
        if set(topics.members(tx.connection, user, before.id)) - set(rowids):
            raise TopicChanged("every message of the replaced topic needs a new one")
    _check_nothing_forgotten(tx, user, as_of)
    if not topics.are_free(tx.connection, user, chat, rowids, replaces):
        raise TopicChanged("some of the messages are in a topic already, or not the user's, or not of the chat")
    last = tx.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'topics'").get  # that any ever had
    first = int(last or 0) + 1
    states = [
        TopicVersion(
            id=TopicId(first + place),
            summary=draft.summary,
            general=draft.general,
            members=tuple(sorted(draft.members)),
            consolidated=draft.consolidated,
            facts=draft.facts,
        )
        for place, draft in enumerate(drafts)
    ]
    change = TopicsPut(chat=chat, topics=tuple(states), ended=() if replaces is None else (replaces,), by=by)
    tx.journal(TOPIC.put(user, states[0].id, change, at))
    if model_id is not None:
        pairs = zip(states, drafts, strict=True)
        made = [TopicVector(state.id, at, draft.vector) for state, draft in pairs if draft.vector is not None]
        topic_vectors.store(tx, model_id, made)
    return [_present(tx, user, state.id) for state in states]


def merge(
    tx: Transaction,
    source: Topic | None,
    target: Topic,
    summary: str,
    at: str,
    *,
    others: Sequence[Topic] = (),
    vector: bytes | None = None,
    model_id: str | None = None,
    as_of: int | None = None,
    by: Author = "archivist",
) -> Topic:
    """Move the messages of ``source`` and ``others``, which end, to ``target``. Returns the new target.

    Args:
        source, target: as they were when that was decided; without a source only the summary changes.
        vector: of the new target, made by ``model_id``; without one the archivist makes it.
        as_of, by: see ``store``.

    Raises:
        NoSuchTopic, TopicChanged: one of them is not as it was, or something was forgotten.
        StorageError: they are of different users or chats, or the summary breaks its rule.
    """
    sources = (source, *others) if source is not None else ()
    whole = (*sources, target)
    if len({each.id for each in whole}) < len(whole) or any(
        (each.user, each.chat) != (target.user, target.chat) for each in sources
    ):
        raise StorageError("only different topics of one user and one chat can be merged")
    _check_summary(summary)
    for each in whole:
        if _present(tx, each.user, each.id) != each:
            raise TopicChanged("a topic has changed since the merge was decided")
    _check_nothing_forgotten(tx, target.user, as_of)
    state = TopicVersion(
        id=target.id,
        summary=summary,
        general=all(each.general for each in whole),
        members=tuple(sorted(rowid for each in sources for rowid in topics.members(tx.connection, each.user, each.id))),
        consolidated=True,
        facts=all(each.facts for each in whole),
    )
    change = TopicsPut(chat=target.chat, topics=(state,), ended=tuple(each.id for each in sources), by=by)
    tx.journal(TOPIC.put(target.user, target.id, change, at, "merge"))
    if vector is not None and model_id is not None:
        topic_vectors.store(tx, model_id, [TopicVector(target.id, at, vector)])
    return _present(tx, target.user, target.id)


def mark(tx: Transaction, user: UserId, topic: TopicId, step: Literal["consolidated", "facts"], at: str) -> bool:
    """Note that a step of the archivist is done for a topic. Returns whether the topic is there."""
    present = topics.get(tx.connection, user, topic)
    if present is None:
        return False
    consolidated, facts = step == "consolidated", step == "facts"
    if (consolidated and not present.consolidated) or (facts and not present.facts):
        tx.journal(TOPIC.put(user, topic, TopicMark(consolidated=consolidated, facts=facts), at, "mark"))
    return True


def rebuild(tx: Transaction, user: UserId, chat: ChatId | None, since: str | None, at: str) -> list[int]:
    """Drop a user's topics, so that the archivist makes new ones of their messages. Each chat is one change, which can
    be undone by itself. Returns the entries of the changes. ``since``: only topics whose last message is not older."""
    of: dict[ChatId, list[TopicId]] = {}
    for topic in topics.of_user(tx.connection, user, chat=chat, limit=_MOST):
        if since is None or topic.last_at >= since:
            of.setdefault(topic.chat, []).append(topic.id)
    changes = [
        (min(own), TopicsPut(chat=chat, ended=tuple(sorted(own)), by="person")) for chat, own in sorted(of.items())
    ]
    return [tx.journal(TOPIC.put(user, first, change, at, "rebuild")) for first, change in changes]


def undo(tx: Transaction, user: UserId, entry: int | None, at: str) -> UndoneTopics:
    """Restore topics as they were before a change (merge, split, rebuild or undo), as far as their messages are there.
    ``entry``: of the change; None for the newest that a person asked for. Raises NoSuchChange: there is none, or it was
    undone already; TopicChanged: a later change of the same messages has to be undone first, or all was forgotten."""
    connection = tx.connection
    wanted = entry if entry is not None else topic_changes.newest(connection, user)
    change = topic_changes.get(connection, user, wanted) if wanted is not None else None
    if change is None:
        raise NoSuchChange("there is no such change of topics, or what it was about is forgotten")
    if change.undone_by is not None:
        raise NoSuchChange(f"change {change.entry} was taken back already, by {change.undone_by}")
    was = {rowid for state in change.before for rowid in state.members}
    mine = set(topic_changes.still_archived(connection, user, change.chat, sorted(was)))
    left = [topic for topic in change.after if topics.get(connection, user, topic) is not None]
    now = {rowid for topic in left for rowid in topics.members(connection, user, topic)}
    newer = topic_changes.later(connection, user, change, was | now)
    if newer is not None:
        raise TopicChanged(f"change {newer} came later and is about the same messages: take that back first")
    states = [
        attrs.evolve(
            state,
            members=tuple(rowid for rowid in state.members if rowid in mine),
            consolidated=True,  # it is not to be merged again at once
        )
        for state in change.before
        if not mine.isdisjoint(state.members)
    ]
    back = {state.id for state in states}
    ended = tuple(sorted({*left, *topics.topics_of(connection, user, sorted(mine)).values()} - back))
    if not states and not ended:
        raise TopicChanged("nothing is left of it")
    undoing = TopicsPut(chat=change.chat, topics=tuple(states), ended=ended, by="person", undoes=change.entry)
    done = tx.journal(TOPIC.put(user, min([*back, *ended]), undoing, at, "undo"))
    there = [found for each in sorted(back) if (found := topics.get(connection, user, TopicId(each))) is not None]
    return UndoneTopics(undone=change.entry, entry=done, topics=tuple(there), ended=ended)


def _present(tx: Transaction, user: UserId, topic: TopicId) -> Topic:
    found = topics.get(tx.connection, user, topic)
    if found is None:
        raise NoSuchTopic
    return found


def _check_nothing_forgotten(tx: Transaction, user: UserId, as_of: int | None) -> None:
    """A model may have quoted what is forgotten since."""
    if tx.forgotten_since(user, as_of):
        raise TopicChanged("something was forgotten since the messages were read")


def _check_summary(summary: str) -> None:
    if not summary.strip() or len(summary) > MAX_SUMMARY_CHARS:
        raise StorageError(f"summary: a topic's summary has 1 to {MAX_SUMMARY_CHARS} characters")
