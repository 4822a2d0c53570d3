"""Something is forgotten between a reading and the writing of what was made of it: that is refused, and brings nothing
back."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from klaw.actor.clock import SystemClock
from klaw.domain.names import UserId
from klaw.errors import SourceForgotten
from klaw.memory.facts.facts import Facts
from klaw.memory.facts.people import People
from klaw.store.engine import meta
from klaw.store.engine.writer import Writer
from klaw.store.kinds import facts
from klaw.store.kinds import people as stored_people
from klaw.store.store import Store
from tests.memory.actors.test_archivist import off
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.people import AT, add, in_topic, names, people_of
from tests.support.stores import running_store
from tests.support.topics import ANNA, say

CANARY = "Kanarienvogel8842"


class Between:
    """A writer before whose first run of a function something happens: what was read for the change is old then."""

    def __init__(self, writer: Writer, function: Callable[..., Any], happens: Callable[[], Awaitable[Any]]) -> None:
        self._writer, self._function, self._happens = writer, function, [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    async def run(self, function: Callable[..., Any], *args: Any, **values: Any) -> Any:
        while function is self._function and self._happens:
            await self._happens.pop()()
        return await self._writer.run(function, *args, **values)


async def forget(store: Store, root: Path, what: str) -> None:
    tool = forgetter(store, root)
    await tool.forget(await tool.find(what, ANNA), everywhere=True)


PEOPLE: dict[str, Callable[[People, str, str], Awaitable[Any]]] = {
    "edit": lambda people, gone, _: people.edit(ANNA, gone, relation="тётя"),
    "note": lambda people, gone, _: people.note(ANNA, gone, in_topic(7), aliases=["Ци"]),
    "merge": lambda people, gone, other: people.merge(ANNA, gone, other),
    "merge the other way": lambda people, gone, other: people.merge(ANNA, other, gone),
    "undo": lambda people, gone, _: people.undo(ANNA, gone),
    "add": lambda people, _gone, _other: people.add(ANNA, CANARY, source="archivist", as_of=2),
}


@pytest.mark.parametrize("change", PEOPLE)
async def test_no_change_brings_a_person_back(tmp_path: Path, change: str) -> None:
    async with running_store(tmp_path) as store:
        gone, other = await add(store, CANARY), await add(store, "Борис")
        await people_of(store).edit(ANNA, gone.id, relation="сестра")
        await add(store, CANARY, user="boris")
        writer = Between(store.writer, stored_people.change, lambda: forget(store, tmp_path, f"person:{gone.id}"))
        people = People(writer, store.readers, SystemClock(), lambda: "new")  # type: ignore[arg-type]
        with pytest.raises(SourceForgotten):
            await PEOPLE[change](people, gone.id, other.id)
        assert await names(store) == ["Борис"]
        forgetting = forgetter(store, tmp_path)
        await forgetting.forget(await forgetting.find(f"person:{CANARY}", UserId("boris")), everywhere=True)
        # Another user's forgetting is none of hers.
        as_of = await store.readers.run(meta.last_entry)
        await add(store, "Вера", user="boris")
        await store.writer.run(stored_people.change, ANNA, AT, removed=[other.id], as_of=as_of)
        assert holding(tmp_path, CANARY) == {}


@pytest.mark.parametrize("change", ["save", "edit", "undo", "undo a removal"])
async def test_no_change_brings_a_fact_back(tmp_path: Path, change: str) -> None:
    async with running_store(tmp_path) as store:
        await say(store, f"The key is under {CANARY}")
        kept = await store.writer.run(facts.put, fact(f"The key is under {CANARY}", user="anna"), "new")
        plain = Facts(store.writer, store.readers, off(), SystemClock(), lambda: "other")
        await plain.edit(ANNA, kept.id, importance=70)
        if change == "undo a removal":
            await plain.remove(ANNA, kept.id)
        as_of = await store.readers.run(meta.last_entry)

        async def happens() -> None:
            await forget(store, tmp_path, f"fact:{kept.id}")
            await forget(store, tmp_path, "main#1")

        writer = Between(store.writer, facts.put, happens)
        late = Facts(writer, store.readers, off(), SystemClock(), lambda: "new")  # type: ignore[arg-type]
        values: dict[str, Any] = {"category": "other", "source": "archivist", "origin": "assistant", "as_of": as_of}
        changing = {
            "save": lambda: late.save(ANNA, f"{CANARY} hides a key", **values),
            "edit": lambda: late.edit(ANNA, kept.id, importance=80),
            "undo": lambda: late.undo(ANNA, kept.id),
            "undo a removal": lambda: late.undo(ANNA, kept.id),
        }
        with pytest.raises(SourceForgotten):
            await changing[change]()
        assert await store.readers.run(facts.count, ANNA) == 0
        assert holding(tmp_path, CANARY) == {}
