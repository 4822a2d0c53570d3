"""Which web pages may open a WebSocket: the guard against cross-site pages and DNS rebinding. Pure.

A browser sends ``Origin``, a native client does not. Without tokens every page that a person visits could otherwise
talk to the server on their own machine.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit


def origin_allowed(origin: str | None, host: str | None, own_hosts: Collection[str], allowed: Collection[str]) -> bool:
    """Whether a request with these headers may go on.

    Args:
        origin: the ``Origin`` header; None if absent.
        host: the ``Host`` header.
        own_hosts: host names and addresses that are this server, besides loopback.
        allowed: further origins, such as ``https://example.org``.
    """
    if origin is None:
        return True
    page = _split(origin)
    if page is None or page.hostname is None or page.scheme not in ("http", "https"):
        return False
    if any(_same_origin(page, _split(other)) for other in allowed):
        return True
    server = _split(f"//{host}") if host else None
    if server is None or server.hostname is None:
        return False
    # The Host must be ours too: a page of evil.example whose name points here has equal Origin and Host.
    is_own = is_loopback(server.hostname) or server.hostname in {name.lower() for name in own_hosts}
    return is_own and page.hostname == server.hostname and _port(page) == (server.port or _default_port(page.scheme))


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
