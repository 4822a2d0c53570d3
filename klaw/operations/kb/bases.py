"""Bases themselves: which one is meant, listing, making, changing, sharing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict

import attrs

from klaw.domain.knowledge import Base, BaseId
from klaw.domain.names import UserId
from klaw.domain.notes import Column
from klaw.errors import NoSuchBase
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, HasReaders, Parts
from klaw.operations.lines import Lines
from klaw.operations.record_fields import changes, fields_of, one, own_fields, table, to_add, to_edit

if TYPE_CHECKING:
    from klaw.store.kinds.knowledge.bases import Membership
    from klaw.store.kinds.knowledge.documents import SourceCounts

NOUN = op.Noun("kb", "knowledge bases: documents and graphs that chats are answered from (docs/knowledge.md)")


@attrs.frozen(kw_only=True)
class OfBase(op.OfUser):
    base: op.Name = op.required("the base's name or id", id_of="kb")


KbCreate = to_add(Base, "base")
KbEdit = to_edit(Base, OfBase)


@attrs.frozen(kw_only=True)
class KbShare(OfBase):
    member: op.UserName = op.required("the user", metavar="USER")
    role: Literal["viewer", "editor", "none"] = op.argument(
        "viewer asks and reads, editor also changes sources, none takes the base away (default: viewer)",
        default="viewer",
    )


BaseAnswer: TypeAlias = Annotated[
    dict[str, Any],
    fields_of("BaseAnswer", Base, "user", owner=str, role=str, members=dict[str, str], documents=int, passages=int),
]


class BaseName(TypedDict):
    id: str
    name: str


class Bases(TypedDict):
    user: str
    bases: list[BaseAnswer]


class OneBase(TypedDict):
    base: BaseAnswer


class SharedBase(OneBase):
    member: str
    role: str


class LeftBase(TypedDict):
    left: BaseName


async def meant(asked: str, user: UserId, parts: HasReaders) -> "Membership":
    """The base that a user means. Raises OperationError (``several_bases``), NoSuchBase."""
    found = await parts.readers.run(stored.bases.of_user, user, named=asked)
    own = [each for each in found if each.base.id == asked] or [each for each in found if each.base.user == user]
    if not own and len(found) > 1:
        ids = ", ".join(f"{each.base.id} (of {each.base.user})" for each in found)
        several = f"several bases that are shared with you have this name; use one of the ids: {ids}"
        raise op.OperationError("several_bases", several, field="base")
    for each in own or found:
        return each
    raise NoSuchBase


async def meant_base(asked: Any, caller: Caller, parts: HasReaders) -> Base:
    """The base of the argument ``base``. Raises as ``meant``."""
    return (await meant(asked.base, caller.user, parts)).base


def _described(found: "Membership", counted: "Sequence[SourceCounts]") -> BaseAnswer:
    """A base as one of its members is told of it; only the owner is told who else is."""
    return {
        **attrs.asdict(found.base, filter=lambda field, _value: field.name != "user"),
        "owner": found.base.user,
        "role": found.role,
        "members": found.base.members if found.role == "owner" else {},
        "documents": sum(each.documents for each in counted),
        "passages": sum(each.passages for each in counted),
    }


async def described(base: BaseId, user: UserId, parts: HasReaders) -> BaseAnswer:
    """A base as JSON has it. Raises NoSuchBase."""
    found = await parts.readers.run(stored.bases.get, user, base)
    return _described(found, await parts.readers.run(stored.documents.count, user, base))


def base_lines(answer: dict[str, Any]) -> Lines:
    members = [f"{user} ({role})" for user, role in answer["base"]["members"].items()]
    return [one(Base, {**answer["base"], "members": members}, owner=Column(), members=Column("shared with"))]


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["bases"]:
        return ["no knowledge bases: `klaw kb create NAME` makes one"]
    of_others = [{**each, "role": f"{each['role']} (of {each['owner']})"} for each in answer["bases"]]
    rows = [one if one["role"] == "owner" else other for one, other in zip(answer["bases"], of_others, strict=True)]
    return [table(Base, rows, role=Column(), documents=Column(right=True), passages=Column(right=True))]


@NOUN.operation("kb_list", op.OfUser, cli="list", show=_table, offline=True, mcp="knowledge_bases")
async def list_bases(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> Bases:
    """List the knowledge bases that you may use.

    Their ids and names are what search_knowledge takes.
    """
    found = await parts.readers.run(stored.bases.of_user, caller.user)
    by_base: dict[str, list[SourceCounts]] = {}
    for each in await parts.readers.run(stored.documents.count, caller.user):
        by_base.setdefault(each.base, []).append(each)
    return {"user": caller.user, "bases": [_described(each, by_base.get(each.base.id, ())) for each in found]}


@NOUN.operation("kb_create", KbCreate, cli="create", show=base_lines, changes=True)
async def create(asked: Any, caller: Caller, parts: Parts) -> OneBase:
    """Make a knowledge base."""
    at, fields = parts.now(), own_fields(Base, asked.fields)
    made = Base(id=BaseId(parts.core.new_id()), user=caller.user, created_at=at, updated_at=at, **fields)
    await parts.writer.run(stored.bases.create, made)
    return {"base": await described(made.id, caller.user, parts)}


@NOUN.operation("kb_edit", KbEdit, cli="edit", show=base_lines, changes=True)
async def edit(asked: Any, caller: Caller, parts: Parts) -> OneBase:
    """Change a base's name, description or language."""
    base = (await meant_base(asked, caller, parts)).id
    await parts.writer.run(stored.bases.change, caller.user, base, parts.now(), changes(Base, asked.fields))
    return {"base": await described(base, caller.user, parts)}


def _shared(answer: dict[str, Any]) -> Lines:
    role, who, name = answer["role"], answer["member"], answer["base"]["name"]
    return [f"{name} is no longer shared with {who}" if role == "none" else f"{who} is now {role} of {name}"]


@NOUN.operation("kb_share", KbShare, cli="share", show=_shared, changes=True)
async def share(asked: KbShare, caller: Caller, parts: Parts) -> SharedBase:
    """Give a user a role in a base, or take it away."""
    base = (await meant_base(asked, caller, parts)).id
    role = None if asked.role == "none" else asked.role
    await parts.writer.run(stored.bases.share, caller.user, base, parts.now(), {asked.member: role})
    return {"base": await described(base, caller.user, parts), "member": asked.member, "role": asked.role}


def _left(answer: dict[str, Any]) -> Lines:
    return [f"{answer['left']['name']} is no longer shared with you"]


@NOUN.operation("kb_leave", OfBase, cli="leave", show=_left, changes=True)
async def leave(asked: OfBase, caller: Caller, parts: Parts) -> LeftBase:
    """Leave a base that is shared with you."""
    base = await meant_base(asked, caller, parts)
    await parts.writer.run(stored.bases.leave, caller.user, base.id, parts.now())
    return {"left": {"id": base.id, "name": base.name}}
