"""A server whose model repeats what it is asked, for tests of what programs of other protocols get."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.llm_server import LlmServer, echo_reply, serve_llm
from tests.support.server import Server, served, write_home
from tests.support.waiting import HANG_S


@pytest.fixture
async def llm() -> AsyncIterator[LlmServer]:
    async with serve_llm() as running:
        running.respond = echo_reply
        yield running


def home_of(tmp_path: Path, llm: LlmServer) -> Path:
    """A home whose model takes tools."""
    with_tools = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
    return write_home(tmp_path, providers={"stub": with_tools})


def client_of(server: Server) -> httpx2.AsyncClient:
    base = server.url.replace("ws://", "http://").removesuffix("/ws")
    return httpx2.AsyncClient(base_url=base, trust_env=False, timeout=HANG_S)


@pytest.fixture
async def server(tmp_path: Path, llm: LlmServer) -> AsyncIterator[Server]:
    async with served(home_of(tmp_path, llm)) as running:
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(server) as client:
        yield client
