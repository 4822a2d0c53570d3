"""Invariant durable-ack with a clock that jumps: whatever of the database is lost, every acknowledged record is there.

A clock that went back puts the newest records into the logs of older days. A database that lost its write-ahead log has
forgotten the newest records, wherever they stand.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from klaw.actor.clock import iso
from klaw.domain.message import Message
from klaw.store.engine import connect
from klaw.store.kinds import facts, messages, run_edits, runs, turns
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.reindexing import differing, run
from tests.support.runs.tasks import run_of
from tests.support.stores import new, running_store
from tests.support.turns import record

DAY = 86_400.0
JUMPS = (0.001, 60.0, DAY, -DAY, -40 * DAY, 400 * DAY, -900 * DAY)
"""What the clock does between two records, in seconds."""
LOST: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "wal": ("klaw.db-wal", "klaw.db-shm"),
    "database": ("klaw.db", "klaw.db-wal", "klaw.db-shm"),
    "database but not its wal": ("klaw.db",),
}


class Past:
    """Writes records while the clock jumps, and remembers what was acknowledged."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.now = 1_760_000_000.0
        self.acked: list[Message] = []
        self.facts: list[str] = []
        self.runs: list[str] = []
        self.turns: list[str] = []
        self.copies: list[tuple[Path, int, int, int, int]] = []

    async def write(self, store: Store, numbers: range) -> None:
        for number in numbers:
            self.now = max(DAY, self.now + self.chance.choice(JUMPS))
            await self._one(store, number)
            if self.chance.random() < 0.2:  # some of it reaches the database file itself
                await store.database.run(_checkpoint)
            self._kill(number)

    async def _one(self, store: Store, number: int) -> None:
        chat = self.chance.choice(["main", "дача"])
        kind = self.chance.choice(["message", "message", "turn", "fact", "run"])
        if kind == "fact":
            made = await store.writer.run(facts.put, fact(f"statement {number}", at=self.now), "new")
            self.facts.append(made.id)
        elif kind == "run":
            begun = await store.writer.run(run_edits.begin, run_of(at=self.now))
            self.runs.append(begun.run.id)
        else:
            (asked,) = await store.writer.run(messages.append, [new(f"message {number}", chat=chat, at=self.now)])
            self.acked.append(asked.message)
            if kind == "turn":
                turn = record(asked.message)
                (answer,) = await store.writer.run(
                    messages.append, [new(f"answer {number}", chat=chat, at=self.now)], turn
                )
                self.acked.append(answer.message)
                self.turns.append(turn.id)

    def _kill(self, number: int) -> None:
        """What a kill -9 would leave at this point."""
        copy = self.root.with_name(f"{self.root.name}-{number}")
        shutil.copytree(self.root, copy)
        self.copies.append((copy, len(self.acked), len(self.facts), len(self.runs), len(self.turns)))


def _checkpoint(connection: apsw.Connection) -> None:
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("seed", range(3))
async def test_every_acknowledged_record_survives_a_clock_that_jumps(tmp_path: Path, seed: int, lost: str) -> None:
    past = Past(tmp_path / "data", seed)
    for session in range(2):
        async with running_store(past.root, checkpoint_bytes=900) as store:
            await past.write(store, range(6 * session, 6 * session + 6))
    for root, acked, kept_facts, kept_runs, kept_turns in past.copies:
        for name in LOST[lost]:
            (root / name).unlink(missing_ok=True)
        async with running_store(root) as store:
            rowids = [message.rowid for message in past.acked[:acked]]
            assert await store.readers.run(messages.by_rowids, rowids) == past.acked[:acked]
            assert store.opened.reconciled.conflicts == store.opened.reconciled.malformed == 0
            user = new().user
            for fact_id in past.facts[:kept_facts]:
                assert await store.readers.run(facts.get, user, fact_id) is not None
            for run_id in past.runs[:kept_runs]:
                assert await store.readers.run(runs.get, user, run_id) is not None
            for turn_id in past.turns[:kept_turns]:
                assert await store.readers.run(turns.get, user, turn_id) is not None
            for chat in ("main", "дача"):
                await _goes_on(store, past.acked[:acked], chat)
        report = run(root)
        assert report.swapped, differing(report)
        assert report.tally.conflicts == report.tally.malformed == 0


async def _goes_on(store: Store, acked: list[Message], chat: str) -> None:
    """The next message of a chat gets a number that no message had."""
    wanted = new(f"next in {chat}", chat=chat, at=DAY)
    (stored,) = await store.writer.run(messages.append, [wanted])
    assert stored.message.seq == 1 + max((each.seq for each in acked if each.chat == wanted.chat), default=0)
    assert stored.message.rowid > max((each.rowid for each in acked), default=0)


async def test_a_start_looks_at_the_logs_that_changed_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many logs there are, a start without a change opens none of them."""
    async with running_store(tmp_path) as store:
        for day in range(20):
            await store.writer.run(messages.append, [new(f"day {day}", at=DAY * (day + 100))])
    opened: list[str] = []
    read: Callable[..., object] = messages.find

    def find(connection: apsw.Connection, user: str, message_id: str) -> object:
        opened.append(message_id)
        return read(connection, user, message_id)

    async with running_store(tmp_path):
        pass
    monkeypatch.setattr(messages, "find", find)
    async with running_store(tmp_path):
        assert opened == []


async def test_a_home_whose_numbers_were_used_twice_starts_and_can_be_made_anew(tmp_path: Path) -> None:
    """What an earlier Klaw left: two messages of one number, of which the database has the later one."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("first", id="a", at=DAY * 200)])
        await store.writer.run(messages.append, [new("second", id="b", at=DAY * 200)])
    (log,) = (tmp_path / "conversations").rglob("*.jsonl")
    older = log.with_name(f"{iso(DAY * 100)[:10]}.jsonl")
    older.write_text(log.read_text().splitlines()[1].replace('"b"', '"c"').replace("second", "lost") + "\n")
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.conflicts == 1
        found = await store.readers.run(messages.after, new().chat, 0, 9)
        assert [each.id for each in found] == ["a", "b"]
    kept = tmp_path / "set-aside" / older.relative_to(tmp_path)
    assert "lost" in kept.read_text()


def test_the_database_knows_nothing_after_its_wal_is_gone(tmp_path: Path) -> None:
    """The premise of the tests above: what is in the write-ahead log only goes with it."""
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    connection.execute("CREATE TABLE t (x)")
    shutil.copy(tmp_path / "klaw.db", tmp_path / "copy.db")
    connection.close()
    assert not apsw.Connection(str(tmp_path / "copy.db")).execute("SELECT count(*) FROM sqlite_schema").get
