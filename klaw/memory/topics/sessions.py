"""From a user's messages without a topic to chunks that one question to the splitter is about. Pure.

A session is what a user said, in all chats, without a pause. It is stale, so that nothing can join it any more, after a
pause or at a number of messages. A chunk is the part of a stale session, or of a piece of it, that was said in one
chat: a topic never mixes chats, and two chats that were used in turns become two chunks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from klaw.domain.names import ChatId


@attrs.frozen(kw_only=True)
class Row:
    """What chunking needs to know of a message."""

    rowid: int
    chat: ChatId
    created_s: float
    """Unix seconds, of whatever the clock said then."""
    said: bool
    """The user or the assistant said it; else it is a call of a tool or its result."""


ChunkKey: TypeAlias = tuple[ChatId, int]
"""Chat and row id of the first message: the same as long as the chunk waits."""


@attrs.frozen(kw_only=True)
class Chunk:
    """Messages of one chat, in their order; never empty."""

    chat: ChatId
    rowids: tuple[int, ...]
    speaks: bool
    """Somebody said something in it; else there is nothing to ask a model about."""

    @property
    def key(self) -> ChunkKey:
        return self.chat, self.rowids[0]


@attrs.frozen(kw_only=True)
class Cut:
    """What became of a page of messages."""

    chunks: tuple[Chunk, ...]
    """The oldest first."""
    open_since: float | None
    """When the last message of the session was said that is not stale yet; None when there is none."""


def cut(rows: Sequence[Row], now: float, pause_s: float, max_messages: int, *, more: bool) -> Cut:
    """Cut a user's messages into the chunks of the sessions that are over.

    Args:
        rows: without a topic, in the order of their row ids.
        now: Unix seconds.
        pause_s: a pause of so long ends a session.
        max_messages: so many messages end it as well.
        more: these are not all messages; the last session goes on beyond them.
    """
    chunks: list[Chunk] = []
    open_since = None
    for session in _sessions(rows, pause_s):
        is_last = session[-1] is rows[-1]
        closed = not is_last or (not more and _apart(session[-1].created_s, now) >= pause_s)
        for start in range(0, len(session), max_messages):
            piece = session[start : start + max_messages]
            if closed or len(piece) == max_messages:
                chunks += _by_chat(piece)
            elif not more:
                open_since = piece[-1].created_s
    return Cut(chunks=tuple(chunks), open_since=open_since)


def _sessions(rows: Sequence[Row], pause_s: float) -> list[list[Row]]:
    sessions: list[list[Row]] = [[rows[0]]] if rows else []
    for before, row in pairwise(rows):
        if _apart(before.created_s, row.created_s) >= pause_s:
            sessions.append([])
        sessions[-1].append(row)
    return sessions


def _apart(one: float, other: float) -> float:
    """A clock that was set back must not keep a session open until it has caught up."""
    return abs(other - one)


def _by_chat(rows: Sequence[Row]) -> list[Chunk]:
    of: dict[ChatId, list[Row]] = {}
    for row in rows:
        of.setdefault(row.chat, []).append(row)
    return [
        Chunk(chat=chat, rowids=tuple(row.rowid for row in own), speaks=any(row.said for row in own))
        for chat, own in of.items()
    ]
