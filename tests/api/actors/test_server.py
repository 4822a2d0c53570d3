"""What a closed connection leaves behind: nothing that waits for the garbage collection."""

import gc
import weakref

import pytest
import trio
from hypercorn.trio.tcp_server import TCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from klaw.actor.failure import let_go
from klaw.api.server import HttpServer
from klaw.gateway.connection_limits import Connection
from tests.support.waiting import HANG_S


async def hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


async def test_a_closed_connection_is_freed_at_once() -> None:
    server = HttpServer(lambda: Starlette(routes=[Route("/", hello)]))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()

    async def serve() -> None:
        stream = await listener.accept()
        await server.serve(stream, b"", Connection.of_operator(0.0))

    gc.collect()
    gc.disable()
    try:
        for asked in (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
        ):
            with trio.fail_after(HANG_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(serve)
                    async with await trio.open_tcp_stream(*address) as stream:
                        await stream.send_all(asked)
                        if asked.startswith(b"GET"):
                            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        assert [each for each in gc.get_objects() if isinstance(each, TCPServer)] == []
    finally:
        gc.enable()
        await listener.aclose()


@pytest.mark.parametrize("grouped", [False, True])
def test_an_error_lets_go_of_its_frames(grouped: bool) -> None:
    class Held:
        pass

    def through(held: Held, error: Exception) -> None:
        raise error  # this frame holds both

    def fail() -> weakref.ref[Held]:
        held = Held()
        try:
            try:
                through(held, ValueError())
            except ValueError as error:
                raise (ExceptionGroup("several", [error]) if grouped else KeyError()) from None
        except (KeyError, ExceptionGroup) as error:
            let_go(error)
        return weakref.ref(held)

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()
