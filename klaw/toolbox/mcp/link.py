"""One connection's end: who notices it first says why. Needs the SDK: imported when a server connects."""

from typing import TypeAlias

import trio
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Longest message of a server. Its JSON takes up to thirty times as much memory while it is read."""

Reads: TypeAlias = ReadStream[SessionMessage | Exception]
Writes: TypeAlias = WriteStream[SessionMessage]


class Link:
    """Shared by a connection's transport, guard and session."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.reason = ""
        """Why it ended, to follow "the MCP server NAME is not connected: "."""
        self.status: int | None = None
        """The last HTTP status of 500 or more."""

        self._closing = False

    def close(self) -> None:
        """Say that Klaw ends the connection now: what follows from that is no reason."""
        self._closing = True

    def end(self, reason: str) -> None:
        """Say that the connection is over; the first reason counts."""
        if not self.ended.is_set() and not self._closing:
            self.reason = reason
            self.ended.set()
