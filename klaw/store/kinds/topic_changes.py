"""The history of topics: changes of topics with what they were before, taken from the database when an entry of the
memory journal is carried out, so that a database made from the logs has the same history."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Literal, TypeAlias, cast

import apsw
import attrs

from klaw.convert import JOURNAL, Form, Wire
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Quotes
from klaw.domain.topic import Topic, TopicId
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine.tables import entries, full_text, table
from klaw.store.kinds import topics
from klaw.store.kinds.topics import Author, TopicMark, TopicsPut, TopicVersion
from klaw.store.rows import dumps

ChangeOp: TypeAlias = Literal["merge", "split", "rebuild", "undo"]


@attrs.frozen(kw_only=True)
class TopicChange:
    entry: int
    """The number in the memory journal, which names the change."""
    at: str
    chat: Annotated[ChatId, Wire("chat_id")]
    op: ChangeOp
    by: Author
    before: Annotated[tuple[TopicVersion, ...], Quotes()]
    """The topics that it changed or ended, as they were, with all their messages."""
    after: tuple[TopicId, ...]
    undoes: int | None
    """The change that it undid."""
    undone_by: int | None


_CHANGES = rows.Rows(TopicChange, "topic_changes")


def get(connection: apsw.Connection, user: UserId, entry: int) -> TopicChange | None:
    return _CHANGES.one(connection, "WHERE user_id = ? AND entry = ?", user, entry)


def of_user(
    connection: apsw.Connection, user: UserId, *, topic: TopicId | None = None, before: int = 1 << 62, limit: int = 100
) -> list[TopicChange]:
    """Changes of a user's topics, the newest first; of one topic, and before an entry."""
    found: list[TopicChange] = []
    while len(found) < limit:
        page = _CHANGES.all(
            connection, "WHERE user_id = ? AND entry < ? ORDER BY entry DESC LIMIT ?", user, before, limit
        )
        found += [each for each in page if topic is None or topic in each.after or topic in _ids(each.before)]
        if len(page) < limit:
            break
        before = page[-1].entry
    return found[:limit]


def _ids(states: Sequence[TopicVersion]) -> set[TopicId]:
    return {state.id for state in states}


def newest(connection: apsw.Connection, user: UserId) -> int | None:
    """The newest change that a person asked for and that holds."""
    query = """
    SELECT max(entry) FROM topic_changes WHERE user_id = ? AND op <> 'undo' AND undone_by IS NULL AND by = 'person'
    """
    found = connection.execute(query, (user,)).get
    return int(found) if found is not None else None


def _touching(
    connection: apsw.Connection, user: UserId, after: int, rowids: Collection[int]
) -> Iterator[tuple[TopicChange, list[TopicVersion]]]:
    """Changes after an entry with those of their states that have one of the messages."""
    query = "WHERE user_id = ? AND entry > ? AND last_rowid >= ? AND first_rowid <= ? ORDER BY entry"
    if not rowids:
        return
    wanted = frozenset(rowids)
    for change in _CHANGES.all(connection, query, user, after, min(wanted), max(wanted)):
        states = [state for state in change.before if not wanted.isdisjoint(state.members)]
        if states:
            yield change, states


def later(connection: apsw.Connection, user: UserId, change: TopicChange, rowids: Collection[int]) -> int | None:
    """The newest change of these messages' topics that came after a change and still holds."""
    found = [
        each.entry
        for each, _ in _touching(connection, user, change.entry, rowids)
        if each.undone_by is None and not (each.undoes is not None and each.undoes > change.entry)
    ]
    return max(found, default=None)


def past_topics(connection: apsw.Connection, user: UserId, rowids: Collection[int]) -> set[TopicId]:
    """Topics that had one of these messages before some change."""
    return {state.id for _, states in _touching(connection, user, 0, rowids) for state in states}


_HAVING = """
WITH RECURSIVE mine (id) AS (
    SELECT DISTINCT topic_id FROM messages
    WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2)) AND topic_id IS NOT NULL
    UNION SELECT e.id FROM topic_ends e JOIN mine ON e.into_id = mine.id WHERE e.user_id = ?1)
SELECT id FROM mine ORDER BY id
"""


def ever_with(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> set[TopicId]:
    """Topics that have one of a user's messages, or once had."""
    now = {TopicId(row[0]) for row in connection.execute(_HAVING, (user, json.dumps(list(rowids))))}
    return now | past_topics(connection, user, rowids)


def drawn(connection: apsw.Connection, user: UserId, rowids: Collection[int]) -> set[int]:
    """Those of a user's messages whose topics were dropped after facts were drawn from them: that is done once."""
    found: set[int] = set()
    for change, states in _touching(connection, user, 0, rowids):
        if change.op == "rebuild":
            found.update(*(state.members for state in states if state.facts))
    return found & set(rowids)


_STILL = f"""
SELECT rowid FROM messages
WHERE rowid IN (SELECT value FROM json_each(?1)) AND +user_id = ?2 AND +chat_id = ?3 AND {topics.ARCHIVED}
ORDER BY rowid
"""  # noqa: S608 - constant condition


def still_archived(connection: apsw.Connection, user: UserId, chat: ChatId, rowids: Sequence[int]) -> list[int]:
    """Those of the messages that are a user's, of a chat, and of a kind that belongs to topics: not forgotten ones."""
    return [rowid for (rowid,) in connection.execute(_STILL, (json.dumps(list(rowids)), user, chat))]


# -- writing -----------------------------------------------------------------------------------------------------------


_INSERT = rows.insert("topic_changes", TopicChange, "user_id", "first_rowid", "last_rowid", "changed")


def _record(connection: apsw.Connection, entry: Change[TopicsPut | TopicMark]) -> None:
    """Keep what a change is about to change. Called before it is carried out."""
    undone = "UPDATE topic_changes SET undone_by = ?3, changed = ?3 WHERE user_id = ?1 AND entry = ?2"
    redone = """
    UPDATE topic_changes SET undone_by = NULL, changed = ?3
    WHERE user_id = ?1 AND entry = (SELECT undoes FROM topic_changes WHERE user_id = ?1 AND entry = ?2)
    """
    put = entry.value
    if not isinstance(put, TopicsPut) or put.by is None:
        return
    joining = [rowid for state in put.topics for rowid in state.members]
    concerned = {*put.ended, *_ids(put.topics), *topics.topics_of(connection, entry.user, joining).values()}
    before = [state for topic in sorted(concerned) if (state := _state(connection, entry.user, topic)) is not None]
    if not before and entry.op != "undo":
        return
    rowids = [rowid for state in before for rowid in state.members]
    change = TopicChange(
        entry=entry.entry,
        at=entry.time,
        chat=put.chat,
        op=cast("ChangeOp", "split" if entry.op == "put" else entry.op),
        by=put.by,
        before=tuple(before),
        after=tuple(state.id for state in put.topics),
        undoes=put.undoes,
        undone_by=None,
    )
    bounds = {"first_rowid": min(rowids, default=0), "last_rowid": max(rowids, default=0)}
    connection.execute(_INSERT, {**rows.values(change), "user_id": entry.user, **bounds, "changed": entry.entry})
    if put.undoes is not None:
        connection.execute(redone, (entry.user, put.undoes, entry.entry))
        connection.execute(undone, (entry.user, put.undoes, entry.entry))


def _state(connection: apsw.Connection, user: UserId, topic: TopicId) -> TopicVersion | None:
    found = topics.get(connection, user, topic)
    if found is None:
        return None
    same = {name: getattr(found, name) for name in ("id", "summary", "general", "consolidated", "facts")}
    return TopicVersion(**same, members=tuple(topics.members(connection, user, topic)))


def forget(
    connection: apsw.Connection, user: UserId, rowids: Collection[int], gone: Collection[TopicId], entry: int
) -> None:
    """Remove states with one of the messages, or of a topic that is ``gone``, and emptied changes."""
    query = "UPDATE topic_changes SET before = ?2, changed = ?3 WHERE entry = ?1"
    forgotten, ended = frozenset(rowids), frozenset(gone)
    for change in _CHANGES.all(connection, "WHERE user_id = ? ORDER BY entry", user):
        left = [each for each in change.before if each.id not in ended and forgotten.isdisjoint(each.members)]
        if len(left) == len(change.before):
            continue
        if left:
            connection.execute(query, (change.entry, dumps(JOURNAL.write(left)), entry))
        else:
            connection.execute("DELETE FROM topic_changes WHERE entry = ?", (change.entry,))


def _apply(connection: apsw.Connection, change: Change[TopicsPut | TopicMark]) -> None:
    _record(connection, change)
    topics.apply(connection, change)


# A topic with all its messages: that is where messages.topic_id is compared.
_MEMBERS = "(SELECT group_concat(rowid) FROM (SELECT rowid FROM messages WHERE topic_id = t.id ORDER BY rowid))"
_COLUMNS = "entry, user_id, chat_id, at, op, by, first_rowid, last_rowid, before, after, undoes, undone_by, changed"
_CHANGED = "SELECT id FROM topics WHERE entry > ?1 UNION SELECT id FROM topic_ends WHERE entry > ?1"
_REWRITTEN = "SELECT entry FROM topic_changes WHERE changed > ?"

_FLAWS = {
    "messages belong to a topic that is gone": """
        SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND topic_id NOT IN (SELECT id FROM topics)
    """,
    "messages are in a topic of another user or chat": """
        SELECT count(*) FROM messages AS m JOIN topics AS t ON t.id = m.topic_id
        WHERE m.user_id <> t.user_id OR m.chat_id <> t.chat_id
    """,
    "messages have a topic and are of a kind without": f"""
        SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND NOT ({topics.ARCHIVED})
    """,  # noqa: S608 - a constant condition
    "topics do not say what their messages are": """
        SELECT count(*) FROM topics AS t WHERE (t.messages, t.chars, t.first_rowid, t.last_rowid) IS NOT (
            SELECT count(*), sum(length(m.content)), min(m.rowid), max(m.rowid) FROM messages AS m
            WHERE m.topic_id = t.id)
    """,
    "topics are there and on the list of those that are gone": """
        SELECT count(*) FROM topic_ends WHERE id IN (SELECT id FROM topics)
    """,
}
TOPIC: Kind[TopicsPut | TopicMark] = Kind(
    what="topic",
    plural="topics",
    cls=Topic,
    table="topics",
    full_text=True,
    vectors="vec_topics",
    flaws=_FLAWS,
    made_of=ever_with,
    ops={**dict.fromkeys(("put", "merge", "rebuild", "undo"), TopicsPut), "mark": TopicMark, "remove": None},
    key=Form(lambda key: TopicId(JOURNAL.read(int(key), int)), str),
    moves="they name messages by numbers that differ here; --topics makes new ones",
    apply=_apply,
    clear=topics.CLEAR,
    tables=(
        table("topics", "topics AS t", "t.id", f"t.*, {_MEMBERS}", bound="entry", changed=_CHANGED),
        table("ended topics", "topic_ends", "id", "id, entry, user_id, into_id", bound="entry", changed=_CHANGED),
        entries("changes of topics", "topic_changes", _COLUMNS, changed=_REWRITTEN),
        full_text("full text of topics", "topics_fts"),
    ),
)
TOPIC_CHANGE: Kind[TopicChange] = Kind(
    what="topic_change",
    plural="changes of topics",
    cls=TopicChange,
    table="topic_changes",
    id="entry",
    changed="changed",
)
