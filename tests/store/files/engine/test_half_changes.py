"""A change of several lines of the memory journal, as an earlier Klaw wrote it: a kill left all of it or nothing.

Now a group counts as a whole: tests of the commit log.
"""

import json
import shutil
from pathlib import Path

import pytest
import trio

from klaw.domain.fact import FactId
from klaw.store.kinds import facts, people
from klaw.store.rebuild import reconcile
from klaw.store.rows import dumps
from tests.support.facts import fact
from tests.support.forgetting import lose_database
from tests.support.people import add, people_of
from tests.support.reindexing import differing, digests_of, run
from tests.support.stores import running_store
from tests.support.topics import ANNA

TORN = ("", '{"entry":', '{"entry":99,"time":"2026-11-22T00:00')
"""What may stand behind the last whole line."""


async def _supersede(root: Path) -> None:
    async with running_store(root) as store:
        await store.writer.run(facts.put, fact("Аня живёт в Берлине", user="anna", id=FactId("older")), "new")
        newer = fact("Аня живёт в Казани", user="anna", id=FactId("newer"))
        await store.writer.run(facts.put, newer, "new", supersedes=FactId("older"))
    _join(root, 2)


async def _merge(root: Path) -> None:
    async with running_store(root) as store:
        keeper, loser = await add(store, "Anna"), await add(store, "Аня")
        await people_of(store).merge(ANNA, loser.id, keeper.id)
    _join(root, 2)


def _log(root: Path) -> Path:
    (path,) = (root / "memory").glob("*.jsonl")
    return path


def _join(root: Path, count: int) -> None:
    """Make the last lines one change: each but the last named the entry that ends it."""
    records = [json.loads(line) for line in _log(root).read_text().splitlines()]
    for record in records[-count:-1]:
        record["until"] = records[-1]["entry"]
    _log(root).write_text("".join(f"{dumps(record)}\n" for record in records))


def _lose_last_line(root: Path, torn: str) -> None:
    """As a kill in the middle of the write, or a power cut, left it; the database never had the group."""
    lose_database(root)
    lines = _log(root).read_bytes().splitlines(keepends=True)
    _log(root).write_bytes(b"".join(lines[:-1]) + torn.encode())


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("reindexed", [False, True])
def test_a_fact_does_not_give_way_to_one_that_is_not_there(tmp_path: Path, torn: str, reindexed: bool) -> None:
    trio.run(_supersede, tmp_path)
    _lose_last_line(tmp_path, torn)
    if reindexed:
        run(tmp_path)

    async def look() -> None:
        async with running_store(tmp_path) as store:
            assert [each.id for each in await store.readers.run(facts.of_user, ANNA)] == ["older"]
            assert len(await store.readers.run(facts.history, ANNA, FactId("older"))) == 1
            newer = fact("Аня живёт в Казани", user="anna", id=FactId("newer"))
            await store.writer.run(facts.put, newer, "new", supersedes=FactId("older"))  # it is asked for again
            assert [each.id for each in await store.readers.run(facts.of_user, ANNA)] == ["newer"]

    trio.run(look)
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    numbers = [json.loads(line)["entry"] for line in _log(tmp_path).read_bytes().splitlines()]
    assert numbers == [1, 2, 3]


def test_a_person_keeps_the_names_of_who_it_turned_out_to_be(tmp_path: Path) -> None:
    trio.run(_merge, tmp_path)
    _lose_last_line(tmp_path, "")

    async def look() -> None:
        async with running_store(tmp_path) as store:
            known = await store.readers.run(people.of_user, ANNA)
            assert sorted(each.person.name for each in known) == ["Anna", "Аня"]

    trio.run(look)


def test_a_whole_change_and_what_the_database_has_stay(tmp_path: Path) -> None:
    trio.run(_supersede, tmp_path)
    content = _log(tmp_path).read_bytes()
    assert reconcile.cut(tmp_path, 0) == 0
    assert _log(tmp_path).read_bytes() == content
    shutil.copy(_log(tmp_path), tmp_path / "kept")
    lines = content.splitlines(keepends=True)
    _log(tmp_path).write_bytes(b"".join(lines[:-1]))  # damage: the database has the whole change
    assert reconcile.cut(tmp_path, 3) == 0
    assert reconcile.cut(tmp_path, 2) == 1
    assert reconcile.cut(tmp_path, 2) == 0
    assert _log(tmp_path).read_bytes() == lines[0]


def test_a_change_over_two_logs_is_cut_in_both(tmp_path: Path) -> None:
    """The clock passed into another month between two of its lines."""
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "2026-10.jsonl").write_text('{"entry":1}\n{"entry":2,"until":4}\n')
    (folder / "2026-11.jsonl").write_text('{"entry":3,"until":4}\n')
    assert reconcile.cut(tmp_path, 1) == 2
    assert (folder / "2026-10.jsonl").read_text() == '{"entry":1}\n'
    assert (folder / "2026-11.jsonl").read_text() == ""
    (folder / "2026-11.jsonl").write_text('{"entry":3,"until":4}\n{"entry":4}\n')
    assert reconcile.cut(tmp_path, 1) == 0
