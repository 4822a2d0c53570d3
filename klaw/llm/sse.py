"""Server-sent events: bytes in, the data of each event out. Pure.

httpx2 has an ``EventSource``, but it is a chain of async generators that an over-long event leaves half-way; their
clean-up then runs in the garbage collector. Bytes that are pushed into a decoder have no such end.
"""

import re
from collections.abc import Iterator

from klaw.errors import ProviderMalformed

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Feed it chunks, cut anywhere. Only ``data`` counts; comments and other fields are skipped.

    An event that the end of the stream cuts off is dropped, as the standard says.

    Args:
        max_event_bytes: longest event, so that a line without an end cannot fill the memory.
        max_lines: of the whole stream, blank ones too: a line costs more than its bytes.
    """

    def __init__(self, max_event_bytes: int, max_lines: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._lines_left = max_lines
        self._line: list[bytes] = []
        """Parts of the line that has not ended."""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Take the next bytes and give the data of each event that they complete. The result must be exhausted.

        Bytes that are no UTF-8 become replacement characters.

        Raises:
            ProviderMalformed: an event is too long, or there are too many lines.
        """
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF whose first half ended the line
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        self._lines_left -= len(ended)
        if self._lines_left < 0:
            raise ProviderMalformed("the LLM provider's answer has too many lines")
        for part in ended:
            self._grow(part)
            line = b"".join(self._line)
            self._line.clear()
            yield from self._take(line)
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_event_bytes:
            raise ProviderMalformed(f"the LLM provider sent an event of more than {self._max_event_bytes} bytes")
        if part:
            self._line.append(part)

    def _take(self, line: bytes) -> Iterator[str]:
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        if not line:
            data, self._data, self._size = self._data, [], 0
            if data:
                yield b"\n".join(data).decode("utf-8", "replace")
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        else:
            self._size -= len(line)
