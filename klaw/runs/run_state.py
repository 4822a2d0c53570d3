"""A run while it runs: the one place where its record changes, and what its final text means.

Every write is shielded for a bounded time: one that was cancelled may be stored, and the next would contradict it."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import iso
from klaw.convert import REQUESTS
from klaw.core import Core
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import ChatId, chat_id
from klaw.domain.task import Run, RunKind, RunStatus, TaskKey, delivery_message, notice_message
from klaw.errors import ActorTooSlow, LimitReached, NoSuchChat, StorageError, StorageFull
from klaw.llm.types import Usage
from klaw.runs.limits import RunLimit, TokenCounts
from klaw.store.kinds import run_edits
from klaw.store.kinds.run_edits import RunLines

NO_TEXT = "the final text is empty"
MAX_REASON = 500
_MAX_SILENT = 4096
"""A longer text is a message, whatever it looks like."""
_FENCE = re.compile(r"\A```[ \t]*+(?:json[ \t]*+)?\r?\n(.*)\n[ \t]*```\Z", re.DOTALL | re.IGNORECASE)


@attrs.frozen(kw_only=True)
class _Silent:
    silent: Literal[True]
    reason: str | None = None


def silent_reason(text: str) -> str | None:
    """Why a final text is not delivered: it is empty, or nothing but ``{"silent": true, "reason": …}`` (also in a code
    fence). None for all else, also an object with further members: a message too many does less harm than one that is
    lost."""
    whole = text.strip()
    if not whole:
        return NO_TEXT
    if len(whole) > _MAX_SILENT:
        return None
    fenced = _FENCE.match(whole)
    try:
        said = REQUESTS.read(json.loads(fenced.group(1) if fenced else whole, object_pairs_hook=_members), _Silent)
    except (ValueError, RecursionError):
        return None
    return (said.reason or "").strip()[:MAX_REASON] or "no reason given"


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


NO_SUCH_CHAT = "no_such_chat"


@attrs.frozen(kw_only=True)
class Verdict:
    """What is to be stored of the end of a run. ``deliver``: the final text goes to the run's chat."""

    status: RunStatus
    deliver: bool = False
    error: str | None = None
    note: str | None = None


def judge(run: Run, text: str, reached: LimitReached | None) -> Verdict:
    """What a finished conversation means. ``reached``: the limit that ended it early."""
    note = f"it was ended early: {reached}" if reached is not None else None
    reason = silent_reason(text)
    if run.delivered:
        return Verdict(status=RunStatus.DONE, note=note)
    if reason is None and run.kind is not RunKind.HEARTBEAT:
        return Verdict(status=RunStatus.DONE, deliver=run.inject_into is not None, note=note)
    if reached is not None:
        return Verdict(status=RunStatus.FAILED, error=reached.limit, note=str(reached))
    return Verdict(status=RunStatus.SILENT, note=reason)


def undeliverable(chat: str) -> Verdict:
    note = f"there is no chat {chat}; the result is kept here"
    return Verdict(status=RunStatus.FAILED, error=NO_SUCH_CHAT, note=note)


def notice_text(run: Run, text: str, *, tells: bool) -> str | None:
    """The notice of an ended run that a chat gets beside the result. ``tells``: report a failure."""
    failed = run.status in (RunStatus.FAILED, RunStatus.TIMED_OUT)
    if run.kind is RunKind.HEARTBEAT and run.error not in set(RunLimit):
        return None  # it speaks through its tool only; the status shows that it failed
    why = f": {run.note}" if run.note else ""
    if run.kind is RunKind.SPAWNED and run.notify is not None:
        told = f"The subagent {run.task} has ended ({run.status.value.replace('_', ' ')}){why}."
        undelivered = text if not run.delivered and run.status is not RunStatus.SILENT else ""
        return f"{told}\n\n{undelivered}" if undelivered else told
    if failed and tells and run.inject_into is not None:
        return f"The task {run.task} did not succeed{why}."
    return None


def notice_of(run: Run, text: str | None, created_at: str) -> NewMessage | None:
    """The message that tells the run's listener of its end; None without a text or a listener."""
    if text is None or run.listener is None:
        return None
    return notice_message(run, chat_id(run.user, run.listener), text, created_at)


WRITE_S = 30.0
"""A write that takes longer may be stored or not: nothing more is written then, and ``recovery.settle`` decides."""
DISK_FULL = Backoff(1.0, 60.0)
CHANNEL = "scheduler"
QUEUED = "queued"
"""Stands in a run's details while it waits for a place: if Klaw stops then, that counts as no attempt."""
OUTSIDE = "outside"
"""Stands in the details of a spawned run whose parent had read something from outside."""

T = TypeVar("T")
log = structlog.get_logger("klaw.run")


@attrs.define(kw_only=True, eq=False)
class LiveRun:
    run: Run
    core: Core
    limits: TokenCounts
    timeout_s: float
    said: Callable[[], None]
    """Called when a message of it was stored in a chat."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    over: trio.Event = attrs.Factory(trio.Event)
    """Set when its end is stored, or will not be."""
    cancelled_because: str | None = None
    undelivered: str | None = None
    """A text for a chat that does not exist."""
    ending: bool = False
    """The work is done; only the outcome has to be stored."""
    _lost: bool = False
    _seq: int = 1
    _lock: trio.Lock = attrs.Factory(trio.Lock)

    def cancel(self, reason: str) -> bool:
        """End it; what it delivered stays. False when it is ending anyway."""
        if self.ending:
            return False
        if self.cancelled_because is None:
            self.cancelled_because = reason
            self.scope.cancel(reason=reason)
        return True

    @property
    def key(self) -> TaskKey:
        return self.run.user, self.run.task

    @property
    def target(self) -> ChatId | None:
        return chat_id(self.run.user, self.run.inject_into) if self.run.inject_into is not None else None

    def spend(self, usage: Usage) -> None:
        """Count the tokens of one LLM call; they are stored with the run's next state."""
        self.run = attrs.evolve(
            self.run,
            prompt_tokens=self.run.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.run.completion_tokens + usage.completion_tokens,
        )

    def describe(self, **details: Any) -> None:
        self.run = attrs.evolve(self.run, details={**self.run.details, **details})

    async def transcribe(self, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> None:
        """Add a message to the transcript; durable when it returns. Raises StorageFull: nothing was added."""
        async with self._lock:
            message = self._message(role, kind, text, metadata)
            await self._write(lambda: self.core.writer.run(run_edits.append_transcript, self.run, self._seq, [message]))
            self._seq += 1

    async def begin(self) -> None:
        """Store that it waits no more; durable when it returns. From then on a stop of Klaw interrupts it."""
        if self.run.details.get(QUEUED):
            details = {name: value for name, value in self.run.details.items() if name != QUEUED}
            self.run = attrs.evolve(self.run, details=details)
            await self.save()

    async def save(self) -> None:
        async with self._lock:
            await self._write(lambda: self.core.writer.run(run_edits.save, self.run))

    async def deliver(self, text: str) -> None:
        """Say something in the run's chat; durable, and counted in the run's record, when it returns. Raises
        StorageFull: nothing was stored; NoSuchChat: the text is kept for the record."""
        async with self._lock:
            target = self.target
            if target is None:
                raise NoSuchChat("")
            number = self.run.delivered + 1
            said = attrs.evolve(self.run, delivered=number)
            message = delivery_message(said, number, target, text, self._now())
            try:
                await self._write(lambda: self.core.writer.run(run_edits.save, said, delivery=message))
            except NoSuchChat:
                self.undelivered = text if self.undelivered is None else f"{self.undelivered}\n\n{text}"
                raise
            self.run = said
            self.said()

    async def end(self, verdict: Verdict, text: str, *, tells: bool) -> None:
        """Store the end: final text, record, delivery and notice (see ``notice_text``), all or nothing. Tried again
        while the disk is full; when cancelled meanwhile it is not stored. Raises ActorStopped; ActorTooSlow,
        StorageError: it may be stored or not."""
        ended_at = self._now()  # the same at each attempt, so that a repetition is recognised
        kept = text
        if self.undelivered is not None and self.run.inject_into is not None:
            kept = f"{self.undelivered}\n\n{text}" if text else self.undelivered
            if not verdict.deliver and verdict.error is None:
                verdict = undeliverable(self.run.inject_into)
        failures, has_listener = 0, True
        while True:
            try:
                return await self._end(verdict, text, kept, ended_at, tells=tells if has_listener else None)
            except NoSuchChat as error:
                if verdict.deliver:
                    verdict = undeliverable(error.chat)
                else:  # the record is what remains
                    has_listener = False
            except StorageFull:
                log.error("run_end_not_stored", code="storage_full")
                failures += 1
                await trio.sleep(DISK_FULL.pause_s(failures))

    async def _end(self, verdict: Verdict, text: str, kept: str, ended_at: str, *, tells: bool | None) -> None:
        async with self._lock:
            ended = attrs.evolve(
                self.run,
                status=verdict.status,
                ended_at=ended_at,
                error=verdict.error,
                note=self.run.noted(verdict.note),
                result=kept,
                delivered=self.run.delivered + verdict.deliver,
            )
            last = delivery = notice = None
            if verdict.status in (RunStatus.DONE, RunStatus.SILENT) or (verdict.error is not None and kept):
                final = self._message(Role.ASSISTANT, MessageKind.TEXT, text or kept or "(no final text)", {})
                last = RunLines(first_seq=self._seq, messages=(final,))
            if verdict.deliver and self.target is not None:
                delivery = delivery_message(ended, ended.delivered, self.target, text, self._now())
            if tells is not None:
                notice = notice_of(ended, notice_text(ended, kept, tells=tells), self._now())
            await self._write(
                lambda: self.core.writer.run(run_edits.save, ended, transcript=last, delivery=delivery, notice=notice)
            )
            self.run = ended
            if delivery is not None or notice is not None:
                self.said()

    def _message(self, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> NewMessage:
        return NewMessage(
            id=self.core.new_id(),
            chat=ChatId(""),  # the writer puts the folder's name there
            user=self.run.user,
            channel=CHANNEL,
            role=role,
            type=kind,
            content=text,
            tokens=tokens.estimate(text),
            created_at=self._now(),
            metadata=metadata,
        )

    def _now(self) -> str:
        return iso(self.core.clock.now())

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        if self._lost:
            raise StorageError("an earlier write of this run was given up, and may have been stored or not")
        with trio.CancelScope(deadline=trio.current_time() + WRITE_S, shield=True):
            return await write()
        self._lost = True
        raise ActorTooSlow(f"the store did not take a run's state within {WRITE_S:g} s")
