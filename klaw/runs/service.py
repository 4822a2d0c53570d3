"""What people and models can ask of tasks and runs, as JSON: the same for tools, slash commands and operations, for one
user each. Fire times are in the task's zone, with their offset; what happened is in UTC."""

import datetime as dt
from collections.abc import Callable, Container, Mapping
from itertools import count
from typing import Any, TypeVar

import attrs

from klaw.actor.clock import from_iso, iso
from klaw.actor.mailbox import Reply, answer_within
from klaw.config.llm import LOCAL_PROVIDER
from klaw.core import Core
from klaw.domain.names import DEFAULT_CHAT, UserId, chat_id, local_time, name_of
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import HEARTBEAT, MAX_TASKS, At, Every, Run, RunStatus, Task, TaskName, Trigger, task_name
from klaw.errors import InvalidName, NoSuchTask, Problem, TaskError
from klaw.runs import task_input, transcripts, when_words
from klaw.runs.due import next_fire
from klaw.runs.run_state import NO_SUCH_CHAT
from klaw.runs.scheduler import Msg, RunNow, Scheduler
from klaw.runs.start_run import Spawn, timed_heartbeat
from klaw.runs.triggers import next_fires, shown
from klaw.runs.when import split
from klaw.store.kinds import chats, runs
from klaw.store.kinds import tasks as stored_tasks

_T = TypeVar("_T")
ANSWER_S = 30.0
SHOWN_FIRES = 3
PREVIEWED_FIRES = 5
WAITING = "waiting"
"""The status shown for a run that is stored as running but waits for a place."""
LONG = frozenset({"message", "result", "notify", "depth", "details"})
UNDELIVERED_DAYS = 30
REMINDER_KEPT_S = 7 * 86_400.0
"""A reminder that is over goes with the next new one after this; until then it can be set again."""


class Scheduling:
    """Tasks and runs of users. ``default_zone``: IANA zone of cron tasks that name none. What asks the scheduler raises
    ActorStopped or ActorTooSlow when it does not answer."""

    def __init__(self, scheduler: Scheduler, core: Core, *, default_zone: str) -> None:
        self._scheduler, self._core, self.zone = scheduler, core, default_zone
        self._readers, self._writer = core.readers, core.writer

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def zone_of(self, user: UserId) -> str:
        """The zone of a user's times where none is given."""
        return await self._readers.run(stored_tasks.zone, user) or self.zone

    async def remind(self, user: UserId, text: str, when: str | None = None, chat: str | None = None) -> Any:
        """Make a reminder: a task that delivers its text. Without ``when``, the text begins or ends with its time;
        without ``chat`` it is for the chat where the user said something last. Raises TaskError."""
        now, zone = self._core.clock.now(), await self.zone_of(user)
        if (doubt := self._scheduler.clock_doubt) is not None:
            raise TaskError([Problem(path="when", message=f"{doubt}: set the clock first")])
        try:
            phrase, what = (when, text) if when else split(text, now=now, zone=zone)
        except ValueError as bad:
            raise TaskError([Problem(path="when", message=str(bad))]) from None
        if chat is None:
            used = await self._readers.run(chats.last_used, [user])
            chat = DEFAULT_CHAT if used is None else name_of(used[1])
        there = await self._readers.run(stored_tasks.of_user, user)
        for old in there:
            if old.reminder and isinstance(old.trigger, At) and from_iso(old.trigger.instant) < now - REMINDER_KEPT_S:
                await self.remove(user, old.name)
        names = {task.name for task in there}
        name = next(name for name in map("reminder-{}".format, count(1)) if name not in names)
        fields = {"name": name, "message": what, "when": phrase, "injectInto": chat, "reminder": True}
        task = await self._added(user, fields)
        view = await self._view(task)
        first = dt.datetime.fromisoformat(view["next_fires"][0]).timestamp()
        return {"task": view, "told": when_words.added(task.trigger, first, zone, now=now, text=what)}

    async def snooze(self, user: UserId, when: str, name: str | None = None) -> Any:
        """Make a reminder of the named one, or of the one that was delivered last. Raises TaskError, NoSuchTask."""
        if name is not None:
            task = await self._readers.run(stored_tasks.existing, user, _name(name))
            return await self.remind(user, task.message, when, task.inject_into)
        last = next((run for run in await self.runs(user, limit=100) if run.details.get("reminder")), None)
        if last is None:
            raise NoSuchTask("no reminder was delivered lately")
        return await self.remind(user, last.message, when, last.inject_into)

    async def add(self, user: UserId, raw: Mapping[str, Any]) -> Any:
        """Make a task of raw fields (see ``task_input``). Raises TaskError, TaskExists."""
        return await self._view(await self._added(user, raw))

    async def _added(self, user: UserId, raw: Mapping[str, Any]) -> Task:
        now, zone = self._core.clock.now(), await self.zone_of(user)
        task = task_input.draft(raw, user=user, now=now, default_zone=zone, providers=self._providers)
        await self._check_room(user)
        task = await self._writer.run(stored_tasks.put, task, "new")
        self._scheduler.nudge()
        return task

    async def edit(self, user: UserId, name: str, raw: Mapping[str, Any]) -> Any:
        """Change fields of a task; a run that goes on keeps what it was begun with. Raises TaskError, NoSuchTask."""
        task = await self._readers.run(stored_tasks.existing, user, _name(name))
        if task.name == HEARTBEAT and set(raw) - {"name", "enabled", "model", "maxTokens", "dailyTokens", "timeout"}:
            problem = "the heartbeat's chat is set with /heartbeat, its list is HEARTBEAT.md"
            raise TaskError([Problem(path="name", message=problem)])
        now, zone = self._core.clock.now(), await self.zone_of(user)
        changed = task_input.edit(task, raw, now=now, default_zone=zone, providers=self._providers)
        if changed is not task:
            await self._writer.run(stored_tasks.put, changed, "existing")
            self._scheduler.nudge()
        return await self._view(changed)

    async def enable(self, user: UserId, name: str, enabled: bool, *, now: bool = False) -> Any:
        """Switch a task on or off; fire times that passed while it was off are over. Raises as ``edit``."""
        return await self.edit(user, name, {"enabled": enabled, **({"now": True} if now else {})})

    async def remove(self, user: UserId, name: str) -> Task:
        removed = await self._writer.run(stored_tasks.remove, user, _name(name), iso(self._core.clock.now()))
        self._scheduler.nudge()
        return removed

    async def undo(self, user: UserId, name: str, to: int | None = None) -> Any:
        """Let a task be what it was before its newest change, or by an entry of its history; see ``tasks.undo``. None:
        it is gone. Raises NoSuchTask, CannotUndo; TaskError: there are too many to bring back one."""
        named = _name(name)
        if await self._readers.run(stored_tasks.get, user, named) is None:
            await self._check_room(user)
        task = await self._writer.run(stored_tasks.undo, user, named, to, iso(self._core.clock.now()))
        self._scheduler.nudge()
        return None if task is None else await self._view(task)

    async def _check_room(self, user: UserId) -> None:
        if len(await self._readers.run(stored_tasks.of_user, user)) >= MAX_TASKS:
            raise TaskError([Problem(path="name", message=f"there are {MAX_TASKS} tasks already; remove one first")])

    async def tasks(self, user: UserId) -> list[Any]:
        return [await self._view(task) for task in await self._readers.run(stored_tasks.of_user, user)]

    async def preview(self, user: UserId, raw: Mapping[str, Any]) -> dict[str, Any]:
        """When a task of these times would run next. Raises TaskError."""
        now, zone = self._core.clock.now(), raw.get("zone") or await self.zone_of(user)
        trigger = task_input.trigger_of(raw, now=now, default_zone=zone)
        anchor = task_input.anchor(trigger, now)
        fires = next_fires(trigger, anchor=anchor, after=anchor, count=PREVIEWED_FIRES)
        return {
            "trigger": _trigger_json(trigger, zone),
            "zone": zone,
            "next_fires": [local_time(moment, zone) for moment in fires],
        }

    async def pair_heartbeat(self, user: UserId, chat: str | None) -> Task | None:
        """Let the heartbeat speak in a chat, or nowhere. Returns it as it is now."""
        present = await self._readers.run(stored_tasks.get, user, HEARTBEAT)
        if chat is None:
            if present is not None:
                await self.remove(user, HEARTBEAT)
            return None
        now = iso(self._core.clock.now())
        task = present or Task(
            user=user,
            name=HEARTBEAT,
            trigger=Every(seconds=max(60, self.heartbeat_s)),
            message=HEARTBEAT_FILE,
            created_at=now,
            updated_at=now,
            anchor_at=now,
        )
        task = attrs.evolve(task, inject_into=chat, enabled=True, updated_at=now)
        await self._writer.run(stored_tasks.put, task, "new" if present is None else "existing")
        self._scheduler.nudge()
        return task

    @property
    def heartbeat_s(self) -> int:
        return self._core.config.heartbeat.interval_s

    # -- runs ------------------------------------------------------------------------------------------------------

    async def run_now(self, user: UserId, name: str) -> Run:
        """Run a task now. Raises NoSuchTask; NotStarted: a limit forbids it."""
        named = _name(name)
        return await self._ask(lambda reply: RunNow(user=user, name=named, reply=reply))

    async def spawn(
        self,
        user: UserId,
        raw: Mapping[str, Any],
        *,
        parent: str | None = None,
        notify: str | None = None,
        depth: int = 0,
        outside: bool = False,
    ) -> Run:
        """Start a subagent, at once and once. ``raw``: ``name``, ``message``, ``model``, ``injectInto``; for the others
        see ``Spawn``. Raises TaskError, ConfigError; NotStarted: a limit forbids it, or the name is a task's."""
        order = task_input.subagent_order(raw, providers=self._providers)
        about: dict[str, Any] = {"parent": parent, "notify": notify, "depth": depth, "outside": outside}
        return await self._ask(lambda reply: Spawn(user=user, order=order, reply=reply, **about))

    async def cancel(self, user: UserId, run: str) -> bool:
        """End a run that is under way or waits. False when no such run is going on."""
        return self._scheduler.cancel(user, run)

    async def end(self, user: UserId, run: str) -> None:
        """End a run, and return when its end is stored; at once when it does not go on. Raises like ``cancel``."""
        live = self._scheduler.find(user, run)
        if live is not None and self._scheduler.cancel(user, run):
            with answer_within(ANSWER_S, "the run"):
                await live.over.wait()

    async def run(self, user: UserId, run: str) -> Run | None:
        """A run by its id, with what it has spent so far."""
        if (live := self._scheduler.find(user, run)) is not None:
            return live.run
        return await self._readers.run(runs.get, user, run)

    async def transcript(self, run: Run) -> dict[str, Any]:
        """What was said in a run, oldest first, as JSON; of a very long one the end (``cut``)."""
        found, whole = await self._core.files.run(transcripts.of_run, self._core.paths.conversations, run)
        messages = [
            {
                "role": said.role,
                "content": said.content,
                "calls": [{"name": call.name, "arguments": call.arguments} for call in said.tool_calls],
            }
            for said in found
        ]
        return {"messages": messages, "cut": bool(messages) and not whole}

    async def runs(
        self,
        user: UserId,
        *,
        task: str | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> list[Run]:
        """A user's runs, the newest first. Raises NoSuchTask for a name that none can have."""
        name = None if task is None else _name(task)
        return await self._readers.run(runs.newest, user, task=name, status=status, before=before, limit=limit)

    def unfinished(self, user: UserId) -> list[Run]:
        """A user's runs that go on or wait for a place, in the order in which they were begun."""
        return [live.run for live in self._scheduler.unfinished if live.run.user == user]

    def run_json(self, run: Run, *, whole: bool = False) -> Any:
        """A run as JSON, the same for all doors. ``whole``: with what was asked and what came of it."""
        told = _fields(run, without=frozenset() if whole else LONG)
        if run.status is RunStatus.RUNNING and any(live.run.id == run.id for live in self._scheduler.queued):
            told["status"] = WAITING
        return told

    async def overview(self) -> dict[str, Any]:
        """All users' tasks and runs in figures, for the operator, as JSON. Raises StorageError."""
        now = self._core.clock.now()
        every = await self._readers.run(stored_tasks.everybodys, enabled_only=False)
        attempts = await self._readers.run(runs.latest_attempts, iso(now))
        since = iso(now - UNDELIVERED_DAYS * 86_400)
        fires = [
            (moment, task.user, task.name)
            for each in every
            if (task := timed_heartbeat(each, self.heartbeat_s)) is not None
            and (moment := next_fire(task, attempts.get((task.user, task.name), ()), now=now)) is not None
        ]
        moment, user, name = min(fires, default=(None, None, None))
        failing = sorted(self._scheduler.failing.items())
        return {
            "count": len(every),
            "enabled": sum(task.enabled for task in every),
            "next": None if moment is None else {"at": iso(moment), "user": user, "task": name},
            "running": len(self._scheduler.live),
            "queued": len(self._scheduler.queued),
            "failing": [{"user": user, "task": task, "error": code} for (user, task), code in failing],
            "undelivered": await self._readers.run(runs.count_failed, NO_SUCH_CHAT, since),
        }

    async def _ask(self, make: Callable[[Reply[_T]], Msg]) -> _T:
        with answer_within(ANSWER_S, "the scheduler"):
            return await self._scheduler.mailbox.ask(make)
        raise AssertionError("answer_within always raises on time-out")

    @property
    def _providers(self) -> frozenset[str]:
        return frozenset({LOCAL_PROVIDER, *self._core.config.providers})

    async def _view(self, task: Task) -> Any:
        now = self._core.clock.now()
        attempts = (await self._readers.run(runs.latest_attempts, iso(now))).get((task.user, task.name), [])
        last = await self.runs(task.user, task=task.name, limit=1)
        timed = timed_heartbeat(task, self.heartbeat_s)
        fires: tuple[float, ...] = ()
        if timed is not None and timed.enabled:
            first, anchor = next_fire(timed, attempts, now=now), from_iso(timed.anchor_at)
            if first is not None:
                fires = (first, *next_fires(timed.trigger, anchor=anchor, after=first, count=SHOWN_FIRES - 1))
        zone = getattr(task.trigger, "zone", None) or await self.zone_of(task.user)
        return {
            **self.stored_json(timed or task, zone),
            "zone": zone,
            "next_fires": [local_time(moment, zone) for moment in fires],
            "running": any(live.key == (task.user, task.name) for live in self._scheduler.live.values()),
            "last_run": self.run_json(last[0]) if last else None,
            "warning": await self._warning(task) if timed is not None else "heartbeats are off in the configuration",
        }

    def stored_json(self, task: Task, zone: str | None = None) -> dict[str, Any]:
        """A task's own fields as JSON, without what its runs and the time of day make of it."""
        trigger = _trigger_json(task.trigger, zone or getattr(task.trigger, "zone", None) or self.zone)
        return {**_fields(task, without={"anchor_at"}), "trigger": trigger}

    async def _warning(self, task: Task) -> str | None:
        if task.inject_into is None or task.reminder:
            return None
        if await self._readers.run(chats.get, task.user, chat_id(task.user, task.inject_into)) is None:
            return f"there is no chat {task.inject_into} yet: until there is, results stay in the records of the runs"
        return None


def _name(text: str) -> TaskName:
    """Raises NoSuchTask for a name that no task can have."""
    try:
        return task_name(text)
    except InvalidName as error:
        raise NoSuchTask(str(error)) from error


def _trigger_json(trigger: Trigger, zone: str) -> dict[str, Any]:
    more = {"shown": shown(trigger, zone), "repeat": when_words.repeat_of(trigger)}
    return {"kind": type(trigger).__name__.lower(), **attrs.asdict(trigger), **more}


def _fields(value: Task | Run, without: Container[str]) -> dict[str, Any]:
    """A record's fields; an enum's member is a text already."""
    return {each.name: getattr(value, each.name) for each in attrs.fields(type(value)) if each.name not in without}
