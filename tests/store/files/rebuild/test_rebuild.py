"""Invariant rebuild: whatever was done to a store, a database made from its logs has the same content."""

import random
import shutil
import tempfile
from pathlib import Path

import apsw
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId
from klaw.errors import IdConflict, SchemaTooNew, StorageError, StorageFull
from klaw.store.engine import connect, meta, vector_model
from klaw.store.kinds import messages
from klaw.store.kinds.usage import count_search
from klaw.store.rebuild.offline import drop
from klaw.store.rebuild.values import ReindexRefused
from klaw.store.search import fulltext, vector_search, vectors
from klaw.store.search import vectors as stored_vectors
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, filled, run, unit
from tests.support.stores import FullDisk, new, running_store
from tests.support.turns import record

SENTENCES = ["", "ok", "Where is my key?", "Где мой ключ от дачи?", "猫は寝ている", '"NEAR(* ^', "a\nb\u2028c\0d"]
TEXTS = st.sampled_from(SENTENCES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = ["say", "say", "turn", "break", "tool", "repeat", "conflict", "vector", "full", "restart", "back"]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), TEXTS, st.integers(0, 1 << 16)), max_size=25)


class Actions:
    """Carries out random steps on a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FullDisk()
        self.rowids: list[int] = []

    async def do(self, steps) -> None:
        rest = list(steps)
        while rest is not None:
            async with running_store(self.root, fsync=self.disk, checkpoint_bytes=700) as store:
                await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
                rest = await self._until_restart(store, rest)

    async def _until_restart(self, store, steps):
        for place, (name, number, text, seed) in enumerate(steps):
            if name == "restart":
                return steps[place + 1 :]
            await self._step(store.writer, name, number, text, seed)
        return None

    async def _step(self, writer, name, number, text, seed) -> None:
        who = {"user": f"user{number % 2}", "chat": f"чат {number}"}
        chance = random.Random(seed)
        match name:
            case "say":
                await self._say(writer, [new(text, **who, note=text, rate=chance.random())])
            case "back":  # the clock went back, into another day's log
                await self._say(writer, [new(text, **who, at=1_700_000_000.0 + seed)])
            case "break":
                await self._say(writer, [new("/new", **who, role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)])
            case "tool":
                call = new(
                    text, **who, role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, calls=[{"id": seed, "text": text}]
                )
                await self._say(writer, [call, new(text, **who, role=Role.TOOL, kind=MessageKind.TOOL_RESULT)])
            case "turn":
                (asked,) = await self._say(writer, [new(text, **who)])
                await writer.run(messages.append, [new(text, **who, role=Role.ASSISTANT)], record(asked.message))
            case "repeat":
                message = new(text, **who, id=f"fixed{number}")
                await self._say(writer, [message])
                await self._say(writer, [message])
            case "conflict":  # the second is refused, and takes the first, and the new chat, with it
                taken = new(text, user="user0", chat="чат 0", id="taken")
                await self._say(writer, [taken])
                other = f"conflict {seed}"
                with pytest.raises(IdConflict):
                    await writer.run(
                        messages.append,
                        [new(text, user="user0", chat=other), new(text, user="user0", chat=other, id="taken")],
                    )
            case "vector" if self.rowids:
                rowid = chance.choice(self.rowids)
                await writer.run(stored_vectors.store, MODEL, [(rowid, unit(rowid))])
            case "full":
                self.disk.full = True
                with pytest.raises(StorageFull):
                    await writer.run(messages.append, [new(text, user=who["user"], chat=f"full {seed}")])
                self.disk.full = False

    async def _say(self, writer, made):
        appended = await writer.run(messages.append, made)
        self.rowids += [each.message.rowid for each in appended]
        return appended


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_whatever_was_done_the_logs_give_the_same_database(steps) -> None:
    """Random messages, turns, breaks, tools, repeated and refused ids, a full disk, restarts and clocks going back."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trio.run(Actions(root).do, steps)
        before = digests_of(root / "klaw.db")
        report = run(root)
        assert report.compared
        assert differing(report) == set(), report.tables
        assert report.swapped
        assert (report.tally.malformed, report.tally.conflicts) == (0, 0)
        assert digests_of(root / "klaw.db") == before == digests_of(root / "klaw.db.old")
        for path in sorted(root.glob("klaw.db*")):
            path.unlink()  # and the start's own way to the same
        trio.run(Actions(root).do, [])
        after = digests_of(root / "klaw.db")
        assert {**after, "vectors": ""} == {**before, "vectors": ""}


async def test_the_rebuilt_database_is_in_use_and_the_old_one_is_kept(tmp_path: Path) -> None:
    """Everything is found by words and by vector; the next message has the next place; the old one can be dropped."""
    await filled(tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    report = run(tmp_path)
    assert report.swapped
    assert report.vectors.taken_over > 20
    assert {table.live.digest == table.built.digest for table in report.tables} == {True}
    assert not (tmp_path / "klaw.db.reindex").exists()
    assert digests_of(tmp_path / "klaw.db.old") == before
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.messages == 0
        chat = new(chat="чат 1").chat
        session = await store.readers.run(messages.session, chat)
        for word in ("кошку", "gardens"):
            assert (
                await store.readers.run(fulltext.scores, [word], messages.chat_word(session.key), (0, 1 << 40), 100)
            ).best(5)
        assert await store.readers.run(vector_search.nearest, unit(1), session.key, 1, 1 << 40, 5)
        (next_one,) = await store.writer.run(messages.append, [new("after", chat="чат 1")])
        assert next_one.message.seq == session.last_seq + 1
    assert drop(tmp_path / "klaw.db") > 0
    assert not (tmp_path / "klaw.db.old").exists()
    assert drop(tmp_path / "klaw.db") == 0


async def test_what_is_known_of_models_and_the_searches_of_the_day_are_taken_over(tmp_path: Path) -> None:
    """It is in no log."""
    await filled(tmp_path)
    async with running_store(tmp_path) as store:
        await store.writer.run(lambda tx: meta.put(tx.connection, f"{meta.MODELS}ollama", '{"base_url": "x"}'))
        assert await store.writer.run(count_search, UserId("anna"), "2026-11-26", 1)
    assert run(tmp_path).swapped
    async with running_store(tmp_path) as store:
        assert await store.readers.run(meta.with_prefix, meta.MODELS) == {"ollama": '{"base_url": "x"}'}
        assert not await store.writer.run(count_search, UserId("anna"), "2026-11-26", 1)


async def test_a_lost_database_is_made_anew(tmp_path: Path) -> None:
    await filled(tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    (tmp_path / "klaw.db").unlink()
    report = run(tmp_path)
    assert (report.swapped, report.compared) == (True, False)
    assert "no database" in report.reason
    assert report.vectors.waiting > 30
    assert not (tmp_path / "klaw.db.old").exists()
    after = digests_of(tmp_path / "klaw.db")
    assert {**after, "vectors": ""} == {**before, "vectors": ""}


@pytest.mark.parametrize("damage", [b"this is no database " * 400, b"SQLite format 3\0" + b"\xff" * 8000, "pages"])
async def test_a_damaged_database_is_replaced_when_told_to(tmp_path: Path, damage) -> None:
    """Not without being told: the message says how. What was built is used again, and the damaged one is kept."""
    await filled(tmp_path, rounds=200)
    file = tmp_path / "klaw.db"
    before = digests_of(file)
    content = file.read_bytes()
    if damage == "pages":
        damage = content[:8192] + b"\xaa" * (len(content) - 8192)
    file.write_bytes(damage)
    report = run(tmp_path)
    assert (report.swapped, report.compared) == (False, False)
    assert "damaged" in report.reason
    assert file.read_bytes()[:8192] == damage[:8192]
    report = run(tmp_path, accept=True)
    assert report.swapped
    assert report.tally.reused > 0
    assert (tmp_path / "klaw.db.old").exists()
    after = digests_of(file)
    assert {**after, "vectors": ""} == {**before, "vectors": ""}


async def test_no_vector_is_taken_over_when_all_are_to_be_made_again(tmp_path: Path) -> None:
    await filled(tmp_path)
    report = run(tmp_path, again=True)
    assert report.vectors.taken_over == 0
    assert report.vectors.waiting > 30
    assert report.swapped
    async with running_store(tmp_path) as store:
        assert await store.readers.run(vector_model.current) == (MODEL, DIMENSION)
        assert await store.readers.run(vectors.count_embedded) == 0


async def test_a_vector_that_is_none_any_more_is_made_anew(tmp_path: Path) -> None:
    """NaN in the file: neither taken over nor a reason to refuse."""
    await filled(tmp_path, vectors=False)
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await store.writer.run(
            stored_vectors.store, MODEL, [(1, unit(1)), (2, b"\0\0\xc0\x7f" * DIMENSION), (3, bytes(4 * DIMENSION))]
        )
    report = run(tmp_path)
    assert report.vectors.taken_over == 1
    assert report.swapped


async def test_missing_vectors_are_left_to_the_server(tmp_path: Path) -> None:
    await filled(tmp_path)
    report = run(tmp_path)
    assert report.vectors.waiting > 0
    assert report.swapped


# -- broken logs ------------------------------------------------------------------------------------------------------


def some_log(root: Path) -> Path:
    return max((root / "conversations").rglob("*.jsonl"), key=lambda path: path.stat().st_size)


async def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """It was never acknowledged, so nothing differs."""
    await filled(tmp_path)
    with some_log(tmp_path).open("a") as file:
        file.write('{"rowid":9999,"id":"torn","content":"обор')
    with next((tmp_path / "turns").glob("*.jsonl")).open("a") as file:
        file.write('{"turn_id":"torn"')
    report = run(tmp_path)
    assert report.swapped
    assert report.tally.malformed == 2


async def test_broken_lines_are_counted_and_nothing_is_swapped_unless_told_to(tmp_path: Path) -> None:
    await filled(tmp_path)
    log = some_log(tmp_path)
    good = log.read_bytes().splitlines(keepends=True)
    bad = [b'{"rowid":3,"broken\n', b"\xff\xfe\n", b"[1]\n", b'{"rowid":"x"}\n', b"\0" * 50 + b"\n", b"\n"]
    log.write_bytes(b"".join(good[:2] + bad + good[3:]))  # and one message is gone
    report = run(tmp_path)
    assert not report.swapped
    assert report.tally.malformed == 5
    found = {table.name: table for table in report.tables}
    assert (found["messages"].only_live, found["messages"].only_built) == (1, 0)
    assert len(found["messages"].examples) == 1
    assert digests_of(tmp_path / "klaw.db")["messages"] == found["messages"].live.digest
    log.write_bytes(b"".join(good))  # put back from a backup
    report = run(tmp_path)
    assert report.swapped
    assert report.tally.reused > 0


async def test_logs_of_a_chat_that_are_missing_are_noticed(tmp_path: Path) -> None:
    """Refused with the tables and rows; swapped when told to, and the rest goes on."""
    await filled(tmp_path)
    lost = some_log(tmp_path).parent
    shutil.rmtree(lost)
    report = run(tmp_path)
    assert not report.swapped
    assert differing(report) >= {"messages", "sessions", "full text", "words"}
    report = run(tmp_path, accept=True)
    assert report.swapped
    async with running_store(tmp_path) as store:
        (first,) = await store.writer.run(messages.append, [new("still here?", chat="чат 1", id="new one")])
        assert first.message.seq >= 1


async def test_a_message_twice_in_the_logs_is_there_once_and_another_in_its_place_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path)
    log = some_log(tmp_path)
    good = log.read_bytes().splitlines(keepends=True)
    with log.open("ab") as file:
        file.write(good[1] + good[0] + good[2].replace(b'"id":"', b'"id":"x'))
    report = run(tmp_path)
    assert report.tally.conflicts == 1
    assert report.swapped


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_the_folder_is_locked_both_ways(tmp_path: Path) -> None:
    """No reindex beside a server or another reindex, no server beside a reindex."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        with pytest.raises(ReindexRefused, match="is in use"):
            run(tmp_path)

    def other(_step) -> None:
        with pytest.raises(ReindexRefused, match="another reindex"):
            run(tmp_path)

    assert run(tmp_path, see=other).swapped


async def test_a_server_cannot_start_meanwhile(tmp_path: Path) -> None:
    await filled(tmp_path)

    async def start() -> None:
        async with running_store(tmp_path):
            pass

    seen = []

    def during(step) -> None:
        if not seen:
            seen.append(step)
            with pytest.raises(StorageError, match="another Klaw server, a reindex or an import is using this folder"):
                trio.run(start)

    assert (await trio.to_thread.run_sync(lambda: run(tmp_path, see=during))).swapped
    assert seen


async def test_an_old_database_that_is_still_there_is_not_overwritten(tmp_path: Path) -> None:
    await filled(tmp_path)
    assert run(tmp_path).swapped
    with pytest.raises(ReindexRefused, match="klaw reindex --drop-old"):
        run(tmp_path)


async def test_the_only_database_is_not_dropped(tmp_path: Path) -> None:
    await filled(tmp_path)
    (tmp_path / "klaw.db").rename(tmp_path / "klaw.db.old")
    with pytest.raises(ReindexRefused):
        drop(tmp_path / "klaw.db")
    assert (tmp_path / "klaw.db.old").exists()


async def test_a_database_of_a_newer_klaw_is_not_touched(tmp_path: Path) -> None:
    await filled(tmp_path)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    connection.close()
    content = (tmp_path / "klaw.db").read_bytes()
    with pytest.raises(SchemaTooNew):
        run(tmp_path, accept=True)
    assert (tmp_path / "klaw.db").read_bytes() == content


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReindexRefused, match="there is no"):
        run(tmp_path / "nowhere")


def test_the_digest_does_not_depend_on_pages(tmp_path: Path) -> None:
    trio.run(filled, tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    connection.execute("PRAGMA journal_mode = delete; PRAGMA page_size = 16384; VACUUM")
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('optimize')")
    connection.close()
    assert digests_of(tmp_path / "klaw.db") == before
