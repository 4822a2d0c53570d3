"""One connection: peers that close at once, answer HTTP, or fall silent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from klaw.actor.backoff import Backoff
from klaw.client.connection import connect
from klaw.client.streams import ConnectedEvent, DisconnectedEvent
from klaw.errors import ServerRefused, ServerUnreachable
from klaw.wire.frames import Hello
from tests.support.programs.fake_server import FakeServer, Link
from tests.support.waiting import HANG_S, until


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that reads a request, gives this answer and closes; yields its URL."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, handle, 0)
        yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/ws"
        nursery.cancel_scope.cancel()


async def test_a_server_that_closes_before_the_handshake_is_noticed_at_once() -> None:
    """trio-websocket alone would wait for its time-out."""
    with trio.fail_after(HANG_S):
        async with answering(b"") as url:
            with pytest.raises(ServerUnreachable):
                async with connect(url):
                    pass


@pytest.mark.parametrize(("status", "error"), [(403, ServerRefused), (503, ServerUnreachable)])
async def test_an_http_answer_is_final_only_if_it_will_not_change(status: int, error: type[Exception]) -> None:
    answer = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    with trio.fail_after(HANG_S):
        async with answering(answer) as url:
            with pytest.raises(error, match=str(status)):
                async with connect(url):
                    pass


async def test_a_silent_server_is_left_and_another_connection_made(
    quick_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open connection: it looks alive, but nothing comes."""
    server = FakeServer()
    async with server.serving(), connect(server.url, backoff=Backoff(0.001, 0.01)) as client:
        await until(lambda: server.links)
        monkeypatch.setattr(server.links[0].websocket._wsproto, "receive_data", lambda data: None)
        events = []
        with trio.fail_after(HANG_S):
            while len(server.hellos) < 2 or not any(isinstance(each, ConnectedEvent) and each.again for each in events):
                events.append(await client.next_event())
        assert {each.code for each in events if isinstance(each, DisconnectedEvent)} == {"silent"}
        assert await client.send("main", "again") == 1


async def test_a_server_that_answers_a_hello_with_bytes_is_no_klaw() -> None:
    """It is refused for good: every further attempt would end the same way."""
    server = FakeServer()

    async def answer(link: Link, _hello: Hello) -> bool:
        await link.websocket.send_message(b"hello yourself")
        return True

    server.on_hello = answer
    with trio.fail_after(HANG_S):
        async with server.serving():
            with pytest.raises(ServerRefused, match="does not speak"):
                async with connect(server.url):
                    pass
