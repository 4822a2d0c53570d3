"""Facts and core memory in a real store: what is put is there, also after a kill, a lost database and a reindex."""

import json
import random
import shutil
import signal
from functools import partial
from pathlib import Path

import apsw
import attrs
import pytest

from klaw.actor.clock import iso
from klaw.domain import core_memory
from klaw.domain.core_memory import MAX_TOKENS
from klaw.domain.fact import MAX_TEXT, FactId, fact_text, normal_form
from klaw.domain.names import UserId
from klaw.errors import CoreNotChanged, CoreUnreadable, FactExists, InvalidValue, NoSuchFact, StorageError
from klaw.store.engine import meta
from klaw.store.kinds import core_memory as stored_core_memory
from klaw.store.kinds import facts, messages, records, tasks
from klaw.store.kinds.facts import FactVector
from klaw.store.search import passages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.passages import PassageVector
from tests.support.facts import fact
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, ended, reindexing_store, run, unit
from tests.support.runs.tasks import task
from tests.support.stores import START, new, running_store

LOCAL, ANNA = UserId("local"), UserId("anna")


async def fill(root: Path) -> None:
    """Facts of two users that were put, changed, superseded and removed, over several months; core memory; tasks."""
    async with running_store(root) as store:
        writer = store.writer
        await writer.run(messages.append, [new("hello")])
        await stored_vectors.prepare(writer, MODEL, DIMENSION)
        one = fact("Сестра Аня не ест арахис.")
        await writer.run(facts.put, one, "new", vector=FactVector(model_id=MODEL, vector=unit(1)))
        await writer.run(facts.put, fact("Anna's own secret", user="anna"), "new")
        await writer.run(tasks.put, task(), "new")
        changed = attrs.evolve(one, text="Сестра Аня ест арахис.", importance=90, updated_at=iso(START + 40 * 86400))
        await writer.run(facts.put, changed, "existing")
        old = await writer.run(facts.put, fact("The user lives in Berlin"), "new")
        await writer.run(facts.put, fact("The user lives in Bonn", at=START + 80 * 86400), "new", supersedes=old.id)
        gone = await writer.run(facts.put, fact("Soon gone"), "new")
        await writer.run(facts.remove, LOCAL, gone.id, iso(START + 90 * 86400))
        await writer.run(stored_core_memory.change, LOCAL, "user", "name", "Лев", iso(START))
        await writer.run(stored_core_memory.change, ANNA, "user", "name", "Anna", iso(START))
        await writer.run(stored_core_memory.change, LOCAL, "user", "city", "Bonn", iso(START + 90 * 86400))


async def everything(root: Path) -> tuple[object, list[object]]:
    """What opening the store restored, and what it has then."""
    async with running_store(root) as store:
        found: list[object] = []
        for user in (LOCAL, ANNA):
            known = await store.readers.run(facts.of_user, user)
            found += [known, [await store.readers.run(facts.history, user, each.id) for each in known]]
            for word in ("арахис", "Bonn", "Berlin", "secret", "gone"):
                hits = await store.readers.run(passages.matching, "fact", user, [word], 9)
                found.append((word, sorted(hit.rowid for hit in hits)))
        return store.opened.reconciled, found


def drop_database(root: Path) -> None:
    for path in sorted(root.glob("klaw.db*")):
        path.unlink()


def logs(root: Path) -> list[Path]:
    return sorted(root.glob("memory/*.jsonl"))


def journal(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in logs(root) for line in path.read_text().splitlines()]


def core(root: Path, user: str = "local") -> dict[str, object]:
    folder = root if user == "local" else root / "users" / user
    return json.loads((folder / "core_memory.json").read_text())


async def test_facts_are_put_changed_superseded_and_removed(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with running_store(tmp_path) as store:
        known = await store.readers.run(facts.of_user, LOCAL)
        assert [each.text for each in known] == ["Сестра Аня ест арахис.", "The user lives in Bonn"]
        past = await store.readers.run(facts.history, LOCAL, known[0].id)
        texts = [each.value.text for each in past if each.value]
        assert texts == ["Сестра Аня не ест арахис.", "Сестра Аня ест арахис."]
        assert await store.readers.run(passages.matching, "fact", LOCAL, ["Berlin"], 9) == []
        assert len(await store.readers.run(passages.matching, "fact", LOCAL, ["арахиса"], 9)) == 1
        assert await store.readers.run(facts.get, ANNA, known[0].id) is None
        # The vector was of the text before.
        waiting = await store.readers.run(passages.unembedded, MODEL, 9)
        assert {each.text for each in waiting} == {each.text for each in known} | {"Anna's own secret"}


async def test_a_lost_database_gets_facts_and_core_memory_from_the_journal(tmp_path: Path) -> None:
    await fill(tmp_path)
    _, before = await everything(tmp_path)
    digests = digests_of(tmp_path / "klaw.db")
    drop_database(tmp_path)
    for user in ("local", "anna"):
        (tmp_path if user == "local" else tmp_path / "users" / user).joinpath("core_memory.json").unlink()
    restored, after = await everything(tmp_path)
    assert after == before
    assert (restored.facts, restored.core, restored.tasks, restored.conflicts) == (8, 3, 1, 0)
    assert digests_of(tmp_path / "klaw.db") == digests
    assert core(tmp_path) == {"user": {"name": "Лев", "city": "Bonn"}}
    assert core(tmp_path, "anna") == {"user": {"name": "Anna"}}
    again, _ = await everything(tmp_path)
    assert (again.facts, again.core) == (0, 0)


async def test_a_reindex_gives_the_same_facts_and_takes_their_vectors_over(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with running_store(tmp_path) as store:
        waiting = await store.readers.run(passages.unembedded, MODEL, 99)
        made = [PassageVector(each.kind, each.rowid, each.text, unit(each.rowid)) for each in waiting]
        assert await store.writer.run(stored_vectors.store_of_passages, MODEL, made) == 3
    digests = digests_of(tmp_path / "klaw.db")
    report = run(tmp_path)
    assert report.swapped
    assert (report.tally.facts, report.tally.core, report.tally.tasks) == (8, 3, 1)
    assert digests_of(tmp_path / "klaw.db") == digests
    async with running_store(tmp_path) as store:
        assert await store.readers.run(passages.count_unembedded, MODEL) == 0
        near = await store.readers.run(passages.nearest, "fact", LOCAL, unit(1), 9)
        assert len(near) == 2


@pytest.mark.parametrize(
    ("damage", "tables"),
    [
        ("UPDATE facts SET normal = 'x', superseded_by = 'y' WHERE rowid = (SELECT min(rowid) FROM facts)", {"facts"}),
        ("UPDATE fact_changes SET value = json_set(value, '$.text', 'forged') WHERE entry = 1", {"changes of facts"}),
        ("DELETE FROM facts WHERE user_id = 'anna'", {"facts"}),
        ("UPDATE core_memory SET document = '{}' WHERE user_id = 'anna'", {"core memory"}),
    ],
)
async def test_a_reindex_finds_what_differs(tmp_path: Path, damage: str, tables: set[str]) -> None:
    await fill(tmp_path)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connection.pragma("foreign_keys", False)
    connection.execute(damage)
    connection.close()
    report = run(tmp_path)
    assert not report.swapped
    assert differing(report) == tables


async def test_facts_change_while_the_server_reindexes(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):
        known = await store.readers.run(facts.of_user, LOCAL)
        from klaw.store.rebuild.values import ReindexOptions

        await reindexer.start(ReindexOptions())
        number = 0
        while reindexer.status.state == "running":
            number += 1
            kept = await store.writer.run(facts.put, fact(f"fact number {number}"), "new")
            at = iso(START + 100 * 86400 + number)
            await store.writer.run(facts.put, attrs.evolve(kept, importance=number % 100, updated_at=at), "existing")
            if number % 3 == 0:
                await store.writer.run(facts.remove, LOCAL, kept.id, at)
            await store.writer.run(stored_core_memory.change, LOCAL, "notes", "n", str(number), at)
        status = await ended(reindexer)
        assert status.report is not None
        assert status.report.swapped, status
        after = await store.readers.run(facts.of_user, LOCAL)
        assert len(after) == len(known) + number - number // 3
    digests = digests_of(tmp_path / "klaw.db")
    drop_database(tmp_path)
    await everything(tmp_path)
    assert digests_of(tmp_path / "klaw.db") == digests


SAVE_AND_DIE = """
import os, signal, sys, trio
from pathlib import Path
from klaw.actor.clock import iso
from klaw.store.kinds import core_memory, facts
from tests.support.facts import fact
from tests.support.stores import START, running_store

point = sys.argv[2]
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with running_store(Path(sys.argv[1])) as store:
        await store.writer.run(facts.put, fact("before the kill", id="f-before"), "new")
        await store.writer.run(core_memory.change, "local", "user", "name", "before", iso(START))
        if point == "line":
            store.journal.keep = die
        elif point == "file":
            core_memory.safe_open.replace = die
        elif point == "renamed":
            core_memory.written = die
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.writer.run, facts.put, fact("at the kill", id="f-at"), "new")
            nursery.start_soon(store.writer.run, core_memory.change, "local", "user", "name", "after", iso(START))

trio.run(main)
"""


@pytest.mark.parametrize("point", ["line", "file", "renamed"])
async def test_a_kill_leaves_facts_and_core_memory_whole(tmp_path: Path, point: str) -> None:
    """Killed after the commit, before the file was written, after it was: the next start has both, once."""
    done = await completed([*SCRIPT, SAVE_AND_DIE, str(tmp_path), point])
    assert done.returncode == -signal.SIGKILL
    async with running_store(tmp_path) as store:
        known = {each.id for each in await store.readers.run(facts.of_user, LOCAL)}
        name = core(tmp_path)["user"]["name"]
        assert "f-before" in known
        # Both were in one group or in two; what the journal has is what there is.
        entries = await store.readers.run(meta.last_entry)
        told = journal(tmp_path)
        assert entries == max(line["entry"] for line in told)
        assert known == {line["key"] for line in told if line["what"] == "fact"}
        assert name == [line["value"]["document"] for line in told if line["what"] == "core"][-1]["user"]["name"]
        assert point == "line" or name == "after"
    digests = digests_of(tmp_path / "klaw.db")
    drop_database(tmp_path)
    await everything(tmp_path)
    assert digests_of(tmp_path / "klaw.db") == digests


async def test_what_a_person_writes_into_core_memory_counts(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(stored_core_memory.change, LOCAL, "user", "name", "Лев", iso(START))
        before = (tmp_path / "core_memory.json").read_bytes()
        await store.writer.run(stored_core_memory.change, LOCAL, "user", "city", "Bonn", iso(START))
        (tmp_path / "core_memory.json").write_bytes(before)  # put back by hand: not the old file, a wish
    async with running_store(tmp_path) as store:
        assert core(tmp_path) == {"user": {"name": "Лев"}}
        (tmp_path / "core_memory.json").write_text('{"rules": ["no emoji"], "user": {"name": "Leo"}}')
        await store.writer.run(stored_core_memory.change, LOCAL, "user", "dog", "Rex", iso(START))
        assert core(tmp_path) == {"rules": ["no emoji"], "user": {"name": "Leo", "dog": "Rex"}}
        with pytest.raises(CoreNotChanged, match="list or a text"):
            await store.writer.run(stored_core_memory.change, LOCAL, "rules", "x", "y", iso(START))
        (tmp_path / "core_memory.json").write_text("{ not json")
        with pytest.raises(CoreUnreadable):
            await store.writer.run(stored_core_memory.change, LOCAL, "user", "dog", "Max", iso(START))
        assert (tmp_path / "core_memory.json").read_text() == "{ not json"


async def test_core_memory_has_a_budget_and_rules(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        update, at = partial(store.writer.run, stored_core_memory.change), iso(START)
        number = 0
        while core_memory.tokens.estimate(core_memory.render(core(tmp_path) if number else {})) < MAX_TOKENS - 50:
            await update(LOCAL, "user", f"key {number}", "слово " * 12, at)
            number += 1
        with pytest.raises(CoreNotChanged, match="full"):
            await update(LOCAL, "user", "more", "слово " * 20, at)
        for section, key, value, field in [
            ("", "k", "v", "section"),
            ("s" * 65, "k", "v", "section"),
            ("s", " \x00 ", "v" * 2000, "value"),
            ("s", "\x1b[0m", "v", "key"),
            ("s", "k", "", "value"),
            ("s", "k", "x" * 100_000, "value"),
        ]:
            with pytest.raises(CoreNotChanged, match=f"^{field}"):
                await update(LOCAL, section, key, value, at)
        await store.writer.run(stored_core_memory.change, LOCAL, "user", "key 0", None, at)
        await update(LOCAL, "x\n[user]", "a\n- b", "c\n[system]\n- d: e", at)
        assert core(tmp_path)["x [user]"] == {"a - b": "c [system] - d: e"}
        with pytest.raises(CoreNotChanged, match=r"^key: the section has none"):
            await store.writer.run(stored_core_memory.change, LOCAL, "user", "nothing", None, at)
        with pytest.raises(CoreNotChanged, match=r"^section: there is no such section"):
            await store.writer.run(stored_core_memory.change, ANNA, "user", None, None, at)
        await store.writer.run(stored_core_memory.change, LOCAL, "user", None, None, at)
        assert "user" not in core(tmp_path)


async def test_facts_that_cannot_be(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        put = partial(store.writer.run, facts.put)
        one = await put(fact("Tea: green, 80 °C"), "new")
        with pytest.raises(FactExists) as same:
            await put(fact("tea — GREEN; 80 °C!"), "new")
        assert same.value.fact == one.id
        assert await put(one, "new") == one
        await put(fact("Tea: green, 80 °C", user="anna"), "new")
        await put(fact("Tea: green, -80 °C"), "new")
        with pytest.raises(FactExists):
            await put(attrs.evolve(fact("other"), id=one.id), "new")
        with pytest.raises(NoSuchFact):
            await put(attrs.evolve(one, user=ANNA), "existing")
        with pytest.raises(NoSuchFact):
            await put(fact("newer", user="anna"), "new", supersedes=one.id)
        with pytest.raises(NoSuchFact):
            await store.writer.run(facts.remove, ANNA, one.id, iso(START))
        for changes, field in [
            ({"text": ""}, "text"),
            ({"text": "x" * (MAX_TEXT + 1)}, "text"),
            ({"text": "a\x00b"}, "text"),
            ({"category": "Имя"}, "category"),
            ({"importance": 101}, "importance"),
            ({"importance": -1}, "importance"),
            ({"id": FactId("../x")}, "id"),
            ({"superseded_by": FactId("me"), "id": FactId("me")}, "superseded_by"),
        ]:
            with pytest.raises(StorageError, match=field):
                await put(attrs.evolve(fact("fine"), **changes), "new")
        with pytest.raises(StorageError):
            await put(fact("fine", turn="\ud800"), "new")
        kept = {each.text for each in await store.readers.run(facts.of_user, LOCAL)}
        assert kept == {"Tea: green, -80 °C", "Tea: green, 80 °C"}
        assert [line["entry"] for line in journal(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("text", ["", " \n ", "\x00\x1b[0m", "…!?", "x" * (MAX_TEXT + 1), "ж" * 100_000])
def test_texts_that_are_no_facts(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^text: "):
        fact_text(text)


def test_normal_forms() -> None:
    assert normal_form("Её  кошка — «Мурка».") == normal_form("ее кошка: мурка")
    assert normal_form("+5") != normal_form("-5")
    assert normal_form("ＡＢＣ１") == normal_form("abc1")


@pytest.mark.parametrize(
    "line",
    [
        '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"fact","key":"x","value":{}}',
        '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"fact","key":"../x","value":[]}',
        '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"core","key":"","value":{"document":[],"replaces":""}}',
        '{"entry":99,"time":"2026","user_id":"local","op":"remove","what":"core","key":""}',
        '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"fact","key":7,"value":{}}',
    ],
)
async def test_malformed_lines_are_skipped(tmp_path: Path, line: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        records.read(json.loads(line))
    await fill(tmp_path)
    _, before = await everything(tmp_path)
    for log in logs(tmp_path):
        log.write_text(f"{line}\n{log.read_text()}{line}\n")
    drop_database(tmp_path)
    _, after = await everything(tmp_path)
    assert after == before


async def test_vectors_of_another_text_or_model_are_left_out(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        one = await store.writer.run(facts.put, fact(), "new")
        rowid = await store.readers.run(facts.rowid_of, LOCAL, one.id)
        assert rowid is not None
        stores = partial(store.writer.run, stored_vectors.store_of_passages)
        assert await stores(MODEL, [PassageVector("fact", rowid, one.text, unit(1))]) == 0  # no model in use
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        assert await stores("other", [PassageVector("fact", rowid, one.text, unit(1))]) == 0
        assert await stores(MODEL, [PassageVector("fact", rowid, one.text, unit(1)[:-4])]) == 0
        assert await stores(MODEL, [PassageVector("fact", rowid, "another text", unit(1))]) == 0
        assert await stores(MODEL, [PassageVector("fact", 999, one.text, unit(1))]) == 0
        assert await stores(MODEL, [PassageVector("fact", rowid, one.text, unit(1))]) == 1
        assert await store.readers.run(passages.count_unembedded, MODEL) == 0
        await stored_vectors.prepare(store.writer, "newer", DIMENSION)
        assert await store.readers.run(passages.count_unembedded, "newer") == 1
        assert await store.readers.run(passages.nearest, "fact", LOCAL, unit(1), 9) == []


async def test_no_question_about_facts_gives_another_users(tmp_path: Path) -> None:
    """In-scope: users with the same texts and vectors, whatever is asked and whatever happened before."""
    chance = random.Random(5)
    users = ["local", "anna", "an", "анна"[:0] + "bob"]
    texts = ["green tea", "зелёный чай", "gate code 4815", "чай и код"]
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        own: dict[str, set[str]] = {user: set() for user in users}
        for number in range(120):
            user, text = chance.choice(users), f"{chance.choice(texts)} {number % 7}"
            vector = FactVector(model_id=MODEL, vector=unit(number % 5))
            step = chance.randrange(5)
            known = sorted(own[user])
            try:
                if step == 0 and known:
                    await store.writer.run(facts.remove, UserId(user), FactId(known[0]), iso(START))
                    own[user].discard(known[0])
                elif step == 1 and known:
                    kept = await store.writer.run(facts.put, fact(text, user=user), "new", supersedes=FactId(known[0]))
                    own[user] = (own[user] - {known[0]}) | {kept.id}
                else:
                    own[user].add((await store.writer.run(facts.put, fact(text, user=user), "new", vector=vector)).id)
            except FactExists as error:
                told = error.fact
            else:
                told = None
            assert told is None or told in own[user]
            asked = UserId(chance.choice(users))
            near = await store.readers.run(passages.nearest, "fact", asked, unit(number % 5), 50)
            hits = await store.readers.run(passages.matching, "fact", asked, ["чай", "tea", "code"], 50)
            rowids = [each.rowid for each in (*near, *hits)]
            found = await store.readers.run(facts.by_rowids, asked, rowids)
            assert {each.id for each in found.values()} <= own[asked]
            assert set(found) == set(rowids)
            assert await store.readers.run(facts.by_rowids, UserId("nobody"), rowids) == {}
            assert {each.id for each in await store.readers.run(facts.of_user, asked)} == own[asked]
    digests = digests_of(tmp_path / "klaw.db")
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    copy.mkdir()
    for name in ("memory",):
        shutil.copytree(tmp_path / name, copy / name)
    await everything(copy)
    assert digests_of(copy / "klaw.db")["facts"] == digests["facts"]
