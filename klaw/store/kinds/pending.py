"""SQL of a turn's rows: what is pending in a chat and the newest of its segment, in one transaction."""

from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.message import Kind, Message
from klaw.domain.names import ChatId
from klaw.domain.summary import Summary
from klaw.domain.turn import TurnRecord, TurnStatus
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, messages, summaries, turns
from klaw.store.kinds.chats import Bound
from klaw.store.kinds.messages import Session

MAX_PENDING = 200
"""Pending messages that one turn answers; older ones of a longer queue count as answered with it."""


@attrs.frozen(kw_only=True)
class ChatRows:
    """The rows of one chat that a turn is made from."""

    session: Session
    pending: tuple[Message, ...]
    history: tuple[Message, ...]
    has_older: bool
    unfinished: tuple[Message, ...] = ()
    """Tool messages of an interrupted turn on the pending ones; ``history`` is without them."""
    summaries: tuple[Summary, ...] = ()
    """Those that stand for the segment's older part, oldest first."""
    summarised_to: int = 0
    """The last message that a summary was made of; ``history`` begins after it. 0 for none."""
    bound: Bound | None = None
    """The knowledge bases that the chat is answered from; None: none."""


def read_rows(
    connection: apsw.Connection, chat: ChatId, sliding_window: int, *, summarised: bool = False
) -> ChatRows | None:
    """Read a chat's pending messages and the newest of its segment. None when nothing is pending.

    Args:
        sliding_window: how many messages the window may show.
        summarised: summaries stand in the place of the messages that they were made of.
    """
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
    """What the next turn of a chat would read now, also while nothing is pending, unless ``only_pending``. None for an
    unknown chat.

    In the caller's snapshot.
    """
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
    newest = messages.newest_of_segment(connection, session.chat, start, wanted)
    unfinished = _unfinished(connection, newest, pending)
    elsewhere = {message.rowid for message in (*pending, *unfinished)}
    said = sum(message.type not in _TOOL_KINDS for message in newest)
    return ChatRows(
        session=session,
        pending=tuple(pending),
        history=tuple(message for message in newest if message.rowid not in elsewhere),
        has_older=bool(newest)
        and (said == wanted or len(newest) == wanted + messages.MAX_TOOL_ROWS)
        and newest[0].seq > start,
        unfinished=unfinished,
        summaries=tuple(summaries.live(connection, session.chat, session.segment)) if covered else (),
        summarised_to=covered,
        bound=chats.bound(connection, session.user, session.chat),
    )


def unanswered(connection: apsw.Connection, chat: ChatId) -> TurnRecord | bool:
    """Whether something is pending in a chat; the turn that failed at it, if that was the last one."""
    with snapshot(connection):
        session = messages.session(connection, chat)
        if session is None or not messages.pending(connection, chat, session.segment_start, 1):
            return False
        last = turns.last(connection, chat)
    return last if last is not None and last.status is TurnStatus.FAILED else True


_TOOL_KINDS = (Kind.TOOL_CALL, Kind.TOOL_RESULT)


def _unfinished(
    connection: apsw.Connection, newest: Sequence[Message], pending: Sequence[Message]
) -> tuple[Message, ...]:
    """Tool messages behind the first pending message whose turn failed or was interrupted. Those of a finished turn can
    stand there too: a question that came in while its tools ran."""
    tools = [m for m in newest if pending and m.seq > pending[0].seq and m.type in _TOOL_KINDS]
    ids = {str(message.metadata.get("turn")) for message in tools}
    ended = turns.over(connection, ids) if ids else set()
    return tuple(message for message in tools if message.metadata.get("turn") not in ended)
