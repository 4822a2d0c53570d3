"""Actor ``mcp.NAME``: owns the connection to one MCP server, and reconnects it for ever.

When the connection is lost, running calls fail with a text for the model, and the tools stay offered until a second
attempt to reconnect has failed: a server that restarts must not change the list of tools, which providers cache.
"""

import importlib
import importlib.util
import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
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
from klaw.toolbox.mcp.host import LOGIN_S, Login, LoginFile, McpHost, McpReport, McpState
from klaw.toolbox.mcp.listing import ListedEntry, ListedTool, chosen, described, offered_names, parameters_of
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

_CALL: ContextVar[ToolContext | None] = ContextVar("the call that a server works on", default=None)

log = structlog.get_logger("klaw.mcp")


@attrs.define(eq=False)
class McpServer:
    """One server. ``workspace`` is the usual folder of its program; ``threads`` load the SDK and read secrets. Without
    a ``host`` it can ask nobody, and nobody can log in."""

    name: str
    config: McpServerConfig
    _workspace: Path
    _toolbox: Toolbox
    _clock: Clock
    _threads: Threads
    _host: McpHost | None = None
    _backoff: Backoff = attrs.field(default=BACKOFF, kw_only=True)
    _check_s: float = attrs.field(default=CHECK_S, kw_only=True)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _session: "McpSession | None" = attrs.field(default=None, init=False)
    _specs: tuple[ToolSpec, ...] = attrs.field(default=(), init=False)
    entries: Mapping[str, tuple[ListedEntry, ...]] = attrs.field(factory=dict, init=False)
    """Its resources, templates and prompts: see ``McpSession.entries``."""
    _calls: list[ToolContext] = attrs.field(factory=list, init=False)
    login: Login | None = attrs.field(default=None, init=False)
    """The last one that was begun."""
    _link: Any = attrs.field(default=None, init=False)
    _again: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while it is connected, or waits because it could not be."""
    _scope: trio.CancelScope | None = attrs.field(default=None, init=False)
    _vitals: Vitals | None = attrs.field(default=None, init=False)
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
        self._again.set()
        with trio.move_on_after(STOP_BUDGET_S):
            await supervisor.wait_ended(f"mcp.{self.name}")
        await supervisor.stop(f"mcp.{self.name}", "shutdown")

    def report(self) -> McpReport:
        retry = None if self._retry_at is None else max(0.0, round(self._retry_at - trio.current_time(), 1))
        resources = (each for kind, found in self.entries.items() if kind != "prompts" for each in found)
        return attrs.evolve(
            self._report,
            tools=tuple(spec.name for spec in self._specs),
            resources=sum(1 for _ in resources),
            prompts=len(self.entries.get("prompts", ())),
            retry_in_s=retry,
            reason=self._report.reason or (self._link and self._link.wants) or None,
            logged=dict(self._link.logged) if self._link else {},
            said=self._report.said or (self._link and self._link.last_logged) or None,
        )

    def problems(self) -> Mapping[str, str]:
        reason = self._report.reason or ""
        text = f"the MCP server {self.name} is not connected: {reason}"
        text += "" if "klaw mcp login" in reason else "; it is tried again automatically"
        return {f"mcp:{self.name}": text} if self._report.state is McpState.WAITING else {}

    def is_for(self, user: str) -> bool:
        return "*" in self.config.users or user in self.config.users

    async def read(self, uri: str) -> PicturedText:
        """The content of a resource. Raises McpError."""
        return await self._asked(lambda session: session.read(uri))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> PicturedText:
        """The messages of a prompt. Raises McpError."""
        return await self._asked(lambda session: session.prompt(name, arguments))

    async def _asked(self, ask: "Callable[[McpSession], Awaitable[PicturedText]]") -> PicturedText:
        if self._session is None:
            raise McpError(f"it is not connected: {self._report.reason or 'it is being started'}")
        try:
            return await ask(self._session)
        except McpError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises
            log.warning("mcp_call_failed", name=self.name, error=error_class(error), where=where(error))
            raise McpError(f"it failed with {error_class(error)}") from None

    def log_in(self, redirect: str, *, device: bool) -> Login:
        """Connect anew, with a person who logs in. Another login that was begun is over."""
        self._end_login("another login was begun")
        self.login = Login(redirect=redirect, device=device, challenge=self._link and self._link.challenge)
        self.reconnect()
        return self.login

    def takes_login(self, address: str) -> bool:
        """Go on with the login from which a browser comes back. False: there is none like that."""
        return self.login is not None and self.login.answer(address)

    def reconnect(self) -> None:
        """Make the connection anew, now."""
        self._settled = trio.Event()
        self._enter(McpState.STARTING)
        self._again.set()
        if self._scope is not None:
            self._scope.cancel(reason="connecting anew")

    async def probe(self, within_s: float) -> None:
        """Ask it again what it has, or connect it now, and wait for that. Raises McpError."""
        if self._session is not None:
            await self._list(self._session)
        else:
            self.reconnect()
        with trio.move_on_after(within_s):
            await self._settled.wait()

    def _end_login(self, problem: str) -> None:
        if self.login is not None:
            self.login.end(problem)

    def _caller(self) -> ToolContext | None:
        chats = {(each.user, each.chat): each for each in self._calls}
        return _CALL.get() or (next(iter(chats.values())) if len(chats) == 1 else None)

    async def call(
        self, tool: str, arguments: Arguments, context: ToolContext | None = None, output: Any = None
    ) -> Answer:
        """Call a tool; ``output`` is the schema of its structured result. What goes wrong is a ToolFailure. Cancelled,
        it tells the server, in at most 5 s."""
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
                self._calls += [context] if context is not None else []
                current = _CALL.set(context)
                try:
                    outcome = await self._session.call(tool, arguments, output, self._show(tool))
                except Exception as error:  # noqa: BLE001 - whatever the SDK raises is this call's failure
                    log.warning("mcp_call_failed", name=self.name, error=error_class(error), where=where(error))
                    outcome = ToolFailure(f"The call failed with {error_class(error)}.")
                finally:
                    _CALL.reset(current)
                    self._calls = [each for each in self._calls if each is not context]
                    self._running.discard(scope)
                    self._show("serving")("")
        if outcome is not None:
            return outcome
        why = f" ({self._report.reason})" if self._report.reason else ""
        then = "Whether the call had an effect is unknown. The server is restarted automatically."
        return ToolFailure(f"{server} ended during the call{why}. {then}")

    def _show(self, what: str) -> Callable[[str], None]:
        vitals = self._vitals
        return lambda far: vitals.doing(f"{what} {far}".rstrip()) if vitals is not None else None

    async def _run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        self._vitals = vitals
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
            self._again = trio.Event()
            try:
                await self._connection(vitals)
            except Exception as error:  # noqa: BLE001 - a connection may fail in any way; it is made again
                failures = self._lost(error, failures)
            if self._stopping.is_set():
                return
            if self._again.is_set():
                failures = 0
                continue
            pause = self._backoff.pause_s(failures)
            vitals.doing("waiting to reconnect")
            self._retry_at = trio.current_time() + pause
            with trio.move_on_after(pause):
                await self._again.wait()

    async def _connection(self, vitals: Vitals) -> None:
        """One connection, from its start to its end. Returns when stopping. Raises McpError."""
        config = self.config
        if importlib.util.find_spec("mcp") is None:
            raise McpError(f"the Python package mcp is missing: {INSTALL_AGAIN}")
        # In a thread: with the SDK it takes half a second.
        sdk: Any = await self._threads.run(importlib.import_module, "klaw.toolbox.mcp.session")
        self._link = link = sdk.Link()
        login = self.login if self.login is not None and not self.login.over else None
        storage = requests = None
        if self._host is not None:
            storage = sdk.LoginStorage(LoginFile(self._host.logins, self.name), self._threads)
            about: dict[str, Any] = {"name": self.name, "config": config, "caller": self._caller}
            requests = sdk.ServerRequests(host=self._host, **about)
        given = (self.name, config, self._workspace, link, storage, login)
        transport = await self._threads.run(sdk.transport_of, *given, abandon=True)
        within_s = config.start_timeout_s if login is None else LOGIN_S
        self._scope = scope = trio.CancelScope(deadline=trio.current_time() + within_s)
        try:
            with scope:
                async with sdk.opened(transport, link, self._said, requests) as session, trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_end, session)
                    await self._list(session)
                    scope.deadline = math.inf
                    self._ready(session)
                    vitals.doing("serving")
                    nursery.start_soon(session.follow_changes)
                    nursery.start_soon(self._refresh, session)
                    await self._stopping.wait()
                    scope.deadline = trio.current_time() + CLOSE_S
                    nursery.cancel_scope.cancel(reason="stopping")
        finally:
            self._scope = None
            self._end_calls()
        if scope.cancelled_caught and not self._stopping.is_set() and not self._again.is_set():
            raise McpError(f"it was not ready within {within_s:g} s")

    async def _list(self, session: "McpSession") -> None:
        self._take(await session.tools())
        self.entries = await session.entries()

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
        """Follow changes of its lists. Raises McpError: an idle server does not answer."""
        while True:
            await session.changed.wait_for_news(math.inf if self.config.command is not None else self._check_s)
            with trio.move_on_after(self.config.start_timeout_s) as asking:
                await self._list(session)
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

        async def invoke(context: ToolContext, arguments: Arguments) -> Answer:
            return await self.call(tool.name, arguments, context, tool.output)

        return ToolSpec(
            name=name,
            description=described(self.name, tool.description),
            parameters=parameters.schema,
            permission=Permission(self.config.permission),
            invoke=invoke,
            bind=parameters.bind,
            timeout_s=self.config.timeout_s,
            foreign=True,
            when=None if "*" in self.config.users else lambda context: self.is_for(context.user),
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
        self._end_login("")
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
        if not self._again.is_set():
            self._end_login(self._report.reason or "")
        if self._ready_at is None and failures >= KEEP_TOOLS_FAILURES:
            self._offer((), 0)
        return failures

    def _enter(self, state: McpState, reason: str | None = None) -> None:
        if state is McpState.WAITING and self._again.is_set():
            return  # it is connected anew, whatever became of the connection before
        if state is not McpState.STARTING:
            self._settled.set()
        since = self._report.since if state is self._report.state else self._clock.now()
        self._report = attrs.evolve(self._report, state=state, since=since, reason=reason)
