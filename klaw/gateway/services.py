"""What every connection of the gateway needs."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.chats.directory import ChatDirectory
from klaw.config.schema import GatewayConfig
from klaw.gateway.connection_limits import Connection
from klaw.gateway.hub import Hub
from klaw.gateway.push import Pusher
from klaw.gateway.tokens import Authenticator
from klaw.operations.handler import Caller
from klaw.operations.perform import Call
from klaw.store.attachments import Attachments
from klaw.toolbox.approvals import Approvals


class HttpDoor(Protocol):
    """Serves HTTP on the gateway's port; ``klaw.api.server`` does."""

    async def serve(self, stream: trio.abc.HalfCloseableStream, read: bytes, connection: Connection) -> None:
        """Serve a connection until it ends; ``read`` was read of it already."""

    async def close(self) -> None:
        """End connections when their requests are answered."""


@attrs.frozen(kw_only=True)
class Services:
    config: GatewayConfig
    chats: ChatDirectory
    hub: Hub
    auth: Authenticator
    approvals: Approvals
    attachments: Attachments
    clock: Clock
    perform: Callable[[Call, Caller], Awaitable[dict[str, Any]]]
    """``operations.perform`` with the server's parts."""
    push: Pusher | None = None
    """None: nobody can be notified."""
    http: HttpDoor | None = None
    """None: WebSockets only."""
