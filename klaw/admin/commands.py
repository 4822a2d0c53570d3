"""The commands of the admin socket: each reads the running parts and answers with plain JSON values.

No answer holds message content: receipts name messages by seq and id. ``why`` names a few words of one message,
``search`` shows pieces of those it finds, tasks and runs are shown with what they ask for and what came of it, facts
with what they say.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from klaw.actor import log as logging
from klaw.actor.clock import Clock, iso
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.actor.vitals import State
from klaw.admin import recalled, trial, why
from klaw.admin.answers import check_chat, check_receipt, turn_json, turn_summary
from klaw.admin.requests import (
    Actors,
    BadRequest,
    Chat,
    Health,
    Log,
    Mcp,
    Receipt,
    Reindex,
    Request,
    Status,
    Tasks,
    Why,
)
from klaw.admin.short_ids import lengthened
from klaw.admin.tasks import task_tree
from klaw.admin.tree import actor_tree
from klaw.agent.workspace import Workspace
from klaw.chats.service import Chats
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.context.pinned_facts import standing
from klaw.core import HasProblems
from klaw.errors import ActorStopped
from klaw.llm.budget import Budget
from klaw.llm.local.state import LocalModel
from klaw.llm.service import ProviderReport
from klaw.llm.slots import Slots
from klaw.memory.archivist import Archivist
from klaw.memory.coverage import Coverage
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import Recall
from klaw.memory.summaries.summarizer import Summarizer
from klaw.operations.perform import OPERATOR, Call, perform
from klaw.operations.usage import budget_json
from klaw.runs.service import Scheduling
from klaw.store.engine.journal import COMMIT_LOG
from klaw.store.engine.readers import Readers
from klaw.store.engine.writer import Writer
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.values import Options
from klaw.store.sql import facts, message_location, messages, overview, replay, turns, usage
from klaw.store.sql.usage import UsageFilters
from klaw.toolbox.mcp.state import McpReport

WRITER_PING_S = 5.0
"""A writer that has not committed an empty transaction after this time counts as stuck."""


@attrs.frozen(kw_only=True)
class Sources:
    """The running parts that the commands read."""

    parts: Mapping[str, Any]
    """By the names that handlers of operations use."""
    supervisor: Supervisor
    writer: Writer
    readers: Readers
    reindexer: Reindexer
    chats: Chats
    embedder: Embedder
    recall: Recall
    summarizer: Summarizer
    slots: Slots
    providers: Callable[[], Sequence[ProviderReport]]
    """LLM services that were asked so far."""
    budget: Budget
    mcp: Callable[[], Sequence[McpReport]]
    """MCP servers that are switched on."""
    local_model: LocalModel | None
    """None when no route leads to it."""
    coverage: Coverage
    metrics: Metrics
    archivist: Archivist | None
    """None when topics are off."""
    health: HasProblems
    scheduling: Scheduling
    threads: Sequence[Threads]
    connections: Callable[[], Sequence[Any]]
    """Of the gateway, now: attrs values, each with an ``id``."""
    address: Callable[[], str | None]
    """Where the gateway listens; None before it does."""
    config: EngineConfig
    paths: Paths
    clock: Clock
    started_at: float
    """Unix seconds."""
    version: str


class Commands:
    """Carries out requests. Stateless, so any number may run at once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._disk = Threads("admin", 1)

    async def run(self, request: Request | Call) -> dict[str, Any]:
        """Carry out a request. The caller bounds it by the request's ``deadline_s``.

        Raises:
            BadRequest: it names something that does not exist.
            KlawError, trio.TooSlowError: a part did not answer.

        Cancellation: commands only read, but for ``log``, which is done at once, ``reindex``, whose work is the
        reindexer's and goes on, and changes of tasks, runs and facts, which may or may not be made.
        """
        if isinstance(request, Call):
            return await perform(request, OPERATOR, self._sources.parts)
        return await self._run(request)

    async def _run(self, request: Request) -> dict[str, Any]:
        request = await lengthened(self._sources.readers, request)
        match request:
            case Status():
                return await self._status()
            case Actors():
                return self._actors()
            case Chat():
                return await self._chat(request)
            case Receipt():
                return await self._receipt(request)
            case Why():
                return await self._why(request)
            case Tasks() | Log() | Health() | Mcp() | Reindex():
                return await self._operate(request)

    async def _operate(self, request: Tasks | Log | Health | Mcp | Reindex) -> dict[str, Any]:
        """What is about the process and not about somebody's chats."""
        match request:
            case Tasks():
                return task_tree()
            case Log():
                return _log(request)
            case Health():
                return await self._health()
            case Mcp():
                return {"servers": _mcp(self._sources.mcp())}
            case Reindex():
                return await self._reindex(request)

    # -- commands --------------------------------------------------------------------------------------------------

    async def _status(self) -> dict[str, Any]:
        sources = self._sources
        counts = attrs.asdict(await sources.readers.run(overview.counts))
        schema = counts.pop("schema")
        now = sources.clock.now()
        embedder, local = sources.embedder.status, sources.local_model
        return {
            "version": sources.version,
            "pid": os.getpid(),
            "started_at": iso(sources.started_at),
            "uptime_s": round(now - sources.started_at, 1),
            "rss_bytes": _rss_bytes(),
            "address": sources.address(),
            "connections": len(sources.connections()),
            "schema": schema,
            "counts": counts,
            "llm": {
                "model": sources.config.routing.default,
                "slots": attrs.asdict(sources.slots.report()),
                "providers": [_provider(report) for report in sources.providers()],
                "budget": budget_json(sources.budget.report()),
                "today": attrs.asdict(
                    await sources.readers.run(usage.total, UsageFilters(since=sources.budget.today()))
                ),
                "local": {"state": local.state.value, "reason": local.report().reason} if local else None,
            },
            "embedder": {
                "state": embedder.state.value,
                "reason": embedder.reason,
                "since": iso(embedder.since),
                "embedded": embedder.embedded,
                "waiting": embedder.waiting,
            },
            "mcp": _mcp(sources.mcp()),
            "coverage": _coverage(sources.coverage),
            "tasks": (await sources.scheduling.overview()).as_json(),
            "summaries": sources.summarizer.report(),
            "topics": attrs.asdict(sources.archivist.status) if sources.archivist is not None else None,
            "metrics": sources.metrics.report(),
            "threads": [attrs.asdict(threads.report()) for threads in (*sources.threads, self._disk)],
            "degraded": _listed(sources.health.problems()),
            "disk": await self._disk.run(_disk, sources.paths, abandon=True),
            "log_level": logging.level(),
        }

    def _actors(self) -> dict[str, Any]:
        sources = self._sources
        connections = [attrs.asdict(connection) for connection in sources.connections()]
        tree = actor_tree(sources.supervisor.report(), sources.slots.report(), connections)
        return {"now": sources.clock.now(), "tree": tree}

    async def _chat(self, request: Chat) -> dict[str, Any]:
        sources, chat = self._sources, check_chat(request.chat)
        session = await sources.readers.run(messages.session, chat)
        if session is None:
            raise BadRequest("unknown_chat", "args.chat: there is no such chat")
        last = await sources.readers.run(turns.last, chat)
        reports = (report for report in sources.supervisor.report() if report.name == f"chat {chat}")
        actor = next(reports, None)
        return {
            "session": attrs.asdict(session),
            "now": sources.chats.chat_status(chat),
            "pending": await sources.readers.run(overview.count_pending, chat),
            "actor": attrs.asdict(actor) if actor else None,
            "coverage": sources.coverage.chat(chat),
            "last_turn": turn_summary(last) if last else None,
        }

    async def _receipt(self, request: Receipt) -> dict[str, Any]:
        readers = self._sources.readers
        turn = await readers.run(overview.find_turn, *check_receipt(request))
        answer = turn_json(turn)
        if turn is None or request.why is None:
            return answer
        message = why.choose(await readers.run(message_location.find, recalled.check_message(request.why, turn)))
        told = recalled.explain_message(turn, message)
        if recalled.needs_search(told):
            stored = await readers.run(replay.stored_recall, turn)
            embedder, settings = self._sources.embedder, self._sources.config.auto_rag
            told = recalled.with_search(told, await recalled.search_again(readers, embedder, settings, stored, message))
        return {**answer, "why": told}

    async def _why(self, request: Why) -> dict[str, Any]:
        sources, target = self._sources, why.check_why(request)
        message = why.choose(await sources.readers.run(message_location.find, target))
        fixed = await Workspace(sources.paths.workspace, sources.paths.data_dir).fetch(message.user)
        kept = await sources.readers.run(facts.standing, message.user)
        fixed = attrs.evolve(fixed, core_memory=standing(fixed.core_memory, kept).text)
        about = await sources.readers.run(
            message_location.locate,
            message,
            why.words_of(message),
            turns=why.TURNS,
            window_rows=sources.config.window_rows,
            summarised=sources.config.summaries.enabled,
        )
        found = why.combine(message, about, sources.config, fixed)
        asked = await trial.try_query(found, sources.recall, request.query) if request.query is not None else None
        return why.describe(found, sources.config, asked)

    async def _reindex(self, request: Reindex) -> dict[str, Any]:
        reindexer = self._sources.reindexer
        if request.action == "start":
            options = Options(accept_differences=request.accept_differences, embed_again=request.embed_again)
            await reindexer.start(options)
        elif request.action == "cancel":
            await reindexer.cancel()
        return attrs.asdict(reindexer.status)

    async def _health(self) -> dict[str, Any]:
        """``ok``: all works; ``degraded``: it answers, but see the list; ``failing``: the writer is stuck."""
        sources = self._sources
        ping_ms = None
        begin = trio.current_time()
        with trio.move_on_after(WRITER_PING_S):
            try:
                await sources.writer.ping()
                ping_ms = round((trio.current_time() - begin) * 1000, 2)
            except ActorStopped:
                pass
        degraded = _listed(sources.health.problems())
        failed = [report.name for report in sources.supervisor.report() if report.state is State.FAILED]
        state = "failing" if ping_ms is None else "degraded" if degraded or failed else "ok"
        return {"state": state, "writer_ping_ms": ping_ms, "degraded": degraded, "failed_actors": failed}


# -- values --------------------------------------------------------------------------------------------------------


def _listed(problems: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"code": code, "text": text} for code, text in problems.items()]


def _provider(report: ProviderReport) -> dict[str, Any]:
    breaker, error = report.breaker, report.error
    return {
        "name": report.name,
        "state": breaker.state.value,
        "failures": breaker.failures,
        "retry_in_s": round(breaker.retry_in_s, 1),
        "error": None if error is None else error.told,
        "error_code": None if error is None else error.code,
        "failed_s": None if error is None else round(trio.current_time() - error.at, 1),
    }


def _mcp(reports: Sequence[McpReport]) -> list[dict[str, Any]]:
    return [{**attrs.asdict(report), "state": report.state.value, "since": iso(report.since)} for report in reports]


def _coverage(coverage: Coverage) -> dict[str, Any]:
    report = coverage.report()
    counted_at = report["counted_at"]
    return {**report, "counted_at": iso(counted_at) if counted_at is not None else None}


def _log(request: Log) -> dict[str, Any]:
    if request.level is not None:
        logging.set_level(request.level)
    return {"level": logging.level()}


def _rss_bytes() -> int:
    """Resident memory of this process; procfs never blocks."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _disk(paths: Paths) -> dict[str, int]:
    usage = shutil.disk_usage(paths.data_dir)
    return {
        "free_bytes": usage.free,
        "total_bytes": usage.total,
        "database_bytes": _size(paths.database),
        "wal_bytes": _size(paths.database.with_name(paths.database.name + "-wal")),
        "commit_log_bytes": _size(paths.data_dir / COMMIT_LOG),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
