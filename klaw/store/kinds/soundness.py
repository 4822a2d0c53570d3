"""How many rows each kind has, and whether they agree with their history and their indexes; for ``klaw doctor``."""

from collections.abc import Mapping
from typing import Any

import apsw
import attrs

from klaw.store.changes import Kind
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import messages
from klaw.store.kinds.memory_journal import KINDS
from klaw.store.rows import documents

_UNLIKE = """
SELECT count(*) FROM {kind.table} AS t LEFT JOIN {kind.past} AS c
    ON c.entry = t.{kind.changed} AND c.user_id = t.user_id AND c.{kind.what}_id = t.{kind.id}
WHERE c.value IS NULL OR {differ}
"""
_MISSING = """
SELECT count(*) FROM {kind.past} AS c
WHERE c.value IS NOT NULL
    AND c.entry = (SELECT max(entry) FROM {kind.past} WHERE user_id = c.user_id AND {kind.what}_id = c.{kind.what}_id)
    AND NOT EXISTS (SELECT 1 FROM {kind.table} WHERE user_id = c.user_id AND {kind.id} = c.{kind.what}_id)
"""
_NO_TEXT = """
SELECT count(*) FROM {kind.table}_search WHERE rowid NOT IN (SELECT id FROM {kind.table}_fts_docsize)
"""
_TEXT_OF_NONE = """
SELECT count(*) FROM {kind.table}_fts_docsize WHERE id NOT IN (SELECT rowid FROM {kind.table}_search)
"""
_VECTOR_OF_NONE = "SELECT count(*) FROM {kind.vectors} WHERE rowid NOT IN (SELECT rowid FROM {kind.table})"


def flaws(kind: Kind[Any]) -> dict[str, str]:
    """What must never be of a kind's rows, in words behind a number, with the statements that count it."""
    found: dict[str, str] = {}
    if kind.past:
        texts = [name for name in kind.quotes if name not in documents(kind.cls)]
        differ = " OR ".join(f"c.value ->> '$.{name}' <> t.{name}" for name in texts)
        found[f"{kind.plural} do not say what their history says"] = _UNLIKE.format(kind=kind, differ=differ)
        found[f"{kind.plural} are only in their history"] = _MISSING.format(kind=kind)
    if kind.full_text:
        found[f"{kind.plural} are not in full text"] = _NO_TEXT.format(kind=kind)
        found[f"rows of full text are of no {kind.what}"] = _TEXT_OF_NONE.format(kind=kind)
    if kind.vectors:
        found[f"vectors are of no {kind.what}"] = _VECTOR_OF_NONE.format(kind=kind)
    return {**found, **kind.flaws}


def checked() -> list[Kind[Any]]:
    """The kinds with anything to check; of messages ``search.coverage`` looks at the indexes."""
    return [kind for kind in KINDS if kind is not messages.MESSAGE and flaws(kind)]


@attrs.frozen(kw_only=True)
class Soundness:
    """What was found of one kind, of all users at one moment."""

    count: int
    faults: Mapping[str, int]
    """How many rows there are with each flaw that there is."""


def faults(connection: apsw.Connection, kind: Kind[Any]) -> dict[str, int]:
    """The flaws of a kind's rows; reads everything."""
    found = {flaw: int(connection.execute(statement).get) for flaw, statement in flaws(kind).items()}
    return {flaw: count for flaw, count in found.items() if count}


def check(connection: apsw.Connection, kind: Kind[Any]) -> Soundness:
    """Look at all rows of a kind."""
    table = f"{kind.table}_search" if kind.full_text else kind.table
    with snapshot(connection):
        count = int(connection.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608 - constants
        return Soundness(count=count, faults=faults(connection, kind))


def counts(connection: apsw.Connection) -> dict[str, int]:
    """How many rows each kind has, by what people call several of them."""
    tables: dict[str, str] = {}
    for kind in KINDS:
        if kind.table:
            tables.setdefault(kind.plural, kind.table)
    return {plural: int(connection.execute(f"SELECT count(*) FROM {table}").get) for plural, table in tables.items()}  # noqa: S608
