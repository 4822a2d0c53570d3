"""Klaw's account on a homeserver, without the rest of Klaw: what it is told, one event at a time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from klaw.channels.matrix import Matrix
from klaw.channels.messenger import Bot, EventBatch
from tests.support.services.synapse import Person, Synapse
from tests.support.waiting import HANG_S

E = TypeVar("E")


class MatrixAccount:
    """Made by ``account``. ``person`` is the same account, to ask the homeserver with."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.matrix = Matrix(person.token, person.url)
        self.bot: Bot
        self.position: str | None = None
        self.events: list[object] = []
        """All so far."""
        self._taken = 0

    async def open(self) -> None:
        self.bot = await self.matrix.open()
        await self.receive()

    async def receive(self) -> EventBatch:
        batch = await self.matrix.receive(self.position)
        self.position = batch.position
        self.events += batch.events
        return batch

    async def next(self, kind: type[E], found: Callable[[E], object] = lambda _event: True) -> E:
        """The next event of a kind that is as wanted; others before it are passed over."""
        with trio.fail_after(HANG_S):
            while True:
                while self._taken < len(self.events):
                    event, self._taken = self.events[self._taken], self._taken + 1
                    if isinstance(event, kind) and found(event):
                        return event
                await self.receive()

    async def restart(self) -> None:
        """Go on in another process, from the position that was stored."""
        await self.matrix.close()
        self.matrix = Matrix(self.person.token, self.person.url)
        self.bot = await self.matrix.open()


@asynccontextmanager
async def account(synapse: Synapse, name: str = "klaw") -> AsyncIterator[MatrixAccount]:
    made = MatrixAccount(await synapse.person(name))
    await made.open()
    try:
        yield made
    finally:
        await made.matrix.close()


async def together(made: MatrixAccount, person: Person, *others: Person, **room: object) -> str:
    """A room of a person and the bot, and of others; all are in it, and nothing was said."""
    told = await person.create_room(invite=[made.person, *others], **room)  # type: ignore[arg-type]
    for each in (made.person, *others):
        await each.join(told)
    marker = await person.say(told, "ready")
    while not any(getattr(event, "text", "") == "ready" for event in made.events):
        await made.receive()
    await person.redact(told, marker)
    made._taken = len(made.events)
    return told
