"""What every connection of the gateway needs."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.chats.directory import ChatDirectory
from klaw.config.schema import GatewayConfig
from klaw.domain.names import UserId
from klaw.gateway.connection_limits import Connection, TokenBucket, UserAllowance
from klaw.gateway.hub import Hub
from klaw.gateway.origin_check import Endpoints
from klaw.gateway.tokens import Authenticator
from klaw.operations.handler import Caller
from klaw.operations.perform import Call
from klaw.store.attachments import Attachments
from klaw.toolbox.approvals import Approvals


@attrs.define(eq=False)
class GatewayConnection:
    """A connection that was admitted, whatever it speaks."""

    id: str
    place: Endpoints
    log_in: Callable[[UserId], UserAllowance | None]
    """Called at a good hello or the first good request; returns what the user may send; None: there is no place."""
    pace: TokenBucket
    admitted: Connection
    user: UserId | None = None
    allowance: UserAllowance | None = None
    operator: bool = False
    """It is the admin socket's: the operator asks, without a token and without limits."""

    @classmethod
    def of_operator(cls) -> "GatewayConnection":
        now, much = trio.current_time(), 1 << 40
        return cls(
            id="admin",
            place=Endpoints(loopback=True, own_hosts=frozenset()),
            log_in=lambda _user: None,
            pace=TokenBucket(much, much, now),
            admitted=Connection("admin", drop=lambda: None, has_unread=lambda: False, arrived_at=now, wait_s=0.0),
            allowance=UserAllowance(much, much, now),
            operator=True,
        )


class HttpDoor(Protocol):
    """Serves HTTP on the gateway's port; ``klaw.api.server`` does."""

    async def serve(self, stream: trio.abc.HalfCloseableStream, read: bytes, connection: GatewayConnection) -> None:
        """Serve a connection until it ends; ``read`` was read of it already."""
        ...

    async def close(self) -> None:
        """End connections when their requests are answered."""
        ...


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
    http: HttpDoor | None = None
    """None: WebSockets only."""
