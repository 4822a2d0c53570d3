"""How much of an HTTP answer is read: it is bounded as it comes, unpacked or not, and never more is held. Apart from
``guarded_http``, whose backend loads HTTP/2: the start needs only this."""

import zlib
from collections.abc import AsyncIterable, AsyncIterator

import httpx2
import trio

from klaw.errors import ToolRefused


class BoundedBody:
    """Takes a body piece by piece and holds the beginning up to a limit, unpacked. Raises ToolRefused: it has an
    encoding that was not asked for, or is broken."""

    def __init__(self, limit: int, encoding: str = "identity") -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolRefused("The server uses a compression that was not requested.")
        self.data = bytearray()
        self._limit = limit
        self._packed = 0
        self._encoding = encoding
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding not in ("", "identity") else None

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece; False when there is more than the limit, packed or unpacked."""
        room = self._limit - len(self.data)
        piece = chunk if self._unzip is None else self._unpack(chunk, room + 1)
        self.data += piece[:room]
        self._packed += len(chunk)
        return len(piece) <= room and self._packed <= self._limit

    async def read(self, chunks: AsyncIterable[bytes]) -> bool:
        """Take pieces until the limit. Returns whether these were all. The HTTP libraries hand them out through nested
        async generators: the next read is cancelled, which unwinds them in order, not when the garbage collector likes.
        """
        fits, failure = True, None
        with trio.CancelScope() as reading:
            async for chunk in chunks:
                try:
                    fits = fits and self.feed(chunk)
                except ToolRefused as error:
                    fits, failure = False, error
                if not fits:
                    reading.cancel(reason="the rest is not read")
        if failure is not None:
            raise failure
        return fits

    def _unpack(self, chunk: bytes, most: int) -> bytes:
        assert self._unzip is not None
        try:
            return self._unzip.decompress(chunk, most)
        except zlib.error:
            if self._encoding != "deflate" or self.data:
                raise ToolRefused("The compressed page is broken.") from None
        self._unzip = zlib.decompressobj(-zlib.MAX_WBITS)  # what some servers take "deflate" for
        self._encoding = "raw"
        return self._unpack(chunk, most)


class BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer that a library reads, up to a limit; None for no limit. See ``BoundedBody.read``."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._inner = inner
        self._limit = limit
        self._size = 0
        self._chunks: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        assert self._chunks is not None
        try:
            chunk = await anext(self._chunks)
        except BaseException:  # the end is one, too
            self._chunks = None
            raise
        self._size += len(chunk)
        if self._limit is not None and self._size > self._limit:
            await self._unwind()
            # Of this class, because the SDK of MCP makes it the failure of one request and not of the connection.
            raise httpx2.StreamError(f"it is longer than {self._limit // 1024 // 1024} MB")
        return chunk

    async def aclose(self) -> None:
        await self._unwind()
        await self._inner.aclose()

    async def _unwind(self) -> None:
        chunks, self._chunks = self._chunks, None
        if chunks is None:
            return
        with trio.CancelScope() as scope:
            scope.cancel(reason="nobody reads the rest")
            while True:  # what is buffered comes without a checkpoint
                try:
                    await anext(chunks)
                except (StopAsyncIteration, httpx2.HTTPError):
                    return
