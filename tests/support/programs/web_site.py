"""A real HTTP server on loopback that plays a scripted web site, and a fetcher that may reach it."""

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from klaw.config.tools import WebToolConfig
from klaw.guarded_http import forbidden, resolve_name
from klaw.knowledge.reading.document_text import document_text
from klaw.toolbox.web_fetch import WebFetcher
from tests.support.waiting import HANG_S

Play = Callable[[Any], Awaitable[None]]


@attrs.define
class Site:
    """``pages`` by path: bytes that are sent as they are, or a function that plays the connection."""

    port: int
    pages: dict[str, bytes | Play] = attrs.Factory(dict)
    heads: list[str] = attrs.Factory(list)
    """Request heads as they came."""
    names: list[str | None] = attrs.Factory(list)
    """What clients called the server when they began TLS."""
    gone: trio.Event = attrs.Factory(trio.Event)
    """A played connection ended because the client left."""

    def url(self, path: str, host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, stream: trio.abc.Stream) -> None:
        with suppress(trio.BrokenResourceError):
            data = await read_request(stream)
            if data is None:
                return
            head, _, _body = data.partition(b"\r\n\r\n")
            self.heads.append(head.decode("latin-1"))
            page = self.pages[head.split()[1].decode()]
            if isinstance(page, bytes):
                await stream.send_all(page)
            else:
                try:
                    await page(stream)
                except trio.BrokenResourceError:
                    self.gone.set()
        await trio.aclose_forcefully(stream)


async def read_request(stream: trio.abc.ReceiveStream) -> bytes | None:
    """A whole request; None if the client left. A connection closed with some of it unread is reset, answer and all."""
    data = b""
    while (end := data.find(b"\r\n\r\n") + 4) < 4 or len(data) < end + content_length(data[:end]):
        more = await stream.receive_some(65_536)
        if not more:
            return None
        data += more
    return data


def content_length(head: bytes) -> int:
    found = re.search(rb"^content-length: *(\d+)", head, re.IGNORECASE | re.MULTILINE)
    return int(found[1]) if found else 0


def answer(body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(to: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


@attrs.define
class Names:
    """A name server: each name has a list of answers, used up one by one but for the last."""

    answers: dict[str, list[list[str]]]
    asked: list[str] = attrs.Factory(list)

    async def resolve(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        await trio.lowlevel.checkpoint()
        if host not in self.answers:
            if host.endswith(".example"):
                raise OSError("no such name")
            return list(await resolve_name(host, 80))  # what is an address already, in whatever notation
        known = self.answers[host]
        return known.pop(0) if len(known) > 1 else known[0]


@asynccontextmanager
async def site(
    certificate: Path | None = None, *, convert_s: float = HANG_S, **config: Any
) -> AsyncIterator[tuple[Site, WebFetcher, Names]]:
    """A site at ``site.example``, whose address is the only one on loopback that the fetcher may connect to."""
    (listener,) = await trio.open_tcp_listeners(0, host="0.0.0.0")
    served = Site(listener.socket.getsockname()[1])
    names = Names(
        {"site.example": [["127.0.0.7"]], "evil.example": [["127.0.0.1"]], "cloud.example": [["169.254.169.254"]]}
    )

    def rule(address: str) -> str | None:
        return None if address == "127.0.0.7" else forbidden(address)

    settings = WebToolConfig(enabled=True, ports=(80, 443, served.port), **config)
    trusted = ssl.create_default_context(cafile=certificate)
    fetcher = WebFetcher(
        settings,
        resolve=names.resolve,
        forbidden=rule,
        tls=lambda: trusted,
        convert_s=convert_s,
        read_document=document_text,
    )

    async def serve(stream: trio.SocketStream) -> None:
        if certificate is None:
            await served.serve(stream)
            return
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _socket, name, _context: served.names.append(name)  # type: ignore[assignment]
        with suppress(trio.BrokenResourceError):
            await served.serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        with trio.fail_after(HANG_S):
            yield served, fetcher, names
        nursery.cancel_scope.cancel(reason="the test is over")
