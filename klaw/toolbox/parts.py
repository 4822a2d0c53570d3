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
from klaw.toolbox.builtin.clock import clock_tools
from klaw.toolbox.builtin.files import file_tools
from klaw.toolbox.builtin.memory import memory_tools
from klaw.toolbox.builtin.messages import message_tools
from klaw.toolbox.builtin.skills import Catalogue, skill_tools
from klaw.toolbox.executor import Executor, Overflow
from klaw.toolbox.mcp.servers import McpServers
from klaw.toolbox.spec import Toolbox, ToolSpec


@attrs.frozen(kw_only=True)
class Tools:
    """See ``build``."""

    core: Core
    executor: Executor
    """Its toolbox holds all tools."""
    mcp: McpServers
    approvals: Approvals
    skills: Catalogue
    threads: Threads
    """Of their own: slow file tools must not hold back the reading of prompt files."""

    async def start(self) -> None:
        """Start what connects to MCP servers."""
        await self.mcp.start(self.core.supervisor)

    async def stop(self) -> None:
        """End the connections to MCP servers."""
        async with trio.open_nursery() as nursery:
            self.mcp.stop(self.core.supervisor, nursery)


def build(
    core: Core, memory: MemoryParts, composer: Composer, watchers: Callable[[ChatId], int], more: Iterable[ToolSpec]
) -> Tools:
    """Make them; nothing runs yet.

    Args:
        core, memory, composer: what the tools work with.
        watchers: how many clients watch a chat.
        more: tools of other packages.
    """
    config, workspace = core.config.tools, core.paths.workspace
    toolbox, threads, skills = Toolbox(config.disabled), Threads("tool files", 4), Catalogue(workspace)
    mcp = McpServers(core.config.mcp, toolbox, core.clock, workspace)
    core.health.add(mcp.problems)
    toolbox.register(
        *clock_tools(core.clock),
        *message_tools(core.readers, core.writer, composer.own, memory.embedder.nudge),
        *file_tools(workspace, threads, config.max_output_chars),
        *skill_tools(skills, threads),
        *memory_tools(core, memory),
        *more,
    )
    # Of what is switched off not even the code is loaded.
    if config.web.enabled:
        from klaw.toolbox.web.fetch import WebFetcher
        from klaw.toolbox.web.tool import web_fetch

        toolbox.register(web_fetch(WebFetcher(config.web), config.web.timeout_s))
    if config.exec.enabled:
        from klaw.toolbox.exec.process import Sandbox
        from klaw.toolbox.exec.tool import HostExec, host_exec

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
