"""A new database of a test is a copy of the first one that all migrations made in this process. They take 30 ms of CPU,
and thousands of tests have a database."""

from collections.abc import Iterator
from contextlib import closing

import apsw
import pytest

from klaw.store import migrations

_WAL = slice(18, 20)
"""The bytes of a file's header that say so: memory has none."""


@pytest.fixture(scope="session", autouse=True)
def _copied_databases() -> Iterator[None]:
    migrate, made = migrations.migrate, dict[int, bytes]()

    def copied(connection: apsw.Connection) -> tuple[int, int]:
        if connection.execute("SELECT count(*) FROM sqlite_schema").get:
            return migrate(connection)
        page_bytes = connection.pragma("page_size")
        if page_bytes in made:
            with closing(apsw.Connection(":memory:")) as source:
                source.deserialize("main", made[page_bytes])
                with connection.backup("main", source, "main") as backup:
                    backup.step()
            return 0, migrations.latest()
        versions = migrate(connection)
        content = bytearray(connection.serialize("main"))
        content[_WAL] = b"\1\1"
        made[page_bytes] = bytes(content)
        return versions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "migrate", copied)
        yield
