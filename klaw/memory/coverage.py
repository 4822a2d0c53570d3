"""Actor ``memory.coverage``: counts, all the time, what search cannot find, and repairs what it can.

After new messages it looks at those alone: bounded work, once a second at most, in the background; no reply waits for
it. A slow pass over everything runs after the start and once a day, in small steps. What full text or vectors lack is
given to the writer to repair; what then still cannot be found and is not in the window either is counted for each chat.

It has no mailbox: the writer's publisher nudges it through ``Coverage``, and the database says what is new.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, Started, Vitals
from klaw.domain.coverage import Damage, Tallies, add_rows, joined
from klaw.domain.names import ChatId
from klaw.errors import StorageError
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.search import coverage as sql
from klaw.store.search import vector_writes

ACTOR_NAME = "memory.coverage"
REPAIR_ROWS = 16
"""Rows of one request to the writer; each may hold a long text that has to be indexed."""

log = structlog.get_logger("klaw.coverage")


@attrs.frozen(kw_only=True)
class Pace:
    """How much it does at once, and how often."""

    rows: int = 500
    """Messages of one step; a step takes some milliseconds of one reader."""
    settle_s: float = 1.0
    """After new messages it waits so long, so that a burst is one step and a turn has the readers for itself."""
    pause_s: float = 0.25
    """Between two steps of a pass."""
    pass_every_s: float = 86_400.0
    """From the end of a pass to the begin of the next."""
    retry_s: float = 60.0
    """After a step that failed."""


@attrs.frozen(kw_only=True)
class CoverageStatus:
    """What is known now."""

    whole: bool = False
    """Whether every message has been looked at since the start."""
    counted_at: float | None = None
    """End of the last whole pass (Unix seconds)."""
    repaired_texts: int = 0
    repaired_vectors: int = 0
    error: str | None = None
    """Class of the error that stops the counting now."""


@attrs.define(eq=False, slots=False)
class Coverage(Nudge):
    """The actor and its handle: the nudge in, the counts out.

    There are two counts: ``passed`` of the messages up to the last whole pass, ``fresh`` of those after them. While a
    pass runs, ``passing`` is its count so far and ``fresher`` that of the messages after it.

    Args:
        clock, readers, writer: as everywhere.
        wake_embedder: called when vectors have to be made.
        sliding_window: ``context.slidingWindow``.
        with_summaries: messages that a live summary holds are covered too.
        pace: how much it does at once.
    """

    clock: Clock
    readers: Readers
    writer: Writer
    wake_embedder: Callable[[], None]
    sliding_window: int = attrs.field(kw_only=True)
    with_summaries: bool = attrs.field(default=False, kw_only=True)
    pace: Pace = attrs.field(factory=Pace, kw_only=True)
    status: CoverageStatus = attrs.field(factory=CoverageStatus, init=False)
    _told: tuple[Tallies, dict[ChatId, int]] = attrs.field(factory=lambda: ({}, {}), init=False)
    """What is told of all chats: the counts, and how many messages are covered by nothing."""

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def spec(self) -> ActorSpec:
        """How the supervisor is to run it."""
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    async def run(self, vitals: Vitals, task_status: Started) -> None:
        """Count until cancelled. A restart counts again."""
        await self._restart()
        task_status.started()
        while True:
            try:
                pause = await self._step(vitals)
            except StorageError as error:  # a full disk, or a damaged index, which `klaw doctor` names
                log.warning("coverage_failed", error=error_class(error.__cause__ or error))
                self.status = attrs.evolve(self.status, error=error_class(error.__cause__ or error))
                await trio.sleep(self.pace.retry_s)
                continue
            vitals.doing("counting" if self._passing is not None else "idle")
            if await self.wait_for_news(pause):
                await trio.sleep(self.pace.settle_s)

    @property
    def uncovered(self) -> int:
        """How many messages of all chats are covered by nothing."""
        return sum(self._told[1].values())

    def problems(self) -> dict[str, str]:
        """Whether there are messages that nothing would bring back. All users see this: no numbers, no names."""
        if not self.uncovered:
            return {}
        return {"uncovered": "some messages cannot be found by search; `klaw doctor` says which"}

    def chat(self, chat: ChatId) -> dict[str, int] | None:
        """A chat's counts; None when it has none yet."""
        tally = self._told[0].get(chat)
        if tally is None:
            return None
        return {
            "messages": tally.messages,
            "searchable": tally.messages - tally.not_searchable,
            "not_searchable": tally.not_searchable,
            "wordless": tally.wordless,
            "uncovered": self._told[1].get(chat, 0),
        }

    def report(self) -> dict[str, Any]:
        """The sums over all chats, and each chat that has something uncovered, as plain JSON values."""
        tallies = self._told[0].values()
        messages, others = sum(t.messages for t in tallies), sum(t.not_searchable for t in tallies)
        return {
            **attrs.asdict(self.status),
            "messages": messages,
            "searchable": messages - others,
            "not_searchable": others,
            "wordless": sum(tally.wordless for tally in tallies),
            "uncovered": self.uncovered,
            "chats": {chat: count for chat, count in sorted(self._told[1].items()) if count},
        }

    # -- counting --------------------------------------------------------------------------------------------------

    async def _restart(self) -> None:
        self._head = self._pass_end = await self.readers.run(sql.newest_rowid)
        """Rowids up to which new messages were counted, and at which the running pass ends."""
        self._pass_at, self._next_pass_at = 0, 0.0
        self._passing: Tallies | None = {}
        """None between two passes."""
        self._passed: Tallies = {}
        self._fresh: Tallies = {}
        self._fresher: Tallies = {}
        self._lost: dict[ChatId, int] = {}

    async def _step(self, vitals: Vitals) -> float:
        """Look at what is new, and go on with a pass if one is due. Returns how long to wait, unless nudged."""
        vitals.doing("looking at new messages")
        await self._follow()
        if self._passing is None and trio.current_time() >= self._next_pass_at:
            self._passing, self._fresher, self._pass_at, self._pass_end = {}, {}, 0, self._head
        if self._passing is not None:
            vitals.doing("counting")
            await self._go_on(self._passing)
        if self._passing is not None:
            return self.pace.pause_s
        return max(0.0, self._next_pass_at - trio.current_time())

    async def _follow(self) -> None:
        """Count the messages after ``head``."""
        while True:
            batch = await self._read(self._head, sql.LAST_ROWID)
            if not batch.rows:
                return
            add_rows(self._fresh, batch.rows)
            if self._passing is not None:
                add_rows(self._fresher, batch.rows)
            self._head = batch.rows[-1].rowid
            await self._show({row.chat for row in batch.rows})
            if len(batch.rows) < self.pace.rows:
                return

    async def _go_on(self, passing: Tallies) -> None:
        """One step of the pass."""
        batch = await self._read(self._pass_at, self._pass_end)
        add_rows(passing, batch.rows)
        self._pass_at = batch.last_rowid
        if self._pass_at < self._pass_end:
            if not self.status.whole:
                await self._show({row.chat for row in batch.rows})
            return
        self._passed, self._fresh, self._fresher, self._passing = passing, self._fresher, {}, None
        self._next_pass_at = trio.current_time() + self.pace.pass_every_s
        self._lost = {}
        await self._show(self._known(), whole=True, counted_at=self.clock.now())

    async def _read(self, after: int, last: int) -> sql.Batch:
        """A range of messages, repaired if it needs it. What a repair did not help stays as it is until the next
        pass."""
        batch = await self.readers.run(sql.read, after, last, self.pace.rows)
        if not batch.damage.repairable or not await self._repair(batch.damage):
            return batch
        return await self.readers.run(sql.read, after, last, self.pace.rows)

    async def _repair(self, damage: Damage) -> bool:
        """Have the writer repair it, a few rows at a time: whoever stores a message meanwhile waits for one part only.

        Returns whether anything was repaired.
        """
        helped = False
        try:
            for piece in damage.pieces(REPAIR_ROWS):
                helped = await self._repair_piece(piece) or helped
        except StorageError as error:
            log.error("index_not_repaired", error=error_class(error.__cause__ or error))
        return helped

    async def _repair_piece(self, damage: Damage) -> bool:
        repaired = await self.writer.run(vector_writes.repair, damage)
        status = self.status
        self.status = attrs.evolve(
            status,
            repaired_texts=status.repaired_texts + repaired.texts,
            repaired_vectors=status.repaired_vectors + repaired.vectors,
        )
        if repaired.vectors:
            self.wake_embedder()
        for kind, count in (("text", repaired.texts), ("vector", repaired.vectors)):
            if count:
                log.warning("index_repaired", kind=kind, count=count)
        return bool(repaired.texts or repaired.vectors)

    def _known(self) -> Tallies:
        before = self._passed if self.status.whole or self._passing is None else self._passing
        return joined(before, self._fresh)

    async def _show(self, chats: Iterable[ChatId], **changes: Any) -> None:
        """Find where the window of the given chats begins, as far as it matters, and publish all counts."""
        known = self._known()
        for chat in chats:
            self._lost.pop(chat, None)
            if known[chat].lost:
                start = await self.readers.run(sql.window_start, chat, self.sliding_window)
                held = await self.readers.run(sql.summarised, chat) if self.with_summaries else []
                self._lost[chat] = known[chat].uncovered(start, held)
        self._told = known, dict(self._lost)
        self.status = attrs.evolve(self.status, error=None, **changes)
