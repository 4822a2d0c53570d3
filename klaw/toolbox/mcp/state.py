"""What is known of an MCP server, for status, health and ``klaw mcp list``."""

import enum

import attrs


class McpState(enum.StrEnum):
    STARTING = "starting"
    """It is being connected for the first time."""
    READY = "ready"
    WAITING = "waiting"
    """The connection was lost or could not be made; it is tried again, less and less often."""
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class McpReport:
    """A snapshot of one server.

    Args:
        kind: stdio or http.
        since: Unix seconds.
        tools: names that models see.
        left_out: tools over ``maxTools``.
        users: who may use them; ``*`` for all.
        protocol: the negotiated version.
        reason: why it is not ready.
        said: the last line that its program wrote to standard error; for the operator only.
        last_error: class of the last error, also when it is ready again.
        connects: how often it was connected.
    """

    name: str
    kind: str
    state: McpState
    since: float
    tools: tuple[str, ...] = ()
    left_out: int = 0
    users: tuple[str, ...] = ()
    protocol: str | None = None
    reason: str | None = None
    said: str | None = attrs.field(default=None, repr=False)
    last_error: str | None = None
    connects: int = 0
    retry_in_s: float | None = None
