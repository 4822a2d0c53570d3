"""Signals of a real server: the first lets the running turn end, a second one ends the process at once."""

import signal
import socket
from urllib.parse import urlsplit

import trio

from klaw.client.connection import connect
from tests.support.llm_server import Reply, Text, Wait, serve_llm
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S, until


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=1).close()
    except OSError:
        return False
    return True


async def test_a_second_signal_ends_the_process_while_a_turn_is_running(tmp_path):
    """The turn would run for ever; the question is stored, and answered by the next start."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, shutdown={"graceSeconds": 300})
        llm.replies.append(Reply(steps=(Text("a long"), Wait(trio.Event()))))
        async with served(home) as server:
            async with connect(server.url) as client:
                await client.send("main", "tell me a long story")
                await llm.wait_for_requests(1)
            with trio.fail_after(HANG_S):
                server.process.send_signal(signal.SIGTERM)
                await until(lambda: not _listens(server.url))  # from here on it waits for the turn
                server.process.send_signal(signal.SIGTERM)
                assert await server.wait() == 128 + signal.SIGTERM
            await server.start()
            with trio.fail_after(HANG_S):
                await llm.wait_for_requests(2)
            assert llm.requests[1].last_user == "tell me a long story"


async def test_the_first_signal_lets_the_running_turn_end(tmp_path):
    """The answer is stored before the process ends with 0."""
    async with serve_llm() as llm:
        gate = trio.Event()
        home = write_home(tmp_path, llm=llm.url)
        llm.replies.append(Reply(steps=(Text("the end"), Wait(gate))))
        async with served(home) as server:
            async with connect(server.url) as client:
                await client.send("main", "how does it end?")
                await llm.wait_for_requests(1)
            with trio.fail_after(HANG_S):
                server.process.send_signal(signal.SIGTERM)
                await until(lambda: bool(server.events("stopping")))
                gate.set()
                assert await server.wait() == 0
        logs = "".join(path.read_text() for path in (home / "data" / "conversations").rglob("*.jsonl"))
        assert '"content":"the end"' in logs
