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

from klaw.admin import socket as admin_socket
from klaw.api.app import make_app
from klaw.api.request_auth import Api
from klaw.api.server import HttpServer
from klaw.app.app import App, running
from klaw.channels.channels import Channels
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.events import ChatEvent, HealthChanged, TurnEnded
from klaw.domain.names import UserId, chat_id
from klaw.gateway.answers import StoredOnce
from klaw.gateway.services import Services
from klaw.gateway.tokens import Authenticator, TokenTable, tokens_file
from klaw.operations.handler import OPERATOR, Listeners, Parts
from klaw.operations.perform import Call, perform
from tests.support.waiting import HANG_S

ANNA, BORIS = UserId("anna"), UserId("boris")
SETTINGS = (
    "{embedding: {enabled: false}, processing: {debounceMs: 0}, shutdown: {graceSeconds: 5}, "
    "autoRag: {timeBudgetMs: 5000}}"
)


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


def parts_of(app: App, *connections: Any) -> App:
    """The parts of a server that has these connections."""
    nobody: Any = None
    listeners = Listeners(
        connections=lambda: connections,
        http_connections=int,
        address=lambda: "127.0.0.1:8181",
        tokens=lambda: TokenTable(tokens=()),
        add_token=nobody,
        revoke=lambda _name, _of: (),
        make_code=nobody,
        check_up=nobody,
        channels=Channels(core=app.core, hub=app.hub, chats=app.chats, approvals=app.tools.approvals, voice=app.voice),
    )
    return attrs.evolve(app, listeners=listeners)


@pytest.fixture
def commands(app: App) -> Commands:
    return Commands(parts_of(app))


@asynccontextmanager
async def served(app: App, commands: Commands) -> AsyncIterator[None]:
    """The admin socket under the server's own supervisor."""

    async def never(*_: object) -> dict[str, Any]:
        raise AssertionError("there are no WebSockets")

    services = Services(
        config=app.core.config.gateway,
        chats=app.chats,
        hub=app.hub,
        auth=Authenticator(tokens_file(app.core.paths.config_dir)),
        approvals=app.tools.approvals,
        attachments=app.core.attachments,
        clock=app.core.clock,
        perform=never,
    )
    http = HttpServer(lambda: make_app(Api(core=app.core, services=services, parts=commands.parts)))
    await app.core.supervisor.start(admin_socket.spec(app.core.paths.admin_socket, http.serve_operator))
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

    def noticed(self, event: HealthChanged) -> None:
        pass


async def fail_a_turn(app: App, user: UserId, chat: str, text: str) -> None:
    """Send a message and wait until its turn has failed (there is no model)."""
    watcher = Watcher(user)
    app.hub.watch(watcher, chat_id(user, chat))
    await app.chats.send(user, chat, f"{user}-{chat}", text)
    await watcher.over.wait()
    app.hub.leave(watcher)
    await trio.testing.wait_all_tasks_blocked()
