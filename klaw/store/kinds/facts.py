"""Facts: what the user said of themselves."""

from typing import Literal

import attrs

from klaw.domain.fact import Fact, FactId, InvalidFact, check
from klaw.domain.names import UserId
from klaw.errors import FactExists, NoSuchFact, StorageError
from klaw.store.engine.transaction import Transaction
from klaw.store.search import passages
from klaw.store.search.passages import PassageVector
from klaw.store.sql import facts


@attrs.frozen(kw_only=True)
class FactVector:
    """The vector of a fact's text, if the caller has it already."""

    model_id: str
    vector: bytes


def put(
    tx: Transaction,
    fact: Fact,
    expected: Literal["new", "existing"],
    *,
    supersedes: FactId | None = None,
    vector: FactVector | None = None,
    as_of: int | None = None,
) -> Fact:
    """Store a fact. To put the same new one again is safe.

    Args:
        tx: the transaction.
        fact: as it is to be.
        expected: whether the user has one of its id.
        supersedes: an active fact of the user that becomes history by it.
        vector: of its text, if it is known; else the embedder makes it.
        as_of: the memory journal's last entry before what it is made of was read.

    Raises:
        SourceForgotten: the user has forgotten something since ``as_of``; nothing was stored.
        FactExists: another active fact of the user has the same text, or a new one's id is taken; ``fact`` of the
            error is that one's id.
        NoSuchFact: the one to change, or to supersede, is not there.
        StorageError: a value breaks its rule.
    """
    try:
        check(fact)
    except InvalidFact as error:
        raise StorageError(f"the fact cannot be stored: {error}") from None
    tx.check_nothing_forgotten(fact.user, as_of)
    present = facts.get(tx.connection, fact.user, fact.id)
    if expected == "new" and present is not None:
        if present == fact:
            return present  # asked for again
        raise FactExists(present.id)
    if expected == "existing" and present is None:
        raise NoSuchFact
    if supersedes is not None:
        older = facts.get(tx.connection, fact.user, supersedes)
        if older is None or not older.active:
            raise NoSuchFact
        past = attrs.evolve(older, superseded_by=fact.id, updated_at=fact.updated_at)
        check(past)
        tx.journal(facts.FACT.put(fact.user, past.id, past, fact.updated_at))
    same = facts.same_text(tx.connection, fact.user, fact.text, fact.id) if fact.active else None
    if same is not None:
        raise FactExists(same.id)
    tx.journal(facts.FACT.put(fact.user, fact.id, fact, fact.updated_at))
    rowid = facts.rowid_of(tx.connection, fact.user, fact.id)
    if vector is not None and fact.active and rowid is not None:
        passages.store(tx.connection, vector.model_id, [PassageVector("fact", rowid, fact.text, vector.vector)])
    return fact


def remove(tx: Transaction, user: UserId, fact: FactId, at: str) -> Fact:
    """Remove a fact and return what it was; its history stays.

    Args:
        tx: the transaction.
        user: whose it is.
        fact: its id.
        at: the time now, ISO-8601 UTC with milliseconds.

    Raises:
        NoSuchFact: the user has none of this id.
    """
    present = facts.get(tx.connection, user, fact)
    if present is None:
        raise NoSuchFact
    tx.journal(facts.FACT.removed(user, fact, at))
    return present
