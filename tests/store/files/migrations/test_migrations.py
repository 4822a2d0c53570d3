"""Databases of every earlier schema: nothing is lost, and what the new schema can do works on the old messages."""

import itertools
import struct
from pathlib import Path
from typing import Any

import apsw
import apsw.fts5
import pytest

from klaw.domain.names import UserId, chat_id
from klaw.errors import SchemaTooNew
from klaw.memory.recall.query import search_words
from klaw.store import migrations
from klaw.store.engine import meta
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import messages
from klaw.store.search import fulltext, vectors
from tests.support.stores import new, running_store

SAID = (
    ("Anna must not eat peanuts.", "peanut"),
    ("Код от калитки — 4815, запомни.", "калитка"),
    ("昨天的北京烤鸭真好吃", "烤鸭"),
    ("แมวตัวนี้ชื่อมะลิ", "ชื่อ"),
    ("👍", "👍"),
)
CHAT = chat_id(UserId("ann"), "дача")

_ADD_SESSION = """
INSERT INTO sessions (chat_id, user_id, name, last_seq, created_at, updated_at)
VALUES (?, 'ann', 'дача', ?, '2026-11-21T10:00:00.000Z', '2026-11-21T10:00:00.000Z')
"""
_ADD_MESSAGE = """
INSERT INTO messages (id, user_id, channel, chat_id, seq, role, type, content, tokens, created_at, segment)
VALUES (?, 'ann', 'test', ?, ?, ?, ?, ?, 10, '2026-11-21T10:00:00.000Z', 0)
"""


def open_with(path: Path, tokenizer: Any = None) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    prepare_writer(connection)
    if tokenizer is not None:
        connection.register_fts5_tokenizer("klaw", tokenizer)
    return connection


def run_scripts(connection: apsw.Connection, first: int, last: int) -> None:
    """Run migrations as the Klaw of schema ``last`` did."""
    for number, script in migrations.scripts().items():
        if first <= number <= last:
            with connection:
                connection.execute(script)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (str(last),))


def make_old(path: Path, version: int) -> None:
    """A database of an earlier schema with messages in it. The tokenizer of the first one knew no pairs."""
    connection = open_with(path, apsw.fts5.UnicodeWordsTokenizer)
    run_scripts(connection, 1, 1)
    rows = [("user", "text", text) for text, _ in SAID] + [("user", "command", "/status калитка")]
    connection.execute(_ADD_SESSION, (CHAT, len(rows)))
    for seq, (role, kind, text) in enumerate(rows, 1):
        connection.execute(_ADD_MESSAGE, (f"m{seq}", CHAT, seq, role, kind, text))
        if kind == "text":
            connection.execute(
                "INSERT INTO messages_fts (rowid, content, scope) VALUES (?, ?, ?)", (seq, text, "c1 u616e6e")
            )
    connection.close()
    connection = open_with(path)
    run_scripts(connection, 2, version)
    connection.close()


def hits(connection: apsw.Connection, asked: str) -> list[int]:
    return [
        hit.rowid for hit in fulltext.scores(connection, list(search_words(asked)), "c1", (0, 1 << 60), 100).best(10)
    ]


@pytest.mark.parametrize("version", sorted(migrations.scripts())[:-1])
def test_every_earlier_schema_is_migrated_with_its_messages(tmp_path: Path, version: int) -> None:
    make_old(tmp_path / "klaw.db", version)
    connection = open_with(tmp_path / "klaw.db")
    assert migrations.migrate(connection) == (version, migrations.latest())
    assert migrations.current(connection) == migrations.latest()
    assert [message.content for message in messages.after(connection, CHAT, 0, 10)][: len(SAID)] == [
        text for text, _ in SAID
    ]
    for rowid, (_, asked) in enumerate(SAID, 1):
        assert hits(connection, asked) == [rowid], asked
    # FTS5 compares every word of its index with the messages.
    connection.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)")
    assert migrations.migrate(connection) == (migrations.latest(), migrations.latest())
    connection.close()


def steps_of_migration(path: Path) -> int:
    connection = open_with(path)
    steps = itertools.count()
    connection.set_progress_handler(lambda: next(steps) < 0, 1)
    migrations.migrate(connection)
    connection.close()
    return next(steps)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_an_interrupted_migration_leaves_the_old_schema_and_begins_anew(tmp_path: Path, share: float) -> None:
    make_old(tmp_path / "copy.db", 1)
    last_step = int(steps_of_migration(tmp_path / "copy.db") * share)
    path = tmp_path / "klaw.db"
    make_old(path, 1)
    connection = open_with(path)
    steps = itertools.count()
    connection.set_progress_handler(lambda: next(steps) > last_step, 1)
    with pytest.raises(apsw.Error):
        migrations.migrate(connection)
    connection.set_progress_handler(None)
    assert migrations.current(connection) < migrations.latest()
    assert [message.content for message in messages.after(connection, CHAT, 0, 1)] == [SAID[0][0]]
    connection.close()
    again = open_with(path)
    assert migrations.migrate(again)[1] == migrations.latest()
    assert hits(again, "烤鸭") == [3]
    again.close()


async def test_the_store_migrates_when_it_opens_and_says_so(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    make_old(tmp_path / "klaw.db", 1)
    async with running_store(tmp_path) as store:
        assert (store.opened.schema_before, store.opened.schema) == (1, migrations.latest())
        (added,) = await store.writer.run(messages.append, [new("北京很大", user="ann", chat="дача")])
        found = await store.readers.run(hits, "北京")
        assert sorted(found) == [3, added.message.rowid]
    said = [event["event"] for event in log_events if event["event"].startswith("schema_")]
    assert said == ["schema_migration_begins", "schema_migrated"] * (len(migrations.scripts()) - 1)


async def test_a_new_database_is_not_said_to_be_migrated(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    async with running_store(tmp_path) as store:
        assert store.opened.schema == migrations.latest()
    assert not [event for event in log_events if event["event"].startswith("schema_")]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    connection = open_with(tmp_path / "klaw.db")
    migrations.migrate(connection)
    newer = migrations.latest() + 1
    connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(newer),))
    with pytest.raises(SchemaTooNew):
        migrations.migrate(connection)
    assert migrations.current(connection) == newer
    connection.close()


def test_vectors_that_are_there_stay_when_their_tables_come_from_a_migration(tmp_path: Path) -> None:
    """Schema 21 makes what is missing; the table of a model of another dimension is left alone."""
    connection = open_with(tmp_path / "klaw.db")
    run_scripts(connection, 1, 20)
    connection.execute(vectors.table(4))
    insert = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (7, 1, 1, ?)"
    connection.execute(insert, (struct.pack("<4f", 1, 0, 0, 0),))
    meta.put(connection, "embedding_model", "model-of-4")
    meta.put(connection, "embedding_dimension", "4")
    assert migrations.migrate(connection) == (20, migrations.latest())
    assert connection.execute("SELECT rowid, vec_length(embedding) FROM vec_messages").fetchall() == [(7, 4)]
    assert connection.execute("SELECT count(*) FROM vec_blocks").get == 0
    assert vectors.prepare_at_once(connection, "model-of-8", 8), "another model: the table is made again for it"
    connection.execute(insert, (struct.pack("<8f", *[1] * 8),))
    connection.close()
