"""People in a real store: what is put is there, also after a lost database and a reindex, and users never cross."""

import tempfile
from pathlib import Path

import apsw
import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.names import UserId
from klaw.domain.person import PersonId, PersonSource
from klaw.errors import CannotUndo, NoSuchPerson, SamePerson, StorageError
from klaw.store.kinds import people as stored_people
from klaw.store.kinds import topic_edits
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.store import Store
from tests.support.forgetting import lose_database
from tests.support.people import AT, add, in_topic, names, people_of, the
from tests.support.reindexing import differing, digests_of, ended, reindexing_store, run
from tests.support.stores import running_store
from tests.support.topics import ANNA, archive, say

LOCAL = UserId("local")


async def known(store: Store, user: UserId = ANNA) -> list[tuple[str, int]]:
    return [(each.person.name, each.topics) for each in await store.readers.run(stored_people.of_user, user)]


async def test_people_are_put_changed_merged_and_removed_and_all_of_it_taken_back(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        anya = await add(store, "Аня", relation="сестра")
        anna = await add(store, "Anna", aliases=["Annie"], relation="sister")
        both = await people.merge(ANNA, anna.id, anya.id)
        assert (both.name, both.aliases, both.relation) == ("Аня", ("Anna", "Annie"), "сестра")
        assert await names(store) == ["Аня"]
        assert [each.id for each in await people.find(ANNA, "ANNIE")] == [anya.id]
        edited = await people.edit(ANNA, anya.id, relation="старшая сестра")
        assert (edited.relation, edited.source) == ("старшая сестра", PersonSource.USER)
        now, revived = await people.undo(ANNA, anya.id)
        assert now is not None
        assert (now.relation, revived) == ("сестра", ())
        past = await store.readers.run(stored_people.history, ANNA, anya.id)
        _, revived = await people.undo(ANNA, anya.id, to=past[0].entry)
        assert [each.id for each in revived] == [anna.id]
        assert (await the(store, anya.id)).aliases == ()
        assert await names(store) == ["Anna", "Аня"]
        await people.remove(ANNA, anya.id)
        assert await names(store) == ["Anna"]
        await people.undo(ANNA, anya.id)
        assert await names(store) == ["Anna", "Аня"]
        first, _ = await people.undo(
            ANNA, anna.id, to=(await store.readers.run(stored_people.history, ANNA, anna.id))[0].entry
        )
        assert first is not None
        assert (await the(store, anna.id)).aliases == ("Annie",)


async def test_a_merge_is_taken_back_from_either_side(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        anya, anna = await add(store, "Аня"), await add(store, "Anna")
        for side in (anya.id, anna.id):
            await people.merge(ANNA, anna.id, anya.id)
            now, revived = await people.undo(ANNA, side)
            assert now is not None
            assert (now.id, [each.id for each in revived]) == (anya.id, [anna.id])
            assert now.aliases == ()
            assert await names(store) == ["Anna", "Аня"]


async def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        anya, strange = await add(store, "Аня"), await add(store, "Boris", user="local")
        with pytest.raises(SamePerson):
            await people.merge(ANNA, anya.id, anya.id)
        for one, other in ((anya.id, strange.id), (strange.id, anya.id), (anya.id, PersonId("nobody"))):
            with pytest.raises(NoSuchPerson):
                await people.merge(ANNA, one, other)
        for attempt in (people.remove, people.undo, people.edit):
            with pytest.raises(NoSuchPerson):
                await attempt(ANNA, strange.id)
        with pytest.raises(NoSuchPerson):
            await people.note(ANNA, strange.id, in_topic(1))
        with pytest.raises(CannotUndo):
            await people.undo(ANNA, anya.id, to=99)
        with pytest.raises(StorageError):
            await store.writer.run(stored_people.change, ANNA, AT, put=[attrs.evolve(strange, id=PersonId("x"))])
        with pytest.raises(NoSuchPerson):
            await store.writer.run(stored_people.change, LOCAL, AT, put=[attrs.evolve(strange, merged_into=anya.id)])
        assert (await names(store), await names(store, "local")) == (["Аня"], ["Boris"])


async def test_topics_that_name_a_person_are_counted_where_they_are_now(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        people = people_of(store)
        first, second, third = await say(store, "one", "two", "three")
        one, two, three = await archive(store, [first], [second], [third])
        anya, anna = await add(store, "Аня", mention=in_topic(one.id)), await add(store, "Anna")
        await people.note(ANNA, anya.id, in_topic(one.id, "m9"))  # known already
        await people.note(ANNA, anna.id, in_topic(two.id))
        await people.note(ANNA, anna.id, in_topic(three.id, at="2026-11-22T10:00:00.000Z"))
        assert await known(store) == [("Anna", 2), ("Аня", 1)]
        await people.merge(ANNA, anna.id, anya.id)
        assert await known(store) == [("Аня", 3)]
        merged = await store.writer.run(topic_edits.merge, two, one, "both", AT)
        assert await known(store) == [("Аня", 2)]
        spoken = await store.readers.run(stored_people.mentions, ANNA, anya.id)
        assert [(each.mention.topic, each.topic) for each in spoken] == [
            (str(three.id), three.id),
            (str(two.id), merged.id),
            (str(one.id), merged.id),
        ]
        await people.undo(ANNA, anna.id)
        assert await known(store) == [("Anna", 2), ("Аня", 1)]
        assert await store.readers.run(stored_people.mentions, LOCAL, anya.id) == []


async def fill(root: Path) -> None:
    async with running_store(root) as store:
        people = people_of(store)
        rows = await say(store, "one", "two")
        one, two = await archive(store, rows[:1], rows[1:])
        anya = await add(store, "Аня", relation="сестра", mention=in_topic(one.id))
        anna = await add(store, "Anna", mention=in_topic(two.id))
        await add(store, "Boris", user="local")
        await people.merge(ANNA, anna.id, anya.id)
        gone = await add(store, "Gone")
        await people.remove(ANNA, gone.id)


async def test_a_lost_database_and_a_reindex_give_the_same_people(tmp_path: Path) -> None:
    await fill(tmp_path)
    digests = digests_of(tmp_path / "klaw.db")
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.people == 9
        assert await known(store) == [("Аня", 2)]
    assert digests_of(tmp_path / "klaw.db") == digests
    report = run(tmp_path)
    assert (report.swapped, report.tally.people) == (True, 9)
    assert digests_of(tmp_path / "klaw.db") == digests


@pytest.mark.parametrize(
    ("damage", "table"),
    [
        ("UPDATE people SET aliases = '[]' WHERE name = 'Аня'", "people"),
        ("DELETE FROM person_names", "people"),
        ("DELETE FROM people WHERE user_id = 'local'", "people"),
        ("DELETE FROM person_mentions", "mentions of people"),
        ("UPDATE person_changes SET value = json_set(value, '$.name', 'x')", "changes of people"),
    ],
)
async def test_a_reindex_finds_what_differs(tmp_path: Path, damage: str, table: str) -> None:
    await fill(tmp_path)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connection.execute(damage)
    connection.close()
    report = run(tmp_path)
    assert not report.swapped
    assert differing(report) == {table}


async def test_people_change_while_the_server_reindexes(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):
        people = people_of(store)
        await reindexer.start(ReindexOptions())
        number = 0
        while reindexer.status.state == "running":
            number += 1
            made = await add(store, f"Person {chr(97 + number % 26)}", mention=in_topic(number))
            await people.edit(ANNA, made.id, relation=str(number))
            if number % 3 == 0:
                await people.remove(ANNA, made.id)
        status = await ended(reindexer)
        assert status.report is not None
        assert status.report.swapped, status
    digests = digests_of(tmp_path / "klaw.db")
    lose_database(tmp_path)
    async with running_store(tmp_path):
        pass
    assert digests_of(tmp_path / "klaw.db") == digests


ACTIONS = ["add", "add", "edit", "note", "merge", "remove", "undo"]
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.booleans(), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25
)
NAMES = ["Аня", "Алёна", "Anna", "Boris", "Пётр Семёнов"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
async def test_users_never_cross_and_a_rebuild_is_the_same(steps: list[tuple[str, bool, int, int]]) -> None:
    """Each user calls also with the other one's ids: nothing of that other one ever changes or shows."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        async with running_store(root) as store:
            people = people_of(store)
            ids: dict[PersonId, UserId] = {}
            for action, mine, one, other in steps:
                user, stranger = (ANNA, LOCAL) if mine else (LOCAL, ANNA)
                before = await _all(store, stranger)
                chosen = list(ids)
                first = chosen[one % len(chosen)] if chosen else PersonId("none")
                second = chosen[other % len(chosen)] if chosen else PersonId("none")
                try:
                    match action:
                        case "add":
                            made = await add(store, NAMES[one % 5], user=user, aliases=[NAMES[other % 5]])
                            ids[made.id] = user
                        case "edit":
                            await people.edit(user, first, name=NAMES[other % 5])
                        case "note":
                            await people.note(user, first, in_topic(other), aliases=[NAMES[other % 5]])
                        case "merge":
                            await people.merge(user, first, second)
                        case "remove":
                            await people.remove(user, first)
                        case _:
                            await people.undo(user, first)
                except (NoSuchPerson, SamePerson, CannotUndo):
                    pass
                assert await _all(store, stranger) == before
            for user in (ANNA, LOCAL):
                assert {each for each, _ in await _all(store, user)} <= {i for i, whose in ids.items() if whose == user}
        digests = digests_of(root / "klaw.db")
        assert differing(run(root)) == set()
        lose_database(root)
        async with running_store(root):
            pass
        assert digests_of(root / "klaw.db") == digests


async def _all(store: Store, user: UserId) -> list[tuple[PersonId, object]]:
    found = await store.readers.run(stored_people.of_user, user)
    by_name = [each.id for each in await store.readers.run(stored_people.by_names, user, NAMES)]
    assert sorted(by_name) == sorted(each.person.id for each in found)
    return [
        (each.person.id, (each, await store.readers.run(stored_people.mentions, user, each.person.id)))
        for each in found
    ]


async def test_a_list_of_many_merged_people_costs_no_more_for_each(tmp_path: Path) -> None:
    """Steps of SQLite's machine, which no other load of the computer changes."""
    async with running_store(tmp_path):
        pass
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    steps = []
    for count in (500, 2_000):
        with connection:
            connection.execute("DELETE FROM people")
            for number in range(count):
                into = f"p{number - 1}" if number % 2 else None
                row = (number, number, f"p{number}", "anna", f"N{number}", AT, AT, AT, into)
                connection.execute("INSERT INTO people VALUES (?, ?, ?, ?, ?, '[]', '', 'user', ?, ?, ?, ?, NULL)", row)
        ticks = [0]

        def tick(ticks: list[int] = ticks) -> bool:
            ticks[0] += 1
            return False

        connection.set_progress_handler(tick, 100)
        assert len(stored_people.of_user(connection, ANNA, limit=5_000)) == count // 2
        connection.set_progress_handler(None)
        steps.append(ticks[0])
    connection.close()
    assert steps[1] < 8 * steps[0]
