"""Answers as HTML while they grow, for connections that asked for it in hello: finished blocks once, the open one anew.

A child process of the connection renders, only while an answer grows. What takes too long is not rendered: the client
shows it as text, and asks for the HTML of the stored message.
"""

import json
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import attrs
import trio

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId, name_of
from klaw.gateway.outbox import Outbox
from klaw.wire.codec import encode
from klaw.wire.frames import RenderedFrame

EACH_S = 0.1
"""Least time between two renderings of a connection …"""
PAUSES = 6
"""… which are at least so many times as long as the last one took …"""
MOST_S = 1.0
"""… and at most this."""
ANSWER_S = 5.0
STOP_S = 2.0
MAX_CHARS = 100_000
"""Of an answer behind its last finished block."""
ROOM = 0.5
"""Nothing is rendered while more than this share of the outbox is taken."""
CHILDREN = 6
OF_USER = 2
_DEFINES = "\n["
"""What may define links or footnotes that stand in blocks before: then the stored answer is rendered as a whole."""


class RenderingPlaces:
    """How many connections render at once, in all and of one user."""

    def __init__(self) -> None:
        self._all = trio.CapacityLimiter(CHILDREN)
        self._own: defaultdict[UserId, trio.CapacityLimiter] = defaultdict(lambda: trio.CapacityLimiter(OF_USER))

    @asynccontextmanager
    async def place(self, user: UserId) -> AsyncIterator[None]:
        async with self._own[user], self._all:
            yield


class RunningText(Protocol):
    turn: str
    text: str


@attrs.define
class _GrowingAnswer:
    chat: ChatId
    turn: str
    done: str = ""
    """The text of the blocks that were sent as finished."""
    waits: bool = False
    """There is text that was not rendered yet."""
    sent: bool = False
    failed: bool = False
    stored: Message | None = None


class AnswerRenderer:
    """Renders the answers that one connection watches.

    Args:
        streamed: the running answer of a chat; None: there is none.
    """

    def __init__(
        self, user: UserId, outbox: Outbox, places: RenderingPlaces, streamed: Callable[[ChatId], RunningText | None]
    ) -> None:
        self._user, self._outbox, self._places, self._streamed = user, outbox, places, streamed
        self._growing: dict[ChatId, _GrowingAnswer] = {}
        self._stored: deque[_GrowingAnswer] = deque()
        self._wake = trio.lowlevel.ParkingLot()

    def grew(self, chat: ChatId, turn: str, offset: int) -> None:
        """The connection was sent a piece of an answer, behind ``offset`` characters."""
        answer = self._growing.get(chat)
        if answer is None or answer.turn != turn or offset < len(answer.done):
            answer = self._growing[chat] = _GrowingAnswer(chat, turn)
        answer.waits = True
        self._wake.unpark_all()

    def stored(self, message: Message) -> None:
        """The connection was sent a stored message, which may be what has grown."""
        answer = self._growing.get(message.chat)
        if answer is None or message.metadata.get("turn") != answer.turn or message.role != "assistant":
            return
        del self._growing[message.chat]
        if answer.sent and not answer.failed:
            answer.stored = message
            self._stored.append(answer)
        self._wake.unpark_all()

    def drop(self, chat: ChatId) -> None:
        """The answer of a chat has ended, or the connection is not told of it any more."""
        if self._growing.pop(chat, None) is not None:
            self._wake.unpark_all()

    async def run(self) -> None:
        """Render until cancelled."""
        while True:
            while self._next() is None:
                await self._wake.park()
            async with self._places.place(self._user):
                child = _RenderingChild()
                try:
                    await self._render_all(child)
                finally:
                    with trio.move_on_after(STOP_S, shield=True):
                        await child.stop()

    def _next(self) -> _GrowingAnswer | None:
        if self._stored:
            return self._stored[0]
        return next((each for each in self._growing.values() if each.waits and not each.failed), None)

    async def _render_all(self, child: "_RenderingChild") -> None:
        """Render until no answer grows any more."""
        while self._stored or self._growing:
            answer = self._next()
            if answer is None:
                await self._wake.park()
                continue
            begin = trio.current_time()
            await self._render(child, answer)
            pause_s = min(MOST_S, max(EACH_S, PAUSES * (trio.current_time() - begin)))
            with trio.move_on_after(pause_s):
                while not self._stored and self._growing:
                    await self._wake.park()

    async def _render(self, child: "_RenderingChild", answer: _GrowingAnswer) -> None:
        stored = answer.stored
        if stored is not None:
            self._stored.popleft()
            text = stored.content
            if not text.startswith(answer.done) or _DEFINES in text:
                answer.done = ""
        else:
            running = self._streamed(answer.chat)
            if running is None or running.turn != answer.turn or not running.text.startswith(answer.done):
                self.drop(answer.chat)
                return
            text = running.text
            self._growing[answer.chat] = self._growing.pop(answer.chat)  # the others come first now
        answer.waits = False
        offset = len(answer.done)
        made = await child.ask(text[offset:], ended=stored is not None) if len(text) - offset <= MAX_CHARS else None
        if made is None:
            answer.failed = True
        elif stored is not None or self._growing.get(answer.chat) is answer:
            self._send(answer, offset, text, *made)

    def _send(self, answer: _GrowingAnswer, offset: int, text: str, whole: int, html: str, rest: str) -> None:
        if answer.stored is None and not self._outbox.has_room(ROOM):
            answer.waits = True
            return
        chat, end = name_of(answer.chat), offset + whole
        seq = answer.stored.seq if answer.stored is not None else None
        frame = RenderedFrame(
            chat=chat, turn=answer.turn, offset=offset, end=end, html=html, rest=rest, shown=len(text), seq=seq
        )
        self._outbox.put(encode(frame), chat)
        answer.sent, answer.done = True, text[:end]


class _RenderingChild:
    """``klaw.web.child``, started when it is first asked."""

    def __init__(self) -> None:
        self._process: trio.Process | None = None

    async def ask(self, text: str, *, ended: bool) -> tuple[int, str, str] | None:
        """What ``klaw.web.markdown.growing`` makes of a text; None: it takes too long, or there is no process."""
        line = b""
        # OSError: the system has no process or no memory for it.
        with trio.move_on_after(ANSWER_S), suppress(OSError, trio.BrokenResourceError):
            line = await self._answer(json.dumps([text, ended]).encode() + b"\n")
        made: Any = json.loads(line) if line.endswith(b"\n") else None
        if not line:
            with trio.move_on_after(STOP_S, shield=True):
                await self.stop()
        return tuple(made) if made is not None else None

    async def _answer(self, question: bytes) -> bytes:
        if self._process is None:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-B", "-m", "klaw.web.child", "growing"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(question)
        line = bytearray()
        while not line.endswith(b"\n"):
            part = await self._process.stdout.receive_some(65_536)
            if not part:
                return b""
            line += part
        return bytes(line)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                await pipe.aclose()
