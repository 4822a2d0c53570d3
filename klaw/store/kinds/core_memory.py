"""Core memory: the values that each user's turns always have."""

from klaw.domain import core_memory as core
from klaw.domain.core_memory import Document
from klaw.domain.names import UserId
from klaw.errors import CoreNotChanged, StorageError
from klaw.store import core_files
from klaw.store.engine.transaction import Transaction
from klaw.store.sql.core_memory import CORE, CorePut


def change(tx: Transaction, user: UserId, section: str, key: str | None, value: str | None, at: str) -> Document:
    """Set a value of a user's core memory, or delete one (``value`` None) or a whole section (``key`` None). Returns
    what it has become. See ``domain.core_memory.updated``.

    Raises:
        CoreNotChanged: a name or the value breaks its rule, or there is no room.
        CoreUnreadable: the file is no core memory.
        StorageError: it is kept, but the file could not be written; the next start does it.
    """
    present = core_files.current(tx.connection, tx.data_dir, user)
    try:
        if value is None:
            document = core.removed(present.document, section, key)
        else:
            document = core.updated(present.document, section, key or "", value)
    except core.CoreRefused as error:
        raise CoreNotChanged(str(error)) from None
    tx.journal(CORE.put(user, "", CorePut(document=document, replaces=present.digest), at))

    def settle() -> None:
        if core_files.settle(tx.connection, tx.data_dir):
            raise StorageError("the change is kept, but core_memory.json cannot be written; it is when it can")

    tx.after_commit.append(settle)
    return document
