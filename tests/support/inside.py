"""The server's real parts in the test's own process: all that ``running`` of klaw.app builds, without listeners."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from klaw.actor.clock import new_id
from klaw.app.app import App, recover_chats, running
from klaw.config.load import load
from klaw.config.paths import Paths
from klaw.domain.events import ChatEvent, HealthChanged
from klaw.domain.names import UserId, chat_id
from klaw.domain.turn import TurnRecord, TurnStatus
from klaw.gateway.answers import StoredOnce
from tests.support.waiting import HANG_S

T = TypeVar("T")


class Inside:
    """The parts, and a subscriber that wakes whoever waits."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.notices: list[HealthChanged] = []
        self._news = trio.Event()
        app.hub.join(self)

    def stored(self, stored: StoredOnce) -> None:
        self._wake()

    def happened(self, event: ChatEvent) -> None:
        self._wake()

    def noticed(self, event: HealthChanged) -> None:
        self.notices.append(event)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, found: Callable[[], T | None]) -> T:
        """Wait until ``found`` says something true; asked after every event and, for what makes none, now and then."""
        with trio.fail_after(HANG_S):
            while not (value := found()):
                with trio.move_on_after(0.05):
                    await self._news.wait()
        return value

    async def embedded(self) -> None:
        """Wait until everything that can have a vector has one."""
        self.app.memory.embedder.nudge()
        with trio.fail_after(HANG_S):
            await self.app.memory.embedder.wait_idle()

    async def send(self, text: str, chat: str = "main", user: str = "local") -> int:
        """Store a message; its seq."""
        self.app.hub.watch(self, chat_id(UserId(user), chat))
        with trio.fail_after(HANG_S):
            appended = await self.app.chats.send(UserId(user), chat, new_id(), text)
        return appended.message.seq

    async def ask(self, text: str, chat: str = "main", user: str = "local") -> TurnRecord:
        """Send a message and wait for the turn that answers it."""
        seq = await self.send(text, chat, user)
        with trio.fail_after(HANG_S):
            while True:
                news = self._news
                turn = await self.app.chats.receipt(UserId(user), chat, None)
                if turn is not None and turn.status is TurnStatus.DONE and turn.last_seq >= seq:
                    return turn
                await news.wait()


@asynccontextmanager
async def inside(home: Path) -> AsyncIterator[Inside]:
    """The parts of a home folder (``tests.support.server.write_home``), running for the body."""
    paths = Paths.resolve(home, {})
    config, _ = load(paths.config_file, {})
    async with running(config, paths) as app:
        await recover_chats(app)
        yield Inside(app)


def kept(turn: TurnRecord) -> list[int]:
    """Seqs of what a turn recalled."""
    return list(turn.receipt["recall"]["kept"])
