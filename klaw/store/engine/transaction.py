"""What a function that the writer runs works with: the connection, and what the request writes, tells and waits for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import attrs

from klaw.actor.failure import error_class
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.errors import SourceForgotten, VectorsDamaged
from klaw.store import changes
from klaw.store.changes import Change
from klaw.store.engine.journal import Entry, Journal
from klaw.store.forget import forgetting
from klaw.store.sql import memory_journal


@attrs.define(eq=False)
class Transaction:
    """One request's part of a group's transaction. What its function did is taken back when it raises."""

    connection: apsw.Connection
    entries: list[Entry] = attrs.Factory(list)
    """Lines for the logs, in order."""
    published: list[Message] = attrs.Factory(list)
    """New messages, told to the listeners after the commit."""
    after_commit: list[Callable[[], None]] = attrs.Factory(list)
    """Called in the writer's thread when all is durable; a KlawError of theirs is the request's answer."""
    touches_vectors: bool = False

    @property
    def data_dir(self) -> Path:
        return _data_dir(self.connection)

    def write(self, path: str, line: str) -> None:
        """Add a line to a log."""
        line.encode()  # a lone surrogate is refused here, for this request only
        self.entries.append(Entry(path, line))

    def journal(self, change: Change[Any]) -> int:
        """Carry out a change of memory and add its line to the journal. Returns its number, the next one."""
        numbered = attrs.evolve(change, entry=memory_journal.last_entry(self.connection) + 1)
        self.write(changes.path(numbered), changes.line(numbered))
        memory_journal.apply(self.connection, numbered)
        return numbered.entry

    def forgotten_since(self, user: UserId, as_of: int | None) -> bool:
        """Whether a user has forgotten something since an entry of the memory journal."""
        return as_of is not None and forgetting.last_of(self.connection, user) > as_of

    def check_nothing_forgotten(self, user: UserId, as_of: int | None) -> None:
        """What was read before a forgetting may hold what is forgotten: nothing that is made of it is stored.

        Raises:
            SourceForgotten: the user has forgotten something since an entry of the memory journal.
        """
        if self.forgotten_since(user, as_of):
            raise SourceForgotten("something was forgotten since it was read: nothing was changed, ask again")

    @contextmanager
    def touching_vectors(self) -> Iterator[None]:
        """Around what touches the vector tables. Vectors can be made again: damage to their tables is refused like one
        request, and does not end the process.

        Raises:
            VectorsDamaged: they are damaged.
        """
        self.touches_vectors = True
        try:
            yield
        except (apsw.SQLError, apsw.CorruptError, apsw.ConstraintError) as error:
            raise VectorsDamaged(f"the vector table is damaged ({error_class(error)})") from error


@attrs.define(eq=False)
class Stopped:
    """What a function works with that runs alone, between two groups."""

    connection: apsw.Connection
    journal: Journal
    exchange: Callable[[], None] | None = None
    """Set by a function after which the database is another file: called while nothing is open."""

    @property
    def data_dir(self) -> Path:
        return _data_dir(self.connection)


def _data_dir(connection: apsw.Connection) -> Path:
    """The database is in the data folder, as the logs are."""
    return Path(connection.filename).parent
