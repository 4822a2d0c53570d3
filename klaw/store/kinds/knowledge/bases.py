"""Knowledge bases and their members."""

from collections.abc import Mapping
from typing import Any, Literal

import apsw
import attrs

from klaw.domain.knowledge import Base, BaseId, BaseRole
from klaw.domain.names import UserId
from klaw.errors import BaseExists, NoSuchBase, NotAllowed, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind, keep
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction

_BASES = rows.Rows(Base, "kb_bases", "b")


@attrs.frozen(kw_only=True)
class Membership:
    """A base as one of its members sees it."""

    base: Base
    role: BaseRole


def of_user(
    connection: apsw.Connection, user: UserId, *, named: str | None = None, limit: int = 1_000
) -> list[Membership]:
    """The bases of which a user is a member, by their names; only those of an id or a name, that of the id first. The
    base of messages' files is found by its id alone."""
    query = f"""
    SELECT {_BASES.columns}, m.role FROM kb_members AS m JOIN kb_bases AS b ON b.id = m.base_id
    WHERE m.user_id = ?1 AND (b.id = ?2 OR b.of_messages IS NULL AND (?2 IS NULL OR b.name = ?2))
    ORDER BY b.id <> ?2, b.name, b.id LIMIT ?3
    """  # noqa: S608 - constant columns
    found = connection.execute(query, (user, named, limit))
    return [Membership(base=_BASES.read(row[:-1]), role=BaseRole(row[-1])) for row in found]


def get(connection: apsw.Connection, user: UserId, base: BaseId) -> Membership:
    """A base of which a user is a member. Raises NoSuchBase for any other."""
    found = [each for each in of_user(connection, user, named=base) if each.base.id == base]
    if not found:
        raise NoSuchBase
    return found[0]


def editable(connection: apsw.Connection, user: UserId, base: BaseId) -> Base:
    """A base whose sources a user may change. Raises NoSuchBase or NotAllowed."""
    found = get(connection, user, base)
    if found.role is BaseRole.VIEWER:
        raise NotAllowed("you may read this base, and not change it: ask its owner for the role of an editor")
    return found.base


def owned(connection: apsw.Connection, user: UserId, base: BaseId) -> Base:
    """A base that a user owns. Raises NoSuchBase or NotAllowed."""
    found = get(connection, user, base)
    if found.role is not BaseRole.OWNER:
        raise NotAllowed("only the owner of a base may do this")
    return found.base


def _apply(connection: apsw.Connection, change: Change[Base]) -> None:
    query = "INSERT INTO kb_members (user_id, base_id, role) VALUES (?, ?, ?)"
    base = change.value
    connection.execute("DELETE FROM kb_members WHERE base_id = ?", (change.key,))
    keep(connection, change)
    if base is None:
        connection.execute("DELETE FROM kb_sources WHERE base_id = ? AND user_id = ?", (change.key, change.user))
        return
    for member, role in [*base.members.items(), (base.user, BaseRole.OWNER)]:
        connection.execute(query, (member, base.id, role))


_CONTENT = """id, rowid, entry, user_id, name, description, language, members, created_at, updated_at, of_messages, (
    SELECT json_group_array(user_id || ' ' || role) FROM (
        SELECT user_id, role FROM kb_members WHERE base_id = kb_bases.id ORDER BY user_id))"""
BASE: Kind[Base] = Kind(
    what="kb",
    plural="bases",
    cls=Base,
    table="kb_bases",
    ids="SELECT base_id AS id FROM kb_members WHERE user_id = ?1 AND base_id",
    on_purpose=True,
    ops={"put": Base, "remove": None},
    beside=("user_id", "id"),
    moves=lambda given: attrs.evolve(given, members={}),
    apply=_apply,
    clear=("DELETE FROM kb_members",),
    tables=(table("knowledge bases", "kb_bases", "id", _CONTENT, first="", small=True),),
)


def is_free(connection: apsw.Connection, base: BaseId) -> bool:
    """Whether no user's base has this id."""
    return BASE.rows.one(connection, "WHERE id = ?", base) is None


def change(tx: Transaction, user: UserId, base: BaseId, at: str, fields: Mapping[str, Any]) -> Base:
    """Change fields of a base that a user owns. Raises NoSuchBase, NotAllowed, BaseExists, InvalidValue."""
    now = owned(tx.connection, user, base)
    changed = attrs.evolve(now, **fields)
    return now if changed == now else put(tx, attrs.evolve(changed, updated_at=at))


def share(
    tx: Transaction, user: UserId, base: BaseId, at: str, members: Mapping[str, Literal["editor", "viewer"] | None]
) -> Base:
    """Give users roles in a base that a user owns, or with None take them away. Raises like ``change``."""
    now = owned(tx.connection, user, base)
    if now.user in members:
        raise NotAllowed("this user owns the base")
    roles: dict[str, Any] = {**now.members, **members}
    roles = {member: role for member, role in roles.items() if role is not None}
    return now if roles == now.members else put(tx, attrs.evolve(now, members=roles, updated_at=at))


def leave(tx: Transaction, user: UserId, base: BaseId, at: str) -> None:
    """A member who is not the owner gives the role back. Raises NoSuchBase or NotAllowed."""
    now = get(tx.connection, user, base)
    if now.role is BaseRole.OWNER:
        raise NotAllowed("the owner cannot leave a base, only delete it")
    roles = {member: role for member, role in now.base.members.items() if member != user}
    put(tx, attrs.evolve(now.base, members=roles, updated_at=at))


def put(tx: Transaction, base: Base) -> Base:
    """Store a base, a new one or as it is now. Raises BaseExists: its owner has another one of this name;
    InvalidValue."""
    BASE.check(base)
    named = "WHERE b.user_id = ? AND b.name = ? AND b.id <> ? AND b.of_messages IS NULL"
    if _BASES.one(tx.connection, named, base.user, base.name, base.id) is not None:
        raise BaseExists
    there = _BASES.one(tx.connection, "WHERE b.id = ?", base.id)
    if there is not None and there.user != base.user:
        raise StorageError("id: is another base's")
    if there != base:
        tx.journal(BASE.put(base.user, base.id, base, base.updated_at))
    return base


def remove(tx: Transaction, user: UserId, base: BaseId, at: str) -> Base:
    """Remove a base and its sources; ``klaw.knowledge.removal`` does the rest. Raises NoSuchBase, NotAllowed."""
    now = owned(tx.connection, user, base)
    tx.journal(BASE.removed(now.user, base, at))
    return now
