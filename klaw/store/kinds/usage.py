"""What work in the background used of models."""

from collections.abc import Mapping, Sequence
from typing import Any

from klaw.domain.names import ChatId, UserId
from klaw.store.engine.transaction import Transaction
from klaw.store.sql.background import SPENT, Charge


def note_spent(
    tx: Transaction, source: str, user: UserId, chat: ChatId | None, parts: Sequence[Mapping[str, Any]], at: str
) -> None:
    """Remember what a piece of work in the background used, for usage and the daily limits.

    Args:
        tx: the transaction.
        source: what it was for, 1 to 32 characters: ``topics``, ``facts``, ``reranker`` …
        user, chat: whose it was; a chat where there is one.
        parts: of ``Meter.record()["models"]``.
        at: the time now, ISO-8601 UTC with milliseconds.
    """
    tx.journal(SPENT.put(user, source, Charge(chat=chat, parts=tuple(parts)), at))
