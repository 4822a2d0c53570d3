"""The bounded queue between a connection and the consumer of its events.

Who fills it: the connection's reader, which must never wait: it would miss the acknowledgement that the consumer waits
for. So nothing here blocks it: when there is no room, stored messages are left on the server and fetched later, pieces
of an answer are dropped first, and other events last.
"""

from collections import deque

import trio

from klaw.client.events import Entry, Event
from klaw.wire.frames import Delta

CAPACITY = 256


class Inbox:
    """Events in order; one consumer."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._events: deque[Event] = deque()
        self._capacity = capacity
        self._lot = trio.lowlevel.ParkingLot()
        self._end: Exception | None = None
        self.dropped = 0
        """Events lost because the consumer was slow; never messages."""

    @property
    def takes_entries(self) -> bool:
        """Whether a stored message may be offered now."""
        return len(self._events) < self._capacity * 3 // 4

    @property
    def is_half_empty(self) -> bool:
        return len(self._events) <= self._capacity // 2

    def offer(self, event: Event) -> None:
        """Queue an event, or drop and count it if its kind has no room. Entries need ``takes_entries`` before."""
        limit = self._capacity // 2 if isinstance(event, Delta) else self._capacity
        if self._end is not None or (len(self._events) >= limit and not isinstance(event, Entry)):
            self.dropped += 1
            return
        self._events.append(event)
        self._lot.unpark()

    def end(self, error: Exception) -> None:
        """Nothing comes any more: ``get`` raises ``error`` after what is queued. The first end counts."""
        if self._end is None:
            self._end = error
        self._lot.unpark_all()

    async def get(self) -> Event:
        """The next event; waits for one.

        Raises:
            Exception: what ``end`` was given.

        Cancellation: no event is lost.
        """
        await trio.lowlevel.checkpoint()
        while not self._events:
            if self._end is not None:
                raise self._end
            await self._lot.park()
        return self._events.popleft()
