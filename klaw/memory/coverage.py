"""Actor ``memory.coverage``: counts what search cannot find, and repairs what it can.

After the start, and once a day, it counts all messages in small steps, and then goes on with the new ones, once a
second at most. What full text or vectors lack is given to the writer to repair; what then still cannot be found and is
not in the window either is counted for each chat."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.domain.names import ChatId
from klaw.errors import StorageError
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.search import coverage as sql
from klaw.store.search.coverage import ChatTally, Damage, IndexRow, Tallies, add_rows

ACTOR_NAME = "memory.coverage"
REPAIR_ROWS = 16
"""Rows of one request to the writer; each may hold a long text that has to be indexed."""

log = structlog.get_logger("klaw.coverage")


@attrs.frozen(kw_only=True)
class CoveragePace:
    rows: int = 500
    """Messages of one step; a step takes some milliseconds of one reader."""
    settle_s: float = 1.0
    """After new messages it waits so long, so that a burst is one step and a turn has the readers for itself."""
    pause_s: float = 0.25
    """Between two steps of a pass."""
    pass_every_s: float = 86_400.0
    """From the end of a pass to the beginning of the next one."""
    retry_s: float = 60.0


@attrs.define(kw_only=True)
class CoverageStatus:
    whole: bool = False
    """Whether every message has been looked at since the start."""
    counted_at: float | None = None
    """End of the last whole pass (Unix seconds)."""
    repaired_texts: int = 0
    repaired_vectors: int = 0
    error: str | None = None


@attrs.define
class Count:
    tallies: Tallies = attrs.Factory(dict)
    at: int = 0
    """Row id of the last of them."""


@attrs.define(eq=False, slots=False)
class Coverage(Nudge):
    """The actor and its handle. ``wake_embedder``: called when vectors have to be made; ``with_summaries``: messages
    that a live summary holds are covered too."""

    clock: Clock
    readers: Readers
    writer: Writer
    wake_embedder: Callable[[], None]
    sliding_window: int = attrs.field(kw_only=True)
    with_summaries: bool = attrs.field(default=False, kw_only=True)
    pace: CoveragePace = attrs.field(factory=CoveragePace, kw_only=True)
    status: CoverageStatus = attrs.field(factory=CoverageStatus, init=False)
    _count: Count = attrs.field(factory=Count, init=False)
    """What is shown; it goes on with each new message."""
    _next: Count | None = attrs.field(default=None, init=False)
    """The count of a later pass, which takes the place of the other when it has come as far."""
    _next_pass_at: float = attrs.field(default=0.0, init=False)
    _lost: dict[ChatId, int] = attrs.field(factory=dict, init=False)
    """How many messages of a chat are covered by nothing."""

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Count until cancelled. A restart counts again."""
        self._count, self._next, self._lost = Count(), None, {}
        self.status.whole = False
        task_status.started()
        while True:
            vitals.doing("counting")
            try:
                pause = await self._step()
            except StorageError as error:  # a full disk, or a damaged index, which `klaw doctor` names
                self.status.error = error_class(error.__cause__ or error)
                log.warning("coverage_failed", error=self.status.error)
                await trio.sleep(self.pace.retry_s)
                continue
            self.status.error = None
            vitals.doing("idle")
            if await self.wait_for_news(pause):
                await trio.sleep(self.pace.settle_s)

    @property
    def uncovered(self) -> int:
        return sum(self._lost.values())

    def problems(self) -> dict[str, str]:
        """Whether there are messages that nothing would bring back. All users see this: no numbers, no names."""
        if not self.uncovered:
            return {}
        return {"uncovered": "some messages cannot be found by search; `klaw doctor` says which"}

    def report(self) -> dict[str, Any]:
        """The sums over all chats, and each chat that has something uncovered, as JSON."""
        sums = _sums(self._count.tallies.values(), self.uncovered)
        lost = {chat: count for chat, count in sorted(self._lost.items()) if count}
        return {**attrs.asdict(self.status), **sums, "chats": lost}

    async def _step(self) -> float:
        """Count what is new, or some more of a pass. Returns how long to wait, unless nudged."""
        rows = await self._go_on(self._count)
        chats = {row.chat for row in rows}
        lost = await self._uncovered(self._count.tallies, chats)
        self._lost = {**{chat: count for chat, count in self._lost.items() if chat not in chats}, **lost}
        if len(rows) == self.pace.rows:
            return self.pace.pause_s
        if not self.status.whole:
            self._end_pass()
        if self._next is None and trio.current_time() >= self._next_pass_at:
            self._next = Count()
        if self._next is not None:
            rows = await self._go_on(self._next)
            if len(rows) == self.pace.rows and self._next.at < self._count.at:
                return self.pace.pause_s
            self._lost = await self._uncovered(self._next.tallies, self._next.tallies.keys())
            self._count, self._next = self._next, None
            self._end_pass()
        return max(0.0, self._next_pass_at - trio.current_time())

    def _end_pass(self) -> None:
        self._next_pass_at = trio.current_time() + self.pace.pass_every_s
        self.status.whole, self.status.counted_at = True, self.clock.now()

    async def _go_on(self, count: Count) -> Sequence[IndexRow]:
        """Count the next messages, repaired as far as they can be."""
        batch = await self.readers.run(sql.read, count.at, sql.LAST_ROWID, self.pace.rows)
        if batch.damage.repairable and await self._repair(batch.damage):
            batch = await self.readers.run(sql.read, count.at, sql.LAST_ROWID, self.pace.rows)
        add_rows(count.tallies, batch.rows)
        if batch.rows:
            count.at = batch.rows[-1].rowid
        return batch.rows

    async def _uncovered(self, tallies: Tallies, chats: Collection[ChatId]) -> dict[ChatId, int]:
        """How many messages of some chats neither search finds nor the window shows, of those that have any."""
        found = {}
        for chat in [each for each in chats if tallies[each].lost]:
            start = await self.readers.run(sql.window_start, chat, self.sliding_window)
            held = await self.readers.run(sql.summarised, chat) if self.with_summaries else []
            found[chat] = tallies[chat].uncovered(start, held)
        return found

    async def _repair(self, damage: Damage) -> bool:
        """Returns whether anything was repaired. A few rows at a time: nobody who stores a message waits for long."""
        texts = vectors = 0
        try:
            for piece in damage.pieces(REPAIR_ROWS):
                more_texts, more_vectors = await self.writer.run(sql.repair, piece)
                texts += more_texts
                vectors += more_vectors
        except StorageError as error:
            log.error("index_not_repaired", error=error_class(error.__cause__ or error))
        for kind, count in (("text", texts), ("vector", vectors)):
            if count:
                log.warning("index_repaired", kind=kind, count=count)
        if vectors:
            self.wake_embedder()
        self.status.repaired_texts += texts
        self.status.repaired_vectors += vectors
        return bool(texts or vectors)


def _sums(tallies: Collection[ChatTally], uncovered: int) -> dict[str, int]:
    messages, others = sum(each.messages for each in tallies), sum(each.not_searchable for each in tallies)
    return {
        "messages": messages,
        "searchable": messages - others,
        "not_searchable": others,
        "wordless": sum(each.wordless for each in tallies),
        "uncovered": uncovered,
    }
