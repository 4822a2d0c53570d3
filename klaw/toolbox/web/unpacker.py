"""Unpacking what a server packed, within a cap. Pure."""

import zlib

from klaw.errors import ToolRefused


class Unpacker:
    """Unpacks a body piece by piece, never more than the cap, however much a piece would give.

    Raises:
        ToolRefused: of an encoding that was not asked for, or broken.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolRefused("The server packs the page in a way that was not asked for.")
        self._limit = limit
        self._encoding = encoding
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding not in ("", "identity") else None
        self._chunks: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        return b"".join(self._chunks)

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece; False when there is more than the cap."""
        room = self._limit - self._size
        piece = chunk if self._unzip is None else self._unpack(chunk, room + 1)
        self._chunks.append(piece[:room])
        self._size += min(len(piece), room)
        return len(piece) <= room

    def _unpack(self, chunk: bytes, most: int) -> bytes:
        assert self._unzip is not None
        try:
            return self._unzip.decompress(chunk, most)
        except zlib.error:
            if self._encoding != "deflate" or self._size:
                raise ToolRefused("The page is packed, and broken.") from None
        self._unzip = zlib.decompressobj(-zlib.MAX_WBITS)  # what some servers take "deflate" for
        self._encoding = "raw"
        return self._unpack(chunk, most)
