"""What waits to be written to one client: bounded, with pieces of the same answer joined."""

from collections import deque
from collections.abc import Callable

import attrs
import trio

from klaw.wire.codec import encode
from klaw.wire.frames import Delta, ThinkingFrame

MAX_CHARS = 4_000_000
"""Characters that may wait for one client: bounds the memory of one that asks for pages and never reads."""
MAX_CONTROL_BYTES = 1024
AT_ONCE_CHARS = 16_384
"""Characters that are taken at once, at least, if they are there."""


@attrs.define
class _JoinedDeltas:
    chat: str
    turn: str
    offset: int
    length: int
    texts: list[str]
    frame: type[Delta | ThinkingFrame]

    def __len__(self) -> int:
        return self.length

    def encode(self) -> str:
        return encode(self.frame(chat=self.chat, turn=self.turn, offset=self.offset, text="".join(self.texts)))


@attrs.define(eq=False)
class Outbox:
    """A bounded first-in first-out queue of encoded frames.

    Filled by the session's tasks and by the hub, which never wait: one that finds it full calls ``on_full``, which
    drops the client. Only the catch-up waits for room.

    Args:
        capacity: frames that may wait.
        max_chars: characters that may wait; one frame always may.
        send_now: sends a frame as far as it can without waiting; returns the bytes that are left.
    """

    capacity: int
    _on_full: Callable[[], None] | None
    _send_now: Callable[[str], bytes] | None = None
    _max_chars: int = MAX_CHARS
    _chars: int = attrs.field(default=0, init=False)
    high_water: int = attrs.field(default=0, init=False)
    _frames: deque[str | _JoinedDeltas] = attrs.field(factory=deque, init=False)
    _open_pieces: dict[str, _JoinedDeltas] = attrs.field(factory=dict, init=False)
    """The last queued frame of each chat, if it is a delta."""
    _control: bytes = attrs.field(default=b"", init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _takers: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    @property
    def depth(self) -> int:
        return len(self._frames)

    def put(self, text: str, chat: str | None = None, *, alone: bool = False) -> None:
        """Queue an encoded frame, of a chat if it is one of its stream. A closed outbox drops it.

        One that mostly comes ``alone`` is sent at once, without waking the writer, if that waits for nothing else.
        """
        if chat is not None:
            self._open_pieces.pop(chat, None)
        if alone and self._takers and not self._closed and self._send_now is not None:
            self._control = self._send_now(text)  # nothing was queued, or the writer would not wait
            if self._control:
                self._takers.unpark()
        else:
            self._append(text)

    def put_delta(
        self, chat: str, turn: str, offset: int, text: str, frame: type[Delta | ThinkingFrame] = Delta
    ) -> None:
        """Queue a piece of an answer, or of thinking, joined to the piece before it if that still waits."""
        pieces = self._open_pieces.get(chat)
        joins = pieces is not None and (pieces.turn, pieces.frame) == (turn, frame)
        if pieces is not None and joins and pieces.offset + pieces.length == offset:
            if self._chars + len(text) > self._max_chars:
                self._overflow()
                return
            pieces.texts.append(text)
            pieces.length += len(text)
            self._chars += len(text)
        else:
            self._open_pieces[chat] = pieces = _JoinedDeltas(chat, turn, offset, len(text), [text], frame)
            self._append(pieces)

    def has_room(self, share: float = 1.0) -> bool:
        return len(self._frames) < max(1, int(self.capacity * share)) and self._chars < self._max_chars * share

    async def wait_for_room(self, share: float) -> None:
        await trio.lowlevel.checkpoint()
        while not self.has_room(share):
            await self._room.park()

    def interrupt(self, data: bytes) -> None:
        """Have a control frame sent before all that waits, also by a closed outbox. Those that nobody takes are
        dropped: a peer may ask for pongs and not read them."""
        if len(self._control) + len(data) <= MAX_CONTROL_BYTES:
            self._control += data
            self._takers.unpark()

    async def take(self) -> list[str | bytes] | None:
        """What is to be sent next, several frames if they are short; None once it is closed and empty."""
        if self._frames or self._control or self._closed:
            await trio.lowlevel.checkpoint()
        while not (self._frames or self._control):
            if self._closed:
                return None
            await self._takers.park()
        taken: list[str | bytes] = []
        if self._control:
            taken.append(self._control)
            self._control = b""
        chars = 0
        while self._frames and chars < AT_ONCE_CHARS:
            frame = self._frames.popleft()
            chars += len(frame)
            if isinstance(frame, _JoinedDeltas):
                if self._open_pieces.get(frame.chat) is frame:
                    del self._open_pieces[frame.chat]
                frame = frame.encode()
            taken.append(frame)
        self._chars -= chars
        self._room.unpark_all()
        return taken

    def close(self, *, clear: bool = False) -> None:
        """Accept nothing more; what is queued can still be taken, unless cleared."""
        self._closed = True
        self._on_full = self._send_now = None  # they refer to who made this outbox
        if clear:
            self._frames.clear()
            self._chars = 0
            self._room.unpark_all()
        self._takers.unpark_all()

    def _append(self, frame: str | _JoinedDeltas) -> None:
        length = len(frame)
        if self._closed:
            return
        if len(self._frames) >= self.capacity or (self._frames and self._chars + length > self._max_chars):
            self._overflow()
            return
        self._frames.append(frame)
        self._chars += length
        self.high_water = max(self.high_water, len(self._frames))
        self._takers.unpark()

    def _overflow(self) -> None:
        if self._on_full is not None:
            self._on_full()
