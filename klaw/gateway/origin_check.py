"""Who may come in by the headers of a request: its origin, and its token or its session's cookie.

Without a check of ``Origin``, which browsers send, every page that a person visits could talk to the server on their
machine. Only pages of this server, and those that the configuration names, may.
"""

import ipaddress
import re
import socket
from collections.abc import Collection, Mapping

import attrs

from klaw.config.schema import PATH_PREFIX, GatewayConfig
from klaw.errors import HttpRefusal
from klaw.gateway.tokens import Authenticator, Grant

COOKIE = "klaw_session"
_FORWARDED = frozenset({
    "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host", "x-original-url",
    "true-client-ip", "cf-connecting-ip", "cf-ray", "fastly-client-ip", "fly-client-ip", "x-envoy-external-address",
})  # fmt: skip
"""Headers that proxies add, in lower case, whatever they say …"""
_FORWARDED_BEGIN = ("x-forwarded", "x-original-forwarded", "tailscale-user-", "x-amzn-trace-id", "x-proxy")
"""… and how others begin."""


@attrs.frozen(kw_only=True)
class Endpoints:
    loopback: bool
    own_hosts: frozenset[str]
    """Names and addresses of this server in lower case, besides loopback."""

    @classmethod
    def of(cls, config: GatewayConfig, *, peer: str, local: str) -> "Endpoints":
        name = socket.gethostname().lower()
        return cls(loopback=is_loopback(peer), own_hosts=frozenset({config.host.lower(), local, name, f"{name}.local"}))

    def is_own(self, host: str | None) -> bool:
        """Whether a ``Host`` header names this server. A page of evil.example whose name points here sends its own."""
        server = _server(host)
        return server is not None and self._has(server[0])

    def allows(self, origin: str | None, host: str | None, allowed: Collection[str], site: str | None = None) -> bool:
        """Whether a request with these ``Origin`` and ``Host`` headers may go on. ``allowed``: further origins, such as
        ``https://example.org``; ``site``: ``Sec-Fetch-Site``, which browsers send also where there is no origin."""
        page = _origin(origin) if origin is not None else None
        if page is not None and page in map(_origin, allowed):
            return True
        if site is not None and site.strip().lower() not in ("same-origin", "none"):
            return False
        if origin is None:
            return True
        server = _server(host)
        if page is None or page[0] not in _PORTS or server is None or not self._has(server[0]):
            return False
        return page[1:] == (server[0], server[1] or _PORTS[page[0]])

    def _has(self, name: str) -> bool:
        return is_loopback(name) or name in self.own_hosts


def admit(
    headers: Mapping[str, str], auth: Authenticator, allowed: Collection[str], place: Endpoints, *, mcp: bool = False
) -> Grant | None:
    """What a request with these headers (names in lower case) may do; None if it brought nothing that allows anything.
    ``mcp``: as for ``Authenticator.grant``. Raises HttpRefusal: its origin is not allowed, or its token is wrong."""
    check_origin(headers, allowed, place)
    token = _bearer(headers.get("authorization"))
    session = None if token is not None else session_of(headers)
    if session is not None and (grant := auth.grant(session, loopback=False, login=True)) is not None:
        return grant
    grant = auth.grant(token, loopback=place.loopback, mcp=mcp)
    if grant is None and token is not None:
        raise HttpRefusal(401, "a valid token is needed; see klaw token add")
    return grant


def check_origin(headers: Mapping[str, str], allowed: Collection[str], place: Endpoints) -> None:
    """Raises HttpRefusal: the page behind a request may not ask."""
    if not place.allows(headers.get("origin"), headers.get("host"), allowed, headers.get("sec-fetch-site")):
        raise HttpRefusal(403, "this origin is not allowed; see gateway.allowedOrigins")


def passed_on(headers: Mapping[str, str]) -> bool:
    """Whether a proxy passed a request on: then its connection does not say where it comes from."""
    return any(name in _FORWARDED or name.startswith(_FORWARDED_BEGIN) for name in headers)


def parted(path: str, own: str, told: str | None) -> tuple[str, str]:
    """The path of a request as the prefix below which its sender sees Klaw, and Klaw's own path; prefixes are empty, or
    such as ``/klaw``.

    Args:
        own: ``gateway.http.prefix``.
        told: ``X-Forwarded-Prefix`` of a proxy on this machine, which has taken this prefix off the path.
    """
    if own and f"{path}/".startswith(f"{own}/"):
        return own, path[len(own) :]
    told = (told or "").rstrip("/")
    return told if re.fullmatch(PATH_PREFIX, told) else "", path


def session_of(headers: Mapping[str, str]) -> str | None:
    """The secret of a browser's session. Read by hand: ``http.cookies`` takes half a second for the quotes of a long
    cookie."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def _bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header; another scheme is a proxy's password."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


_PORTS = {"http": 80, "https": 443}
_HOST = r"(?P<name>\[[0-9a-f:.]+\]|[^\s/?#@:\\\[\]%]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
_SERVER = re.compile(_HOST, re.IGNORECASE)
_ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://{_HOST}", re.IGNORECASE)
"""Without user and path, which ``urlsplit`` would take off without a word."""


def _server(host: str | None) -> tuple[str, int | None] | None:
    """Name and port of a ``Host`` header; None if it is not valid."""
    found = _SERVER.fullmatch(host) if host is not None else None
    return None if found is None or _port(found) > 65535 else (found["name"].lower().strip("[]"), _port(found) or None)


def _origin(text: str) -> tuple[str, str, int] | None:
    """Scheme, name and port of an origin, port 0 where the scheme has no usual one; None if it is not valid."""
    found = _ORIGIN.fullmatch(text)
    if found is None or _port(found) > 65535:
        return None
    scheme = found["scheme"].lower()
    return scheme, found["name"].lower().strip("[]"), _port(found) or _PORTS.get(scheme, 0)


def written(origin: str) -> str:
    """A valid origin as browsers write it: lower case, without its scheme's usual port. Raises HttpRefusal: it is none,
    because it was made of a request's ``Host``."""
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None or _port(found) > 65535:
        raise HttpRefusal(400, "the request's Host header is not usable")
    is_usual = _port(found) in (0, _PORTS.get(found["scheme"]))
    return f"{found['scheme']}://{found['name']}{'' if is_usual else f':{_port(found)}'}"


def _port(found: re.Match[str]) -> int:
    return int(found["port"] or 0)
