"""Klaw's side of MCP in tests: servers run as actors, and calls that go through the executor, as in a turn."""

import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.config.load import parse
from klaw.domain.events import Approval, ApprovalAsked, Event
from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.llm.types import ToolCall
from klaw.toolbox.approvals import Approvals
from klaw.toolbox.executor import CallResult, Executor, prepare
from klaw.toolbox.mcp.host import McpHost
from klaw.toolbox.mcp.server import McpServer, McpState
from klaw.toolbox.spec import Toolbox, ToolContext
from tests.support.repository import REPOSITORY
from tests.support.waiting import until

SERVER = {"command": sys.executable, "args": ["-m", "tests.support.programs.mcp_server"], "cwd": str(REPOSITORY)}


def program(*arguments: str, **more: Any) -> dict[str, Any]:
    """The server of ``mcp_server`` in a configuration."""
    return {**SERVER, "args": [*SERVER["args"], *arguments], **more}


def liar(*arguments: str, **more: Any) -> dict[str, Any]:
    """The one of ``mcp_liar``."""
    return {
        "command": sys.executable,
        "args": ["-m", "tests.support.programs.mcp_liar", *arguments],
        "cwd": str(REPOSITORY),
        **more,
    }


class Running:
    """Servers and what uses them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.toolbox = Toolbox()
        self.executor = Executor(toolbox=self.toolbox)
        self.servers: dict[str, McpServer] = {}

    def names(self, user: UserId = LOCAL_USER) -> list[str]:
        return [spec.name for spec in self.toolbox.offered(context(user))]

    async def call(self, name: str, /, *, sees: bool = False, **arguments: Any) -> CallResult:
        """One call, as the model makes it."""
        call = ToolCall(id="c1", name=name, arguments=json.dumps(arguments))
        prepared = prepare([call], taken=(), new_id=lambda: "c1", most=1)
        (result,) = await self.executor.run(prepared, attrs.evolve(context(), sees=sees))
        return result

    async def until(self, name: str, state: McpState) -> McpServer:
        """Wait until a server is in a state."""
        server = self.servers[name]
        await until(lambda: server.report().state is state)
        return server


def context(user: UserId = LOCAL_USER) -> ToolContext:
    return ToolContext(user=user, chat=ChatId(f"{user}:main"), turn="t1")


@asynccontextmanager
async def running(
    servers: Mapping[str, Mapping[str, Any]], *, ready: bool = True, **settings: Any
) -> AsyncIterator[Running]:
    """Run servers of a configuration; in the end they are stopped in order.

    Args:
        servers: the section ``mcp.servers``.
        ready: wait until all are connected.
        settings: changes of ``McpServerConfig``; ``check_s``, ``backoff`` and ``host``.
    """
    config, _ = parse(json.dumps({"mcp": {"servers": servers}}), {})
    clock, threads = SystemClock(), Threads("mcp", 1)
    given = {name: settings.pop(name) for name in ("backoff", "check_s", "host") if name in settings}
    own = {"backoff": Backoff(0.05, 300.0), **given}
    async with trio.open_nursery() as nursery:
        made = Running(Supervisor(nursery, clock))
        for name, each in config.mcp.servers.items():
            chosen = attrs.evolve(each, **settings)
            made.servers[name] = McpServer(name, chosen, REPOSITORY, made.toolbox, clock, threads, **own)
            await made.supervisor.start(made.servers[name].spec())
        for name in servers if ready else ():
            await made.until(name, McpState.READY)
        yield made
        async with trio.open_nursery() as stopping:
            for server in made.servers.values():
                stopping.start_soon(server.stop, made.supervisor)
        assert made.toolbox.all() == ()
        nursery.cancel_scope.cancel(reason="the test is over")


class Person:
    """Answers each question of servers at once; ``answers`` are yes, no or texts by the beginning of the question, and
    whatever else is asked gets a yes."""

    def __init__(self) -> None:
        self.approvals: Approvals
        self.asked: list[str] = []
        self.answers: dict[str, bool | str] = {}

    def emit(self, event: Event) -> None:
        if not isinstance(event, ApprovalAsked):
            return
        self.asked.append(event.approval.what)
        answer = next((each for begin, each in self.answers.items() if begin in event.approval.what), True)
        trio.lowlevel.spawn_system_task(self._answer, event.approval, answer)

    async def _answer(self, approval: Approval, answer: bool | str) -> None:
        if isinstance(answer, str):
            assert self.approvals.answer_text(approval.chat, answer)
        else:
            self.approvals.answer(approval, allow=answer)


def yes_sayer(folder: Path, person: Person | None = None, llm: Any = None, writer: Any = None) -> McpHost:
    """What servers are given of Klaw: a person who answers, and a folder for logins."""
    person, clock = person or Person(), SystemClock()
    ids = map(str, itertools.count())
    person.approvals = Approvals(
        events=person, clock=clock, new_id=lambda: next(ids), wait_s=30.0, watchers=lambda _chat: 1
    )
    core = SimpleNamespace(paths=SimpleNamespace(config_file=folder / "engine.yaml"), clock=clock, writer=writer)
    return McpHost(core=core, llm=llm, approvals=person.approvals)  # type: ignore[arg-type]


def problem(server: McpServer) -> str:
    return "".join(server.problems().values())


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children() -> list[int]:
    """Processes that this one started and has not reaped."""
    own = Path("/proc/self/task")
    return [int(pid) for task in own.iterdir() for pid in (task / "children").read_text().split()]
