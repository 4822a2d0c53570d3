"""All MCP servers of the configuration. Without any nothing is loaded."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from klaw.actor.clock import Clock
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.config.document import join_path
from klaw.config.environment import Secret
from klaw.config.tools import McpConfig, McpServerConfig
from klaw.errors import ConfigError, McpError
from klaw.toolbox.mcp.server import McpReport, McpServer
from klaw.toolbox.spec import Toolbox

if TYPE_CHECKING:
    import trio

    from klaw.toolbox.mcp.session import Address
    from klaw.toolbox.mcp.stdio import Program


class McpServers:
    """The handles of the servers that are switched on."""

    def __init__(self, config: McpConfig, toolbox: Toolbox, clock: Clock, workspace: Path) -> None:
        threads = Threads("mcp", 1)
        self._servers = tuple(
            McpServer(name, server, partial(target_of, name, server, workspace), toolbox, clock, threads)
            for name, server in sorted(config.servers.items())
            if server.enabled
        )

    async def start(self, supervisor: Supervisor) -> None:
        """They are not waited for until they are connected."""
        for server in self._servers:
            await supervisor.start(server.spec())

    def stop(self, supervisor: Supervisor, nursery: "trio.Nursery") -> None:
        for server in self._servers:
            nursery.start_soon(supervisor.stop, server.mailbox.name, "shutdown")

    def report(self) -> Sequence[McpReport]:
        return [server.report() for server in self._servers]

    def problems(self) -> Mapping[str, str]:
        found = ((server.name, server.problem()) for server in self._servers)
        return {f"mcp:{name}": problem for name, problem in found if problem is not None}


def target_of(name: str, config: McpServerConfig, workspace: Path) -> "Program | Address":
    """What to connect to. Raises McpError: a secret leads nowhere."""
    path = join_path("mcp.servers", name)
    if config.command is None:
        from klaw.toolbox.mcp.session import Address

        return Address(url=config.url or "", headers=_revealed(config.headers, f"{path}.headers"))
    from klaw.toolbox.mcp.stdio import Program

    return Program(
        command=config.command,
        arguments=config.args,
        environment=_revealed(config.env, f"{path}.env"),
        folder=config.cwd or (workspace if workspace.is_dir() else None),
    )


def _revealed(secrets: Mapping[str, Secret], path: str) -> dict[str, str]:
    """Raises McpError, which names the key of a secret that cannot be read."""
    try:
        return {name: secret.reveal(join_path(path, name)) for name, secret in secrets.items()}
    except ConfigError as error:
        raise McpError(str(error)) from None
