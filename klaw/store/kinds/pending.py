"""What a turn reads of a chat: what is pending and the newest of its segment, in one transaction."""

from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.forget import FORGOTTEN
from klaw.domain.message import CLIENT_CALLS, Message, MessageKind, TurnRecord, TurnStatus
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary
from klaw.store import rows
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, messages, summaries, turns
from klaw.store.kinds.chats import BoundBases
from klaw.store.kinds.messages import ChatRow

MAX_PENDING = 200
"""Pending messages that one turn answers; older ones count as answered with it."""


@attrs.frozen(kw_only=True)
class ChatRows:
    """The rows of one chat that a turn is made from."""

    session: ChatRow
    pending: tuple[Message, ...]
    history: tuple[Message, ...]
    has_older: bool
    unfinished: tuple[Message, ...] = ()
    """Tool messages of an interrupted turn on the pending ones; not in ``history``."""
    summaries: tuple[Summary, ...] = ()
    """Those that stand for the segment's older part, oldest first."""
    summarised_to: int = 0
    """The last message that a summary was made of; ``history`` begins after it. 0 for none."""
    bound: BoundBases | None = None
    temporary: bool = False
    waits: bool = False
    """A program is to send the results of its own tools for the newest of the pending messages."""

    def record(self, **own: Any) -> TurnRecord:
        """The turn on the pending messages; ``own``: the other fields."""
        return TurnRecord(
            chat=self.session.chat,
            user=self.session.user,
            segment=self.session.segment,
            first_seq=self.pending[0].seq,
            last_seq=self.pending[-1].seq,
            **own,
        )


MAX_CLIENT_CALLS = 100
MAX_ROUND_ROWS = 10_000
"""Rows behind a question among which its newest calls are looked for."""
MAX_TOOL_ROWS = 400
"""Tool calls and results that are read along with the dialogue."""


def newest_of_segment(connection: apsw.Connection, chat: ChatId, segment_start: int, limit: int) -> list[Message]:
    """The newest ``limit`` messages that were said in a segment, with the tool messages among them, oldest first."""
    query = f"""
    WHERE chat_id = ?1 AND role <> 'system' AND type NOT IN ('command', 'session_break')
        AND seq >= coalesce(
            (SELECT min(seq) FROM (
                SELECT seq FROM messages
                WHERE chat_id = ?1 AND seq >= ?2 AND role <> 'system' AND type IN ('text', 'scheduled')
                ORDER BY seq DESC LIMIT ?3)),
            ?2)
    ORDER BY seq DESC LIMIT ?3 + {MAX_TOOL_ROWS}
    """  # noqa: S608 - constant columns
    return messages.MESSAGES.all(connection, query, chat, segment_start, limit)[::-1]


def shown(connection: apsw.Connection, chat: ChatId, limit: int, *, oldest: bool = False) -> list[Message]:
    """The newest messages of a chat, or its ``oldest``, that a client of another protocol has seen or sent, oldest
    first: also what an answer said before it called tools, and what is forgotten."""
    query = f"""
    WHERE chat_id = ? AND (role IN ('user', 'assistant') AND type IN ('text', 'command')
        OR type = 'tool_call' AND (content <> '' OR metadata ->> '$.client_calls' IS NOT NULL)
        OR type = 'command' AND (metadata ->> '$.command' IS NOT NULL OR metadata ->> '$.forgotten' IS NOT NULL))
    ORDER BY seq {"ASC" if oldest else "DESC"} LIMIT ?
    """
    found = messages.MESSAGES.all(connection, query, chat, limit)
    return found if oldest else found[::-1]


def of_answer(connection: apsw.Connection, chat: ChatId, seq: int, word: str, key: str) -> list[Message]:
    """Messages behind a question, also replaced ones, that are not forgotten and have ``key`` as ``word`` of their
    metadata, oldest first."""
    query = f"""
    WHERE chat_id = ?1 AND seq > ?2 AND seq <= ?2 + {MAX_ROUND_ROWS} AND metadata ->> ?3 = ?4
        AND metadata ->> '$.{FORGOTTEN}' IS NULL AND {messages.NOW} ORDER BY seq
    """
    return messages.WHOLE.all(connection, query, chat, seq, f"$.{word}", key)


def client_calls(connection: apsw.Connection, user: UserId) -> list[Message]:
    """The newest calls that turns of a user handed over to programs, the newest first."""
    query = f"""
    SELECT {rows.columns(Message, "m")} FROM turns t JOIN messages m ON m.chat_id = t.chat_id AND m.type = 'tool_call'
        AND m.seq BETWEEN t.last_seq AND t.last_seq + {MAX_ROUND_ROWS} AND m.metadata ->> '$.turn' = t.turn_id
    WHERE t.user_id = ? AND t.status = 'waiting' AND t.{turns.NOW} AND m.metadata ->> '$.client_calls' IS NOT NULL
    ORDER BY t.rowid DESC LIMIT {MAX_CLIENT_CALLS}
    """  # noqa: S608 - constant columns
    return [messages.MESSAGES.read(row) for row in connection.execute(query, (user,))]


def pending_chats(connection: apsw.Connection, since: str) -> list[ChatId]:
    """Chats with a user message since then that no turn has dealt with."""
    query = f"""
    SELECT s.chat_id FROM sessions s
    WHERE s.updated_at >= ?1 AND EXISTS (
        SELECT 1 FROM messages m
        WHERE m.chat_id = s.chat_id AND m.seq >= s.segment_start
            AND m.seq > coalesce((
                SELECT max(t.last_seq) FROM turns t
                WHERE t.chat_id = s.chat_id AND t.status IN ('done', 'stopped') AND t.{turns.NOW}), 0)
            AND m.role = 'user' AND m.type = 'text' AND m.created_at >= ?1 AND m.{messages.HERE})
    ORDER BY s.updated_at
    """  # noqa: S608 - a constant
    return [ChatId(row[0]) for row in connection.execute(query, (since,))]


def read_rows(
    connection: apsw.Connection, chat: ChatId, sliding_window: int, *, summarised: bool = False
) -> ChatRows | None:
    """A chat's pending messages and the newest of its segment, at most ``sliding_window``; ``summarised``: summaries
    stand for older ones. None when nothing is pending."""
    with snapshot(connection):
        return read_next(connection, chat, sliding_window, summarised=summarised, only_pending=True)


def read_next(
    connection: apsw.Connection,
    chat: ChatId,
    sliding_window: int,
    *,
    summarised: bool = False,
    only_pending: bool = False,
) -> ChatRows | None:
    """What the next turn of a chat would read now, with ``only_pending`` None while nothing is pending; None for an
    unknown chat. In the caller's snapshot."""
    session = messages.session(connection, chat)
    if session is None:
        return None
    pending = messages.pending(connection, chat, session.segment_start, MAX_PENDING)
    if only_pending and not pending:
        return None
    covered = summaries.covered_to(connection, session.chat, session.segment) if summarised else 0
    start = max(session.segment_start, covered + 1)
    # One more than the window shows, to know whether the segment has older ones.
    wanted = sliding_window + len(pending) + 1
    newest = newest_of_segment(connection, session.chat, start, wanted)
    unfinished = _unfinished(connection, pending)
    elsewhere = {message.rowid for message in (*pending, *unfinished)}
    said = sum(message.type not in _TOOL_KINDS for message in newest)
    results = {message.metadata.get("call") for message in unfinished}
    open_calls = {call for message in unfinished for call in message.metadata.get(CLIENT_CALLS, ())} - results
    last = turns.last(connection, session.chat) if open_calls else None
    return ChatRows(
        session=session,
        pending=tuple(pending),
        history=tuple(message for message in newest if message.rowid not in elsewhere),
        has_older=bool(newest) and (said == wanted or len(newest) == wanted + MAX_TOOL_ROWS) and newest[0].seq > start,
        unfinished=unfinished,
        summaries=tuple(summaries.live(connection, session.chat, session.segment)) if covered else (),
        summarised_to=covered,
        bound=chats.bound(connection, session.user, session.chat),
        temporary=chats.is_temporary(connection, session.chat),
        waits=last is not None and last.status is TurnStatus.WAITING and last.last_seq == pending[-1].seq,
    )


def unanswered(connection: apsw.Connection, chat: ChatId) -> TurnRecord | bool:
    """Whether something is pending in a chat; the turn that failed at it, or waits, if that was the last one."""
    with snapshot(connection):
        session = messages.session(connection, chat)
        if session is None or not messages.pending(connection, chat, session.segment_start, 1):
            return False
        last = turns.last(connection, chat)
    return last if last is not None and last.status in (TurnStatus.FAILED, TurnStatus.WAITING) else True


_TOOL_KINDS = (MessageKind.TOOL_CALL, MessageKind.TOOL_RESULT)


def _unfinished(connection: apsw.Connection, pending: Sequence[Message]) -> tuple[Message, ...]:
    """Tool messages behind the first pending message whose turn failed or was interrupted. Those of a finished turn can
    stand there too: a question that came in while its tools ran."""
    query = "WHERE chat_id = ? AND seq > ? AND type IN ('tool_call', 'tool_result') ORDER BY seq LIMIT ?"
    where = (pending[0].chat, pending[0].seq, MAX_ROUND_ROWS) if pending else None
    tools = messages.MESSAGES.all(connection, query, *where) if where else []
    ids = {str(message.metadata.get("turn")) for message in tools}
    ended = turns.over(connection, ids) if ids else set()
    return tuple(message for message in tools if message.metadata.get("turn") not in ended)
