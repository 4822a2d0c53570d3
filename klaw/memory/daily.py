"""Actor ``memory.daily``: the talk of each day that is over is drawn into facts, once for each user and date.

It has no mailbox: the calendar and the database say what is to be done. A day is drawn in pages; after each the store
knows which messages it was, and after the last one that the day is done, for good. So a restart, a missed day, a clock
that is put back or summer time neither loses a day nor draws one twice; after a crash in between, one page is asked
about again, and what is kept already is refused as known.

What a topic has drawn is left out, and what was drawn here no topic draws again. Days before the last
``facts.daily.catchUpDays`` are left alone. A day that fails backs off by itself, five minutes doubling to six hours.
"""

import datetime as dt
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Started
from klaw.actor.vitals import Vitals
from klaw.config.background import DailyFactsConfig
from klaw.domain.message import Message
from klaw.domain.names import InvalidName, UserId
from klaw.domain.zones import zone as zone_of
from klaw.errors import ActorStopped, KlawError, StorageError
from klaw.memory.days import due_days, next_due, start_of, time_of
from klaw.memory.topics.backoff import Backoff
from klaw.memory.topics.drawer import FactDrawer
from klaw.memory.topics.source import Source
from klaw.store.readers import Readers
from klaw.store.sql import background, messages, topics
from klaw.store.sql.background import DaysTalk
from klaw.store.writer import Writer

ACTOR_NAME = "memory.daily"
SWEEP_S = 300.0
"""How often the calendar is looked at, because the machine's clock may be set; and the pause when the store fails."""
PAGE = 400
"""Messages that are drawn together, as ``topics.maxChunkSize``."""
_DAY = dt.timedelta(days=1)

log = structlog.get_logger("klaw.facts")


@attrs.frozen(kw_only=True)
class DailyStatus:
    """What is known now."""

    days: int = 0
    """Days of users that were finished since the start."""
    last_day: str | None = None
    """The date that was finished last."""
    last_at: str | None = None
    """When that was, ISO-8601 UTC."""
    next_at: str | None = None
    """When the next date is due."""
    failing: int = 0
    """Days of users that failed and wait."""
    error: str | None = None
    """Class of the last failure, until something succeeds."""


class Daily:
    """Handle of the actor. It keeps the pauses, so that a restart of the actor does not end them."""

    def __init__(self) -> None:
        self._news = trio.Event()
        self._idle = trio.Event()
        self.backoff: Backoff[tuple[UserId, str]] = Backoff()
        self.status = DailyStatus()

    def nudge(self) -> None:
        """Say that there may be something to do. Never waits."""
        self._news.set()
        if self._idle.is_set():
            self._idle = trio.Event()

    async def wait_idle(self) -> None:
        """Return when nothing is left that can be done now."""
        await self._idle.wait()

    async def wait_for_news(self, seconds: float) -> None:
        """Return after a nudge or after a while; the actor's own method, called when nothing can be done."""
        if not self._news.is_set():
            self._idle.set()
        with trio.move_on_after(seconds):
            await self._news.wait()
        self._news = trio.Event()


class DailyMetrics:
    """Its counters; one for each process."""

    def __init__(self, metrics: Metrics) -> None:
        self.days = metrics.counter("klaw_daily_facts_days_total", "days of users that were drawn into facts")
        self.messages = metrics.counter("klaw_daily_facts_messages_total", "messages of such days")
        self.failed = metrics.counter("klaw_daily_facts_failed_total", "attempts that failed and are made again later")


@attrs.frozen(kw_only=True)
class DailyServices:
    """What it works with."""

    config: DailyFactsConfig
    zone: str
    """Whose calendar the dates are of."""
    with_topics: bool
    """Topics are being made: they draw what is in them."""
    readers: Readers
    writer: Writer
    drawer: FactDrawer
    """The one that topics use as well: it draws one thing at a time."""
    metrics: DailyMetrics
    clock: Clock


async def run(vitals: Vitals, task_status: Started, *, daily: Daily, services: DailyServices) -> None:
    """Work for ever.

    Cancellation: at any point; what was drawn is kept, and the next start goes on with the rest.
    """
    worker = _Worker(vitals, daily, services, _zone(services.zone), time_of(services.config.at))
    task_status.started()
    while True:
        try:
            while await worker.step():
                pass
            pause = worker.pause()
        except StorageError as error:
            log.warning("daily_facts_failed", error=error_class(error))
            worker.tell(error=error_class(error))
            pause = SWEEP_S
        vitals.doing("idle")
        await daily.wait_for_news(pause)


@attrs.define
class _Worker:
    vitals: Vitals
    daily: Daily
    services: DailyServices
    zone: ZoneInfo
    at: dt.time
    last_user: UserId | None = None
    """Whose turn it was: users take turns."""

    def pause(self) -> float:
        """How long to wait when nothing can be done."""
        now, mono = self.services.clock.now(), trio.current_time()
        due = next_due(now, self.at, self.zone)
        self.tell(next_at=iso(due))
        retry = self.daily.backoff.next(mono)
        ends = [SWEEP_S, due - now, *([retry - mono] if retry is not None else [])]
        return max(1.0, min(ends))

    def tell(self, **known: str | int | None) -> None:
        """Put into the status what is known now."""
        failing = self.daily.backoff.count()
        self.daily.status = attrs.evolve(self.daily.status, failing=failing, **known)  # type: ignore[arg-type]

    async def step(self) -> bool:
        """Draw one page of one user's day, or finish the day. Returns whether there was something to try."""
        services = self.services
        days = due_days(services.clock.now(), self.at, self.zone, services.config.catch_up_days)
        if not days:
            return False
        users = await services.readers.run(topics.users)
        after = [user for user in users if self.last_user is not None and user > self.last_user]
        for user in [*after, *users[: len(users) - len(after)]]:
            done = await services.readers.run(background.done_days, user, days[0].isoformat())
            for day in days:
                waits = self.daily.backoff.waits((user, day.isoformat()), trio.current_time())
                if day.isoformat() not in done and not waits and await self._try(user, day):
                    self.last_user = user
                    return True
        return False

    async def _try(self, user: UserId, day: dt.date) -> bool:
        """One page. Returns whether there was one."""
        key = (user, day.isoformat())
        try:
            tried = await self._draw(user, day)
        except (ActorStopped, StorageError):
            raise
        except KlawError as error:
            pause = self.daily.backoff.fail(key, trio.current_time())
            self.services.metrics.failed.add()
            self.tell(error=error_class(error))
            log.warning("daily_facts_back_off", error=error_class(error), retry_s=round(pause))
            return True
        if tried:
            self.daily.backoff.succeed(key)
            self.tell(error=None)
        return tried

    async def _draw(self, user: UserId, day: dt.date) -> bool:
        services = self.services
        # Held while the model is asked: what the archivist makes a topic of meanwhile must not be drawn there as well.
        async with services.drawer.alone:
            talk = await self._talk(user, day)
            if not talk.spoke:
                return False
            self.vitals.doing("drawing facts from a day")
            page = _next_page(talk)
            if page:
                own = await services.readers.run(messages.by_rowids, page)
                await services.drawer.draw(Source(user=user, day=day.isoformat()), _of(user, own))
            done = sum(len(each.rowids) for each in talk.chats if each.asks) <= len(page)
            now = iso(services.clock.now())
            await services.writer.note_day(user, day.isoformat(), sorted(page), now, done=done)
        services.metrics.messages.add(len(page))
        if done:
            services.metrics.days.add()
            self.tell(days=self.daily.status.days + 1, last_day=day.isoformat(), last_at=now)
            log.info("day_drawn", messages=len(page))
        return True

    async def _talk(self, user: UserId, day: dt.date) -> DaysTalk:
        since, until = iso(start_of(day, self.zone)), iso(start_of(day + _DAY, self.zone))
        return await self.services.readers.run(background.said, user, since, until, topics=self.services.with_topics)


def _zone(name: str) -> ZoneInfo:
    """The zone of a name; UTC when this machine does not know it."""
    try:
        return zone_of(name)
    except InvalidName:
        log.warning("time_zone_unknown", name="UTC")
        return zone_of("UTC")


def _next_page(talk: DaysTalk) -> tuple[int, ...]:
    """Row ids of the next messages of one chat; none when nothing of the user's own is left."""
    return next((each.rowids[:PAGE] for each in talk.chats if each.asks), ())


def _of(user: UserId, own: Sequence[Message]) -> list[Message]:
    return [message for message in own if message.user == user]
