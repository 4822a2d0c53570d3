"""Lines out of the bytes that a server process writes, bounded. Pure.

A line that is too long is skipped without being kept. Its beginning and end remain: they usually tell which request it
answers, so that only this one fails.
"""

import re
from collections.abc import Iterator

import attrs

EDGE_BYTES = 256
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,15})'
_AT_BEGIN = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_AT_END = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")


@attrs.frozen
class TooLong:
    """A line over the limit; ``answers`` is the id of the request that it answers, if that can be told."""

    answers: int | None


class Lines:
    """Cuts a stream of bytes into lines.

    Args:
        limit: longest line in bytes, without its end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._skipped = 0
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """Take the next bytes; yield the lines that they complete."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if not self._skipped and len(self._kept) + len(piece) <= self._limit:
            self._kept += piece
            return
        if not self._skipped:
            self._tail = bytes(self._kept[-EDGE_BYTES:])
            self._kept += piece[: max(0, EDGE_BYTES - len(self._kept))]
            del self._kept[EDGE_BYTES:]
            self._skipped = 1
        self._tail = (self._tail + piece)[-EDGE_BYTES:]

    def _take(self) -> bytes | TooLong:
        line: bytes | TooLong = TooLong(self._answers()) if self._skipped else bytes(self._kept)
        self._kept, self._skipped, self._tail = bytearray(), 0, b""
        return line

    def _answers(self) -> int | None:
        found = _AT_BEGIN.match(bytes(self._kept)) or _AT_END.search(self._tail)
        return int(found[1]) if found else None
