"""Days that were drawn into facts and spending in the background: stored, told, and rebuilt from the memory journal."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from klaw.domain.names import UserId, chat_id
from klaw.errors import StorageError
from klaw.store.kinds import messages, usage
from klaw.store.kinds.usage import UsageFilters
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.store import Store
from tests.support.reindexing import differing, digests_of, ended, reindexing_store, run
from tests.support.stores import new, running_store
from tests.support.writing import note_day

ANNA = UserId("anna")
MAIN = chat_id(ANNA, "main")
AT = "2026-11-22T02:30:00.000Z"
PART = {"model": "cloud/big", "calls": 2, "prompt_tokens": 900, "completion_tokens": 80, "cost_nano": 5_000}
FREE = {"model": "local/small", "calls": 1, "prompt_tokens": 50, "completion_tokens": 5, "unpriced_calls": 0}


async def fill(store: Store) -> None:
    await store.writer.run(
        messages.append, [new("привет", user="anna"), new("hello", user="anna"), new("mine", user="boris")]
    )
    await store.writer.run(note_day, ANNA, "2026-11-20", [1, 2], AT, done=False)
    await store.writer.run(note_day, ANNA, "2026-11-20", [], AT, done=True)
    await store.writer.run(usage.note_spent, "facts", ANNA, None, [PART, FREE], AT)
    await store.writer.run(usage.note_spent, "topics", ANNA, MAIN, [PART], AT)


def rows(file: Path, table: str) -> list[Any]:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return sorted(connection.execute(f"SELECT * FROM {table}"), key=str)
    finally:
        connection.close()


def days(root: Path) -> list[tuple[str, str, int]]:
    return [(user, day, done) for _, user, day, _, done, _ in rows(root / "klaw.db", "day_entries")]


async def test_days_and_spending_are_kept_and_told(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
        assert days(tmp_path) == [("anna", "2026-11-20", 0), ("anna", "2026-11-20", 1)]
        assert await store.readers.run(usage.drawn_with_day, ANNA, [1, 2, 3]) == {1, 2}
        total = await store.readers.run(usage.total, UsageFilters(since="2026-11-22"))
        assert (total.calls, total.prompt_tokens + total.completion_tokens, total.cost_nano) == (5, 2015, 10_000)


async def test_the_messages_of_another_user_are_never_marked(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
        await store.writer.run(note_day, ANNA, "2026-11-21", [3, 999], AT, done=True)
        assert await store.readers.run(usage.drawn_with_day, ANNA, [3, 999]) == set()
        assert await store.readers.run(usage.drawn_with_day, UserId("boris"), [3]) == set()


@pytest.mark.parametrize("day", ["21.11.2026", "2026-11-31", "20261121", ""])
async def test_what_is_no_date_is_refused(tmp_path: Path, day: str) -> None:
    async with running_store(tmp_path) as store:
        with pytest.raises(StorageError):
            await store.writer.run(note_day, ANNA, day, [], AT, done=True)
        with pytest.raises(StorageError):
            await store.writer.run(usage.note_spent, "x" * 33, ANNA, None, [PART], AT)


async def test_a_reindex_gives_the_same_days_and_the_same_spending(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
    digests, charges = digests_of(tmp_path / "klaw.db"), rows(tmp_path / "klaw.db", "charges")
    report = run(tmp_path)
    assert differing(report) == set()
    assert (report.tally.days, report.tally.spendings) == (2, 2)
    assert digests_of(tmp_path / "klaw.db") == digests
    assert rows(tmp_path / "klaw.db", "charges") == charges
    assert rows(tmp_path / "klaw.db", "drawn_messages") == [(1, "anna"), (2, "anna")]


@pytest.mark.parametrize(
    ("damage", "table"),
    [
        ("UPDATE day_entries SET done = 0", "days drawn into facts"),
        ("DELETE FROM background_charges WHERE source = 'facts'", "spending in the background"),
    ],
)
async def test_a_reindex_finds_what_differs(tmp_path: Path, damage: str, table: str) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connection.execute(damage)
    connection.close()
    assert differing(run(tmp_path)) == {table}


async def test_notes_that_come_while_the_server_reindexes_are_in_the_new_database(tmp_path: Path) -> None:
    async with reindexing_store(tmp_path) as (store, reindexer):
        await fill(store)
        await reindexer.start(ReindexOptions())
        await store.writer.run(note_day, ANNA, "2026-11-21", [], AT, done=True)
        await store.writer.run(usage.note_spent, "facts", ANNA, None, [PART], AT)
        status = await ended(reindexer)
        assert status.report is not None
        assert status.report.swapped, status
        assert days(tmp_path)[-1] == ("anna", "2026-11-21", 1)
        assert (await store.readers.run(usage.total, UsageFilters())).calls == 7
