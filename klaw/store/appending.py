"""Appending one message: its row and its line. Runs in the writer's transaction."""

import apsw

from klaw.domain.message import NewMessage
from klaw.errors import IdConflict
from klaw.store import records
from klaw.store.journal import Entry
from klaw.store.requests import Appended
from klaw.store.sql import messages


def append_message(connection: apsw.Connection, new: NewMessage, entries: list[Entry]) -> Appended:
    """Store a message at the end of its chat, unless the user has one of this id.

    Raises:
        IdConflict: the id is used in another chat of the user.
    """
    known = messages.find(connection, new.user, new.id)
    if known is not None and known.chat != new.chat:
        raise IdConflict("this message id is already used in another chat")
    message = known or messages.append(connection, new)
    if known is None:
        entries.append(Entry(records.message_path(message), records.message_line(message)))
    return Appended(message, repeated=known is not None)
