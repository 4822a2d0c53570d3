"""The ``covered`` invariant on a real store: what is counted, what is repaired, what is shown when nothing helps."""

import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.names import ChatId
from klaw.errors import StorageError
from klaw.memory.coverage import ACTOR_NAME, Coverage, CoveragePace
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import messages
from klaw.store.search import coverage as sql
from klaw.store.search import fulltext, vectors
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.coverage import Damage, Tallies, add_rows
from klaw.store.store import Store
from tests.conftest import CANARY
from tests.support.stores import new, running_store
from tests.support.turns import record
from tests.support.waiting import until

MAIN = ChatId("local:main")
BREAK = partial(new, "", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)
QUICK = CoveragePace(rows=3, settle_s=0, pause_s=0, retry_s=0.01)
SHOWN: dict[str, Any] = {"version": 1, "window": {"first_seq": None}}


def vector(number: float = 1.0) -> bytes:
    return struct.pack("<4f", 1.0, number, 0.0, 1.0)


async def put(store: Store, *new_messages: NewMessage) -> list[Message]:
    return [appended.message for appended in await store.writer.run(messages.append, new_messages)]


async def embed(store: Store, *rowids: int) -> None:
    await stored_vectors.prepare(store.writer, "test-model", 4)
    await store.writer.run(stored_vectors.store, "test-model", [(rowid, vector(rowid)) for rowid in rowids])


async def spoil(store: Store, statement: str, *arguments: Any) -> None:
    """Damage the database behind the writer's back."""

    def run(path: Path) -> None:
        connection = apsw.Connection(str(path))
        prepare_writer(connection)
        connection.execute(statement, arguments)
        connection.close()

    await trio.to_thread.run_sync(run, Path(await store.readers.run(lambda connection: connection.filename)))


DROP_TEXT = """
INSERT INTO messages_fts (messages_fts, rowid, content, scope)
SELECT 'delete', rowid, content, scope FROM messages_search WHERE rowid = ?
"""


async def tallied(store: Store) -> Tallies:
    batch = await store.readers.run(sql.read, 0, sql.LAST_ROWID, 1000)
    tallies: Tallies = {}
    add_rows(tallies, batch.rows)
    return tallies


@asynccontextmanager
async def counting(store: Store, *, window: int = 2, pace: CoveragePace = QUICK) -> AsyncIterator[Coverage]:
    woken: list[bool] = []
    coverage = Coverage(
        SystemClock(), store.readers, store.writer, lambda: woken.append(True), sliding_window=window, pace=pace
    )
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        await supervisor.start(coverage.spec())
        coverage.woken = woken  # type: ignore[attr-defined]
        yield coverage
        await supervisor.stop(ACTOR_NAME, "the test is over")


# -- counting ----------------------------------------------------------------------------------------------------------


async def test_every_kind_of_message_is_counted_where_it_belongs(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        stored = await put(
            store,
            new("Сестра Анна живёт в Томске"),
            new("the code of the gate is 4711", role=Role.ASSISTANT),
            new("..."),
            new("—?!"),
            new("/status", kind=MessageKind.COMMAND),
            new("{}", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL),
            new("[]", role=Role.TOOL, kind=MessageKind.TOOL_RESULT),
            BREAK(),
            new("В другом чате", chat="другой"),
        )
        await embed(store, stored[0].rowid)
        tallies = await tallied(store)
        main = tallies[MAIN]
        assert (main.messages, main.not_searchable, main.in_text, main.with_vector) == (8, 4, 2, 1)
        assert (main.wordless, main.lost) == (2, 0)
        assert tallies[ChatId("local:другой")].messages == 1


async def test_a_wordless_message_with_a_vector_is_found(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (stored,) = await put(store, new("— " * 40))
        await embed(store, stored.rowid)
        assert (await tallied(store))[MAIN].wordless == 0


async def test_the_number_of_words_is_that_of_the_message(tmp_path: Path) -> None:
    """Also over 127 and 16,383 words, where FTS5 writes the number in more bytes."""
    async with running_store(tmp_path) as store:
        for count in (1, 127, 128, 16_384):
            await put(store, new("слово " * count))
        batch = await store.readers.run(sql.read, 0, sql.LAST_ROWID, 10)
        assert [row.words for row in batch.rows] == [1, 127, 128, 16_384]


async def test_where_the_window_begins(tmp_path: Path) -> None:
    """At the first message that the last turn of the segment showed, but never before the newest ``slidingWindow``."""

    async def start(window: int) -> int:
        return await store.readers.run(sql.window_start, MAIN, window)

    async with running_store(tmp_path) as store:
        assert await start(3) == 0
        stored = await put(store, *[new(f"message {n}") for n in range(1, 11)])
        assert await start(3) == 8
        shown = {**SHOWN, "window": {"first_seq": 7}}
        await store.writer.run(messages.append, [], attrs.evolve(record(stored[-1]), receipt=shown))
        assert await start(3) == 8
        assert await start(20) == 7
        await store.writer.run(
            messages.append, [], attrs.evolve(record(stored[-1]), receipt={})
        )  # a turn without a context
        assert await start(20) == 7
        (last,) = await put(store, BREAK())
        assert await start(20) == last.seq + 1
        (first, _) = await put(store, new("a new segment"), new("/help", kind=MessageKind.COMMAND))
        assert await start(20) == first.seq
        await store.writer.run(
            messages.append, [], attrs.evolve(record(first), receipt=SHOWN)
        )  # an empty window: what was asked
        assert await start(20) == first.seq


# -- the actor ---------------------------------------------------------------------------------------------------------


async def test_everything_is_covered_and_new_messages_are_counted(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await put(store, *[new(f"сообщение {n}") for n in range(10)])
        async with counting(store) as coverage:
            await until(lambda: coverage.status.whole)
            assert coverage.report()["messages"] == 10
            await put(store, new("..."), new("one more"), new("hi", chat="other"))
            coverage.nudge()
            await until(lambda: coverage.report()["messages"] == 13)
            assert coverage.uncovered == 0
            assert coverage.problems() == {}
            assert coverage.report()["wordless"] == 1


async def test_messages_that_come_during_a_pass_are_counted_once(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await put(store, *[new(f"сообщение {n}") for n in range(40)])
        async with counting(store, pace=attrs.evolve(QUICK, pass_every_s=0)) as coverage:
            for n in range(30):
                await put(store, new(f"meanwhile {n}"))
                coverage.nudge()
            first = coverage.status.counted_at
            await until(lambda: coverage.report()["messages"] == 70 and coverage.status.counted_at != first)
            assert coverage.report()["searchable"] == 70


async def test_what_full_text_lacks_is_indexed_again(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    """A row that is gone is found, made again by the writer, and the message is found by its words."""
    async with running_store(tmp_path) as store:
        stored = await put(store, *[new(f"Ключ {CANARY} номер {n}") for n in range(8)])
        for message in stored[2:5]:
            await spoil(store, DROP_TEXT, message.rowid)
        assert (await tallied(store))[MAIN].lost == 3
        async with counting(store) as coverage:
            await until(lambda: coverage.status.whole)
            assert coverage.status.repaired_texts == 3
            assert coverage.uncovered == 0
        session = await store.readers.run(messages.session, MAIN)
        assert session is not None
        hits = (
            await store.readers.run(fulltext.scores, ["ключ"], messages.chat_word(session.key), (0, 1000), 1000)
        ).best(20)
        assert {hit.rowid for hit in hits} == {message.rowid for message in stored}
        assert await store.readers.run(lambda c: c.execute("PRAGMA quick_check").get) == "ok"
        repaired = [event for event in log_events if event["event"] == "index_repaired"]
        assert sum(event["count"] for event in repaired) == 3


async def test_lost_stray_and_orphaned_vectors_are_put_right(tmp_path: Path) -> None:
    """A lost vector is made again by the embedder's own sweep; one that belongs to nothing is dropped."""
    async with running_store(tmp_path) as store:
        stored = await put(store, *[new("a message that is long enough to have a vector") for _ in range(4)])
        lost, unmarked, good, plain = (message.rowid for message in stored)
        await embed(store, lost, unmarked, good)
        await spoil(store, "DELETE FROM vec_messages WHERE rowid = ?", lost)
        await spoil(store, "UPDATE messages SET embedded = 0 WHERE rowid = ?", unmarked)
        async with counting(store) as coverage:
            await until(lambda: coverage.status.whole)
            assert coverage.status.repaired_vectors == 2
            assert coverage.woken  # type: ignore[attr-defined]
        waiting = {row.rowid for row in await store.readers.run(vectors.unembedded, 1, 10)}
        assert waiting == {lost, unmarked, plain}
        await embed(store, *waiting)
        assert await store.readers.run(vectors.count_embedded) == 4


async def test_what_cannot_be_repaired_is_counted_and_shown(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    """The writer refuses, the process lives, and the number is there: outside the window only."""
    async with running_store(tmp_path) as store:
        stored = await put(store, *[new(f"a text {n}") for n in range(6)])
        for message in (stored[0], stored[1], stored[5]):
            await spoil(store, DROP_TEXT, message.rowid)
        # Without its structure full text takes no row; its list of documents can still be read.
        await spoil(store, "DELETE FROM messages_fts_data")
        async with counting(store, window=2) as coverage:
            await until(lambda: coverage.status.whole)
            assert coverage.uncovered == 2
            assert coverage.report()["chats"] == {"local:main": 2}
            (text,) = coverage.problems().values()
            assert text.startswith("some messages cannot be found by search")
            assert any(event["event"] == "index_not_repaired" for event in log_events)
            await store.writer.ping()


async def test_the_count_follows_the_window(tmp_path: Path) -> None:
    """A message that nothing finds is covered while the window shows it, and counted by the turn that moves on."""
    async with running_store(tmp_path) as store:
        stored = await put(store, *[new(f"a text {n}") for n in range(6)])
        await spoil(store, DROP_TEXT, stored[4].rowid)
        await spoil(store, "DELETE FROM messages_fts_data")
        async with counting(store, window=4) as coverage:
            await until(lambda: coverage.status.whole)
            assert coverage.uncovered == 0
            shown = attrs.evolve(record(stored[-1]), receipt={"version": 1, "window": {"first_seq": 6}})
            await store.writer.run(messages.append, [new("/context", kind=MessageKind.COMMAND)], shown)
            coverage.nudge()
            await until(lambda: coverage.uncovered == 1)


async def test_a_repair_of_a_damaged_index_is_refused_alone(tmp_path: Path) -> None:
    """What else is in the group is stored."""
    async with running_store(tmp_path) as store:
        (stored,) = await put(store, new("a text"))
        await spoil(store, DROP_TEXT, stored.rowid)
        await spoil(store, "DELETE FROM messages_fts_data")
        damage = (await store.readers.run(sql.read, 0, sql.LAST_ROWID, 10)).damage
        with pytest.raises(StorageError, match="could not be repaired"):
            await store.writer.run(sql.repair, damage)
        await put(store, new("/help", kind=MessageKind.COMMAND))


async def test_indexes_that_cannot_be_read_are_said_to_be_so(tmp_path: Path) -> None:
    """The actor tries again instead of crashing, and the status has the error's class."""
    async with running_store(tmp_path) as store:
        await put(store, new("a text"))
        async with counting(store) as coverage:
            await until(lambda: coverage.status.whole)
            await spoil(store, "ALTER TABLE messages_fts_docsize RENAME TO elsewhere")
            coverage.nudge()
            await until(lambda: coverage.status.error)
            await spoil(store, "ALTER TABLE elsewhere RENAME TO messages_fts_docsize")
            await put(store, new("another text"))
            coverage.nudge()
            await until(lambda: coverage.report()["messages"] == 2 and coverage.status.error is None)


async def test_orphans_are_seen(tmp_path: Path) -> None:
    """Index rows of messages that are gone: vectors are dropped, rows of full text are left to a rebuild."""
    async with running_store(tmp_path) as store:
        stored = await put(store, *[new(f"a text {n}") for n in range(3)])
        await embed(store, stored[0].rowid)
        await spoil(store, "DELETE FROM messages WHERE rowid = ?", stored[0].rowid)
        batch = await store.readers.run(sql.read, 0, sql.LAST_ROWID, 100)
        assert batch.damage.orphan_vectors == batch.damage.orphan_texts == (stored[0].rowid,)
        repaired = await store.writer.run(sql.repair, batch.damage)
        assert repaired == (0, 1)
        batch = await store.readers.run(sql.read, 0, sql.LAST_ROWID, 100)
        assert batch.damage.orphan_vectors == ()
        assert batch.damage.orphan_texts == (stored[0].rowid,)


async def test_index_rows_of_another_chat_are_seen(tmp_path: Path) -> None:
    """Full text and vectors say which chat a row belongs to; a row under another chat's name is an alarm."""
    async with running_store(tmp_path) as store:
        stored = await put(store, new("мой ключ", user="anna"), new("my key", user="boris"))
        await embed(store, *(message.rowid for message in stored))
        look = await store.readers.run(sql.look_at_all, 20, 1)
        assert look.stray_texts == look.stray_vectors == 0
        await spoil(store, "UPDATE messages SET chat_id = 'boris:main', seq = 7 WHERE rowid = ?", stored[0].rowid)
        look = await store.readers.run(sql.look_at_all, 20, 1)
        assert look.stray_texts == look.stray_vectors == 1


async def test_a_vector_without_its_mark_is_replaced_or_dropped(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (stored,) = await put(store, new("a text"))
        await embed(store, stored.rowid)
        await spoil(store, "UPDATE messages SET embedded = 0")
        damage = (await store.readers.run(sql.read, 0, sql.LAST_ROWID, 10)).damage
        assert damage.unmarked_vectors == (stored.rowid,)
        assert await store.writer.run(sql.repair, damage) == (0, 1)
        await embed(store, stored.rowid)
        await spoil(store, "UPDATE messages SET embedded = 0")
        await embed(store, stored.rowid)
        assert (await store.readers.run(sql.read, 0, sql.LAST_ROWID, 10)).damage == Damage()


# -- any history -------------------------------------------------------------------------------------------------------

KINDS = {
    "text": partial(new, "Сестра Анна говорит hello"),
    "wordless": partial(new, "...!"),
    "command": partial(new, "/help", kind=MessageKind.COMMAND),
    "break": BREAK,
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["main", "дача"])),
        st.tuples(st.sampled_from(["lose text", "lose vector", "lose mark", "embed"]), st.integers(0, 20)),
    ),
    max_size=25,
)


async def change(store: Store, stored: list[Message], what: str, which: int) -> None:
    """Embed one of the messages that are searched, or damage what the indexes have of it."""
    texts = [message.rowid for message in stored if message.content.startswith("Сестра")]
    if not texts:
        return
    rowid = texts[which % len(texts)]
    match what:
        case "embed":
            await embed(store, rowid)
        case "lose text":
            row = await store.readers.run(sql.rows, rowid - 1, rowid, 1)
            if row[0].words is not None:
                await spoil(store, DROP_TEXT, rowid)
        case "lose vector":
            await spoil(store, "DELETE FROM vec_messages WHERE rowid = ?", rowid)
        case _:
            await spoil(store, "UPDATE messages SET embedded = 0 WHERE rowid = ?", rowid)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_whatever_happens_the_counts_come_to_those_of_a_whole_look(steps: list[tuple[str, Any]]) -> None:
    """Any mixture of messages and damage, in any order, beside the running actor: in the end everything is repaired,
    and what was counted bit by bit is what one look at everything counts."""

    async def run(folder: Path) -> None:
        stored: list[Message] = []
        async with (
            running_store(folder) as store,
            counting(store, pace=attrs.evolve(QUICK, pass_every_s=0)) as coverage,
        ):
            for what, where in steps:
                if what in KINDS:
                    stored += await put(store, KINDS[what](chat=where))
                    coverage.nudge()
                else:
                    try:
                        await change(store, stored, what, where)
                    except StorageError:
                        assert what == "embed"  # of one that has a vector without its mark
            for _ in range(2):  # a pass that began before the last damage may have missed it
                last = coverage.status.counted_at
                await until(lambda last=last: coverage.status.counted_at != last)
            batch = await store.readers.run(sql.read, 0, sql.LAST_ROWID, 1000)
            assert batch.damage == Damage()
            tallies = await tallied(store)
            report = coverage.report()
            assert report["uncovered"] == 0
            assert report["messages"] == len(stored) == sum(tally.messages for tally in tallies.values())
            assert report["wordless"] == sum(tally.wordless for tally in tallies.values())
            assert report["not_searchable"] == sum(tally.not_searchable for tally in tallies.values())

    with tempfile.TemporaryDirectory() as folder:
        trio.run(run, Path(folder))
