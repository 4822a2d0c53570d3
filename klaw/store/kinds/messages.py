"""Messages, and the turns that they end."""

from collections.abc import Sequence

import attrs

from klaw.domain.message import Message, NewMessage
from klaw.domain.turn import TurnRecord
from klaw.errors import IdConflict
from klaw.store import records
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import turns
from klaw.store.sql import messages


@attrs.frozen
class Appended:
    """Outcome of one message."""

    message: Message
    repeated: bool
    """The id was there already; ``message`` is the stored one and nothing was written."""


def append(tx: Transaction, new: Sequence[NewMessage], turn: TurnRecord | None = None) -> tuple[Appended, ...]:
    """Store messages in order and, with them, the turn that they end. The ids make a repetition safe.

    Raises:
        IdConflict: an id is used in another chat of the user.
    """
    appended = tuple(append_one(tx, each) for each in new)
    if turn is not None and turns.insert(tx.connection, turn):
        tx.write(records.turn_path(turn), records.turn_line(turn))
    return appended


def append_one(tx: Transaction, new: NewMessage) -> Appended:
    """Store a message at the end of its chat, unless the user has one of this id.

    Raises:
        IdConflict: the id is used in another chat of the user.
    """
    known = messages.find(tx.connection, new.user, new.id)
    if known is not None and known.chat != new.chat:
        raise IdConflict("this message id is already used in another chat")
    if known is not None:
        return Appended(known, repeated=True)
    message = messages.append(tx.connection, new)
    tx.write(records.message_path(message), records.message_line(message))
    tx.published.append(message)
    return Appended(message, repeated=False)
