"""Summaries of what left the window, and notes on its tool calls. Every question names one user or chat."""

import json
from collections.abc import Sequence
from typing import Annotated

import apsw
import attrs

from klaw.config.paths import encode_name
from klaw.convert import JOURNAL, Form, Wire
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import NewSummary, Summary, SummaryState, ToolNote, check
from klaw.errors import SummaryOutdated
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tables import full_text, index_row, table, unindex_row
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.chats import TEMPORARY
from klaw.store.kinds.messages import ChatRow

_SUMMARIES = rows.Rows(Summary, "summaries")


def live(connection: apsw.Connection, chat: ChatId, segment: int) -> list[Summary]:
    """The summaries that stand for older parts of a segment, oldest first; their ranges do not overlap."""
    query = "WHERE chat_id = ? AND segment = ? AND state = 'live' ORDER BY first_seq"
    return _SUMMARIES.all(connection, query, chat, segment)


def covered_to(connection: apsw.Connection, chat: ChatId, segment: int) -> int:
    """The last message of a segment that was ever summarised; 0 for none. The window begins after it."""
    query = "SELECT coalesce(max(last_seq), 0) FROM summaries WHERE chat_id = ? AND segment = ?"
    return int(connection.execute(query, (chat, segment)).get)


def of_chat(connection: apsw.Connection, chat: ChatId) -> list[Summary]:
    """All summaries of a chat, in whatever state, by their numbers."""
    return _SUMMARIES.all(connection, "WHERE chat_id = ? ORDER BY number", chat)


def holding(connection: apsw.Connection, chat: ChatId, segment: int, seq: int) -> Summary | None:
    """The summary that holds a message: a live one, or an evicted one."""
    query = """
    WHERE chat_id = ?1 AND segment = ?2 AND first_seq <= ?3 AND last_seq >= ?3 AND state <> 'superseded'
    ORDER BY number DESC LIMIT 1
    """
    return _SUMMARIES.one(connection, query, chat, segment, seq)


def page(connection: apsw.Connection, after: int, limit: int) -> list[tuple[int, Summary]]:
    """All users' summaries in the order in which they were made: for the writer of the Markdown copies."""
    query = f"SELECT rowid, {_SUMMARIES.columns} FROM summaries WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608
    return [(row[0], _SUMMARIES.read(row[1:])) for row in connection.execute(query, (after, limit))]


def tokens_since(connection: apsw.Connection, user: UserId, since: str) -> int:
    """Tokens that a user's summaries used since a moment, with failed attempts and summaries that are gone."""
    query = """
    SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM charges
    WHERE source = 'summary' AND user_id = ? AND ended_at >= ?
    """
    return int(connection.execute(query, (user, since)).get)


# -- for the summarizer ------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class UnsummarisedPart:
    """The part of a chat's segment that no summary holds."""

    session: ChatRow
    live: tuple[Summary, ...]
    covered_to: int
    history: tuple[Message, ...]
    """What was said and what tools did before the first unanswered question, oldest first."""
    as_of: int
    """The memory journal's last entry then."""


_END = (1 << 62) - 1
MAX_WAITING = 1_000
"""Unanswered questions that are looked at to find the first."""


def uncovered(connection: apsw.Connection, chat: ChatId, limit: int) -> UnsummarisedPart | None:
    """What could be summarised, of very much the newest ``limit`` messages. None for an unknown chat."""
    with snapshot(connection):
        session = messages.session(connection, chat)
        if session is None:
            return None
        done = max(covered_to(connection, chat, session.segment), session.segment_start - 1)
        waiting = messages.pending(connection, chat, session.segment_start, MAX_WAITING)
        end = waiting[0].seq if waiting else _END
        return UnsummarisedPart(
            session=session,
            live=tuple(live(connection, chat, session.segment)),
            covered_to=done,
            history=tuple(messages.dialogue(connection, chat, done, end, limit)),
            as_of=meta.last_entry(connection),
        )


def candidates(connection: apsw.Connection, messages_: int, limit: int) -> list[ChatId]:
    """Chats with so many messages after their last summary, and some answer, the last used first."""
    query = """
    SELECT s.chat_id FROM sessions s
    WHERE s.last_seq - s.segment_start >= ?1 AND s.last_seq - coalesce(
        (SELECT max(m.last_seq) FROM summaries m WHERE m.chat_id = s.chat_id AND m.segment = s.segment), 0) >= ?1
        AND EXISTS (SELECT 1 FROM turns t WHERE t.chat_id = s.chat_id)
    ORDER BY s.updated_at DESC LIMIT ?2
    """
    return [ChatId(row[0]) for row in connection.execute(query, (messages_, limit))]


@attrs.frozen(kw_only=True)
class SummaryFailure:
    """A chat whose last attempt failed."""

    chat: Annotated[ChatId, Wire("chat_id")]
    failures: int
    retry_at: str
    code: str


_FAILURES = rows.Rows(SummaryFailure, "summary_failures")


def failures(connection: apsw.Connection, limit: int) -> list[SummaryFailure]:
    """Chats that wait for another attempt, the earliest first."""
    return _FAILURES.all(connection, "ORDER BY retry_at LIMIT ?", limit)


# -- writing -----------------------------------------------------------------------------------------------------------


_NEXT_NUMBER = "SELECT coalesce(max(number), 0) + 1 FROM summaries WHERE chat_id = ?"
_INSERT = rows.insert("summaries", Summary, "rowid", "changed")
_SET_STATE = "UPDATE summaries SET state = ?3, changed = ?4 WHERE chat_id = ?1 AND number = ?2"


COPIES = "summaries"


def summary_key(key: tuple[ChatId, int]) -> str:
    """Chat and number as the journal has them."""
    return f"{key[0]}#{key[1]}"


def read_key(key: object) -> tuple[ChatId, int]:
    """Raises ValueError or TypeError."""
    chat, mark, number = JOURNAL.read(key, str).rpartition("#")
    if not mark or ":" not in chat or not number.isdecimal():
        raise ValueError("key is no summary's")
    return ChatId(chat), JOURNAL.read(int(number), int)


def copy_path(chat: ChatId, number: int) -> str:
    """The Markdown copy of a summary, relative to the data folder."""
    return f"{COPIES}/{encode_name(chat)}/{number:04d}.md"


_OF_SUMMARY = frozenset(attrs.fields_dict(Summary))


@attrs.frozen(kw_only=True)
class SummaryPut(NewSummary):
    """A summary that was stored, and what it did to the others of its segment."""

    number: int
    supersedes: tuple[int, ...] = ()
    """Summaries whose ranges it holds now."""
    evicts: tuple[int, ...] = ()
    """Summaries that had to make room."""
    notes: tuple[ToolNote, ...] = ()

    @property
    def summary(self) -> Summary:
        return Summary(**attrs.asdict(self, recurse=False, filter=lambda field, _: field.name in _OF_SUMMARY))


def _apply(connection: apsw.Connection, entry: Change[SummaryPut]) -> None:
    put = entry.value
    if put is None:
        remove(connection, *entry.key)
        return
    made = put.summary
    connection.execute(_INSERT, {**rows.values(made), "rowid": entry.entry, "changed": entry.entry})
    for state, numbers in ((SummaryState.SUPERSEDED, put.supersedes), (SummaryState.EVICTED, put.evicts)):
        for number in numbers:
            connection.execute(_SET_STATE, (made.chat, number, state, entry.entry))
    _insert_notes(connection, entry.entry, made, put.notes)


def remove(connection: apsw.Connection, chat: ChatId, number: int) -> None:
    connection.execute("DELETE FROM summaries WHERE chat_id = ? AND number = ?", (chat, number))
    _remove_notes(connection, chat, number)


_COVERING = """
SELECT DISTINCT s.chat_id, s.number FROM messages m
JOIN summaries s ON s.chat_id = m.chat_id AND s.segment = m.segment AND m.seq BETWEEN s.first_seq AND s.last_seq
WHERE +m.user_id = ?1 AND m.rowid IN (SELECT value FROM json_each(?2)) ORDER BY s.chat_id, s.number
"""


def covering(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> set[tuple[ChatId, int]]:
    """Chat and number of the summaries that were made of some of a user's messages."""
    found = connection.execute(_COVERING, (user, json.dumps(list(rowids))))
    return {(ChatId(chat), int(number)) for chat, number in found}


# Also a change of state is a row of a newer entry. A summary whose state changed beyond the end is in the new database
# as it was, and is compared at the swap.
_KEY = "chat_id || '#' || printf('%09d', number) AS key"
_CONTENT = f"""{_KEY}, rowid, user_id, segment, first_seq, last_seq, text, tokens, model, created_at, prompt_tokens,
    completion_tokens, state, changed,
    (SELECT json_group_array(json_array(n.rowid, n.seq, n.call_id, n.tool, n.text)) FROM tool_notes n
     WHERE n.chat_id = s.chat_id AND n.number = s.number)"""  # noqa: S608 - constants
_CHANGED = f"SELECT {_KEY} FROM summaries WHERE changed > ?"  # noqa: S608 - constants
SUMMARY: Kind[SummaryPut] = Kind(
    what="summary",
    plural="summaries",
    cls=Summary,
    table="summaries",
    id="chat_id || '#' || number",
    changed="rowid",
    ops={"put": SummaryPut, "remove": None},
    key=Form(read_key, summary_key),
    beside=("user_id", "chat_id", "number"),
    made_of=covering,
    rule=check,
    moves="they name messages by numbers that differ here",
    apply=_apply,
    tables=(
        table("summaries", "summaries s", "key", _CONTENT, first="", bound="entry", changed=_CHANGED),
        full_text("full text of tool notes", "tool_notes_fts"),
    ),
)


def put(
    tx: Transaction,
    new: NewSummary,
    *,
    supersedes: Sequence[int] = (),
    evicts: Sequence[int] = (),
    notes: Sequence[ToolNote] = (),
    as_of: int | None = None,
) -> Summary:
    """Store a summary of the oldest uncovered part of a chat's current segment, and forget the chat's failures. No two
    summaries hold the same messages, or leave one out between them.

    Args:
        new: its range begins after all summaries that it does not supersede.
        supersedes, evicts: numbers of live summaries; see ``SummaryPut``.
        as_of: the memory journal's last entry when the messages were read.

    Raises:
        SourceForgotten: the user has forgotten something since ``as_of``.
        SummaryOutdated: the segment is over, or other summaries are there than it was made from.
        StorageError: a value breaks its rule.
    """
    connection = tx.connection
    session = messages.session(connection, new.chat)
    if session is None or session.user != new.user or session.segment != new.segment:
        raise SummaryOutdated("the segment is over")
    tx.check_nothing_forgotten(new.user, as_of)
    present = {each.number: each for each in live(connection, new.chat, new.segment)}
    covered = covered_to(connection, new.chat, new.segment)
    replaced = [present.pop(number, None) for number in supersedes]
    if None in replaced or any(present.pop(number, None) is None for number in evicts):
        raise SummaryOutdated("it was made from summaries that are not there any more")
    held = [each for each in replaced if each is not None]
    first = min([new.first_seq, *(each.first_seq for each in held)])
    if (
        first != new.first_seq
        or not covered < new.last_seq <= session.last_seq
        or new.first_seq < session.segment_start
        or any(each.last_seq >= new.first_seq for each in present.values())
        or (not held and new.first_seq <= covered)
    ):
        raise SummaryOutdated("its range does not follow the summaries that are there")
    number = int(connection.execute(_NEXT_NUMBER, (new.chat,)).get)
    put = SummaryPut(
        **attrs.asdict(new, recurse=False),
        number=number,
        supersedes=tuple(supersedes),
        evicts=tuple(evicts),
        notes=tuple(notes),
    )
    SUMMARY.check(put)
    tx.journal(SUMMARY.put(new.user, (new.chat, number), put, new.created_at))
    connection.execute("DELETE FROM summary_failures WHERE chat_id = ?", (new.chat,))
    return put.summary


_PUT_FAILURE = rows.insert("summary_failures", SummaryFailure).replace("INSERT", "INSERT OR REPLACE", 1)


def note_failure(tx: Transaction, failure: SummaryFailure) -> None:
    """Remember over a restart that a chat's summary failed, and when to try again. It is not in the logs."""
    tx.connection.execute(_PUT_FAILURE, rows.values(failure))


# -- tool notes: what single tool calls brought ------------------------------------------------------------------------

MANY = 1_000
"""Notes of one summary; row ids leave room for so many."""


def _insert_notes(connection: apsw.Connection, entry: int, summary: Summary, notes: Sequence[ToolNote]) -> None:
    query = """
    INSERT INTO tool_notes (rowid, user_id, chat_id, number, seq, call_id, tool, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    """
    for place, note in enumerate(notes[:MANY]):
        rowid = entry * MANY + place
        row = (rowid, summary.user, summary.chat, summary.number, note.seq, note.call, note.tool, note.text)
        connection.execute(query, row)
        index_row(connection, "tool_notes", rowid)


def _remove_notes(connection: apsw.Connection, chat: ChatId, number: int) -> None:
    query = "SELECT rowid FROM tool_notes WHERE chat_id = ? AND number = ?"
    for (rowid,) in list(connection.execute(query, (chat, number))):
        unindex_row(connection, "tool_notes", rowid)
        connection.execute("DELETE FROM tool_notes WHERE rowid = ?", (rowid,))  # its vector goes with it


_note = rows.reader(ToolNote)


@attrs.frozen(kw_only=True)
class StoredNote:
    chat: ChatId
    note: ToolNote
    created_at: str
    """When the tool was called."""
    temporary: bool
    """In a temporary chat."""


def notes_by_rowids(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> dict[int, StoredNote]:
    """A user's notes by their row ids; what is gone, or another's, is left out."""
    query = f"""
    SELECT n.rowid, n.chat_id, m.created_at, n.chat_id IN {TEMPORARY}, n.seq, n.call_id, n.tool, n.text
    FROM json_each(?2) AS r CROSS JOIN tool_notes AS n ON n.rowid = r.value
    JOIN messages AS m ON m.chat_id = n.chat_id AND m.seq = n.seq AND m.user_id = n.user_id
    WHERE n.user_id = ?1 ORDER BY r.key
    """  # noqa: S608 - a constant
    return {
        rowid: StoredNote(chat=ChatId(chat), note=_note(note), created_at=at, temporary=bool(temporary))
        for rowid, chat, at, temporary, *note in connection.execute(query, (user, json.dumps(list(rowids))))
    }


def having_notes(connection: apsw.Connection, user: UserId, rowids: Sequence[object]) -> set[tuple[ChatId, int]]:
    """Chat and number of the summaries that a user's notes belong to."""
    query = "SELECT chat_id, number FROM tool_notes WHERE user_id = ? AND rowid IN (SELECT value FROM json_each(?))"
    return {(ChatId(chat), int(number)) for chat, number in connection.execute(query, (user, json.dumps(list(rowids))))}


NOTE: Kind[ToolNote] = Kind(
    what="tool_note",
    plural="tool notes",
    cls=ToolNote,
    table="tool_notes",
    id="rowid",
    changed="rowid",
    full_text=True,
    vectors="vec_tool_notes",
    vector_mark="vector_model",
)
