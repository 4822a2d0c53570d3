"""What the doctor checks and counts of a kind follows from the kind's declaration."""

from pathlib import Path
from typing import Annotated

import apsw
import attrs
import pytest

from klaw.convert import Wire
from klaw.domain.names import UserId
from klaw.domain.notes import Quotes
from klaw.store import migrations
from klaw.store.changes import Kind
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import inventory, records


@attrs.frozen(kw_only=True)
class Toy:
    user: Annotated[UserId, Wire("user_id")]
    id: str
    text: Annotated[str, Quotes()]


TOYS = """
CREATE TABLE toys (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, entry INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE toy_changes (entry INTEGER PRIMARY KEY, user_id TEXT, toy_id TEXT, at TEXT, value TEXT);
CREATE TABLE vec_toys (rowid INTEGER PRIMARY KEY, embedding BLOB);
INSERT INTO toys VALUES ('a', 'local', 1, 'ball'), ('b', 'local', 2, 'kite');
INSERT INTO toy_changes VALUES (1, 'local', 'a', '', '{"text": "ball"}'), (2, 'local', 'b', '', '{"text": "kite"}');
"""
TOY: Kind[Toy] = Kind(what="toy", plural="toys", cls=Toy, table="toys", past="toy_changes", vectors="vec_toys")


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> apsw.Connection:
    monkeypatch.setattr(records, "KINDS", [*records.KINDS, TOY])
    monkeypatch.setattr(inventory, "KINDS", records.KINDS)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    prepare_writer(connection)
    migrations.migrate(connection)
    connection.execute(TOYS)
    return connection


def test_a_kind_is_counted_and_checked_by_its_declaration(connection: apsw.Connection) -> None:
    assert inventory.rows_of_kinds(connection)["toys"] == 2
    assert TOY in inventory.checked()
    assert inventory.check(connection, TOY) == inventory.Soundness(count=2, faults={})
    connection.execute("UPDATE toys SET text = 'drum' WHERE id = 'a'; DELETE FROM toys WHERE id = 'b'")
    connection.execute("INSERT INTO vec_toys VALUES (9, x'00')")
    assert inventory.faults(connection, TOY) == {
        "toys do not say what their history says": 1,
        "toys are only in their history": 1,
        "vectors are of no toy": 1,
    }


def test_every_kind_of_an_empty_database_is_sound(connection: apsw.Connection) -> None:
    for kind in inventory.checked():
        if kind is not TOY:
            assert inventory.check(connection, kind) == inventory.Soundness(count=0, faults={}), kind.what
