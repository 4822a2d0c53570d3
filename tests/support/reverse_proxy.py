"""A reverse proxy that shows a server below a path, as nginx and Caddy do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

END = b"\r\n\r\n"


@asynccontextmanager
async def reverse_proxy(port: int, prefix: str, *, strips: bool) -> AsyncIterator[str]:
    """Show the server at a port of this machine below ``prefix``, and nothing elsewhere; yields the page's address.
    ``strips``: the proxy takes the prefix off, and says so in ``X-Forwarded-Prefix``; else it passes paths on."""
    async with trio.open_nursery() as nursery:
        serve = partial(_serve, port, prefix.encode(), strips)
        (listener, *_) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}{prefix}"
        nursery.cancel_scope.cancel()


async def _serve(port: int, prefix: bytes, strips: bool, client: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        begun = b""
        while END not in begun:
            part = await client.receive_some()
            if not part:
                return
            begun += part
        head, _, body = begun.partition(END)
        (method, path, version), *headers = [line.split(b" ", 2) for line in head.split(b"\r\n")]
        if not path.startswith(prefix + b"/"):
            await client.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        lines = [b" ".join(each) for each in headers]
        if not any(each.lower().startswith(b"upgrade:") for each in lines):  # one request on a connection
            lines = [*(each for each in lines if not each.lower().startswith(b"connection:")), b"Connection: close"]
        if strips:
            path = path.removeprefix(prefix)
            lines.append(b"X-Forwarded-Prefix: " + prefix)
        request = b"\r\n".join([b" ".join([method, path, version]), *lines, b"X-Forwarded-Proto: http", b"", body])
        server = await trio.open_tcp_stream("127.0.0.1", port)
        async with server, trio.open_nursery() as nursery:
            await server.send_all(request)
            nursery.start_soon(_carry, client, server)
            await _carry(server, client)
            nursery.cancel_scope.cancel()


async def _carry(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for part in source:
            await sink.send_all(part)
        await sink.send_eof()
