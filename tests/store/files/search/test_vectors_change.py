"""Replacing the vectors of one model by those of another: in bounded steps, resumable, no write held up."""

from pathlib import Path

import apsw
import pytest

from klaw.domain.message import MessageKind, Role
from klaw.errors import StorageError
from klaw.store import migrations
from klaw.store.engine import connect, meta, vector_model
from klaw.store.kinds import messages
from klaw.store.search import vectors
from tests.support.stores import new, running_store

VECTOR = b"\0\0\x80\x3f" + bytes(12)


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    opened = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(opened)
    migrations.migrate(opened)
    return opened


def _fill(connection: apsw.Connection, count: int, model: str = "a") -> None:
    vectors.prepare_at_once(connection, model, 4)
    for number in range(count):
        message = messages.insert(connection, new(f"message number {number} that is long enough for a vector"))
        assert vectors.put(connection, [(message.rowid, VECTOR)]) == 1


def test_the_first_model_takes_one_step(connection: apsw.Connection) -> None:
    assert vectors.prepare_some(connection, "a", 4) is False
    assert vector_model.current(connection) == ("a", 4)
    assert vectors.prepare_at_once(connection, "a", 4) is False


def test_each_step_is_bounded_and_a_crash_between_two_loses_nothing(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CLEAR_ROWS", 100)
    monkeypatch.setattr(vectors, "CLEAR_CHUNKS", 1)
    with connection:
        _fill(connection, 600)
    assert vectors.prepare_some(connection, "b", 8) is None
    assert vector_model.current(connection) is None, "nothing can be searched or stored now"
    assert vectors.count_embedded(connection) == 0
    assert vectors.count_unembedded(connection, 10) == 100
    steps = 1
    while vectors.prepare_some(connection, "b", 8) is None:  # as after a restart: nothing is held in memory
        steps += 1
    assert steps >= 5
    assert vector_model.current(connection) == ("b", 8)
    assert vectors.count_unembedded(connection, 10) == 600
    assert vectors.reembedding(connection) == 600
    assert vectors.prepare_some(connection, "b", 8) is True
    meta.remove(connection, "reembedding")
    assert vectors.prepare_some(connection, "b", 8) is False


def test_a_change_back_in_the_middle_still_counts_what_was_there_before(connection: apsw.Connection) -> None:
    _fill(connection, 20)
    assert vectors.prepare_at_once(connection, "b", 4) is True
    vectors.put(connection, [(1, VECTOR)])
    assert vectors.prepare_at_once(connection, "a", 4) is True
    assert vectors.reembedding(connection) == 20
    assert vectors.count_unembedded(connection, 10) == 20


def test_a_change_without_any_vector_is_no_reembedding(connection: apsw.Connection) -> None:
    vectors.prepare_at_once(connection, "a", 4)
    assert vectors.prepare_at_once(connection, "b", 8) is False
    assert vectors.reembedding(connection) is None


async def test_messages_are_stored_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "CLEAR_ROWS", 2)
    async with running_store(tmp_path) as store:
        await vectors.prepare(store.writer, "a", 4)
        texts = [new(f"message number {number} that is long enough for a vector") for number in range(9)]
        rows = [each.message.rowid for each in await store.writer.run(messages.append, texts)]
        assert await store.writer.run(vectors.store, "a", [(rowid, VECTOR) for rowid in rows]) == 9
        assert await vectors.prepare(store.writer, "b", 4) is True
        (late,) = await store.writer.run(messages.append, [new("a message that came after the change of the model")])
        assert await store.writer.run(vectors.store, "a", [(late.message.rowid, VECTOR)]) == 0, "of the replaced model"
        assert await store.writer.run(vectors.store, "b", [(late.message.rowid, VECTOR)]) == 1
        assert await store.readers.run(vectors.reembedding) == 9
        await store.writer.run(vectors.end_reembedding)
        assert await store.readers.run(vectors.reembedding) is None


async def test_a_vector_of_another_dimension_is_refused_and_the_writer_goes_on(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await vectors.prepare(store.writer, "a", 4)
        (one,) = await store.writer.run(messages.append, [new("a message that is long enough for a vector")])
        with pytest.raises(StorageError, match="another dimension than 4"):
            await store.writer.run(vectors.store, "a", [(one.message.rowid, VECTOR[:-4])])
        assert await store.writer.run(vectors.store, "a", [(one.message.rowid, VECTOR)]) == 1


def test_what_waits_comes_newest_first_with_the_message_before_it(connection: apsw.Connection) -> None:
    """Before it in the chat and segment, and only what is searched: no tools, commands or marks."""
    vectors.prepare_at_once(connection, "a", 4)
    long = "and this is long enough to get a vector of its own"
    said = [
        new(f"A1 {long}", chat="a"),
        new(f"B1 {long}", chat="b"),
        new("ok", chat="a", role=Role.ASSISTANT),
        new("{}", chat="a", role=Role.TOOL, kind=MessageKind.TOOL_RESULT),
        new("/status", chat="a", kind=MessageKind.COMMAND),
        new(f"A2 {long}", chat="a"),
        new("", chat="a", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK),
        new(f"A3 {long}", chat="a"),
        new(f"A4 {long}", chat="a"),
        new(f"B2 {long}", chat="b"),
    ]
    for message in said:
        messages.insert(connection, message)
    found = [
        (row.content[:2], row.previous and row.previous[:2]) for row in vectors.unembedded(connection, 10, limit=100)
    ]
    assert found == [("B2", "B1"), ("A4", "A3"), ("A3", None), ("A2", "ok"), ("B1", None), ("A1", None)]
    assert [row.content[:2] for row in vectors.unembedded(connection, 10, limit=2)] == ["B2", "A4"]
