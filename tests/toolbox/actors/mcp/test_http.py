"""MCP servers behind streamable HTTP: the SDK's own, as a process on a loopback port, and broken ones."""

import gzip
import json
import os
import tracemalloc
from contextlib import asynccontextmanager

import pytest
import trio

from klaw.toolbox.mcp import guard
from klaw.toolbox.mcp.server import McpState
from tests.support.llm_server import Reply, serve_llm
from tests.support.programs.mcp_client import SERVER, problem, running
from tests.support.server import free_port
from tests.support.waiting import until


class Process:
    """The test server behind HTTP, which can be killed and started again."""

    def __init__(self, *arguments):
        self.port = free_port()
        self.process = None
        self._arguments = arguments

    @property
    def config(self):
        return {"url": f"http://127.0.0.1:{self.port}/mcp"}

    async def start(self):
        if self.process is not None:
            await self.process.wait()
        command = [SERVER["command"], *SERVER["args"], "--http", str(self.port), *self._arguments]
        environ = {**os.environ, "PYTHONPATH": SERVER["cwd"]}
        self.process = await trio.lowlevel.open_process(command, env=environ, cwd=SERVER["cwd"])

    async def kill(self):
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def served(*arguments):
    server = Process(*arguments)
    await server.start()
    try:
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.kill()


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["events", "json"])
async def test_tools_over_http(arguments, tmp_path):
    async with served(*arguments) as server, running({"far": server.config}) as here:
        assert (await here.call("far__greet", name="Анна")).text == "Привет, Анна! (test)"
        before = set(here.names())
        assert (await here.call("far__learn", tool="Новое")).text == "learnt"
        await until(lambda: len(here.names()) == len(before) + 1)
        (new,) = set(here.names()) - before
        assert (await here.call(new)).text == "I am Новое"
        tracemalloc.start()
        result = await here.call("far__big", megabytes=50)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert result.failed
        assert peak < 8 * guard.MAX_MESSAGE_BYTES
        assert (await here.call("far__greet", name="a")).text
        assert here.servers["far"].report().connects == 1


async def test_a_hanging_call_is_cancelled_at_the_server(tmp_path):
    sign = tmp_path / "sign"
    async with served() as server, running({"far": {**server.config, "timeoutSeconds": 0.5}}) as here:
        assert "did not finish within 0.5 s" in (await here.call("far__hang", sign=str(sign))).text
        await until(lambda: sign.read_text() == "cancelled")


async def test_it_dies_in_the_middle_of_a_call_and_comes_back():
    async with served() as server, running({"far": server.config}) as here:
        dead = await here.call("far__die")
        assert dead.failed
        await here.until("far", McpState.WAITING)
        assert (await here.call("far__greet", name="a")).failed
        await until(lambda: not here.names())
        assert here.servers["far"].report().reason == "it cannot be reached"
        await server.start()
        await here.until("far", McpState.READY)
        assert (await here.call("far__greet", name="a")).text == "Привет, a! (test)"


async def test_one_that_is_gone_is_noticed_without_a_call():
    async with served() as server, running({"far": server.config}, check_s=0.2) as here:
        await server.kill()
        await here.until("far", McpState.WAITING)


def reply(status=200, body=b"", content_type="application/json", **more):
    return Reply(status=status, body=body, content_type=content_type, **more)


BOMB = gzip.compress(b" " * 50_000_000)
LONG = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"x": "y" * 5_000_000}}).encode()
BAD = [
    (reply(401), "it refuses Klaw (HTTP status 401)"),
    (reply(503, b"<html>busy</html>", "text/html"), "it answers with HTTP status 503"),
    (reply(200, b"<html>hello</html>", "text/html"), "it does not answer as an MCP server (code -32600)"),
    (reply(200, b"{"), "it does not answer as an MCP server (code -32700)"),
    (reply(200, LONG), "it does not answer as an MCP server (code -32700)"),
    (reply(200, BOMB, headers=(("content-encoding", "gzip"),)), "the connection broke (RemoteProtocolError)"),
    (reply(302, headers=(("location", "http://169.254.169.254/mcp"),)), None),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
async def test_what_is_no_mcp_server_is_named(bad, reason):
    async with serve_llm() as web:
        web.respond = lambda _request: bad
        config = {"url": f"{web.url}/mcp", "headers": {"Authorization": "Bearer secret-key"}}
        async with running({"far": config}, ready=False) as here:
            far = await here.until("far", McpState.WAITING)
            assert reason is None or far.report().reason == reason
            assert "secret-key" not in repr(far.config) + problem(far)
        assert web.requests[0].headers["authorization"] == "Bearer secret-key"
        assert web.requests[0].headers["accept-encoding"] == "identity"


async def test_nobody_there():
    async with running({"far": Process().config}, ready=False) as here:
        far = await here.until("far", McpState.WAITING)
        assert problem(far) == (
            "the MCP server far is not connected: it cannot be reached; it is tried again automatically"
        )
