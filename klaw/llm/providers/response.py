"""Reads one HTTP response, which is bounded in bytes, lines and time, also since the last piece of content: a provider
may be broken or hostile. Comments, blank lines and empty deltas are no content.

httpx2's ``EventSource`` is a chain of async generators that an over-long event leaves half-way.
"""

import re
from collections.abc import Iterator

import httpx2
import trio

from klaw.bounded_body import BoundedBody
from klaw.llm.errors import ProviderMalformed, ProviderTimeout
from klaw.llm.providers.dialect import Assembly
from klaw.llm.types import Completion, Delta, OnDelta

AFTER_DONE_S = 0.5
"""For a response that stays open behind its end; then the connection is not reused."""
MAX_EVENT_BYTES = 12 * 1024 * 1024
"""A picture is one event."""
MAX_IDLE_BYTES = MAX_EVENT_BYTES + 1024 * 1024
"""Between two pieces of content. A living provider sends some bytes every few seconds."""
MAX_STRAY_BYTES = 8 * 1024
"""Kept of what stands outside of events: it may say why there are none."""
MAX_LINES = 1_000_000
"""The longest answers have two or three lines for each of 128,000 tokens."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Some hundred bytes around each token are usual."""
CHUNK_COST = 256
"""A million chunks of a byte cost more than a megabyte."""
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class AnswerReader:
    """Reads one response into an assembly and passes deltas on. No loop over it breaks: see ``BoundedBody.read``."""

    def __init__(self, assembly: Assembly, on_delta: OnDelta, idle_s: float) -> None:
        self.begun = False
        self._events = EventDecoder(MAX_EVENT_BYTES, MAX_LINES)
        self.assembly = assembly
        self._on_delta = on_delta
        self._idle_s = idle_s
        self._failure: Exception | None = None
        self._received = 0
        self._content_at = 0

    async def read_events(self, response: httpx2.Response) -> None:
        reading = trio.CancelScope(deadline=trio.current_time() + self._idle_s)
        try:
            with reading:
                async for chunk in response.aiter_raw():
                    self._feed(chunk, reading)
        except httpx2.TransportError:
            if not self.assembly.complete:  # else all that is lost is the end of the response
                raise
        if reading.cancelled_caught and self._failure is None and not self.assembly.complete:
            self._failure = ProviderTimeout(f"the LLM provider sent no part of an answer for {self._idle_s:g} s")

    async def read_lines(self, response: httpx2.Response) -> None:
        self._events = LineDecoder(MAX_EVENT_BYTES, MAX_LINES)
        await self.read_events(response)

    def _feed(self, chunk: bytes, reading: trio.CancelScope) -> None:
        content = self.assembly.size
        self._received += len(chunk) + CHUNK_COST
        self._take(d for name, data in self._events.feed(chunk) for d in self.assembly.feed_event(data, name))
        if self.assembly.size > content:
            self._content_at = self._received
            reading.deadline = trio.current_time() + self._idle_s
        if self._failure is None and self._received - self._content_at > MAX_IDLE_BYTES:
            self._failure = ProviderMalformed(f"the LLM provider sent {MAX_IDLE_BYTES} bytes without any content")
        elif self._failure is None and self._received > MAX_STREAM_BYTES:
            self._failure = ProviderMalformed(f"the LLM provider's answer took more than {MAX_STREAM_BYTES} bytes")
        if self._failure is not None:
            reading.cancel(reason="the answer is unusable")
        elif self.assembly.done:
            reading.deadline = trio.current_time() + AFTER_DONE_S

    async def read_whole(self, response: httpx2.Response) -> None:
        body = BoundedBody(MAX_EVENT_BYTES)
        if await body.read(response.aiter_raw()):
            self._take(self.assembly.feed_whole(bytes(body.data)))
        else:
            self._failure = ProviderMalformed(f"the LLM provider's answer is longer than {MAX_EVENT_BYTES} bytes")

    def completion(self) -> Completion:
        self._take(self.assembly.finish(self._events.rest()))
        if self._failure is not None:
            raise self._failure
        return self.assembly.completion()

    def _take(self, deltas: Iterator[Delta]) -> None:
        if self._failure is not None:
            return
        try:
            for delta in deltas:
                self.begun = True
                self._on_delta(delta)
        except Exception as error:  # noqa: BLE001 - noted here, raised by completion() when the generators are unwound
            self._failure = error


class EventDecoder:
    """Server-sent events: chunks of bytes in, name and data of each event out. Comments and other fields are skipped.
    An event that the end of the stream cuts off is dropped, as the standard says; see ``rest``."""

    def __init__(self, max_event_bytes: int, max_lines: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._lines_left = max_lines
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""
        self._stray: list[bytes] = []
        self._stray_left = MAX_STRAY_BYTES
        self._size = 0
        self._after_cr = False
        self._first = True

    def rest(self) -> str:
        """What came outside of whole events, without comments."""
        last = b"".join(self._line).removeprefix(b"data:")
        return b"\n".join([*self._stray, *self._data, last])[: 2 * MAX_STRAY_BYTES].decode("utf-8", "replace")

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """The result must be exhausted. Bytes that are no UTF-8 become replacement characters. Raises
        ProviderMalformed: an event is too long, or there are too many lines."""
        if not chunk:
            return
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF whose first half ended the line
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

    def _take(self, line: bytes) -> Iterator[tuple[str, str]]:
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        if not line:
            data, self._data, self._size = self._data, [], 0
            name, self._name = self._name, ""
            if data:
                yield name, b"\n".join(data).decode("utf-8", "replace")
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        else:
            self._size -= len(line)
            if field == b"event":
                self._name = value.strip()[:64].decode("utf-8", "replace")
            elif field == b"error":  # llama.cpp
                self._name = "error"
                self._data.append(value.strip())
            elif line[:1] in b'{}[]" \t' and len(line) <= self._stray_left:
                self._stray.append(line)
                self._stray_left -= len(line)


class LineDecoder(EventDecoder):
    """Lines of JSON in place of events."""

    def _take(self, line: bytes) -> Iterator[tuple[str, str]]:
        self._size = 0
        if line.strip():
            yield "", line.decode("utf-8", "replace")
