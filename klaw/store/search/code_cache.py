"""The codes of the chats in use, kept in memory: fetching those of a long chat takes longer than comparing them.

Records are only ever appended to a chat's blocks, so what is kept stays true, and what came since is added to it. Where
records are overwritten (``vector_codes.erase``) or made again the codes get another generation, and nothing of the old
one is used or kept.
"""

import threading
from collections import OrderedDict

import apsw
import attrs
import numpy as np
import numpy.typing as npt

from klaw.store.search.vector_quantizer import Records

GROWTH = 1.25
"""Room for what comes, so that a message does not copy its whole chat."""

_BLOCKS = "SELECT block, used FROM vec_blocks WHERE chat_key = ? ORDER BY block"


@attrs.define(eq=False)
class _Chat:
    """One chat's records, in the order of their blocks."""

    room: npt.NDArray[np.uint8]
    filled: int = 0
    """Bytes. What is behind them may be written any time."""


class CodeCache:
    """Codes by chat, those that were used last. Shared by all readers' threads.

    Args:
        max_bytes: in all; a chat that alone takes more is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._generation = ""
        self._chats: OrderedDict[int, _Chat] = OrderedDict()

    def records(
        self, connection: apsw.Connection, generation: str, chat_key: int, kind: np.dtype[np.void]
    ) -> Records | None:
        """A chat's records as the connection's snapshot has them; None when they are too many to be kept.

        Args:
            connection: a read-only one, within a transaction in which ``generation`` was read.
            generation: of the codes.
            chat_key: the chat.
            kind: of a record.

        Raises:
            apsw.Error: a block is damaged.
        """
        blocks = [(block, used * kind.itemsize) for block, used in connection.execute(_BLOCKS, (chat_key,))]
        size = sum(used for _, used in blocks)
        if size * GROWTH > self._max_bytes:
            return None
        chat = self._kept(generation, chat_key)
        if chat is None:
            chat = _Chat(np.empty(int(size * GROWTH), np.uint8), size)
            _read(connection, blocks, 0, chat.room[:size])
            self._put(generation, chat_key, chat)
        elif chat.filled < size:
            begin = chat.filled
            own = np.empty(size - begin, np.uint8)
            _read(connection, blocks, begin, own)
            chat = self._extended(chat, begin, own)
            self._put(generation, chat_key, chat)
        return chat.room[:size].view(kind)

    def _kept(self, generation: str, chat_key: int) -> _Chat | None:
        with self._lock:
            if generation != self._generation:
                self._generation = generation
                self._chats.clear()
            if chat_key in self._chats:
                self._chats.move_to_end(chat_key)
            return self._chats.get(chat_key)

    def _put(self, generation: str, chat_key: int, chat: _Chat) -> None:
        with self._lock:
            if generation == self._generation:
                self._chats[chat_key] = chat
                self._chats.move_to_end(chat_key)
                while sum(len(each.room) for each in self._chats.values()) > self._max_bytes:
                    self._chats.popitem(last=False)

    def _extended(self, chat: _Chat, begin: int, own: npt.NDArray[np.uint8]) -> _Chat:
        """A chat with records behind its first ``begin`` bytes; others may be reading those, or have come before."""
        end = begin + len(own)
        with self._lock:
            if end > len(chat.room):
                grown = np.empty(int(end * GROWTH), np.uint8)
                grown[:begin] = chat.room[:begin]
                chat = _Chat(grown)
            chat.room[begin:end] = own  # the same as what is there, if another thread was quicker
            chat.filled = max(chat.filled, end)
            return chat


def _read(connection: apsw.Connection, blocks: list[tuple[int, int]], begin: int, into: npt.NDArray[np.uint8]) -> None:
    """Read what follows the first ``begin`` bytes of a chat's blocks."""
    done = 0
    for block, used in blocks:
        if begin >= used:
            begin -= used
            continue
        with connection.blob_open("main", "vec_block_data", "records", block, False) as blob:
            if blob.length() < used:
                raise apsw.CorruptError("a block of vector codes is too short")
            blob.seek(begin)
            blob.read_into(into.data, done, used - begin)
        done, begin = done + used - begin, 0
