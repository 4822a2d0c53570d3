"""The branches of chats: which variant of its messages each shows, and what carrying out a change moves."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.convert import MAX_WHOLE, OMIT, Bounds, Form
from klaw.domain.branch import END, Branch, BranchTree, Variant, ends, parting
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId, UserId, chat_id, chat_name, name_of
from klaw.domain.topic import TopicId
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tables import table
from klaw.store.kinds import messages, people, summaries, topics
from klaw.store.kinds.messages import MESSAGE, MESSAGES, NOW, WHOLE, replaced_mark

NEXT = END
"""In place of the number of an entry that is not written yet."""
_BRANCHES = rows.Rows(Branch, "branches")


@attrs.frozen(kw_only=True)
class HiddenThing:
    """A fact or a person that was made of replaced messages only."""

    what: str
    thing: str
    seq: int
    """It comes back with this message."""


@attrs.frozen(kw_only=True)
class BranchChange:
    """From here on a branch is the active one; a new one if it has a ``parent``."""

    branch: Annotated[int, Bounds(0)]
    last_seq: Annotated[int, Bounds(0)]
    """The chat's last message at that moment."""
    parent: Annotated[int | None, OMIT] = None
    before_seq: Annotated[int, OMIT, Bounds(0)] = 0
    again: Annotated[bool, OMIT] = False
    turns: Annotated[tuple[str, ...], OMIT] = ()
    """Turns on the question of an answer that is replaced; those on replaced messages follow from their numbers."""
    hidden: Annotated[tuple[HiddenThing, ...], OMIT] = ()


def tree_of(connection: apsw.Connection, chat: ChatId) -> BranchTree:
    return BranchTree(_BRANCHES.all(connection, "WHERE chat_id = ?", chat))


def changed(tree: BranchTree, put: BranchChange, entry: int) -> BranchTree:
    """The branches after a change. Raises KeyError: it names one that is not there."""
    if put.parent is None:
        branch = attrs.evolve(tree.branches[put.branch], entry=entry)
    else:
        branch = Branch(
            branch=put.branch,
            parent=tree.branches[put.parent].branch,
            before_seq=put.before_seq,
            again=put.again,
            first_seq=put.last_seq + 1,
            entry=entry,
        )
    return BranchTree([*tree.branches.values(), branch])


def replaced(connection: apsw.Connection, chat: ChatId, first: int = 0, last: int = END) -> frozenset[int]:
    """Numbers of a chat's messages that another variant has replaced."""
    query = "SELECT seq FROM replaced_messages WHERE chat_id = ? AND seq BETWEEN ? AND ?"
    return frozenset(int(seq) for (seq,) in connection.execute(query, (chat, first, last)))


def hidden(connection: apsw.Connection, user: UserId, chat: ChatId) -> set[HiddenThing]:
    query = "SELECT what, thing, seq FROM replaced_things WHERE user_id = ? AND chat_id = ?"
    found: list[Any] = connection.execute(query, (user, chat)).fetchall()
    return {HiddenThing(what=what, thing=thing, seq=seq) for what, thing, seq in found}


# -- what is shown -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class VariantsPage:
    messages: Sequence[Message]
    branched: int = 0
    """``ChatRow.branched``."""
    variants: dict[int, Variant] = attrs.Factory(dict)
    """By the numbers of the messages that have several."""
    gone: frozenset[int] = frozenset()
    """Numbers of those that a variant has replaced."""


def page(
    connection: apsw.Connection, chat: ChatId, limit: int, before: int | None, after: int | None, *, variants: bool
) -> VariantsPage:
    """Messages of a chat, oldest first: the first ones after a seq, or the last ones before one; ``variants``: also
    replaced ones."""
    source = WHOLE if variants else MESSAGES
    with snapshot(connection):
        if after is not None:
            query = f"WHERE chat_id = ? AND seq > ? AND {NOW} ORDER BY seq LIMIT ?"
            found = source.all(connection, query, chat, after, limit)
        else:
            query = f"WHERE chat_id = ? AND seq < ? AND {NOW} ORDER BY seq DESC LIMIT ?"
            found = source.all(connection, query, chat, MAX_WHOLE if before is None else before, limit)[::-1]
        session = messages.session(connection, chat)
        if not found or session is None or not session.branched:
            return VariantsPage(messages=found, branched=session.branched if session is not None else 0)
        bounds = found[0].seq, found[-1].seq
        return VariantsPage(
            messages=found,
            branched=session.branched,
            variants=of_messages(connection, chat, *bounds),
            gone=replaced(connection, chat, *bounds) if variants else frozenset(),
        )


_ANSWER = f"""
SELECT seq FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? AND role = 'assistant' AND type = 'text' AND {NOW}
ORDER BY seq LIMIT 1
"""  # noqa: S608 - a constant


def of_messages(connection: apsw.Connection, chat: ChatId, first: int = 0, last: int = END) -> dict[int, Variant]:
    """The active messages between two numbers that have variants: those of the user, and answers."""
    places = tree_of(connection, chat).places()
    found: dict[int, Variant] = {}
    for place, end in zip(places, [*(each.seq for each in places[1:]), END], strict=True):
        if place.seq > last:
            break
        behind = (chat, place.seq, max(end, place.seq + 1) if place.fork.again else 0)
        seq = connection.execute(_ANSWER, behind).get if place.fork.again else place.seq
        if seq is not None and first <= seq <= last:
            found[seq] = place.variant
    return found


_ANSWERS = """
SELECT rowid FROM messages_whole
WHERE chat_id = ?1 AND role = 'assistant' AND type = 'text' AND metadata ->> '$.turn' IN (
    SELECT turn_id FROM turns
    WHERE chat_id = ?1 AND last_seq = (SELECT last_seq FROM turns WHERE turn_id = ?2 AND chat_id = ?1))
"""


def same_place(connection: apsw.Connection, message: Message) -> list[int]:
    """Row ids of a message and of its variants: what the user said instead of it, or what else answered."""
    if message.role is Role.ASSISTANT:
        rows = connection.execute(_ANSWERS, (message.chat, str(message.metadata.get("turn"))))
        return sorted({message.rowid, *(int(rowid) for (rowid,) in rows)})
    edits = [each for each in tree_of(connection, message.chat).branches.values() if each.parent is not None]
    starts = [(each.fork, (each.before_seq, each.first_seq)) for each in edits if not each.again]
    forks = {fork for fork, seqs in starts if message.seq in seqs}
    same = {message.seq, *(seq for fork, seqs in starts if fork in forks for seq in seqs)}
    query = "SELECT rowid FROM messages WHERE chat_id = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY rowid"
    return [int(rowid) for (rowid,) in connection.execute(query, (message.chat, json.dumps(sorted(same))))]


# -- carrying out a change ---------------------------------------------------------------------------------------------

_PUT = rows.insert("branches", Branch, "chat_id", "user_id").replace("INSERT", "INSERT OR REPLACE", 1)
_HERE = f"FROM messages WHERE chat_id = ?1 AND {NOW}"
_SEGMENT = f"""
coalesce((SELECT segment {_HERE} ORDER BY seq DESC LIMIT 1),
    (SELECT segment FROM messages WHERE chat_id = ?1 AND seq = ?2), 0)
"""  # noqa: S608 - constants
_PLACE = f"""
UPDATE sessions SET branched = ?3, segment = {_SEGMENT},
    segment_start = coalesce((SELECT seq {_HERE} AND segment = {_SEGMENT} ORDER BY seq LIMIT 1), ?4)
WHERE chat_id = ?1
"""  # noqa: S608 - constants
_HIDE = "INSERT OR REPLACE INTO replaced_things (user_id, what, thing, chat_id, seq) VALUES (?, ?, ?, ?, ?)"
_SHOW = """
DELETE FROM replaced_things WHERE user_id = ?1 AND chat_id = ?2
    AND seq NOT IN (SELECT seq FROM replaced_messages WHERE chat_id = ?2)
"""


def _apply(connection: apsw.Connection, change: Change[BranchChange]) -> None:
    put, user, chat = change.value, change.user, chat_id(change.user, change.key)
    assert put is not None
    tree = tree_of(connection, chat)
    new = changed(tree, put, change.entry)
    branch = new.branches[put.branch]
    connection.execute(_PUT, {**rows.values(branch), "chat_id": chat, "user_id": user})
    # Else the index keeps the words, which a later forgetting would not find.
    connection.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('secure-delete', 1)")
    start = parting(tree.active, new.active)
    choices = _set_aside(connection, change, tree, start)
    choices |= _bring_back(connection, chat, new)
    connection.execute(_PLACE, (chat, start.before_seq, change.entry, put.last_seq + 1))
    if choices:
        messages.choose_again(connection, chat)
    connection.execute(_SHOW, (user, chat))
    connection.executemany(_HIDE, [(user, each.what, each.thing, chat, each.seq) for each in put.hidden])
    # What is being made of messages that were read before must not be stored any more.
    meta.put(connection, f"{meta.LAST_REPLACING}{user}", str(change.entry))


def _chooses(metadata: str) -> bool:
    return any(f'"{choice}":' in metadata for choice in messages.CHOICES)


_ACTIVE = f"SELECT rowid, id, topic_id, metadata FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? AND {NOW}"  # noqa: S608
_MOVE = """
INSERT INTO replaced_messages (rowid, chat_id, seq, branch, role, type, content, metadata, tokens)
SELECT rowid, chat_id, seq, ?2, role, type, content, metadata, tokens FROM messages WHERE rowid = ?1
"""
_LEAVE = """
UPDATE messages SET role = 'system', type = 'command', content = '', metadata = ?2, tokens = 0, embedded = 0,
    topic_id = NULL
WHERE rowid = ?1
"""
_MOVE_TURNS = """
INSERT OR IGNORE INTO replaced_turns (turn_id, chat_id, branch, last_seq)
SELECT turn_id, chat_id, ?2, last_seq FROM turns
WHERE chat_id = ?1 AND last_seq >= ?3 AND last_seq < ?4
    AND (last_seq BETWEEN ?5 AND ?6 OR turn_id IN (SELECT value FROM json_each(?7)))
"""


def _set_aside(connection: apsw.Connection, change: Change[BranchChange], tree: BranchTree, start: Branch) -> bool:
    """Replace what was active from where the paths part. Returns whether a choice of the user was among it."""
    put, chat, user = change.value, chat_id(change.user, change.key), change.user
    assert put is not None
    going: list[Any] = []
    for branch, end, turns_end in ends(tree.active):
        bounds = max(branch.before_seq, start.before_seq), min(end, put.last_seq + 1)
        going += [(*row, branch.branch) for row in connection.execute(_ACTIVE, (chat, *bounds))]
        turns = branch.turns_from, turns_end, start.before_seq, put.last_seq, json.dumps(put.turns)
        connection.execute(_MOVE_TURNS, (chat, branch.branch, *turns))
    _remove_summaries(connection, change, [rowid for rowid, *_ in going])
    ended = sorted({TopicId(topic) for _, _, topic, _, _ in going if topic is not None})
    people.forget_mentions(connection, user, (), ended, [message_id for _, message_id, *_ in going])
    for topic in ended:
        topics.end(connection, change, topic, None)
    for rowid, _, _, _, branch_number in going:
        messages.drop_vector(connection, rowid)
        MESSAGE.unindex(connection, rowid)
        connection.execute(_MOVE, (rowid, branch_number))
        connection.execute(_LEAVE, (rowid, replaced_mark(branch_number)))
    return any(_chooses(metadata) for _, _, _, metadata, _ in going)


_REVIVE = """
UPDATE summaries AS s SET state = 'live', changed = ?2 WHERE chat_id = ?1 AND state = 'superseded'
    AND NOT EXISTS (SELECT 1 FROM summaries AS o WHERE o.chat_id = s.chat_id AND o.segment = s.segment
        AND o.number > s.number AND o.first_seq <= s.first_seq AND o.last_seq >= s.last_seq)
"""


def _remove_summaries(connection: apsw.Connection, change: Change[Any], rowids: list[int]) -> None:
    """Remove the summaries that hold messages; those that one of them had taken the place of stand again."""
    for chat, number in summaries.covering(connection, change.user, rowids):
        summaries.remove(connection, chat, number)
        connection.execute(_REVIVE, (chat, change.entry))


_COMING = "SELECT rowid, metadata FROM replaced_messages WHERE chat_id = ? AND branch = ? AND seq < ? ORDER BY seq"
_TAKE_BACK = """
UPDATE messages SET (role, type, content, metadata, tokens) = (
    SELECT role, type, content, metadata, tokens FROM replaced_messages AS r WHERE r.rowid = messages.rowid)
WHERE rowid {which}
"""


def _bring_back(connection: apsw.Connection, chat: ChatId, tree: BranchTree) -> bool:
    """Let all that is on the path be active again. Returns whether a choice of the user was among it."""
    chosen = False
    for branch, end, turns_end in ends(tree.active):
        coming: list[Any] = connection.execute(_COMING, (chat, branch.branch, end)).fetchall()
        for rowid, metadata in coming:
            connection.execute(_TAKE_BACK.format(which="= ?"), (rowid,))
            connection.execute("DELETE FROM replaced_messages WHERE rowid = ?", (rowid,))
            messages.index_again(connection, rowid)
            chosen |= _chooses(metadata)
        own = (chat, branch.branch, turns_end)
        connection.execute("DELETE FROM replaced_turns WHERE chat_id = ? AND branch = ? AND last_seq < ?", own)
    return chosen


_ALL_BACK = """
INSERT INTO messages_fts (rowid, content, scope)
SELECT rowid, content, scope FROM messages_search WHERE rowid IN (SELECT rowid FROM replaced_messages)
"""
_LAST_SEGMENT = """
UPDATE sessions AS s SET branched = 0, segment = (SELECT max(segment) FROM messages AS m WHERE m.chat_id = s.chat_id),
    segment_start = (SELECT min(seq) FROM messages AS m WHERE m.chat_id = s.chat_id AND m.segment = (
        SELECT max(segment) FROM messages AS l WHERE l.chat_id = s.chat_id))
WHERE branched > 0
"""
_KEY = "chat_id || '#' || printf('%09d', branch)"
_THING = "user_id || '/' || what || '/' || thing AS key, chat_id, seq"
_BRANCH = f"{_KEY} AS key, user_id, parent, before_seq, again, first_seq, entry"
_MESSAGE = "rowid, chat_id, seq, branch, role, type, content, metadata, tokens"
BRANCH: Kind[BranchChange] = Kind(
    what="branch",
    plural="branches",
    cls=Branch,
    table="branches",
    id=_KEY,
    counted="chats",
    ops={"put": BranchChange},
    key=Form(chat_name, str),
    key_of=name_of,
    apply=_apply,
    clear=(
        _TAKE_BACK.format(which="IN (SELECT rowid FROM replaced_messages)"),
        _ALL_BACK,
        _LAST_SEGMENT,
        *(f"DELETE FROM replaced_{each}" for each in ("messages", "turns", "things")),  # noqa: S608 - constants
        f"DELETE FROM meta WHERE key GLOB '{meta.LAST_REPLACING}*'",  # noqa: S608 - a constant
    ),
    tables=(
        table("branches", "branches", "key", _BRANCH, first="", small=True),
        table("replaced messages", "replaced_messages", "rowid", _MESSAGE),
        table("replaced turns", "replaced_turns", "turn_id", "turn_id, chat_id, branch, last_seq", first=""),
        table("hidden things", "replaced_things", "key", _THING, first=""),
    ),
)
