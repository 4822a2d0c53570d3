"""Actor ``mcp.NAME``: owns the connection to one MCP server, and reconnects it for ever.

When the connection is lost, running calls fail with a text for the model, and the tools stay offered until a second
attempt to reconnect has failed: a server that restarts must not change the list of tools, which providers cache.
"""

import enum
import importlib
import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import Clock
from klaw.actor.failure import error_class, leaves, where
from klaw.actor.supervisor import ActorSpec, Supervisor, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config.tools import McpServerConfig
from klaw.errors import INSTALL_AGAIN, McpError
from klaw.toolbox.mcp.listing import ListedTool, chosen, described, offered_names, parameters_of
from klaw.toolbox.spec import Arguments, Permission, PicturedText, Toolbox, ToolContext, ToolFailure, ToolSpec

if TYPE_CHECKING:
    from klaw.toolbox.mcp.session import McpSession

MAX_AT_ONCE = 16
MAX_WAITING = 32
BACKOFF = Backoff(1.0, 300.0)
STABLE_S = 60.0
"""After a connection of this length the first pause is short again."""
KEEP_TOOLS_FAILURES = 2
"""Failed attempts in a row that remove the tools."""
RELIST_PAUSE_S = 1.0
CHECK_S = 60.0
"""How often a server behind HTTP is asked for its tools: nothing else tells that it is gone."""
CLOSE_S = 2.0
STOP_BUDGET_S = 10.0
"""More than the transports need to end a process."""

Answer: TypeAlias = str | PicturedText | ToolFailure

log = structlog.get_logger("klaw.mcp")


class McpState(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class McpReport:
    name: str
    kind: str
    """``stdio`` or ``http``."""
    state: McpState
    since: float
    """Unix seconds."""
    tools: tuple[str, ...] = ()
    """Names that models see; ``left_out`` counts those over ``maxTools``."""
    left_out: int = 0
    users: tuple[str, ...] = ()
    """Who may use them; ``*`` for all."""
    protocol: str | None = None
    reason: str | None = None
    """Why it is not ready."""
    said: str | None = attrs.field(default=None, repr=False)
    """The last line that its program wrote to standard error; for the operator only."""
    last_error: str | None = None
    """Class of the last error, also when it is ready again."""
    connects: int = 0
    retry_in_s: float | None = None


@attrs.define(eq=False)
class McpServer:
    """One server. ``workspace`` is the usual folder of its program; ``threads`` load the SDK and read secrets."""

    name: str
    config: McpServerConfig
    _workspace: Path
    _toolbox: Toolbox
    _clock: Clock
    _threads: Threads
    _backoff: Backoff = attrs.field(default=BACKOFF, kw_only=True)
    _check_s: float = attrs.field(default=CHECK_S, kw_only=True)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _session: "McpSession | None" = attrs.field(default=None, init=False)
    _specs: tuple[ToolSpec, ...] = attrs.field(default=(), init=False)
    _places: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(MAX_AT_ONCE), init=False)
    _running: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    _retry_at: float | None = attrs.field(default=None, init=False)
    _ready_at: float | None = attrs.field(default=None, init=False)
    _said: list[str] = attrs.field(factory=list, init=False)
    """The program's last line on standard error."""
    _report: McpReport = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        kind = "stdio" if self.config.command is not None else "http"
        state, now = McpState.STARTING, self._clock.now()
        self._report = McpReport(name=self.name, kind=kind, state=state, since=now, users=self.config.users)

    def spec(self) -> ActorSpec:
        return ActorSpec(name=f"mcp.{self.name}", run=self._run)

    async def stop(self, supervisor: Supervisor) -> None:
        """Close the connection; when that takes too long, break it."""
        self._stopping.set()
        with trio.move_on_after(STOP_BUDGET_S):
            await supervisor.wait_ended(f"mcp.{self.name}")
        await supervisor.stop(f"mcp.{self.name}", "shutdown")

    def report(self) -> McpReport:
        retry = None if self._retry_at is None else max(0.0, round(self._retry_at - trio.current_time(), 1))
        return attrs.evolve(self._report, tools=tuple(spec.name for spec in self._specs), retry_in_s=retry)

    def problems(self) -> Mapping[str, str]:
        reason = self._report.reason
        text = f"the MCP server {self.name} is not connected: {reason}; it is tried again automatically"
        return {f"mcp:{self.name}": text} if self._report.state is McpState.WAITING else {}

    async def call(self, tool: str, arguments: Arguments) -> Answer:
        """Call a tool. What goes wrong is a ToolFailure. Cancelled, it tells the server, in at most 5 s."""
        server = f"The MCP server {self.name}"
        if self._places.statistics().tasks_waiting >= MAX_WAITING:
            return ToolFailure(f"{server} is busy with too many calls. Try again later.")
        async with self._places:
            if self._session is None:
                why = self._report.reason or "it is being started"
                then = "Nothing was done. It is tried again automatically: tell the user, or continue without it."
                return ToolFailure(f"{server} is not connected: {why}. {then}")
            outcome: Answer | None = None
            with trio.CancelScope() as scope:
                self._running.add(scope)
                try:
                    outcome = await self._session.call(tool, arguments)
                except Exception as error:  # noqa: BLE001 - whatever the SDK raises is this call's failure
                    log.warning("mcp_call_failed", name=self.name, error=error_class(error), where=where(error))
                    outcome = ToolFailure(f"The call failed with {error_class(error)}.")
                finally:
                    self._running.discard(scope)
        if outcome is not None:
            return outcome
        why = f" ({self._report.reason})" if self._report.reason else ""
        then = "Whether the call had an effect is unknown. The server is restarted automatically."
        return ToolFailure(f"{server} ended during the call{why}. {then}")

    async def _run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        task_status.started()
        try:
            await self._keep_connected(vitals)
        finally:
            self._offer((), 0)
            self._enter(McpState.STOPPED)

    async def _keep_connected(self, vitals: Vitals) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._said.clear()
            vitals.doing("connecting")
            self._retry_at = self._ready_at = None
            try:
                await self._connection(vitals)
            except Exception as error:  # noqa: BLE001 - a connection may fail in any way; it is made again
                failures = self._lost(error, failures)
            if self._stopping.is_set():
                return
            pause = self._backoff.pause_s(failures)
            vitals.doing("waiting to reconnect")
            self._retry_at = trio.current_time() + pause
            with trio.move_on_after(pause):
                await self._stopping.wait()

    async def _connection(self, vitals: Vitals) -> None:
        """One connection, from its start to its end. Returns when stopping. Raises McpError."""
        config = self.config
        if importlib.util.find_spec("mcp") is None:
            raise McpError(f"the Python package mcp is missing: {INSTALL_AGAIN}")
        # In a thread: with the SDK it takes half a second.
        sdk: Any = await self._threads.run(importlib.import_module, "klaw.toolbox.mcp.session")
        transport = await self._threads.run(sdk.transport_of, self.name, config, self._workspace, abandon=True)
        scope = trio.CancelScope(deadline=trio.current_time() + config.start_timeout_s)
        try:
            with scope:
                async with sdk.opened(transport, self._said) as session, trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_end, session)
                    self._take(await session.tools())
                    scope.deadline = math.inf
                    self._ready(session)
                    vitals.doing("serving")
                    nursery.start_soon(session.follow_changes)
                    nursery.start_soon(self._refresh, session)
                    await self._stopping.wait()
                    scope.deadline = trio.current_time() + CLOSE_S
                    nursery.cancel_scope.cancel(reason="stopping")
        finally:
            self._end_calls()
        if scope.cancelled_caught and not self._stopping.is_set():
            raise McpError(f"it was not ready within {config.start_timeout_s:g} s")

    async def _watch_end(self, session: "McpSession") -> None:
        """Fail the running calls at once; ending the process may take seconds. Raises McpError."""
        reason = await session.wait_ended()
        self._enter(McpState.WAITING, reason)
        self._end_calls()
        raise McpError(reason)

    def _end_calls(self) -> None:
        self._session = None
        for running in self._running:
            running.cancel(reason="the connection is over")

    async def _refresh(self, session: "McpSession") -> None:
        """Follow changes of the list of tools. Raises McpError: an idle server does not answer."""
        while True:
            await session.changed.wait_for_news(math.inf if self.config.command is not None else self._check_s)
            with trio.move_on_after(self.config.start_timeout_s) as asking:
                self._take(await session.tools())
            if asking.cancelled_caught and not self._running:
                raise McpError(f"it did not answer for {self.config.start_timeout_s:g} s")
            await trio.sleep(RELIST_PAUSE_S)

    def _take(self, listed: tuple[ListedTool, ...]) -> None:
        wanted, left_out = chosen(listed, self.config.tools, self.config.max_tools)
        names = offered_names(self.name, [tool.name for tool in wanted])
        by_name = {names[tool.name]: tool for tool in wanted}  # a server may imitate a digest
        self._offer(tuple(self._spec_of(tool, name) for name, tool in by_name.items()), left_out)

    def _spec_of(self, tool: ListedTool, name: str) -> ToolSpec:
        parameters = parameters_of(tool.schema)

        async def invoke(_context: ToolContext, arguments: Arguments) -> Answer:
            return await self.call(tool.name, arguments)

        users = frozenset(self.config.users)
        return ToolSpec(
            name=name,
            description=described(self.name, tool.description),
            parameters=parameters.schema,
            permission=Permission(self.config.permission),
            invoke=invoke,
            bind=parameters.bind,
            timeout_s=self.config.timeout_s,
            foreign=True,
            when=None if "*" in users else lambda context: context.user in users,
        )

    def _offer(self, specs: tuple[ToolSpec, ...], left_out: int) -> None:
        """Replace its tools in the toolbox. Without an await, so that nobody sees a state between."""
        own, new = ({spec.name for spec in each} for each in (self._specs, specs))
        if own != new or left_out != self._report.left_out:
            log.info("mcp_tools", name=self.name, count=len(new), missing=left_out)
        self._toolbox.remove(*own)
        self._toolbox.register(*specs)
        self._specs = specs
        self._report = attrs.evolve(self._report, left_out=left_out)

    def _ready(self, session: "McpSession") -> None:
        self._session, self._ready_at = session, trio.current_time()
        self._report = attrs.evolve(
            self._report, protocol=session.protocol, connects=self._report.connects + 1, said=None
        )
        self._enter(McpState.READY)
        log.info("mcp_ready", name=self.name, version=session.protocol, count=len(self._specs))

    def _lost(self, error: Exception, failures: int) -> int:
        """Note why a connection ended. Returns the number of failures in a row."""
        lived_s = trio.current_time() - self._ready_at if self._ready_at is not None else 0.0
        failures = 1 if lived_s >= STABLE_S else failures + 1
        kind = error_class(error)
        known = next((str(leaf) for leaf in leaves(error) if isinstance(leaf, McpError)), None)
        log.warning("mcp_not_connected", name=self.name, error=kind, attempt=failures, where=where(error))
        self._report = attrs.evolve(self._report, last_error=kind, said="".join(self._said[-1:]) or None)
        self._enter(McpState.WAITING, known or f"it failed with {kind}")
        if self._ready_at is None and failures >= KEEP_TOOLS_FAILURES:
            self._offer((), 0)
        return failures

    def _enter(self, state: McpState, reason: str | None = None) -> None:
        since = self._report.since if state is self._report.state else self._clock.now()
        self._report = attrs.evolve(self._report, state=state, since=since, reason=reason)
