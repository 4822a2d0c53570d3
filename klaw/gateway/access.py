"""Who may come in, as the headers of a request say: where it comes from, and its token or its session's cookie.

A browser sends ``Origin``, a native client does not. Without tokens every page that a person visits could otherwise
talk to the server on their own machine, so only pages of this server, and those that the configuration names, may.
"""

import ipaddress
import socket
from collections.abc import Collection, Mapping
from urllib.parse import SplitResult, urlsplit

import attrs

from klaw.config.schema import GatewayConfig
from klaw.errors import HttpRefusal
from klaw.gateway.auth import Authenticator, Grant

COOKIE = "klaw_session"
_FORWARDED = frozenset(
    {
        "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host", "x-original-url",
        "true-client-ip", "cf-connecting-ip", "cf-ray", "fastly-client-ip", "fly-client-ip",
        "x-envoy-external-address",
    }
)  # fmt: skip
"""Headers that proxies add, by their names in lower case, whatever they say …"""
_FORWARDED_BEGIN = ("x-forwarded", "x-original-forwarded", "tailscale-user-", "x-amzn-trace-id", "x-proxy")
"""… and how others of them begin."""


@attrs.frozen(kw_only=True)
class Place:
    """Where a connection comes from and where it ends."""

    loopback: bool
    """It comes from this machine."""
    own_hosts: frozenset[str]
    """Names and addresses of this server in lower case, besides loopback."""

    @classmethod
    def of(cls, config: GatewayConfig, *, peer: str, local: str) -> "Place":
        """Of a connection from the address ``peer`` to our address ``local``."""
        name = socket.gethostname().lower()
        return cls(loopback=is_loopback(peer), own_hosts=frozenset({config.host.lower(), local, name, f"{name}.local"}))

    def is_own(self, host: str | None) -> bool:
        """Whether a ``Host`` header names this server. A page of evil.example whose name points here sends its own."""
        server = _split(f"//{host}") if host else None
        return server is not None and server.hostname is not None and self._has(server.hostname)

    def allows(self, origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
        """Whether a request with these ``Origin`` and ``Host`` headers may go on; ``allowed``: further origins, such as
        ``https://example.org``."""
        if origin is None:
            return True
        page = _split(origin)
        if page is None or page.hostname is None or page.scheme not in ("http", "https"):
            return False
        if any(_same_origin(page, _split(other)) for other in allowed):
            return True
        server = _split(f"//{host}") if host else None
        if server is None or server.hostname is None or not self._has(server.hostname):
            return False
        return page.hostname == server.hostname and _port(page) == (server.port or _default_port(page.scheme))

    def _has(self, name: str) -> bool:
        return is_loopback(name) or name in self.own_hosts


def admit(headers: Mapping[str, str], auth: Authenticator, allowed: Collection[str], place: Place) -> Grant | None:
    """What a request may do; None if it brought nothing that allows anything.

    Args:
        headers: names in lower case.
        allowed: origins besides our own.
        place: where it comes from; what a proxy passed on is ``passed_on``.

    Raises:
        HttpRefusal: its origin is not allowed, or its token is wrong.
    """
    if not place.allows(headers.get("origin"), headers.get("host"), allowed):
        raise HttpRefusal(403, "this origin is not allowed; see gateway.allowedOrigins")
    token = _bearer(headers.get("authorization"))
    session = None if token is not None else session_of(headers)
    if session is not None and (grant := auth.grant(session, loopback=False)) is not None:
        return grant
    grant = auth.grant(token, loopback=place.loopback)
    if grant is None and token is not None:
        raise HttpRefusal(401, "a valid token is needed; see klaw token add")
    return grant


def passed_on(headers: Mapping[str, str]) -> bool:
    """Whether a proxy passed a request on: then it is not from where its connection comes from."""
    return any(name in _FORWARDED or name.startswith(_FORWARDED_BEGIN) for name in headers)


def session_of(headers: Mapping[str, str]) -> str | None:
    """The secret of a browser's session. It needs no quotes, and so none are read: to undo those of a long cookie takes
    ``http.cookies`` half a second."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def _bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header. Another scheme is taken as a wrong token, not as none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  reading it checks it
    except ValueError:
        return None
    return parts


def _same_origin(one: SplitResult, other: SplitResult | None) -> bool:
    return other is not None and (one.scheme, one.hostname, _port(one)) == (other.scheme, other.hostname, _port(other))


def _port(parts: SplitResult) -> int:
    return parts.port or _default_port(parts.scheme)


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80
