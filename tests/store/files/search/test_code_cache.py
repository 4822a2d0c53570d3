"""The codes of chats in use are kept in memory, and say the same as the database."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest

from klaw.domain.message import Message, Role
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.kinds import messages
from klaw.store.search import vector_codes, vectors
from klaw.store.search import vector_quantizer as codes
from klaw.store.search.vector_codes import CodeCache
from tests.support.stores import START, new

DIMENSION = 64
KIND = codes.record_type(DIMENSION)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[apsw.Connection]:
    monkeypatch.setattr(vector_codes, "CENTRE_SAMPLE", 50)
    made = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(made)
    migrations.migrate(made)
    vectors.prepare_at_once(made, "model", DIMENSION)
    yield made
    made.close()


@pytest.fixture
def reader(writer: apsw.Connection, tmp_path: Path) -> Iterator[apsw.Connection]:
    made = reading(tmp_path)
    yield made
    made.close()


def reading(tmp_path: Path) -> apsw.Connection:
    made = apsw.Connection(str(tmp_path / "klaw.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connect.prepare_reader(made)
    return made


_numbers = itertools.count()


def put(connection: apsw.Connection, count: int, chat: str = "one") -> list[Message]:
    """Store messages of a chat with random vectors, and encode them."""
    with connection:
        stored = [
            messages.insert(connection, new(f"text {n}", chat=chat, role=Role.USER, at=START + n))
            for n in itertools.islice(_numbers, count)
        ]
        made = np.random.default_rng(len(stored)).standard_normal((count, DIMENSION)).astype("<f4")
        vectors.put(connection, [(message.rowid, row.tobytes()) for message, row in zip(stored, made, strict=True)])
        while vector_codes.advance(connection):
            pass
    return stored


def rowids(cache: CodeCache, connection: apsw.Connection, chat_key: int = 1) -> list[int]:
    with connection:
        now = vector_codes.state(connection)
        assert now is not None
        found = cache.records(connection, now.generation, chat_key, KIND)
    assert found is not None
    return [int(each) for each in found["rowid"]]


def test_what_was_stored_since_is_added(
    writer: apsw.Connection, reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CodeCache(1_000_000)
    stored = [each.rowid for each in put(writer, 100)]
    assert rowids(cache, reader) == stored
    read: list[int] = []
    real = vector_codes._read_records

    def watched(connection: apsw.Connection, blocks: list[tuple[int, int]], begin: int, into: np.ndarray) -> None:
        read.append(len(into))
        real(connection, blocks, begin, into)

    monkeypatch.setattr(vector_codes, "_read_records", watched)
    assert rowids(cache, reader) == stored
    assert read == []
    for count in (1, 40, 7):
        stored += [each.rowid for each in put(writer, count)]
        assert rowids(cache, reader) == stored
        assert read.pop() == count * KIND.itemsize


def test_an_older_snapshot_sees_what_it_had(writer: apsw.Connection, reader: apsw.Connection, tmp_path: Path) -> None:
    cache = CodeCache(1_000_000)
    before = [each.rowid for each in put(writer, 100)]
    reader.execute("BEGIN")
    now = vector_codes.state(reader)
    assert now is not None
    after = before + [each.rowid for each in put(writer, 30)]
    other = reading(tmp_path)
    assert rowids(cache, other) == after
    old = cache.records(reader, now.generation, 1, KIND)
    assert old is not None
    assert old["rowid"].tolist() == before
    reader.execute("COMMIT")
    assert rowids(cache, reader) == after
    other.close()


def test_what_is_erased_is_gone_from_memory_too(writer: apsw.Connection, reader: apsw.Connection) -> None:
    cache = CodeCache(1_000_000)
    stored = [each.rowid for each in put(writer, 100)]
    rowids(cache, reader)
    with writer:
        vector_codes.erase(writer, 1, [stored[3], stored[70]])
    found = rowids(cache, reader)
    assert found[3] == found[70] == 0
    assert [each for each in found if each] == [each for each in stored if each not in (stored[3], stored[70])]


def test_a_chat_too_large_is_not_kept_and_the_oldest_goes_first(
    writer: apsw.Connection, reader: apsw.Connection
) -> None:
    for chat in ("one", "two", "three"):
        put(writer, 100, chat)
    one = 100 * KIND.itemsize
    now = vector_codes.state(reader)
    assert now is not None
    assert CodeCache(one - 1).records(reader, now.generation, 1, KIND) is None
    cache = CodeCache(2 * one)
    for key in (1, 2, 1, 3):
        assert len(rowids(cache, reader, key)) == 100
    assert sorted(cache._chats) == [1, 3]


def test_a_block_that_is_too_short_is_named_damage(writer: apsw.Connection, reader: apsw.Connection) -> None:
    put(writer, 100)
    writer.execute("UPDATE vec_block_data SET records = x'00' WHERE block = 2")
    now = vector_codes.state(reader)
    assert now is not None
    with pytest.raises(apsw.CorruptError):
        CodeCache(1_000_000).records(reader, now.generation, 1, KIND)


def test_a_writer_keeps_nothing_that_it_may_take_back(writer: apsw.Connection, reader: apsw.Connection) -> None:
    stored = [each.rowid for each in put(writer, 100)]
    now = vector_codes.state(writer)
    assert now is not None
    query, filters = np.ones(DIMENSION, "<f4").tobytes(), vector_codes.Filters(chat_key=1)
    writer.execute("BEGIN")
    put(writer, 20)
    vector_codes.candidates(writer, now, query, filters, 1_000, 1_000)
    writer.execute("ROLLBACK")
    more = [each.rowid for each in put(writer, 5)]
    found = vector_codes.candidates(reader, now, query, filters, 1_000, 1_000)
    assert sorted(rowid for rowid, _ in found) == stored + more
