"""Guarded connections: a name is resolved here, its addresses are checked, and one of those is what is connected to.

This is the only place that opens a connection for the web tools. Nothing resolves the name again, so a name server that
answers differently the second time gains nothing; TLS and the Host header keep the name.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import httpcore2
import trio

from klaw.toolbox.web.address import Refused, forbidden

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
            Refused: the name has no address, or one that is not public. A name with both kinds is refused as a whole.
            httpcore2.ConnectError, httpcore2.ConnectTimeout
        """
        try:
            addresses = await self._resolve(host.strip("[]"), port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise Refused("There is no server of this name.")
        for address in addresses:
            kind = self._forbidden(address)
            if kind is not None:
                raise Refused(f"The address is not on the public internet ({kind}); it is not fetched.")
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
        raise Refused("There is no server of this name.")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
