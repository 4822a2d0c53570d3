"""Storing what a user says, with a limit of its bytes for each day (UTC)."""

import datetime as dt

from klaw.domain.message import NewMessage
from klaw.domain.text import span
from klaw.errors import TooMuchToday
from klaw.store.engine import meta
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.messages import AppendedMessage

_STORED_TODAY = "stored_today:"
"""With a user's name behind it: a day, and the bytes of lines of that user's messages that were stored on it."""


def append(tx: Transaction, new: NewMessage, most_bytes: int) -> tuple[AppendedMessage, ...]:
    """Store a message of a user; one that is there already costs nothing.

    Args:
        tx, new: see ``messages.append``.
        most_bytes: that the user may store in a day; 0: any number.

    Raises:
        IdConflict
        TooMuchToday: nothing was stored.
    """
    appended = messages.append_one(tx, new)
    if most_bytes and not appended.repeated:
        key, today = f"{_STORED_TODAY}{new.user}", new.created_at[:10]
        day, _, stored = (meta.get(tx.connection, key) or "").partition(" ")
        total = (int(stored) if day == today else 0) + len(messages.message_line(appended.message).encode())
        if total > most_bytes:
            raise _refusal(new, most_bytes)
        meta.put(tx.connection, key, f"{today} {total}")
    return (appended,)


def _refusal(new: NewMessage, most_bytes: int) -> TooMuchToday:
    now = dt.datetime.fromisoformat(new.created_at)
    wait_s = 86_400 - now.hour * 3600 - now.minute * 60 - now.second
    text = f"the message was not stored: you may send {most_bytes:,} bytes of messages in a day here"
    again = f"send it again in {span(wait_s)}, after midnight UTC"
    return TooMuchToday(f"{text} (chats.maxUserBytesPerDay); {again}", wait_s)
