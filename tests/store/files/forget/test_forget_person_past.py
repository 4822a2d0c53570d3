"""Forgetting of people with a past: merges that were taken back, aliases that were taken away, people removed."""

from pathlib import Path

import pytest

from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.domain.person import PersonId
from klaw.store.kinds import facts, messages
from klaw.store.kinds import people as sql
from klaw.store.store import Store
from tests.store.files.forget.test_forget_person import _same_after_rebuilds
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.people import add, in_topic, names, people_of
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, archive

PAIRS = [("Аделаида", "Бернардина"), ("Adelaide", "Bernardina")]
RELATION = "соседка-скрипачка"


async def forget(store: Store, root: Path, what: str, **options: bool) -> None:
    tool = forgetter(store, root)
    proof = await tool.forget(await tool.find(what, ANNA), everywhere=True, **options)
    assert (proof.held, proof.still_named) == ((), {})


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_a_merge_that_was_taken_back_leaves_no_name_in_the_other_ones_past(
    tmp_path: Path, one: str, other: str
) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        await add(store, other, user="boris")
        kept, gone = await add(store, one), await add(store, other, relation=RELATION)
        removed = await add(store, "Клементина" if one == "Аделаида" else "Clementine")
        for into in (kept, removed):
            await people.merge(ANNA, gone.id, into.id)
            await people.undo(ANNA, into.id)
        await people.edit(ANNA, kept.id, aliases=[f"{other} II"])
        await people.edit(ANNA, kept.id, aliases=["Ада"])
        await people.remove(ANNA, removed.id)
        await forget(store, tmp_path, f"person:{gone.id}")
        assert holding(tmp_path, RELATION) == {}
        past = await store.readers.run(sql.history, ANNA, kept.id)
        assert [each.value.names for each in past if each.value is not None][-1] == (one, "Ада")
        assert all(other not in each.value.names for each in past if each.value is not None)
        # What is left of its history can still be taken back, and so can the other one's removal.
        await people.undo(ANNA, kept.id, to=past[0].entry)
        await people.undo(ANNA, removed.id)
        assert await names(store) == sorted([one, removed.name])
        assert await names(store, "boris") == [other]
        assert (await store.readers.run(sql.by_names, ANNA, [f"{other} II"])) == []
    await _same_after_rebuilds(tmp_path)


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_who_was_merged_for_a_time_keeps_what_is_the_other_ones(tmp_path: Path, one: str, other: str) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        gone, kept = await add(store, one), await add(store, other)
        await people.merge(ANNA, kept.id, gone.id)
        await people.undo(ANNA, gone.id)
        for name in (one, other):
            await store.writer.run(facts.put, fact(f"{name} likes tea with jam, чай с вареньем", user="anna"), "new")
        found = await forgetter(store, tmp_path).find(f"person:{one}", ANNA)
        assert found.named is not None
        assert (found.named.names, found.named.namesakes) == ((one,), ())
        await forget(store, tmp_path, f"person:{one}")
        left = await store.readers.run(facts.of_user, ANNA)
        assert [each.text.split()[0] for each in left] == [other]
        assert await names(store) == [other]
        assert holding(tmp_path, one) == {}
    await _same_after_rebuilds(tmp_path)


async def test_who_is_known_by_another_message_under_another_name_stays(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        said = [new(f"Пришла {name}", user="anna", id=f"m{n}") for n, name in enumerate("АБВГД")]
        rows = [each.message.rowid for each in await store.writer.run(messages.append, said)]
        topics = await archive(store, *([row] for row in rows))
        made = [
            await add(store, f"Имя {chr(1040 + n)}", source="archivist", mention=in_topic(topic.id, f"m{n}"))
            for n, topic in enumerate(topics)
        ]
        await people.merge(ANNA, made[1].id, made[0].id)  # known by m1 as well
        await people.note(ANNA, made[2].id, in_topic(topics[2].id, "m2"))
        await people.remove(ANNA, made[3].id)
        await forget(store, tmp_path, "m0", with_facts=True)
        assert await names(store) == ["Имя А", "Имя В", "Имя Д"]
        await forget(store, tmp_path, "m1", with_facts=True)
        assert await names(store) == ["Имя В", "Имя Д"]
        await forget(store, tmp_path, "m3", with_facts=True)  # the only one that named who was removed
        assert holding(tmp_path, "Имя А", "Имя Б", "Имя Г") == {}
        assert holding(tmp_path, "Имя В") != {}
    await _same_after_rebuilds(tmp_path)


async def test_a_relation_that_quotes_a_message_is_told(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        text = "моя сестра живёт в городе Тверь"
        await store.writer.run(messages.append, [new(text, user="anna", id="m0", role=Role.USER)])
        person = await add(store, "Аделаида", relation=text)
        await add(store, "Adelaide", relation=text, user="boris")
        tool = forgetter(store, tmp_path)
        before = await tool.preview(await tool.find("m0", ANNA), everywhere=True)
        assert before.reach.quotes.kept["people"] == 1
        await people_of(store).edit(ANNA, person.id, relation="сестра")
        before = await tool.preview(await tool.find("m0", ANNA), everywhere=True)
        assert before.reach.quotes.kept["people"] == 1  # its history has it


async def test_no_past_of_another_user_is_looked_at(tmp_path: Path) -> None:
    boris = UserId("boris")
    async with running_store(tmp_path) as store:
        people = people_of(store)
        theirs, friend = await add(store, "Бернардина", user="boris"), await add(store, "Вера", user="boris")
        await people.merge(boris, theirs.id, friend.id)
        await people.undo(boris, friend.id)
        mine = await add(store, "Бернардина")
        before = await store.readers.run(sql.history, boris, friend.id)
        await forget(store, tmp_path, f"person:{mine.id}")
        assert await store.readers.run(sql.history, boris, friend.id) == before
        assert await store.readers.run(sql.history, ANNA, PersonId(friend.id)) == []
    await _same_after_rebuilds(tmp_path)
