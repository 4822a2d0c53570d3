"""What hypercorn does otherwise than Klaw wants: it offers HTTP/2 in clear text, answers what is no request without a
word, and keeps a connection that the client has closed until the time for the next request is over.
"""

from http import HTTPStatus
from typing import Any, cast

import h11
import trio
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr
from trio.abc import HalfCloseableStream

from klaw.gateway.handshake import linger

CLOSE_S = 1.0


class _NoHttp2(Exception):
    pass


class Http11Protocol(H11Protocol):
    """HTTP/1.1 only. An upgrade to HTTP/2 is not taken, as the standard has it; its preface is answered with 505."""

    peer: HalfCloseableStream

    async def handle(self, event: Event) -> None:
        try:
            await super().handle(event)
        except _NoHttp2:
            await self._send_error_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in (b"1.1", b"1.0"):
            raise _NoHttp2

    async def _send_error_response(self, status_code: int) -> None:
        body = f"{HTTPStatus(status_code).phrase}\n".encode()
        own = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        headers = [*own, *self.config.response_headers("h11")]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())
        await linger(self.peer)


class Http11Server(TCPServer):
    _ended = False
    """The client sends no more requests."""

    async def run(self) -> None:
        socket = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with TaskGroup() as self._task_group:
                protocol = Http11Protocol(
                    self.app, self.config, self.context, self._task_group, ConnectionState(self.state), False,
                    client, server, self.protocol_send,
                )  # fmt: skip
                protocol.peer = cast("Any", self.stream)
                self.protocol = cast("Any", protocol)  # without the wrapper that changes to HTTP/2
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
                self._ended = True
                await self.idle_task.stop()  # the connection would last until then
        except OSError:
            pass
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._close()

    async def protocol_send(self, event: Event) -> None:
        if not (self._ended and isinstance(event, Updated)):
            await super().protocol_send(event)
