"""Numbered, forward-only schema migrations: ``NNN_name.sql``, applied in one transaction each."""

import datetime as dt
import time
from importlib import resources

import apsw
import structlog

from klaw.errors import SchemaTooNew

_WRITE_VERSION = "INSERT OR REPLACE INTO meta(key, value) VALUES ('schema_version', ?), ('schema_changed_at', ?)"

log = structlog.get_logger("klaw.store")


def scripts() -> dict[int, str]:
    """Every migration's SQL by its number, in order."""
    found = {
        int(entry.name.split("_", 1)[0]): entry.read_text(encoding="utf-8")
        for entry in resources.files(__name__).iterdir()
        if entry.name.endswith(".sql")
    }
    return dict(sorted(found.items()))


def latest() -> int:
    return max(scripts())


def current(connection: apsw.Connection) -> int:
    """The database's schema version; 0 for an empty database."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'").get:
        return 0
    found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").get
    return int(found) if found is not None else 0


def migrate(connection: apsw.Connection) -> tuple[int, int]:
    """Bring the schema up to date. Returns (version before, version now). A migration that was interrupted has left no
    trace and begins again. One that makes the full-text index again takes minutes for a million messages; the log names
    its begin and its end. Raises SchemaTooNew: the database is of a newer Klaw; nothing was changed."""
    before, newest = current(connection), latest()
    if before > newest:
        raise SchemaTooNew(
            f"the database has schema {before}, this Klaw knows {newest}: install the newer Klaw or restore a backup"
        )
    for number, script in scripts().items():
        if number > before:
            if before:  # a new database has nothing to convert
                log.info("schema_migration_begins", schema=number)
            begin = time.monotonic()
            with connection:
                connection.execute(script)
                connection.execute(_WRITE_VERSION, (str(number), dt.datetime.now(dt.UTC).isoformat()))
            if before:
                log.info("schema_migrated", schema=number, seconds=round(time.monotonic() - begin, 1))
    return before, newest
