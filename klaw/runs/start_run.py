"""Starting runs: make the record, check the limits, store it; what comes back can be started.

The heartbeat is a person's standing list, looked at from time to time: a task of a reserved name, made by
``/heartbeat``, whose interval and request come from elsewhere. Reading the list costs no call of a model."""

import re
from pathlib import Path
from typing import Any

import attrs
import structlog

from klaw.actor.clock import from_iso, iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Reply
from klaw.agent.agent import Agent
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.domain import tokens
from klaw.domain.names import DEFAULT_CHAT, UserId, chat_id, name_of
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import (
    HEARTBEAT,
    MAX_TASK_MESSAGE_BYTES,
    Every,
    Run,
    RunKind,
    RunStatus,
    Task,
    TaskName,
    delivery_message,
)
from klaw.errors import ConfigError, LimitReached, NoSuchChat, NotStarted
from klaw.runs.due import LATE_S, Fire
from klaw.runs.limits import LEAST_ANSWER_TOKENS, Ledger, limits_of, refusal, spawn_refusal, was_told
from klaw.runs.run_state import OUTSIDE, QUEUED, LiveRun, notice_of
from klaw.runs.task_input import SubagentOrder
from klaw.runs.when_words import in_full, say
from klaw.store.kinds import chats, run_edits, tasks

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOTHING = re.compile(r"[\s#>*+_=|`~-]*(?:\[[ xX]?\])?\s*")
"""A line that says nothing: blank, a bare mark of a list, a box without words, a rule."""

log = structlog.get_logger("klaw.scheduler")


@attrs.frozen(kw_only=True)
class Spawn:
    """Start a subagent, at once and once. Answers its run, stored."""

    user: UserId
    order: SubagentOrder
    parent: str | None
    notify: str | None
    """Name of the chat that is notified of the end."""
    depth: int
    """0 from a chat, else one more than the parent's."""
    outside: bool
    """Who asks has read something from outside: the request may be that one's words."""
    reply: Reply[Run]


class RunStarter:
    """Starts runs of all kinds; owns the account of what is spent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.ledger = Ledger(agent.core.readers)

    async def fire(self, fire: Fire) -> LiveRun | Run:
        """Begin the run of a task's fire time. Raises StorageError: the fire time is not used up. A run that is over
        already is returned as its record: a reminder that was delivered, refused, or silent (and not stored) if the
        heartbeat's list is empty."""
        task = fire.task
        kind = RunKind.HEARTBEAT if task.name == HEARTBEAT else RunKind.SCHEDULED
        message = task.message
        if kind is RunKind.HEARTBEAT:
            message = await self._list_of(task.user) or ""
        more = {"due": iso(fire.due), "attempt": fire.attempt, "note": fire.note, "inject_into": task.inject_into}
        run = self._run(task.user, task.name, kind, message, task.model, **more)
        if task.reminder:
            return await self._remind(run, task)
        if not message:
            return attrs.evolve(run, status=RunStatus.SILENT, ended_at=run.started_at)
        return await self._begin(run, task)

    async def by_hand(self, user: UserId, name: TaskName) -> LiveRun | Run:
        """Begin a run of a task that a person asked for; a reminder is delivered, and the run is over. Raises
        NoSuchTask; NotStarted, which says why."""
        task = await self._agent.core.readers.run(tasks.existing, user, name)
        message = task.message
        if name == HEARTBEAT:
            message = await self._list_of(user) or ""
            if not message:
                raise NotStarted(f"{HEARTBEAT_FILE} is missing or says nothing")
        more = {"inject_into": task.inject_into, "details": {QUEUED: True}}
        run = self._run(user, name, RunKind.MANUAL, message, task.model, **more)
        if task.reminder:
            return await self._remind(run, task)
        return _started(await self._begin(run, task))

    async def spawn(self, asked: Spawn, unfinished: int) -> LiveRun:
        """Begin a subagent, while so many spawned runs of the user are unfinished. Raises as ``Scheduling.spawn``."""
        config = self._agent.core.config.subagents
        refused = spawn_refusal(depth=asked.depth, unfinished=unfinished, config=config)
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

    async def live_again(self, run: Run) -> LiveRun:
        """Get a stored run ready that was not started by this process."""
        task = None
        if run.kind is not RunKind.SPAWNED:
            task = await self._agent.core.readers.run(tasks.get, run.user, run.task)
        await self.ledger.open(run)
        return self._live(run, task)

    async def _begin(self, run: Run, task: Task | None) -> LiveRun | Run:
        await self.ledger.open(run)
        live = self._live(run, task)
        needed = tokens.estimate(run.message) + LEAST_ANSWER_TOKENS
        refused = refusal(live.limits, self.ledger.used(run), needed)
        if refused is not None:
            return await self._refuse(run, refused)
        begun = await self._agent.core.writer.run(run_edits.begin, run)
        if begun.repeated:
            log.warning("run_repeated", run=begun.run.id)
            return begun.run if begun.run.status.over else attrs.evolve(begun.run, status=RunStatus.INTERRUPTED)
        return live

    async def _remind(self, run: Run, task: Task) -> Run:
        """Deliver a reminder. Message and record are stored together: a kill leaves both or none."""
        core, now = self._agent.core, self._agent.core.clock.now()
        zone = getattr(task.trigger, "zone", None) or await core.readers.run(tasks.zone, run.user)
        late = now - from_iso(run.due) >= LATE_S
        when = in_full(from_iso(run.due), zone, now=now, text=run.message)
        text = say("late" if late else "reminder", run.message, when=when, text=run.message)
        wanted = chat_id(run.user, run.inject_into or DEFAULT_CHAT)
        chat = await core.readers.run(chats.to_tell, run.user, wanted)
        ended: dict[str, Any] = {"status": RunStatus.DONE, "ended_at": iso(now), "delivered": 1, "result": text}
        over = attrs.evolve(run, **ended, model="", inject_into=name_of(chat), details={"reminder": True})
        message = delivery_message(over, 1, chat, text, iso(now))
        begun = await core.writer.run(run_edits.begin, over, delivery=message)
        self._agent.memory.embedder.nudge()
        return begun.run

    async def _refuse(self, run: Run, refused: LimitReached) -> Run:
        core, limit = self._agent.core, refused.limit
        status, note = RunStatus.REFUSED, run.noted(str(refused))
        over = attrs.evolve(run, status=status, ended_at=run.started_at, error=limit, note=note)
        log.warning("run_refused", run=run.id, code=limit)
        notice = notice_of(over, f"{run.task} was not run: {refused}.", run.started_at)
        if notice is not None and not await was_told(core.readers, run, limit):
            told = attrs.evolve(over, details={"told": True})
            try:
                return (await core.writer.run(run_edits.begin, told, notice)).run
            except NoSuchChat:
                log.warning("notice_not_delivered", run=run.id)
        return (await core.writer.run(run_edits.begin, over)).run

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

    def _live(self, run: Run, task: Task | None) -> LiveRun:
        core, config = self._agent.core, self._agent.core.config.subagents
        own = None if task is None else task.timeout_s
        return LiveRun(
            run=run,
            core=core,
            limits=limits_of(task, config),
            timeout_s=config.timeout_s if own is None else own,
            said=self._agent.memory.embedder.nudge,
        )

    async def _list_of(self, user: UserId) -> str | None:
        workspace = self._agent.workspace
        return await workspace.within(None, read_heartbeat, workspace.folder, user)


def _started(began: LiveRun | Run) -> LiveRun:
    """Raises NotStarted for a run that is over already."""
    if isinstance(began, Run):
        raise NotStarted(began.note or "it was asked for twice at the same moment")
    return began


# -- the heartbeat ---------------------------------------------------------------------------------------------------


def timed_heartbeat(task: Task, interval_s: int) -> Task | None:
    """The heartbeat with the configured interval; None when it is off. Other tasks as they are."""
    if task.name != HEARTBEAT:
        return task
    if not interval_s or task.inject_into is None:
        return None
    return attrs.evolve(task, trigger=Every(seconds=interval_s))


def _says_something(text: str) -> bool:
    lines = _COMMENT.sub("", text).splitlines()
    return any(not line.lstrip().startswith("#") and not _NOTHING.fullmatch(line) for line in lines)


def read_heartbeat(workspace: Path, user: UserId) -> str | None:
    """A user's list, cut at the length of a request; None: it is missing, says nothing or is unreadable. Blocks."""
    try:
        with safe_open.opened(workspace, below_of_user(user, HEARTBEAT_FILE)) as file:
            raw = file.head(MAX_TASK_MESSAGE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("heartbeat_not_read", error=error_class(error))
        return None
    text = raw.decode("utf-8", "ignore").replace("\0", "").strip()
    return text if _says_something(text) else None
