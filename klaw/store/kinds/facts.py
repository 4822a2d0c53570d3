"""Facts, what the user said of themselves: their rows, history and full text. Every question names the user."""

from typing import Literal

import apsw
import attrs

from klaw.domain.fact import STANDING_CATEGORY, STANDING_IMPORTANCE, Fact, FactId, check, normal_form
from klaw.domain.names import UserId
from klaw.errors import FactExists, InvalidValue, NoSuchFact, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind, keep
from klaw.store.engine import tables, vector_model
from klaw.store.engine.transaction import Transaction

_FACTS = rows.Rows(Fact, "facts")


def same_text(connection: apsw.Connection, user: UserId, text: str, other_than: FactId) -> Fact | None:
    """A user's active fact that says the same in the same words."""
    query = "WHERE user_id = ? AND normal = ? AND superseded_by IS NULL AND id <> ? LIMIT 1"
    return _FACTS.one(connection, query, user, normal_form(text), other_than)


def of_user(
    connection: apsw.Connection,
    user: UserId,
    *,
    category: str | None = None,
    importance: int = 0,
    limit: int = 1_000,
    offset: int = 0,
) -> list[Fact]:
    """A user's active facts, the most important first; of a category, and of at least an importance."""
    query = """
    WHERE user_id = ?1 AND superseded_by IS NULL AND (?2 IS NULL OR category = ?2) AND importance >= ?3
    ORDER BY importance DESC, updated_at DESC, id LIMIT ?4 OFFSET ?5
    """
    return _FACTS.all(connection, query, user, category, importance, limit, offset)


_STANDING = """
WHERE user_id = ?1 AND superseded_by IS NULL AND (importance >= ?2 OR category = ?3) AND origin <> 'tool'
ORDER BY importance DESC, updated_at DESC, id LIMIT ?4
"""
_MOST_STANDING = 100


def standing(connection: apsw.Connection, user: UserId) -> list[Fact]:
    """A user's facts for every prompt, the most important first; none that may be somebody else's words."""
    return _FACTS.all(connection, _STANDING, user, STANDING_IMPORTANCE, STANDING_CATEGORY, _MOST_STANDING)


def count(connection: apsw.Connection, user: UserId, *, category: str | None = None) -> int:
    """How many active facts a user has."""
    query = "SELECT count(*) FROM facts WHERE user_id = ?1 AND superseded_by IS NULL AND (?2 IS NULL OR category = ?2)"
    return int(connection.execute(query, (user, category)).get)


def superseded_by(connection: apsw.Connection, user: UserId, fact: FactId) -> list[Fact]:
    """What a user's fact took the place of."""
    return _FACTS.all(connection, "WHERE user_id = ? AND superseded_by = ? ORDER BY rowid", user, fact)


def revived_from(connection: apsw.Connection, user: UserId, fact: FactId) -> list[Fact]:
    """Active facts that a fact had replaced, and that have not changed since they hold again."""
    query = """
    SELECT DISTINCT fact_id FROM fact_changes WHERE user_id = ?1 AND value ->> '$.superseded_by' = ?2 ORDER BY fact_id
    """
    found: list[Fact] = []
    for (older,) in connection.execute(query, (user, fact)).fetchall():
        *_, before, last = [None, None, *(change.value for change in history(connection, user, FactId(str(older))))]
        if before is None or last is None or before.superseded_by != fact:
            continue
        if attrs.evolve(before, superseded_by=None, updated_at=last.updated_at) == last:
            found.append(last)
    return found


def _apply(connection: apsw.Connection, change: Change[Fact]) -> None:
    """A vector of another text goes, and so does that of a fact which is history now."""
    fact, present = change.value, get(connection, change.user, change.key)
    if present is not None and (fact is None or not fact.active or fact.text != present.text):
        rowid = rowid_of(connection, change.user, change.key)
        connection.execute("DELETE FROM vec_facts WHERE rowid = ?", (rowid,))
        connection.execute("UPDATE facts SET vector_model = NULL WHERE rowid = ?", (rowid,))
    keep(connection, change, normal=normal_form(fact.text) if fact is not None else "")


def ever(connection: apsw.Connection, user: UserId) -> bool:
    """Whether a user has or had any facts."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM fact_changes WHERE user_id = ?)", (user,)).get)


def rowid_of(connection: apsw.Connection, user: UserId, fact: FactId) -> int | None:
    found = connection.execute("SELECT rowid FROM facts WHERE user_id = ? AND id = ?", (user, fact)).get
    return int(found) if found is not None else None


# The columns of a fact's row are those of its last change, which is compared as a whole: they are not told again.
_CONTENT = "entry, rowid, normal, superseded_by"
FACT: Kind[Fact] = Kind(
    what="fact",
    plural="facts",
    cls=Fact,
    table="facts",
    holds="superseded_by IS NULL",
    full_text=True,
    vectors="vec_facts",
    vector_mark="vector_model",
    past="fact_changes",
    on_purpose=True,
    ops={"put": Fact, "remove": None},
    beside=("user_id", "id"),
    rule=check,
    moves=lambda given: attrs.evolve(given, turn=None, topic=None),
    apply=_apply,
    tables=(*tables.with_history("facts", "fact", _CONTENT), tables.full_text("full text of facts", "facts_fts")),
)
get, history, by_rowids = FACT.get, FACT.history, FACT.by_rowids


@attrs.frozen(kw_only=True)
class FactVector:
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
        supersedes: an active fact of the user that becomes history by it.
        vector: None: the embedder makes it.
        as_of: the memory journal's last entry before what it is made of was read.

    Raises:
        SourceForgotten: the user has forgotten something since ``as_of``.
        FactExists: another active fact has the same text, or the id is taken.
        NoSuchFact: the one to change, or to supersede, is not there.
        StorageError: a value breaks its rule.
    """
    try:
        check(fact)
    except InvalidValue as error:
        raise StorageError(f"the fact cannot be stored: {error}") from None
    tx.check_nothing_forgotten(fact.user, as_of)
    present = get(tx.connection, fact.user, fact.id)
    if expected == "new" and present is not None:
        if present == fact:
            return present  # asked for again
        raise FactExists(present.id)
    if expected == "existing" and present is None:
        raise NoSuchFact
    if supersedes is not None:
        older = get(tx.connection, fact.user, supersedes)
        if older is None or not older.active:
            raise NoSuchFact
        past = attrs.evolve(older, superseded_by=fact.id, updated_at=fact.updated_at)
        check(past)
        tx.journal(FACT.put(fact.user, past.id, past, fact.updated_at))
    same = same_text(tx.connection, fact.user, fact.text, fact.id) if fact.active else None
    if same is not None:
        raise FactExists(same.id)
    tx.journal(FACT.put(fact.user, fact.id, fact, fact.updated_at))
    rowid = rowid_of(tx.connection, fact.user, fact.id)
    if vector is not None and fact.active and rowid is not None:
        for each in vector_model.fitting(tx.connection, vector.model_id, [vector]):
            tx.connection.execute("UPDATE facts SET vector_model = ? WHERE rowid = ?", (each.model_id, rowid))
            put_vector = "INSERT OR REPLACE INTO vec_facts (rowid, embedding) VALUES (?, ?)"
            tx.connection.execute(put_vector, (rowid, each.vector))
    return fact


def remove(tx: Transaction, user: UserId, fact: FactId, at: str) -> Fact:
    """Remove a fact and return what it was; its history stays. Raises NoSuchFact."""
    present = get(tx.connection, user, fact)
    if present is None:
        raise NoSuchFact
    tx.journal(FACT.removed(user, fact, at))
    return present
