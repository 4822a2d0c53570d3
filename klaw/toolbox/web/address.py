"""Which addresses of the web may be fetched, and connections that are guarded by that.

The check of a URL is for a clear answer; what protects is that of the IP address that is connected to: a name is
resolved here, its addresses are checked, and one of those is what is connected to. This is the only place that opens a
connection for the web tools. Nothing resolves the name again, so a name server that answers differently the second time
gains nothing; TLS and the Host header keep the name.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any, TypeAlias
from urllib.parse import urljoin, urlsplit

import attrs
import httpcore2
import trio

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
"""All that the registry gives to the public so far."""


@attrs.frozen(kw_only=True)
class WebTarget:
    """A checked URL in the parts that a request is made of; all ASCII."""

    scheme: str
    host: str
    """Without brackets."""
    port: int
    path: str
    """With the query."""
    url: str
    """As a whole, without the fragment."""


def forbidden(address: str) -> str | None:
    """Why an IP address may not be connected to; None when it may: a public unicast address."""
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


_OWN = ("private", "shared (carrier or cloud)", "loopback")


def forbidden_to_operator(address: str) -> str | None:
    """The same where the operator named the address: it may also be of this machine or its network."""
    kind = forbidden(address)
    return None if kind in _OWN else kind


def parse(text: str, ports: Container[int], base: str | None = None, *, own: bool = False) -> WebTarget:
    """Check a URL.

    Args:
        text: what the model or a redirect says.
        ports: that may be connected to.
        base: the page that the redirect came from.
        own: the operator wrote it; it may be on this machine.

    Raises:
        ToolRefused: it is no URL that may be fetched.
    """
    import httpx2  # a tenth of a second, and only for those who fetch

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
        raise ToolRefused("This is no usable web address.") from None
    if scheme not in ("http", "https"):
        told = "Only http:// and https:// addresses can be fetched."
        raise ToolRefused(told if _SCHEME.match(text) else f"{told} Begin the address with https://.")
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
"""Of a name, tried one after the other."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a name, the best first. Raises OSError."""
Forbidden: TypeAlias = Callable[[str], str | None]
"""See ``address.forbidden``."""


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver. Raises OSError."""
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses only.

    Args:
        resolve: names to addresses.
        forbidden: why an address must not be connected to.
    """

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
        """Connect.

        Raises:
            ToolRefused: the name has no address, or one that is not public. A name with both kinds is refused.
            httpcore2.ConnectError, httpcore2.ConnectTimeout
        """
        try:
            addresses = await self._resolve(host.strip("[]"), port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise ToolRefused("There is no server of this name.")
        for address in addresses:
            kind = self._forbidden(address)
            if kind is not None:
                raise ToolRefused(f"The address is not on the public internet ({kind}); it is not fetched.")
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options or ())
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002 - as the base class has it
        timeout: float | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        """Never: a URL names no socket file."""
        raise ToolRefused("There is no server of this name.")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
