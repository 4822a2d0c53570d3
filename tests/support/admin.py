"""A real server without its listeners, and a private folder with a short name for sockets."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from klaw.actor.supervisor import ActorSpec
from klaw.admin import socket as admin_socket
from klaw.app.app import App, running
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.events import Noticed, TurnEnded
from klaw.domain.names import UserId, chat_id
from klaw.gateway.hub import ChatEvent, StoredOnce
from klaw.operations.handler import OPERATOR, Listeners, Parts
from klaw.operations.perform import Call, perform
from tests.support.waiting import HANG_S

ANNA, BORIS = UserId("anna"), UserId("boris")
SETTINGS = "{embedding: {enabled: false}, processing: {debounceMs: 0}, shutdown: {graceSeconds: 5}}"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="klaw") as folder:
        yield Path(folder)


@pytest.fixture
async def app(home: Path) -> AsyncIterator[App]:
    """All parts but the listeners; there is no model, so every turn fails and is recorded as failed."""
    config, _ = parse(SETTINGS, {})
    with trio.fail_after(HANG_S):
        async with running(config, Paths.resolve(home, {})) as app:
            yield app


class Commands:
    """Asks operations as the admin socket does. ``parts``: of the server."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def run(self, call: Call) -> dict[str, Any]:
        return await perform(call, OPERATOR, self.parts)


def parts_of(app: App) -> App:
    """The parts of a server that nobody is connected to."""
    nobody: Any = None
    listeners = Listeners(
        connections=tuple, http_connections=int, address=lambda: "127.0.0.1:8181", access=nobody, check_up=nobody
    )
    return attrs.evolve(app, listeners=listeners)


@pytest.fixture
def commands(app: App) -> Commands:
    return Commands(parts_of(app))


@asynccontextmanager
async def served(app: App, commands: Commands) -> AsyncIterator[None]:
    """The admin socket under the server's own supervisor."""

    async def run(vitals: Any, started: Any) -> None:
        await admin_socket.run(vitals, started, path=app.core.paths.admin_socket, perform=commands.run)

    await app.core.supervisor.start(ActorSpec(name=admin_socket.ACTOR_NAME, run=run))
    yield
    await app.core.supervisor.stop(admin_socket.ACTOR_NAME, "the test is over")


class Watcher:
    """Waits for the end of a turn."""

    def __init__(self, user: UserId) -> None:
        self.user = user
        self.over = trio.Event()

    def stored(self, stored: StoredOnce) -> None:
        pass

    def happened(self, event: ChatEvent) -> None:
        if isinstance(event, TurnEnded):
            self.over.set()

    def noticed(self, event: Noticed) -> None:
        pass


async def fail_a_turn(app: App, user: UserId, chat: str, text: str) -> None:
    """Send a message and wait until its turn has failed (there is no model)."""
    watcher = Watcher(user)
    app.hub.watch(watcher, chat_id(user, chat))
    await app.chats.send(user, chat, f"{user}-{chat}", text)
    await watcher.over.wait()
    app.hub.leave(watcher)
    await trio.testing.wait_all_tasks_blocked()
