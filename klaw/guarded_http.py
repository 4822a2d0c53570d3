"""The guard of requests that go out: which addresses may be connected to, and how much of an answer is read. A name is
resolved here, its IP addresses are checked, and one of those is connected to: a name server that answers differently
the second time gains nothing. TLS and the Host header keep the name. The check of a URL only gives a clear answer."""

import ipaddress
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import urljoin, urlsplit

import attrs
import httpcore2
import httpx2
import trio

from klaw import __version__
from klaw.actor.threads import Threads
from klaw.errors import ToolRefused

MAX_URL_CHARS = 4096

_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_KINDS = {
    "this network": "0.0.0.0/8",
    "unspecified": "::/128",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
    "shared (carrier or cloud)": "100.64.0.0/10",
    "loopback": "127.0.0.0/8 ::1/128",
    "a cloud's own service": "168.63.129.16/32",
    "link-local": "169.254.0.0/16 fe80::/10",
    "multicast": "224.0.0.0/4 ff00::/8",
    "an IPv4 address in another form": "::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16",
    "reserved": "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"
    " 2001::/23 2001:db8::/32 3fff::/20",
}
"""The first that fits counts."""
_REFUSED = tuple((ipaddress.ip_network(each), kind) for kind, networks in _KINDS.items() for each in networks.split())
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")


@attrs.frozen(kw_only=True)
class WebTarget:
    """A checked URL in the parts that a request is made of; all ASCII."""

    scheme: str
    host: str
    port: int
    path: str
    url: str


def forbidden(address: str) -> str | None:
    """Why an IP address may not be connected to; None for a public unicast address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "no IP address"
    for network, kind in _REFUSED:
        if ip.version == network.version and ip in network:
            return kind
    if ip.version == 6 and ip not in _PUBLIC_6:
        return "reserved"
    return None


def forbidden_to_operator(address: str) -> str | None:
    """The same for an address that the operator named, which may also be on this machine or its network."""
    kind = forbidden(address)
    return None if kind in ("private", "shared (carrier or cloud)", "loopback") else kind


def parse(text: str, ports: Container[int], base: str | None = None, *, own: bool = False) -> WebTarget:
    """Check a URL from the model, a user, or a redirect of the page ``base``. ``own``: the operator wrote it, and it
    may be on this machine. Raises ToolRefused: it may not be fetched."""
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise ToolRefused(f"The address is longer than {MAX_URL_CHARS} characters.")
    if any(not character.isprintable() or character in " \\" for character in text):
        raise ToolRefused("The address holds a space, a backslash or a control character.")
    try:
        text = urljoin(base, text) if base is not None else text
        named = urlsplit(text).netloc
        url = httpx2.URL(text)
        scheme, host = url.scheme, url.raw_host.decode("ascii").strip("[]").rstrip(".")
        port = url.port or {"http": 80, "https": 443}.get(scheme, 0)
    except (httpx2.InvalidURL, ValueError):
        raise ToolRefused("This is not a usable web address.") from None
    if scheme not in ("http", "https"):
        hint = "" if _SCHEME.match(text) else " Begin the address with https://."
        raise ToolRefused(f"Only http:// and https:// addresses can be fetched.{hint}")
    if url.userinfo or "@" in named:
        raise ToolRefused("An address with a user name or password is not fetched.")
    if not host:
        raise ToolRefused("The address has no host.")
    if port not in ports:
        raise ToolRefused(f"Port {port} is not allowed (tools.web.ports).")
    _check_host(host, own=own)
    return WebTarget(
        scheme=scheme, host=host, port=port, path=url.raw_path.decode("ascii"), url=str(url).partition("#")[0]
    )


def _check_host(host: str, *, own: bool) -> None:
    if ":" not in host and _NUMBER.fullmatch(host.rpartition(".")[2]):
        # Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses too; nobody means well by that.
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ToolRefused("The host is an IP address in an odd notation; write it as four numbers.") from None
    if not own and (host == "localhost" or host.endswith(".localhost")):
        raise ToolRefused("This address belongs to the machine that Klaw runs on; it is not fetched.")


MAX_ADDRESSES = 4

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a name, the best first. Raises OSError."""
Forbidden: TypeAlias = Callable[[str], str | None]


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver. Raises OSError."""
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def checked_addresses(
    host: str, port: int, resolve: Resolve = resolve_name, forbidden: Forbidden = forbidden
) -> Sequence[str]:
    """The IP addresses of a host. Raises ToolRefused: there is none, or one may not be connected to."""
    try:
        addresses = await resolve(host.strip("[]"), port)
    except (OSError, UnicodeError):
        addresses = ()
    if not addresses:
        raise ToolRefused("There is no server with this name.")
    for address in addresses:
        if kind := forbidden(address):
            raise ToolRefused(f"The address is not on the public internet ({kind}); it is not fetched.")
    return addresses


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that are not forbidden."""

    def __init__(self, resolve: Resolve = resolve_name, forbidden: Forbidden = forbidden) -> None:
        self._resolve = resolve
        self._forbidden = forbidden
        self._backend = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await checked_addresses(host, port, self._resolve, self._forbidden)
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options or ())
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class ExchangeFailed(ToolRefused):
    """No answer came. ``timed_out``: the other side was silent."""

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


@attrs.frozen(kw_only=True)
class GuardedResponse:
    """The head of an answer, and its body while the exchange is open."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterable[bytes]

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def encoding(self) -> str:
        return self.headers.get("content-encoding", "identity").strip().lower()


@attrs.frozen
class GuardedConnections:
    _pool: httpcore2.AsyncConnectionPool
    _timeouts: Mapping[str, float]

    @asynccontextmanager
    async def exchange(
        self, method: str, target: WebTarget, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[GuardedResponse]:
        """Send a request; the body of the answer is read in the ``with``. Raises ToolRefused, ExchangeFailed."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        url = httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.path)
        named: dict[bytes | str, bytes | str] = {"User-Agent": f"klaw/{__version__}"}
        named.update(headers)
        more = {"timeout": self._timeouts}
        try:
            async with self._pool.stream(method, url, headers=named, content=content, extensions=more) as response:
                read = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                yield GuardedResponse(status=response.status, headers=read, chunks=response.aiter_stream())
        # Not "from error": its text may quote a header.
        except httpcore2.ConnectTimeout:
            raise ExchangeFailed("The server cannot be reached: it does not answer.") from None
        except httpcore2.TimeoutException:
            silent = f"The server was silent for {self._timeouts['read']:g} s."
            raise ExchangeFailed(silent, timed_out=True) from None
        except httpcore2.ConnectError:
            raise ExchangeFailed("The server could not be reached, or its certificate is not valid.") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol):
            raise ExchangeFailed("The connection broke, or the server does not speak HTTP.") from None


class GuardedHttp:
    """Requests to addresses that anybody may have named. No byte for ``idle_s``, and before there is a connection for
    ``connect_s``, ends an exchange. ``tls`` makes the TLS settings, once, in a thread."""

    def __init__(
        self,
        *,
        idle_s: float,
        connect_s: float,
        resolve: Resolve = resolve_name,
        tls: Callable[[], ssl.SSLContext] = httpcore2.default_ssl_context,
    ) -> None:
        self._timeouts = {"connect": min(idle_s, connect_s), "read": idle_s, "write": idle_s, "pool": idle_s}
        self._resolve = resolve
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._threads = Threads("tls", 1)

    @asynccontextmanager
    async def opened(self, forbidden: Forbidden, *, keep: bool) -> AsyncIterator[GuardedConnections]:
        """Connections for some exchanges. ``keep`` uses a connection again; then a redirect could reach a server under
        another name's check."""
        if self._tls is None:
            self._tls = await self._threads.run(self._make_tls)
        async with httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            network_backend=GuardedBackend(self._resolve, forbidden),
            max_keepalive_connections=None if keep else 0,
        ) as pool:
            yield GuardedConnections(pool, self._timeouts)
