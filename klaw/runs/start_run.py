"""Starting runs: make the record, check the limits, store it; what comes back can be started."""

from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.mailbox import Reply
from klaw.agent.agent import Agent
from klaw.domain import tokens
from klaw.domain.names import UserId, chat_id
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import HEARTBEAT, Run, RunKind, RunStatus, Task, TaskName, notice_message
from klaw.errors import ConfigError, NoSuchChat, NotStarted
from klaw.runs import heartbeat
from klaw.runs.due import Fire
from klaw.runs.limits import (
    LEAST_ANSWER_TOKENS,
    Ledger,
    Refusal,
    TokenLimits,
    day_of,
    refusal,
    spawn_refusal,
    tells_user,
    tokens_of,
)
from klaw.runs.run_state import OUTSIDE, QUEUED, LiveRun
from klaw.runs.task_input import SubagentOrder
from klaw.store.kinds import run_edits, runs, tasks

log = structlog.get_logger("klaw.scheduler")


@attrs.define(kw_only=True, eq=False)
class Job:
    live: LiveRun
    limits: TokenLimits
    timeout_s: float
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when its end is stored, or will not be."""

    @property
    def run(self) -> Run:
        return self.live.run


@attrs.frozen(kw_only=True)
class Spawn:
    """Start a subagent, at once and once. Answers its run, stored."""

    user: UserId
    order: SubagentOrder
    parent: str | None
    """Id of the run that asks."""
    notify: str | None
    """Name of the chat that is notified of the end."""
    depth: int
    outside: bool
    reply: Reply[Run]


class RunStarter:
    """Starts runs of all kinds; owns the account of what is spent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.ledger = Ledger(agent.core.readers)

    async def fire(self, fire: Fire) -> Job | Run:
        """Begin the run of a task's fire time. Raises StorageError: the fire time is not used up.

        Returns:
            What is to be started; or, of a run that is over already, its record: refused, and stored; or silent, and
            not stored, a heartbeat that has nothing to look after."""
        task = fire.task
        kind = RunKind.HEARTBEAT if task.name == HEARTBEAT else RunKind.SCHEDULED
        message = task.message
        if kind is RunKind.HEARTBEAT:
            message = await self._list_of(task.user) or ""
        more = {"due": iso(fire.due), "attempt": fire.attempt, "note": fire.note, "inject_into": task.inject_into}
        run = self._run(task.user, task.name, kind, message, task.model, **more)
        if not message:
            return attrs.evolve(run, status=RunStatus.SILENT, ended_at=run.started_at)
        return await self._begin(run, task)

    async def by_hand(self, user: UserId, name: TaskName) -> Job:
        """Begin a run of a task that a person asked for. Raises NoSuchTask; NotStarted: a limit forbids it, or the
        heartbeat has nothing to look after."""
        task = await self._agent.core.readers.run(tasks.existing, user, name)
        message = task.message
        if name == HEARTBEAT:
            message = await self._list_of(user) or ""
            if not message:
                raise NotStarted(f"{HEARTBEAT_FILE} is missing or says nothing")
        more = {"inject_into": task.inject_into, "details": {QUEUED: True}}
        run = self._run(user, name, RunKind.MANUAL, message, task.model, **more)
        return _started(await self._begin(run, task))

    async def spawn(self, asked: Spawn, unfinished: int) -> Job:
        """Begin a subagent, while so many spawned runs of the user are unfinished. Raises as ``Scheduling.spawn``."""
        limits = self._agent.core.config.subagents
        refused = spawn_refusal(
            depth=asked.depth, unfinished=unfinished, max_depth=limits.max_depth, max_spawned=limits.max_spawned
        )
        if refused is not None:
            raise NotStarted(refused)
        order = asked.order
        if await self._agent.core.readers.run(tasks.get, asked.user, order.name) is not None:
            raise NotStarted(f"{order.name} is the name of a task; give the subagent another one")
        if order.model is not None:
            self._agent.llm.router.route(order.model)
        details = {QUEUED: True, **({OUTSIDE: True} if asked.outside else {})}
        more = {"parent": asked.parent, "notify": asked.notify, "depth": asked.depth, "details": details}
        more["inject_into"] = order.inject_into
        run = self._run(asked.user, order.name, RunKind.SPAWNED, order.message, order.model, **more)
        return _started(await self._begin(run, None))

    async def job_again(self, run: Run) -> Job:
        """Get a stored run ready that was not started by this process."""
        task = None
        if run.kind is not RunKind.SPAWNED:
            task = await self._agent.core.readers.run(tasks.get, run.user, run.task)
        await self.ledger.open(run)
        return self._job(run, task)

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _begin(self, run: Run, task: Task | None) -> Job | Run:
        await self.ledger.open(run)
        try:
            began = await self._begin_open(run, task)
        except BaseException:
            self.ledger.close(run)
            raise
        if not isinstance(began, Job):
            self.ledger.close(run)
        return began

    async def _begin_open(self, run: Run, task: Task | None) -> Job | Run:
        agent = self._agent
        job = self._job(run, task)
        needed = tokens.estimate(run.message) + LEAST_ANSWER_TOKENS
        refused = refusal(job.limits, self.ledger.used(run), needed)
        if refused is not None:
            return await self._refuse(run, refused)
        begun = await agent.core.writer.run(run_edits.begin, run)
        if begun.repeated:
            log.warning("run_repeated", run=begun.run.id)
            return begun.run if begun.run.status.over else attrs.evolve(begun.run, status=RunStatus.INTERRUPTED)
        return job

    async def _refuse(self, run: Run, refused: Refusal) -> Run:
        """Store that a run was refused, and tell the user, once a day."""
        agent = self._agent
        since = day_of(run.started_at)
        earlier = await agent.core.readers.run(runs.limited, run.user, since, refused.limit)
        note = refused.note if run.note is None else f"{run.note}; {refused.note}"
        over = attrs.evolve(
            run, status=RunStatus.REFUSED, ended_at=run.started_at, error=refused.limit.value, note=note
        )
        listener = run.notify or run.inject_into
        log.warning("run_refused", run=run.id, code=refused.limit.value)
        if listener is not None and tells_user(refused, run, earlier):
            told = attrs.evolve(over, details={"told": True})
            text = f"{run.task} was not run: {refused.note}."
            notice = notice_message(told, chat_id(run.user, listener), text, run.started_at)
            try:
                return (await agent.core.writer.run(run_edits.begin, told, notice)).run
            except NoSuchChat:
                log.warning("notice_not_delivered", run=run.id)
        return (await agent.core.writer.run(run_edits.begin, over)).run

    def _run(self, user: UserId, name: TaskName, kind: RunKind, message: str, model: str | None, **more: Any) -> Run:
        now = iso(self._agent.core.clock.now())
        return Run(
            id=self._agent.core.new_id(),
            user=user,
            task=name,
            kind=kind,
            status=RunStatus.RUNNING,
            message=message,
            model=self._model(model),
            started_at=now,
            **{"due": now, **more},
        )

    def _model(self, name: str | None) -> str:
        try:
            return self._agent.llm.router.route(name, task="subagent").name
        except ConfigError:
            # It has gone from the configuration since: the run itself fails and says so.
            return name or self._agent.core.config.routing.default

    def _job(self, run: Run, task: Task | None) -> Job:
        agent = self._agent
        limits = agent.core.config.subagents
        live = LiveRun(run=run, core=agent.core, said=agent.memory.embedder.nudge)
        own_limits = tokens_of(task, max_tokens=limits.max_tokens, daily_tokens=limits.daily_tokens)
        own = None if task is None else task.timeout_s
        return Job(live=live, limits=own_limits, timeout_s=limits.timeout_s if own is None else own)

    async def _list_of(self, user: UserId) -> str | None:
        workspace = self._agent.workspace
        return await workspace.within(None, heartbeat.read, workspace.folder, user)


def _started(began: Job | Run) -> Job:
    """Raises NotStarted for a run that is over already."""
    if isinstance(began, Run):
        raise NotStarted(began.note or "it was asked for twice at the same moment")
    return began
