"""A database and logs of schema 7 (topics, and neither people nor days nor a history of topics) with all that they can
hold: after the migration everything is there, costs too, and a rebuild gives the same."""

import json
from pathlib import Path

import attrs

from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.domain.summary import NewSummary
from klaw.store import migrations
from klaw.store.kinds import facts, messages, people, summaries, topic_changes, topic_edits, topics, usage
from klaw.store.kinds.usage import UsageFilters
from tests.store.files.migrations.test_migrations import open_with, run_scripts
from tests.support.forgetting import forgetter, holding, secret_past
from tests.support.people import add
from tests.support.reindexing import differing, digests_of, run, talk
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, AT, archive, flaws_of, remove, say
from tests.support.turns import record
from tests.support.writing import note_day

OLD = 7
SECRET = "Пароль от дачи — Kanarienvogel8842, not for others."
_NEWER = {"by", "undoes", "people", "past", "day"}
"""Fields of the memory journal's values that schema 7 did not have."""
_TABLES = """
SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite_%'
    AND name NOT LIKE '%_fts_%' AND name NOT LIKE 'vec_messages%'
"""


def make_old(root: Path) -> None:
    """Take the folder's database and journal back to what a Klaw of schema 7 would have written."""
    path = root / "klaw.db"
    path.rename(root / "new.db")
    connection = open_with(path)
    run_scripts(connection, 1, OLD)
    connection.execute("ATTACH ? AS newer", (str(root / "new.db"),))
    for (table,) in connection.execute(_TABLES).fetchall():
        if table in ("charges", "meta"):  # charges follow from the others
            continue
        columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
        names = ", ".join(columns)
        connection.execute(f"INSERT OR REPLACE INTO main.{table} ({names}) SELECT {names} FROM newer.{table}")
    connection.execute("INSERT OR IGNORE INTO main.meta SELECT * FROM newer.meta")
    connection.execute("DELETE FROM sqlite_sequence")
    connection.execute("INSERT INTO sqlite_sequence SELECT * FROM newer.sqlite_sequence")
    for fts in ("messages", "facts", "topics", "tool_notes"):
        connection.execute(f"INSERT INTO {fts}_fts ({fts}_fts) VALUES ('rebuild')")
    connection.execute("DETACH newer")
    connection.close()
    for old in root.glob("new.db*"):
        old.unlink()
    for log in (root / "memory").glob("*.jsonl"):
        log.write_text("".join(f"{_older(line)}\n" for line in log.read_text().splitlines() if line))


def _older(line: str) -> str:
    record = json.loads(line)
    if isinstance(record.get("value"), dict):
        record["value"] = {name: value for name, value in record["value"].items() if name not in _NEWER}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


async def test_schema_7_with_everything_in_it(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await talk(store, rounds=20, vectors=False)
        await secret_past(store, tmp_path, SECRET)
        rows = await say(store, "one", "two", "три", chat="other")
        one, two, third = await archive(store, *([row] for row in rows), chat="other")
        await store.writer.run(topic_edits.merge, two, one, "first and second", AT)
        await store.writer.run(remove, ANNA, third.id, AT)
        (asked,) = await store.writer.run(messages.append, [new("what does it cost", user="anna", chat="paid")])
        usages = {"models": [{"model": "p/m", "calls": 2, "prompt_tokens": 30, "completion_tokens": 4}]}
        turn = attrs.evolve(record(asked.message), usage=usages)
        await store.writer.run(messages.append, [new("so much", user="anna", chat="paid", role=Role.ASSISTANT)], turn)
        await store.writer.run(
            summaries.put,
            NewSummary(
                user=ANNA,
                chat=asked.message.chat,
                segment=0,
                first_seq=1,
                last_seq=2,
                text="about money",
                tokens=3,
                model="p/s",
                created_at=AT,
                prompt_tokens=50,
                completion_tokens=5,
            ),
        )
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("other#3", ANNA), everywhere=True)
        spent = await store.readers.run(usage.total, UsageFilters())
        kept = await store.readers.run(facts.of_user, ANNA)
        known = await store.readers.run(topics.of_user, ANNA)
    make_old(tmp_path)
    async with running_store(tmp_path) as store:
        assert (store.opened.schema_before, store.opened.schema) == (OLD, migrations.latest())
        assert await store.readers.run(usage.total, UsageFilters()) == spent
        assert (spent.calls, spent.prompt_tokens) == (3, 80)
        assert await store.readers.run(facts.of_user, ANNA) == kept
        assert await store.readers.run(topics.of_user, ANNA) == known
        assert await store.readers.run(people.count, ANNA) == 0
        assert await store.readers.run(topic_changes.of_user, ANNA) == []
    assert flaws_of(tmp_path / "klaw.db") == {}
    _same(tmp_path)
    async with running_store(tmp_path) as store:  # what is new works on what is old
        await add(store, "Цецилия", relation="тётя")
        left, right = await archive(store, await say(store, "four"), await say(store, "five"))
        await store.writer.run(topic_edits.merge, right, left, "four and five", AT, by="person")
        await store.writer.run(topic_edits.undo, ANNA, None, AT)
        await store.writer.run(
            usage.note_spent, "topics", ANNA, None, [{"model": "p/m", "calls": 1, "prompt_tokens": 7}], AT
        )
        await store.writer.run(note_day, ANNA, "2026-11-21", [rows[0]], AT, done=True)
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find("main#2", ANNA), with_facts=True, everywhere=True)
        assert proof.held == ()
        assert holding(tmp_path, "Kanarienvogel8842") == {}
        after = await store.readers.run(usage.total, UsageFilters())
        assert after.prompt_tokens == spent.prompt_tokens + 7
        assert await store.readers.run(usage.total, UsageFilters(user=UserId("nobody"))) != after
    _same(tmp_path)


def _same(root: Path) -> None:
    digests = digests_of(root / "klaw.db")
    assert differing(run(root)) == set()
    assert digests_of(root / "klaw.db") == digests
    (root / "klaw.db.old").unlink()  # a backup, of which forgetting only tells
