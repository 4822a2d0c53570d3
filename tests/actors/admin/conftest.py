"""A real server without its listeners, and a private folder with a short name for sockets."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest
import trio

import klaw.app.serve
from klaw.admin.commands import Commands, Sources
from klaw.app.app import App, running
from klaw.config.load import parse
from klaw.config.paths import Paths
from tests.support.waiting import HANG_S

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


@pytest.fixture
def sources(app: App) -> Sources:
    return sources_of(app)


def sources_of(app: App) -> Sources:
    """What the commands read, of a server without listeners."""
    return attrs.evolve(klaw.app.serve.sources_of(app, list, lambda: "127.0.0.1:8181"), version="9.9.9")


@pytest.fixture
def commands(sources: Sources) -> Commands:
    return Commands(sources)
