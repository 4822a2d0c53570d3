"""Fetching one page: redirects, deadlines and caps. Each redirect is checked and connected to like a first address."""

import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from pathlib import Path

import attrs
import httpcore2
import structlog
import trio

from klaw import __version__
from klaw.actor.threads import Threads
from klaw.config.tools import WebToolConfig
from klaw.domain.charset import decode
from klaw.errors import PageGone, ToolRefused
from klaw.toolbox.web.address import Forbidden, GuardedBackend, Resolve, WebTarget, forbidden, parse, resolve_name
from klaw.toolbox.web.unpacker import Unpacker

MAX_REDIRECTS = 5
CONVERT_S = 20.0
CONVERTERS = 2
"""Pages that are turned into Markdown at the same time."""
CONNECT_S = 10.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset(
    {
        "application/json", "application/ld+json", "application/xml", "application/javascript", "application/yaml",
        "application/x-yaml", "application/toml", "application/x-ndjson", "application/sql",
    }
)  # fmt: skip
_HEADERS: Mapping[bytes | str, bytes | str] = {
    "User-Agent": f"klaw/{__version__}",
    "Accept": "text/html, text/markdown, text/plain, application/json, application/xml;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "close",
}
_PROGRAM = Path(__file__).with_name("convert.py")

log = structlog.get_logger("klaw.tools")


@attrs.frozen(kw_only=True)
class FetchedPage:
    """What an address brought."""

    url: str
    """After redirects."""
    title: str
    text: str
    cut: bool
    """The answer was longer than ``tools.web.maxBytes``; this is its beginning."""


@attrs.frozen(kw_only=True)
class _WebAnswer:
    """An answer as it came, unpacked."""

    target: WebTarget
    content_type: str
    """In lower case, without parameters; empty if the server says none."""
    charset: str | None
    body: bytes
    cut: bool
    etag: str = ""
    modified: str = ""


@attrs.frozen(kw_only=True)
class Download:
    """What an address brought, as it is to be kept."""

    content_type: str
    """In lower case, without parameters; empty if the server says none."""
    body: bytes
    etag: str
    modified: str
    """``Last-Modified``, as the server says it; empty: it does not."""


class _NotModifiedError(Exception):
    """It is still what it was."""


class WebFetcher:
    """Fetches pages for everybody; keeps nothing between two of them.

    Args:
        config: ``tools.web``.
        resolve: names to addresses.
        forbidden: why an address must not be connected to.
        tls: makes the TLS settings; they are made once.
        convert_s: the most that turning a page into Markdown may take.
    """

    def __init__(
        self,
        config: WebToolConfig,
        *,
        resolve: Resolve = resolve_name,
        forbidden: Forbidden = forbidden,
        tls: Callable[[], ssl.SSLContext] = httpcore2.default_ssl_context,
        convert_s: float = CONVERT_S,
    ) -> None:
        self._config = config
        self._backend = GuardedBackend(resolve, forbidden)
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._threads = Threads("web", 1)
        self._convert_s = convert_s
        self._converters = trio.CapacityLimiter(CONVERTERS)

    async def fetch(self, url: str) -> FetchedPage:
        """Fetch a page as text.

        Raises:
            ToolRefused: it may not be fetched, did not come, or is not text.

        Cancellation: the connection is closed.
        """
        limit_s = self._config.timeout_s
        answer = None
        with trio.move_on_after(limit_s):
            answer = await self._follow(url)
        if answer is None:
            raise ToolRefused(f"The page did not come within {limit_s:g} s.")
        return await self._read(answer)

    async def download(
        self, url: str, *, takes: Callable[[str], bool], etag: str = "", modified: str = ""
    ) -> Download | None:
        """Fetch what is to be kept, unless it is still what it was: None.

        Args:
            url: the address.
            takes: whether bytes of a content type are wanted.
            etag, modified: as the server said at the last time.

        Raises:
            PageGone: there is nothing any more.
            ToolRefused: it may not be fetched, did not come, is too large or nothing that is wanted.

        Cancellation: the connection is closed.
        """
        limit_s, answer = self._config.timeout_s, None
        asked = {"If-None-Match": etag, "If-Modified-Since": modified}
        try:
            with trio.move_on_after(limit_s):
                answer = await self._follow(url, {name: value for name, value in asked.items() if value}, takes)
        except _NotModifiedError:
            return None
        if answer is None:
            raise ToolRefused(f"The page did not come within {limit_s:g} s.")
        if answer.cut:
            raise ToolRefused(f"The page is larger than {self._config.max_bytes:,} bytes.")
        return Download(content_type=answer.content_type, body=answer.body, etag=answer.etag, modified=answer.modified)

    # -- the network -----------------------------------------------------------------------------------------------

    async def _follow(
        self, url: str, headers: Mapping[str, str] | None = None, takes: Callable[[str], bool] | None = None
    ) -> _WebAnswer:
        target = parse(url, self._config.ports)
        if self._tls is None:
            self._tls = await self._threads.run(self._make_tls)
        # One connection for each hop: with kept ones a redirect could reach a server under another name's check.
        async with httpcore2.AsyncConnectionPool(
            ssl_context=self._tls, network_backend=self._backend, max_keepalive_connections=0
        ) as pool:
            for _ in range(MAX_REDIRECTS + 1):
                answer = await self._request(pool, target, headers or {}, takes or _may_be_text)
                if isinstance(answer, _WebAnswer):
                    return answer
                target = parse(answer, self._config.ports, base=target.url)
        raise ToolRefused(f"More than {MAX_REDIRECTS} redirects.")

    async def _request(
        self,
        pool: httpcore2.AsyncConnectionPool,
        target: WebTarget,
        more: Mapping[str, str],
        takes: Callable[[str], bool],
    ) -> _WebAnswer | str:
        """The answer, or where it redirects to. Raises _NotModifiedError."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        url = httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.path)
        idle_s = self._config.idle_s
        timeouts = {"connect": min(idle_s, CONNECT_S), "read": idle_s, "write": idle_s, "pool": idle_s}
        try:
            asked = dict[bytes | str, bytes | str](_HEADERS) | dict[bytes | str, bytes | str](more.items())
            async with pool.stream("GET", url, headers=asked, extensions={"timeout": timeouts}) as response:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and "location" in headers:
                    return headers["location"].encode("latin-1").decode("utf-8", "replace")
                if response.status == HTTPStatus.NOT_MODIFIED and more:
                    raise _NotModifiedError
                if response.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                    raise PageGone(f"The server answered {_status(response.status)}.")
                if response.status != HTTPStatus.OK:
                    raise ToolRefused(f"The server answered {_status(response.status)}.")
                kind, declared = _content_type(headers.get("content-type", ""))
                if not takes(kind):
                    raise ToolRefused(f"This is {kind[:80]}, not text; only pages and other text can be fetched.")
                body, cut = await self._body(response, headers.get("content-encoding", "").strip().lower())
        except httpcore2.TimeoutException as error:
            raise ToolRefused(f"The server was silent for {idle_s:g} s.") from error
        except httpcore2.ConnectError as error:
            raise ToolRefused("The server could not be reached, or its certificate is not valid.") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            raise ToolRefused("The connection broke, or the server does not speak HTTP.") from error
        return _WebAnswer(
            target=target,
            content_type=kind,
            charset=declared,
            body=body,
            cut=cut,
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
        )

    async def _body(self, response: httpcore2.Response, encoding: str) -> tuple[bytes, bool]:
        """The unpacked body up to the cap, and whether it was cut there. Packed and unpacked size both count."""
        limit = self._config.max_bytes
        unpacker = Unpacker(encoding, limit)
        packed = 0
        async with aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                packed += len(chunk)
                if not unpacker.feed(chunk) or packed > limit:
                    return unpacker.body, True
        return unpacker.body, False

    # -- the page --------------------------------------------------------------------------------------------------

    async def _read(self, answer: _WebAnswer) -> FetchedPage:
        text = decode(answer.body, answer.charset)
        html = answer.content_type in _HTML
        if not answer.content_type:
            html = text.lstrip()[:200].lower().startswith(("<!doctype html", "<html"))
        if "\0" in text:
            raise ToolRefused("This is not text, whatever the server calls it.")
        title = ""
        if html:
            title, text = await self._convert(text, answer.target.url)
        return FetchedPage(url=answer.target.url, title=title, text=text, cut=answer.cut)

    async def _convert(self, html: str, base: str) -> tuple[str, str]:
        """In a process of its own, which can be stopped: see ``convert``."""
        async with self._converters:
            done = None
            with trio.move_on_after(self._convert_s):
                done = await trio.run_process(
                    [sys.executable, "-P", str(_PROGRAM)],
                    stdin=f"{base}\n{html}".encode("utf-8", "replace"),
                    capture_stdout=True,
                    stderr=subprocess.DEVNULL,
                    env={},
                    check=False,
                    deliver_cancel=_kill,
                )
        if done is None or done.returncode != 0:
            log.warning("page_not_converted", exit_code=done.returncode if done is not None else None, size=len(html))
            raise ToolRefused("The page came, but is too large or too tangled to be turned into text.")
        converted = json.loads(done.stdout)
        return converted["title"], converted["text"]


async def _kill(process: trio.Process) -> None:
    process.kill()


def _content_type(header: str) -> tuple[str, str | None]:
    kind, *parameters = header.split(";")
    pairs = (parameter.partition("=") for parameter in parameters)
    declared = next((value for name, _, value in pairs if name.strip().lower() == "charset"), None)
    return kind.strip().lower(), declared


def _may_be_text(kind: str) -> bool:
    return not kind or kind.startswith("text/") or kind in _HTML | _TEXT or kind.endswith(("+json", "+xml"))


def _status(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)
