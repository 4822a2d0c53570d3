"""The summarizer actor: condenses the older part of long segments in the background.

Who sends to it: chats nudge it after each turn. What is to be done it finds in the store, so a dropped nudge, a crash
or a restart loses nothing. It works on one chat at a time; a chat that fails waits (5 minutes, doubled each time, 6
hours at most, also over a restart) while the others go on.
"""

from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, from_iso, iso
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Mailbox
from klaw.actor.supervisor import Started
from klaw.actor.vitals import Vitals
from klaw.domain.names import ChatId, user_of
from klaw.domain.text import plural
from klaw.errors import ActorStopped, StorageError, StorageFull
from klaw.memory.summaries import backoff, copies
from klaw.memory.summaries.making import Again, Failed, Made, Maker, Nothing, SummaryServices
from klaw.store.sql import summaries
from klaw.store.sql.summaries import Failure

CAPACITY = 256
"""Filled by chats, one nudge after a turn; when it is full the nudge is dropped and the next sweep finds the chat."""
SWEEP_S = 600.0
"""How often the store is asked for chats that were missed."""
SWEEP_CHATS = 1_000
SWEEP_MESSAGES = 4
"""A chat with fewer uncovered messages is not looked at by a sweep."""
STORE_PAUSE_S = 60.0
"""After the store could not be read."""
SHOWN_FAILURES = 3
"""A chat that failed so often in a row is shown as degraded."""

log = structlog.get_logger("klaw.summarizer")


@attrs.frozen
class Look:
    """A turn of this chat has ended: there may be something to summarise."""

    chat: ChatId


@attrs.frozen(kw_only=True)
class SummarizerStatus:
    """What is known now. Times are Unix seconds."""

    made: int = 0
    """Since the process started."""
    last_made: float | None = None
    waiting: int = 0
    """Chats that are looked at next."""
    failing: int = 0
    """Chats whose last attempt failed."""
    failing_long: int = 0
    """Those that failed several times in a row."""
    next_try: float | None = None
    """When the first of them is tried again."""
    code: str | None = None
    """Why the last failed attempt did."""


class Summarizer:
    """Handle of the actor."""

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        self.mailbox: Mailbox[Look] = Mailbox("memory.summarizer", CAPACITY)
        self.enabled = enabled
        self.status = SummarizerStatus()
        self.missed = False
        """A nudge was dropped; the actor's own."""
        self._clock = clock
        self._idle = trio.Event()

    def nudge(self, chat: ChatId) -> None:
        """Say that a turn of a chat has ended. Never waits, never raises."""
        if not self.enabled or self.mailbox.closed:
            return
        self._idle = trio.Event()
        if not self.mailbox.tell(Look(chat)):
            self.missed = True

    async def wait_idle(self) -> None:
        """Return when nothing is left to do before the next attempt of a chat that failed, or the next sweep."""
        await self._idle.wait()

    def show(self, status: SummarizerStatus, *, idle: bool) -> None:
        """The actor's own method."""
        self.status = status
        if idle:
            self._idle.set()

    def problems(self) -> dict[str, str]:
        """Whether summaries fail again and again. All users see this: a number, no names."""
        if not self.status.failing_long:
            return {}
        chats = plural(self.status.failing_long, "chat")
        return {"summaries_failing": f"no summary could be made for {chats}; older messages are found by search"}

    def report(self) -> dict[str, Any]:
        """The status as plain JSON values."""
        status = self.status
        return {
            **attrs.asdict(status),
            "enabled": self.enabled,
            "last_made": iso(status.last_made) if status.last_made is not None else None,
            "next_try": iso(status.next_try) if status.next_try is not None else None,
        }


async def run(vitals: Vitals, task_status: Started, *, summarizer: Summarizer, services: SummaryServices) -> None:
    """Summarise until the mailbox closes. What is being made then is given up: the next start makes it again."""
    worker = _Worker(vitals, summarizer, services)
    async with trio.open_nursery() as nursery:
        task_status.started()
        nursery.start_soon(worker.work)
        async for look in summarizer.mailbox:
            worker.add(look.chat)
        nursery.cancel_scope.cancel(reason="the summarizer's mailbox is closed")


class _Worker:
    def __init__(self, vitals: Vitals, summarizer: Summarizer, services: SummaryServices) -> None:
        self._vitals = vitals
        self._summarizer = summarizer
        self._services = services
        self._maker = Maker(services, vitals)
        self._queue: dict[ChatId, None] = {}
        """Chats to look at, in order, each once."""
        self._failures: dict[ChatId, Failure] = {}
        self._news = trio.Event()
        self._made = 0
        self._last_made: float | None = None
        self._code: str | None = None
        self._sweep_at = float("-inf")

    def add(self, chat: ChatId) -> None:
        """Look at a chat soon. Beyond the bound a sweep does."""
        if len(self._queue) < SWEEP_CHATS:
            self._queue[chat] = None
        else:
            self._summarizer.missed = True
        self._news.set()

    async def work(self) -> None:
        """Look at one chat after the other, for ever."""
        await self._begin()
        while True:
            self._news = trio.Event()
            try:
                await self._sweep()
                chat = next(iter(self._queue), None)
                if chat is None:
                    await self._rest()
                    continue
                del self._queue[chat]
                with structlog.contextvars.bound_contextvars(user=user_of(chat), chat=chat):
                    await self._look(chat)
            except StorageError as error:
                log.error("summaries_unreadable", error=error_class(error.__cause__ or error))
                await trio.sleep(STORE_PAUSE_S)

    async def _begin(self) -> None:
        """What the store knows: who waits for another attempt, and which copies there should be."""
        services = self._services
        found = await services.readers.run(summaries.failures, SWEEP_CHATS)
        self._failures = {failure.chat: failure for failure in found}
        after = 0
        while page := await services.readers.run(summaries.page, after, 200):
            await services.files.run(copies.settle, services.data_dir, [summary for _, summary in page])
            after = page[-1][0]

    async def _sweep(self) -> None:
        now = trio.current_time()
        if now < self._sweep_at and not self._summarizer.missed:
            return
        self._summarizer.missed, self._sweep_at = False, now + SWEEP_S
        for chat in await self._services.readers.run(summaries.candidates, SWEEP_MESSAGES, SWEEP_CHATS):
            self._queue[chat] = None

    async def _rest(self) -> None:
        """Wait for news, the next sweep, or the next attempt of a chat that failed."""
        now = self._services.clock.now()
        due = [chat for chat in self._failures if self._is_open(chat, now)]
        for chat in due:
            self._queue[chat] = None
        if due:
            return
        self._show(idle=not self._news.is_set() and not self._summarizer.mailbox.report().depth)
        self._vitals.doing("idle")
        pauses = [from_iso(failure.retry_at) - now for failure in self._failures.values()]
        with trio.move_on_after(max(0.0, min([SWEEP_S, self._sweep_at - trio.current_time(), *pauses]))):
            await self._news.wait()

    def _is_open(self, chat: ChatId, now: float) -> bool:
        failure = self._failures.get(chat)
        return failure is None or backoff.is_open(now, from_iso(failure.retry_at))

    async def _look(self, chat: ChatId) -> None:
        if not self._is_open(chat, self._services.clock.now()):
            return
        self._vitals.doing("looking at a chat")
        past = self._failures.get(chat)
        try:
            outcome = await self._maker.make(chat, past.failures if past else 0)
        except (ActorStopped, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a restart would try again at once and spend tokens each time
            log.error("summary_crashed", error=error_class(error), where=where(error))
            outcome = Failed("internal")
        match outcome:
            case Made():
                self._made += 1
                self._last_made = self._services.clock.now()
                self._failures.pop(chat, None)
                self._queue[chat] = None  # behind the others: there may be more
            case Again():
                self._queue[chat] = None  # at most once for each forgetting, which is a person's
            case Nothing():
                self._failures.pop(chat, None)
            case Failed():
                await self._wait(chat, outcome, past)
        self._show(idle=False)

    async def _wait(self, chat: ChatId, failed: Failed, past: Failure | None) -> None:
        """Leave a chat alone for a while, also over a restart."""
        now = self._services.clock.now()
        count = past.failures if past else 0
        if failed.until is None:
            count += 1
        until = failed.until if failed.until is not None else backoff.retry_at(now, count)
        failure = Failure(chat=chat, failures=max(1, count), retry_at=iso(until), code=failed.code)
        self._failures[chat] = failure
        self._code = failed.code
        try:
            await self._services.writer.note_summary_failure(failure)
        except StorageFull:
            log.warning("summary_failure_not_stored")

    def _show(self, *, idle: bool) -> None:
        failures = self._failures.values()
        status = SummarizerStatus(
            made=self._made,
            last_made=self._last_made,
            waiting=len(self._queue),
            failing=len(failures),
            failing_long=sum(failure.failures >= SHOWN_FAILURES for failure in failures),
            next_try=min((from_iso(failure.retry_at) for failure in failures), default=None),
            code=self._code if failures else None,
        )
        self._summarizer.show(status, idle=idle)
