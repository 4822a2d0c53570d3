"""Bounded typed mailbox, the only way into an actor; the reply cell by which it answers; and ``Nudge``, for actors that
find their work in the database. The mailbox outlives a crashed incarnation of its actor: the supervisor fails everybody
who waits and hands the same mailbox to the next one."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import attrs
import trio

from klaw.errors import ActorStopped, ActorTooSlow

T = TypeVar("T")


class Reply(Generic[T]):
    """A cell that is resolved once, with a value or with an error."""

    __slots__ = ("_error", "_event", "_then", "_value", "resolved")

    def __init__(self) -> None:
        self.resolved = False
        self._then: Callable[[Reply[T]], None] | None = None
        self._event: trio.Event | None = None
        self._value: T | None = None
        self._error: Exception | None = None

    def set(self, value: T) -> bool:
        """Resolve with a value. Returns False when the cell was resolved before."""
        return self._resolve(value, None)

    def fail(self, error: Exception) -> bool:
        """Resolve with an error that ``get`` and ``wait`` raise. Returns False when the cell was resolved before."""
        return self._resolve(None, error)

    def then(self, call: "Callable[[Reply[T]], None]") -> "Reply[T]":
        """Have one function called with the cell when it is resolved, by whoever resolves it: it neither waits nor
        raises. For requesters that need no task to wait in."""
        self._then = call
        if self.resolved:
            call(self)
        return self

    def get(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set() stored a T before it was resolved

    async def wait(self) -> T:
        """Wait for the value. Raises the error given to ``fail``. Cancelling does not withdraw the request."""
        if self._event is None:
            self._event = trio.Event()
            if self.resolved:
                self._event.set()
        await self._event.wait()
        return self.get()

    def _resolve(self, value: T | None, error: Exception | None) -> bool:
        if self.resolved:
            return False
        self.resolved, self._value, self._error = True, value, error
        if self._event is not None:
            self._event.set()
        if self._then is not None:
            self._then(self)
        return True


M = TypeVar("M")
R = TypeVar("R")


@attrs.define(kw_only=True)
class MailboxReport:
    capacity: int
    depth: int = 0
    high_water: int = 0
    handled: int = 0
    failed: int = 0
    dropped: int = 0
    """Refused by ``tell`` because the mailbox was full."""


class Mailbox(Generic[M]):
    """A bounded first-in first-out queue with one consumer."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._queue: deque[M] = deque()
        self._senders = trio.lowlevel.ParkingLot()
        self._receivers = trio.lowlevel.ParkingLot()
        self._at_once: Callable[[M], bool] | None = None
        self._closed: str | None = None
        self._current: list[M] = []
        self._counts = MailboxReport(capacity=capacity)

    # -- senders ---------------------------------------------------------------------------------------------------

    def tell(self, message: M) -> bool:
        """Put a message without waiting. False (and counted as dropped) when the mailbox is full. Raises ActorStopped:
        the mailbox is closed."""
        self._refuse_if_closed()
        if self._at_once is not None and not self._queue and self._at_once(message):
            self._counts.handled += 1
            return True
        if len(self._queue) >= self.capacity:
            self._counts.dropped += 1
            return False
        self._put(message)
        return True

    def tell_self(self, message: M) -> None:
        """Put a message from the actor's own child task, past the capacity; a closed mailbox ignores it."""
        if self._closed is None:
            self._put(message)

    @property
    def has_room(self) -> bool:
        return len(self._queue) < self.capacity

    async def post(self, message: M) -> None:
        """Put a message, waiting for room. Raises ActorStopped: the mailbox is or becomes closed. When cancelled, the
        message was not put."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._refuse_if_closed()
        if len(self._queue) < self.capacity:
            self._put(message)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        while len(self._queue) >= self.capacity:
            await self._senders.park()
            self._refuse_if_closed()
        self._put(message)

    async def ask(self, make: Callable[[Reply[R]], M]) -> R:
        """Post the message that ``make`` builds around a new reply cell, and wait for the reply. Raises ActorStopped:
        the actor stopped or crashed before it answered. When cancelled, the message may be handled all the same."""
        reply: Reply[R] = Reply()
        await self.post(make(reply))
        return await reply.wait()

    # -- the consumer ----------------------------------------------------------------------------------------------

    async def receive(self, at_once: Callable[[M], bool] | None = None) -> M:
        """Take the next message; the one taken before counts as handled. ``at_once`` handles a message while this
        waits, in the sender's task, without waking the actor, and returns whether it did; it neither waits nor raises.
        Raises trio.EndOfChannel: closed and empty."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._counts.handled += len(self._current)
        self._current = []
        if self._queue:
            message = self._take()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return message
        self._at_once = at_once
        try:
            while not self._queue:
                if self._closed is not None:
                    raise trio.EndOfChannel
                await self._receivers.park()
        finally:
            self._at_once = None
        return self._take()

    async def wait_for_depth(self, depth: int) -> None:
        """Return when so many messages wait, or when the mailbox is closed. For the one consumer only."""
        await trio.lowlevel.checkpoint()
        while len(self._queue) < depth and self._closed is None:
            await self._receivers.park()

    def take_while(self, wanted: Callable[[M], bool], limit: int) -> list[M]:
        """Take up to ``limit`` further messages from the front without waiting, while ``wanted`` says so."""
        taken: list[M] = []
        while self._queue and len(taken) < limit and wanted(self._queue[0]):
            taken.append(self._take())
        return taken

    def __aiter__(self) -> "Mailbox[M]":
        return self

    async def __anext__(self) -> M:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    # -- the supervisor --------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Accept nothing more; what is queued can still be received."""
        if self._closed is None:
            self._closed = reason
            self._senders.unpark_all()
            self._receivers.unpark_all()

    def close_if_empty(self, reason: str) -> bool:
        """Close, unless something waits. An actor that retires so loses no message."""
        if self._queue:
            return False
        self.close(reason)
        return True

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def reopen(self) -> None:
        self._closed = None

    def fail_waiters(self, error: Exception) -> int:
        """Drop all that is queued or in hand and fail their reply cells. Returns how many messages that were."""
        in_hand, queued = self._current, list(self._queue)
        self._current = []
        self._queue.clear()
        self._counts.failed += len(in_hand)
        for message in (*in_hand, *queued):
            reply = getattr(message, "reply", None)
            if isinstance(reply, Reply):
                reply.fail(error)
        self._senders.unpark_all()
        return len(in_hand) + len(queued)

    def report(self) -> MailboxReport:
        return attrs.evolve(self._counts, depth=len(self._queue))

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise ActorStopped(f"{self.name}: {self._closed}")

    def _put(self, message: M) -> None:
        self._queue.append(message)
        self._counts.high_water = max(self._counts.high_water, len(self._queue))
        self._receivers.unpark()

    def _take(self) -> M:
        message = self._queue.popleft()
        self._current.append(message)
        if len(self._queue) < self.capacity:
            self._senders.unpark()
        return message


@contextmanager
def answer_within(seconds: float, name: str) -> Iterator[None]:
    """Bound an ``ask`` in time. Raises ActorTooSlow: the body did not end in ``seconds``."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise ActorTooSlow(f"{name} did not answer within {seconds:g} s")


@attrs.define(eq=False, slots=False)
class Nudge:
    """A flag for one loop that anybody sets, and whether that loop has nothing left to do."""

    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _idle: trio.Event = attrs.field(factory=trio.Event, init=False)

    def nudge(self) -> None:
        self._news.set()
        if self._idle.is_set():
            self._idle = trio.Event()

    async def wait_for_news(self, seconds: float = float("inf")) -> bool:
        """For the loop, when it has nothing to do: wait for a nudge, for at most ``seconds``. Returns whether one
        came."""
        if not self._news.is_set():
            self._idle.set()
        with trio.move_on_after(seconds):
            await self._news.wait()
        there = self._news.is_set()
        self._news = trio.Event()
        return there

    async def wait_idle(self) -> None:
        """Return when the loop has nothing to do and waits for a nudge."""
        await self._idle.wait()
