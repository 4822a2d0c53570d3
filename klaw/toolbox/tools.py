"""The tools that there are, and what carries them out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.config.describe import secrets_in
from klaw.config.environment import Secret
from klaw.config.schema import EngineConfig
from klaw.config.tools import McpServerConfig
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.names import ChatId
from klaw.errors import ConfigError
from klaw.llm.client import Llm
from klaw.memory.parts import MemoryParts
from klaw.toolbox.approvals import Approvals
from klaw.toolbox.builtin.file_tools import file_tools
from klaw.toolbox.builtin.memory import memory_tools
from klaw.toolbox.builtin.skills import Catalogue, skill_tools
from klaw.toolbox.builtin.time_and_messages import clock_tools, message_tools
from klaw.toolbox.executor import Executor, Overflow
from klaw.toolbox.mcp.host import McpHost
from klaw.toolbox.mcp.server import McpServer
from klaw.toolbox.spec import Toolbox, ToolSpec

if TYPE_CHECKING:
    from klaw.toolbox.web_fetch import ReadDocument


@attrs.frozen(kw_only=True)
class Tools:
    core: Core
    host: McpHost
    executor: Executor
    mcp: list[McpServer]
    """Those that are switched on."""
    skills: Catalogue
    threads: Threads
    """Slow file tools must not hold back the reading of prompt files."""
    read_document: "ReadDocument"
    _sdk_threads: Threads = attrs.field(factory=lambda: Threads("mcp", 1), init=False)
    _secrets: dict[str, list[str | None]] = attrs.field(factory=dict, init=False, repr=False)
    """What the secrets of each MCP server were when it was connected."""
    _registered: list[str] = attrs.field(factory=list, init=False)
    """Names of the tools that follow from the settings."""

    @property
    def approvals(self) -> Approvals:
        return self.host.approvals

    async def start(self) -> None:
        """MCP servers are not waited for until they are connected."""
        self._secrets.update(await self.core.files.run(self._revealed))
        await self._connect()

    async def stop(self) -> None:
        await self._disconnect(self.mcp)

    async def settings_changed(self, before: EngineConfig) -> None:
        config, executor = self.core.config.tools, self.executor
        executor.toolbox.disabled = config.disabled
        executor.max_output_chars, executor.timeout_s = config.max_output_chars, config.timeout_s
        self.approvals.wait_s = config.exec.approval_s
        if config != before.tools:
            self.register(await self.core.files.run(self.by_settings))
        wanted, secrets = self._servers(), await self.core.files.run(self._revealed)
        changed = {name for name in wanted if secrets[name] != self._secrets.get(name)}
        self._secrets.update(secrets)
        gone = [each for each in self.mcp if each.name in changed or wanted.get(each.name) != each.config]
        self.mcp[:] = [server for server in self.mcp if server not in gone]
        await self._disconnect(gone)
        await self._connect()

    def problems(self) -> Mapping[str, str]:
        return {code: text for server in self.mcp for code, text in server.problems().items()}

    def by_settings(self) -> list[ToolSpec]:
        """The tools that the settings want. Blocks: their code is loaded."""
        return [*_by_settings(self.core, self.threads, self.executor.toolbox, self.read_document)]

    def register(self, specs: Sequence[ToolSpec]) -> None:
        """Have these tools by the settings, and no other ones. Calls that run go on as they began."""
        self.executor.toolbox.remove(*self._registered)
        self.executor.toolbox.register(*specs)
        self._registered[:] = [spec.name for spec in specs]

    def _servers(self) -> dict[str, McpServerConfig]:
        return {name: each for name, each in sorted(self.core.config.mcp.servers.items()) if each.enabled}

    def _revealed(self) -> dict[str, list[str | None]]:
        """The secrets of each server as they are now; None: it is missing. Blocks."""

        def text(path: str, secret: Secret) -> str | None:
            with suppress(ConfigError):
                return secret.reveal(path)
            return None

        return {name: [text(*each) for each in secrets_in(server)] for name, server in self._servers().items()}

    async def _connect(self) -> None:
        core, known = self.core, {server.name for server in self.mcp}
        for name, config in self._servers().items():
            if name not in known:
                given = (core.paths.workspace, self.executor.toolbox, core.clock, self._sdk_threads, self.host)
                server = McpServer(name, config, *given)
                self.mcp.append(server)
                await core.supervisor.start(server.spec())
        self.mcp.sort(key=lambda server: server.name)

    async def _disconnect(self, servers: Iterable[McpServer]) -> None:
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(server.stop, self.core.supervisor)


def build(
    core: Core,
    llm: Llm,
    memory: MemoryParts,
    composer: Composer,
    watchers: Callable[[ChatId], int],
    more: Iterable[ToolSpec],
    read_document: "ReadDocument",
) -> Tools:
    """Make them; nothing runs yet. ``watchers``: how many clients watch a chat; ``more``: tools of other packages."""
    config, workspace = core.config.tools, core.paths.workspace
    toolbox, threads, skills = Toolbox(config.disabled), Threads("tool files", 4), Catalogue(workspace)
    toolbox.register(
        *clock_tools(core.clock, core.readers),
        *message_tools(core.readers, core.writer, composer.own, memory.embedder.nudge),
        *skill_tools(skills, threads),
        *memory_tools(core, memory),
        *more,
    )
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
    host = McpHost(core=core, llm=llm, approvals=approvals)
    tools = Tools(
        core=core, host=host, executor=executor, mcp=[], skills=skills, threads=threads, read_document=read_document
    )
    tools.register(tools.by_settings())
    core.health.add(tools.problems)
    core.changing.told.append(tools.settings_changed)
    return tools


def _by_settings(core: Core, threads: Threads, toolbox: Toolbox, read_document: "ReadDocument") -> Iterator[ToolSpec]:
    """The tools that are made of settings. Not even the code of what is switched off is loaded."""
    config, workspace = core.config.tools, core.paths.workspace
    yield from file_tools(workspace, threads, config.max_output_chars)
    if config.web.enabled:
        from klaw.toolbox.web_fetch import WebFetcher, web_fetch

        yield web_fetch(WebFetcher(config.web, read_document=read_document), config.web.timeout_s)
    if config.web.search.service is not None:
        from klaw.toolbox.web_search import web_search

        search = core.live(lambda now: now.tools.web.search)
        yield web_search(search, toolbox, core.readers, core.writer, core.clock)
    if config.exec.enabled:
        from klaw.toolbox.host_exec import HostExec, host_exec
        from klaw.toolbox.program import Sandbox

        yield host_exec(HostExec(config=config.exec, workspace=workspace, files=threads, sandbox=Sandbox(config.exec)))
