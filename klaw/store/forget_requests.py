"""What the writer can be asked of forgetting."""

from typing import TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.fact import FactId
from klaw.domain.names import UserId
from klaw.store.forget_cleaner import Cleaner
from klaw.store.forget_records import Forgot
from klaw.store.sql.forget_scope import Extra
from klaw.store.sql.quoting import Looked


@attrs.frozen(kw_only=True)
class Forget:
    """Take messages, facts and people, and what was made of them, out of the database, and remember to clean the logs.
    Answers what the logs are to be cleaned of."""

    user: UserId
    messages: tuple[int, ...]
    facts: tuple[FactId, ...]
    extra: Extra
    with_facts: bool
    """Also facts that were made of the messages, or say the same."""
    looked: Looked | None
    """Of the very same, a moment ago."""
    at: str
    reply: Reply[Forgot]


@attrs.frozen(kw_only=True)
class NoteForgotten:
    """Remember that a forgetting is finished in all logs."""

    user: UserId
    entry: int
    at: str
    reply: Reply[None]


@attrs.frozen(kw_only=True)
class CleanLogs:
    """Rewrite logs without what was forgotten. Answers how many lines changed."""

    cleaner: Cleaner
    paths: tuple[str, ...]
    reply: Reply[int]


@attrs.frozen(kw_only=True)
class CompactDatabase:
    """Empty the write-ahead log into the database, or make its file anew."""

    vacuum: bool
    reply: Reply[None]


OfForgetting: TypeAlias = Forget | NoteForgotten
AloneForForgetting: TypeAlias = CleanLogs | CompactDatabase
"""Carried out alone, between two groups."""
