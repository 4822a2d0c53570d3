"""Sources of knowledge bases."""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.knowledge import BaseId, Source, SourceId
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, NoSuchSource, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds.knowledge import bases

_SOURCES = rows.Rows(Source, "kb_sources", "s")
_MINE = "JOIN kb_members AS m ON m.base_id = s.base_id AND m.user_id = ?1 WHERE"


def of_base(connection: apsw.Connection, user: UserId, base: BaseId) -> list[Source]:
    """The sources of a base of which a user is a member, in the order in which they were added."""
    return _SOURCES.all(connection, f"{_MINE} s.base_id = ?2 ORDER BY s.created_at, s.id", user, base)


def get(connection: apsw.Connection, user: UserId, source: SourceId) -> Source:
    """A source of a base of which a user is a member. Raises NoSuchSource for any other."""
    found = _SOURCES.one(connection, f"{_MINE} s.id = ?2", user, source)
    if found is None:
        raise NoSuchSource
    return found


def graphs(connection: apsw.Connection, user: UserId, among: Sequence[BaseId]) -> list[Source]:
    """The graphs of bases of which a user is a member."""
    which = "s.base_id IN (SELECT value FROM json_each(?2)) AND s.kind IN ('rdf', 'sparql') ORDER BY s.id"
    return _SOURCES.all(connection, f"{_MINE} {which}", user, json.dumps(among))


def every(connection: apsw.Connection) -> Sequence[Source]:
    """The sources of all bases of all users: for the indexer."""
    return _SOURCES.all(connection, "ORDER BY s.created_at, s.id")


def kept_files(connection: apsw.Connection) -> dict[SourceId, tuple[int, str]]:
    """Size and SHA-256 of what is kept of the sources of all users: for the doctor."""
    rows = connection.execute("SELECT id, size, sha256 FROM kb_sources WHERE sha256 <> '' ORDER BY id")
    return {SourceId(source): (size, sha256) for source, size, sha256 in rows}


_INSERT = rows.insert("kb_sources", Source, "entry")


def _apply(connection: apsw.Connection, change: Change[Source]) -> None:
    connection.execute("DELETE FROM kb_sources WHERE id = ? AND user_id = ?", (change.key, change.user))
    if change.value is not None:
        connection.execute(_INSERT, {**rows.values(change.value), "entry": change.entry})


_CONTENT = "id, entry, user_id, base_id, kind, name, place, sha256, size, added_by, created_at, updated_at"
SOURCE: Kind[Source] = Kind(
    what="kb_source",
    plural="sources",
    cls=Source,
    table="kb_sources",
    ids="""SELECT s.id AS id FROM kb_members AS m JOIN kb_sources AS s ON s.base_id = m.base_id
        WHERE m.user_id = ?1 AND s.id""",
    on_purpose=True,
    counted="bases",
    ops={"put": Source, "remove": None},
    beside=("user_id", "id"),
    moves="add its file, folder or page again: klaw kb add",
    apply=_apply,
    tables=(table("sources of knowledge bases", "kb_sources", "id", _CONTENT, first="", small=True),),
)


def put(tx: Transaction, user: UserId, source: Source) -> Source:
    """Add a source to a base that a user may edit, or change it. Raises NoSuchBase, NotAllowed; InvalidValue;
    StorageError: the id is another base's source's."""
    base = bases.editable(tx.connection, user, source.base)
    SOURCE.check(source)
    if source.user != base.user:
        raise StorageError("user: is the base's owner")
    there = _SOURCES.one(tx.connection, "WHERE s.id = ?", source.id)
    if there is not None and there.base != source.base:
        raise StorageError("id: is another base's")
    if there != source:
        tx.journal(SOURCE.put(source.user, source.id, source, source.updated_at))
    return source


def kept(tx: Transaction, source: SourceId, sha256: str, size: int, at: str) -> Source | None:
    """Other bytes of a source were fetched and are kept. None: it is gone meanwhile."""
    now = _SOURCES.one(tx.connection, "WHERE s.id = ?", source)
    if now is not None and now.sha256 != sha256:
        now = attrs.evolve(now, sha256=sha256, size=size, updated_at=at)
        tx.journal(SOURCE.put(now.user, now.id, now, at))
    return now


_SAME = """
WHERE s.base_id = ?1 AND s.kind = ?2 AND s.place = ?3 AND (s.place <> '' OR s.sha256 = ?4 AND s.name = ?5)
"""
_KEPT_BYTES = "SELECT coalesce(sum(size), 0) FROM kb_sources WHERE added_by = ?"


def add(tx: Transaction, user: UserId, source: Source, most: int) -> Source:
    """Add a source to a base, unless it has the same one already (by address or path, of a file by name and content),
    which then is returned. ``most``: bytes that all files of who adds it may have; the operator (``added_by`` is empty)
    has no limit. Raises AttachmentRefused: ``files_full``; else as ``put``."""
    bases.editable(tx.connection, user, source.base)
    same = (source.base, source.kind, source.where, source.sha256, source.name)
    there = _SOURCES.one(tx.connection, _SAME, *same)
    if there is not None:
        return there
    kept = int(tx.connection.execute(_KEPT_BYTES, (source.added_by,)).get)
    if source.added_by and kept + source.size > most:
        text = f"the files that you add to bases may take {most:,} bytes here (kb.maxUserBytes): remove some of them"
        raise AttachmentRefused("files_full", text)
    return put(tx, user, source)


def remove(tx: Transaction, user: UserId, source: SourceId, at: str) -> Source:
    """Remove a source; ``klaw.knowledge.removal`` does the rest. Raises NoSuchSource, NotAllowed."""
    now = get(tx.connection, user, source)
    bases.editable(tx.connection, user, now.base)
    tx.journal(SOURCE.removed(now.user, source, at))
    return now
