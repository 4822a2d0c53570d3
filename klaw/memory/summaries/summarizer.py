"""The summarizer actor: condenses the older part of long segments in the background.

Chats nudge it after each turn; what is to be done it finds in the store, so a crash loses nothing. One chat at a time;
one that fails waits (5 minutes, doubled each time, 6 hours at most, also over a restart) while the others go on."""

from typing import Any

import structlog
import trio

from klaw.actor.backoff import SLOW
from klaw.actor.clock import from_iso, iso
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.domain.names import ChatId, user_of
from klaw.errors import ActorStopped, StorageError, StorageFull
from klaw.memory.summaries import making
from klaw.memory.summaries.making import Made, SummaryFailed, SummaryMaker
from klaw.store.kinds import summaries
from klaw.store.kinds.summaries import SummaryFailure

ACTOR_NAME = "memory.summarizer"
SWEEP_S = 600.0
SWEEP_CHATS = 1_000
SWEEP_MESSAGES = 4
"""A chat with fewer uncovered messages is not looked at by a sweep."""
STORE_PAUSE_S = 60.0
SHOWN_FAILURES = 3

log = structlog.get_logger("klaw.summarizer")


class Summarizer(Nudge):
    def __init__(self, maker: SummaryMaker) -> None:
        super().__init__()
        self._made = 0
        self._last_made: str | None = None
        self._code: str | None = None
        """The error code of the last failure."""
        self.queue: dict[ChatId, None] = {}
        """Chats to look at, in order, each once."""
        self._maker = maker
        self._failures: dict[ChatId, SummaryFailure] = {}
        self._sweep_at = float("-inf")

    @property
    def enabled(self) -> bool:
        return self._maker.config.summarises

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    def turn_ended(self, chat: ChatId) -> None:
        """A turn of a chat has ended: look at it soon. Never waits, never raises."""
        if not self.enabled:
            return
        if len(self.queue) < SWEEP_CHATS:
            self.queue[chat] = None
        else:
            self._sweep_at = float("-inf")  # which finds it
        self.nudge()

    def problems(self) -> dict[str, str]:
        """Whether summaries fail again and again. All users see this: no numbers, no names."""
        if not self._failing_long:
            return {}
        return {"summaries_failing": "some chats could not be summarised; older messages are found by search"}

    def report(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "made": self._made,
            "last_made": self._last_made,
            "waiting": len(self.queue),
            "failing": len(self._failures),
            "failing_long": self._failing_long,
            "next_try": min((failure.retry_at for failure in self._failures.values()), default=None),
            "code": self._code if self._failures else None,
        }

    @property
    def _failing_long(self) -> int:
        return sum(failure.failures >= SHOWN_FAILURES for failure in self._failures.values())

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Summarise until cancelled. What is being made then is given up: the next start makes it again."""
        task_status.started()
        self._sweep_at = float("-inf")
        await self._begin()
        while True:
            try:
                await self._sweep()
                chat = next(iter(self.queue), None)
                if chat is None:
                    await self._rest(vitals)
                    continue
                del self.queue[chat]
                with structlog.contextvars.bound_contextvars(user=user_of(chat), chat=chat):
                    await self._look(chat, vitals)
            except StorageError as error:
                log.error("summaries_unreadable", error=error_class(error.__cause__ or error))
                await trio.sleep(STORE_PAUSE_S)

    async def _begin(self) -> None:
        maker = self._maker
        found = await maker.readers.run(summaries.failures, SWEEP_CHATS)
        self._failures = {failure.chat: failure for failure in found}
        after = 0
        while page := await maker.readers.run(summaries.page, after, 200):
            await maker.files.run(making.settle, maker.data_dir, [summary for _, summary in page])
            after = page[-1][0]

    async def _sweep(self) -> None:
        now = trio.current_time()
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_S
        for chat in await self._maker.readers.run(summaries.candidates, SWEEP_MESSAGES, SWEEP_CHATS):
            self.queue[chat] = None

    async def _rest(self, vitals: Vitals) -> None:
        now = self._maker.clock.now()
        due = [chat for chat in self._failures if self._is_open(chat, now)]
        for chat in due:
            self.queue[chat] = None
        if due:
            return
        vitals.doing("idle")
        pauses = [from_iso(failure.retry_at) - now for failure in self._failures.values()]
        await self.wait_for_news(max(0.0, min([SWEEP_S, self._sweep_at - trio.current_time(), *pauses])))

    def _is_open(self, chat: ChatId, now: float) -> bool:
        failure = self._failures.get(chat)
        return failure is None or is_open(now, from_iso(failure.retry_at))

    async def _look(self, chat: ChatId, vitals: Vitals) -> None:
        if not self._is_open(chat, self._maker.clock.now()):
            return
        vitals.doing("looking at a chat")
        past = self._failures.get(chat)
        outcome: Made | SummaryFailed
        try:
            outcome = await self._maker.make(chat, past.failures if past else 0, vitals)
        except (ActorStopped, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a restart would try again at once and spend tokens each time
            log.error("summary_crashed", error=error_class(error), where=where(error))
            outcome = SummaryFailed("internal")
        match outcome:
            case "made":
                self._made += 1
                self._last_made = iso(self._maker.clock.now())
                self._failures.pop(chat, None)
                self.queue[chat] = None  # behind the others: there may be more
            case "forgotten":
                self.queue[chat] = None  # at most once for each forgetting, which is a person's
            case "nothing":
                self._failures.pop(chat, None)
            case SummaryFailed():
                await self._wait(chat, outcome, past)

    async def _wait(self, chat: ChatId, failed: SummaryFailed, past: SummaryFailure | None) -> None:
        now = self._maker.clock.now()
        count = (past.failures if past else 0) + (failed.until is None)
        until = failed.until if failed.until is not None else now + SLOW.pause_s(count)
        failure = SummaryFailure(chat=chat, failures=max(1, count), retry_at=iso(until), code=failed.code)
        self._failures[chat] = failure
        self._code = failed.code
        try:
            await self._maker.writer.run(summaries.note_failure, failure)
        except StorageFull:
            log.warning("summary_failure_not_stored")


def is_open(now: float, stored: float) -> bool:
    """Whether an attempt may be made. What is farther off than any pause was written by a clock that was ahead."""
    return now >= stored or stored - now > SLOW.most_s + 24 * 3600
