"""The tools that there are, and what carries them out."""

from collections.abc import Callable, Iterable

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.names import ChatId
from klaw.memory.parts import MemoryParts
from klaw.toolbox.approvals import Approvals
from klaw.toolbox.builtin.file_tools import file_tools
from klaw.toolbox.builtin.memory import memory_tools
from klaw.toolbox.builtin.skills import Catalogue, skill_tools
from klaw.toolbox.builtin.time_and_messages import clock_tools, message_tools
from klaw.toolbox.executor import Executor, Overflow
from klaw.toolbox.mcp.server import McpServer
from klaw.toolbox.spec import Toolbox, ToolSpec


@attrs.frozen(kw_only=True)
class Tools:
    core: Core
    executor: Executor
    mcp: tuple[McpServer, ...]
    """Those that are switched on."""
    approvals: Approvals
    skills: Catalogue
    threads: Threads
    """Slow file tools must not hold back the reading of prompt files."""

    async def start(self) -> None:
        """MCP servers are not waited for until they are connected."""
        for server in self.mcp:
            await self.core.supervisor.start(server.spec())

    async def stop(self) -> None:
        async with trio.open_nursery() as nursery:
            for server in self.mcp:
                nursery.start_soon(server.stop, self.core.supervisor)


def build(
    core: Core, memory: MemoryParts, composer: Composer, watchers: Callable[[ChatId], int], more: Iterable[ToolSpec]
) -> Tools:
    """Make them; nothing runs yet. ``watchers``: how many clients watch a chat; ``more``: tools of other packages."""
    config, workspace = core.config.tools, core.paths.workspace
    toolbox, threads, skills = Toolbox(config.disabled), Threads("tool files", 4), Catalogue(workspace)
    sdk_threads = Threads("mcp", 1)
    mcp = tuple(
        McpServer(name, server, workspace, toolbox, core.clock, sdk_threads)
        for name, server in sorted(core.config.mcp.servers.items())
        if server.enabled
    )
    core.health.add(*(server.problems for server in mcp))
    toolbox.register(
        *clock_tools(core.clock),
        *message_tools(core.readers, core.writer, composer.own, memory.embedder.nudge),
        *file_tools(workspace, threads, config.max_output_chars),
        *skill_tools(skills, threads),
        *memory_tools(core, memory),
        *more,
    )
    # Not even the code of what is switched off is loaded.
    if config.web.enabled:
        from klaw.toolbox.web_fetch import WebFetcher, web_fetch

        toolbox.register(web_fetch(WebFetcher(config.web), config.web.timeout_s))
    if config.exec.enabled:
        from klaw.toolbox.host_exec import HostExec, host_exec
        from klaw.toolbox.program import Sandbox

        sandbox = Sandbox(config.exec)
        toolbox.register(host_exec(HostExec(config=config.exec, workspace=workspace, files=threads, sandbox=sandbox)))
    approvals = Approvals(
        events=core.events, clock=core.clock, new_id=core.new_id, wait_s=config.exec.approval_s, watchers=watchers
    )
    executor = Executor(
        toolbox=toolbox,
        overflow=Overflow(threads, workspace, core.new_id),
        max_output_chars=config.max_output_chars,
        timeout_s=config.timeout_s,
        approve=approvals.approve,
    )
    return Tools(core=core, executor=executor, mcp=mcp, approvals=approvals, skills=skills, threads=threads)
