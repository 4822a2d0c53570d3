"""Bases themselves: listing, making, changing, sharing, deleting."""

from typing import TYPE_CHECKING, Any, Literal

import attrs

from klaw.domain.knowledge import Base, BaseId
from klaw.domain.names import UserId
from klaw.domain.notes import Column
from klaw.domain.text import plural
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.kb.noun import NOUN, OfBase, meant
from klaw.operations.kb.sources import sources_table, told
from klaw.operations.lines import Lines
from klaw.operations.record_fields import one, own_fields, table, to_add, to_edit

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import Bases, LeftBase, OneBase, SharedBase, ShownBase
    from klaw.store.engine.database import Readers
    from klaw.store.kinds.knowledge.bases import Membership
    from klaw.store.kinds.knowledge.documents import SourceCounts

MOST_PROBLEMS = 20

KbCreate = to_add(Base, "base")
KbEdit = to_edit(Base, OfBase)


@attrs.frozen(kw_only=True)
class KbShare(OfBase):
    member: op.UserName = op.required("the user", metavar="USER")
    role: Literal["viewer", "editor", "none"] = op.argument(
        "viewer asks and reads, editor also changes sources, none takes the base away (default: viewer)",
        default="viewer",
    )


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["bases"]:
        return ["no knowledge bases: `klaw kb create NAME` makes one"]
    of_others = [{**each, "role": f"{each['role']} (of {each['owner']})"} for each in answer["bases"]]
    rows = [one if one["role"] == "owner" else other for one, other in zip(answer["bases"], of_others, strict=True)]
    return [table(Base, rows, role=Column(), documents=Column(right=True), passages=Column(right=True))]


def _base(answer: dict[str, Any]) -> Lines:
    members = [f"{user} ({role})" for user, role in answer["base"]["members"].items()]
    return [one(Base, {**answer["base"], "members": members}, owner=Column(), members=Column("shared with"))]


def _whole(answer: dict[str, Any]) -> Lines:
    base, lines = answer["base"], [*_base(answer)]
    lines.append(f"{plural(base['documents'], 'document')}, {plural(base['passages'], 'passage')}")
    if answer["unembedded"]:
        lines.append(f"{plural(answer['unembedded'], 'passage')} not yet found by meaning, only by words")
    lines += [*sources_table(answer["sources"]), *problem_lines(answer["problems"])]
    left = answer["with_problems"] - len(answer["problems"])
    more = f"{plural(left, 'more document')} with problems: klaw kb documents {base['id']} --problems"
    return [*lines, more] if left > 0 else lines


def problem_lines(documents: list[dict[str, Any]]) -> list[str]:
    """What of documents could not be read, by file and page."""
    return [problem["text"] for each in documents for problem in each["problems"]]


def _shared(answer: dict[str, Any]) -> Lines:
    role = answer["role"]
    who, name = answer["member"], answer["base"]["name"]
    return [f"{name} is no longer shared with {who}" if role == "none" else f"{who} is now {role} of {name}"]


def _left(answer: dict[str, Any]) -> Lines:
    return [f"{answer['left']['name']} is no longer shared with you"]


# -- the operations ---------------------------------------------------------------------------------------------------


def _described(found: "Membership", counted: "list[SourceCounts]") -> Any:  # a BaseAnswer
    """A base as one of its members is told of it; only the owner is told who else is."""
    base = attrs.asdict(found.base)
    owner = base.pop("user")
    return {
        **base,
        "owner": owner,
        "role": found.role,
        "members": base["members"] if found.role == "owner" else {},
        "documents": sum(each.documents for each in counted),
        "passages": sum(each.passages for each in counted),
    }


async def described(readers: "Readers", user: UserId, base: BaseId) -> Any:  # a BaseAnswer
    """A base as JSON has it. Raises NoSuchBase."""
    from klaw.store.kinds.knowledge import bases, documents

    found = await readers.run(bases.get, user, base)
    return _described(found, await readers.run(documents.count, user, base))


@NOUN.operation("kb_list", op.OfUser, cli="list", show=_table, offline=True, mcp="knowledge_bases")
async def list_bases(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> "Bases":
    """List the knowledge bases that you may use.

    Their ids and names are what search_knowledge takes.
    """
    from klaw.store.kinds.knowledge import bases, documents

    found = await parts.readers.run(bases.of_user, caller.user)
    counted = await parts.readers.run(documents.count, caller.user)
    by_base: dict[str, list[SourceCounts]] = {}
    for each in counted:
        by_base.setdefault(each.base, []).append(each)
    return {"user": caller.user, "bases": [_described(each, by_base.get(each.base.id, [])) for each in found]}


@NOUN.operation("kb_show", OfBase, cli="show", show=_whole)
async def show(asked: OfBase, caller: Caller, parts: Parts) -> "ShownBase":
    """Show a base with its sources, and what of them could not be read."""
    from klaw.store.kinds.knowledge import documents

    base = (await meant(parts.readers, caller.user, asked.base)).base.id
    counted = await parts.readers.run(documents.count, caller.user, base)
    troubled = await parts.readers.run(documents.of_base, caller.user, base, problems=True, limit=MOST_PROBLEMS)
    return {
        "base": await described(parts.readers, caller.user, base),
        "sources": await told(parts.readers, parts.knowledge.indexer, caller.user, base),
        "unembedded": await parts.readers.run(documents.count_unembedded, caller.user, base),
        "with_problems": sum(each.with_problems for each in counted),
        "problems": troubled,
    }


@NOUN.operation("kb_create", KbCreate, cli="create", show=_base, changes=True)
async def create(asked: Any, caller: Caller, parts: Parts) -> "OneBase":
    """Make a knowledge base."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    at = iso(parts.clock.now())
    fields = own_fields(Base, asked.fields)
    made = Base(id=BaseId(parts.core.new_id()), user=caller.user, created_at=at, updated_at=at, **fields)
    await parts.writer.run(bases.create, made)
    return {"base": await described(parts.readers, caller.user, made.id)}


@NOUN.operation("kb_edit", KbEdit, cli="edit", show=_base, changes=True)
async def edit(asked: Any, caller: Caller, parts: Parts) -> "OneBase":
    """Change a base's name, description or language."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    base = (await meant(parts.readers, caller.user, asked.base)).base.id
    given = {name: value for name, value in own_fields(Base, asked.fields).items() if value is not None}
    await parts.writer.run(bases.change, caller.user, base, iso(parts.clock.now()), given)
    return {"base": await described(parts.readers, caller.user, base)}


@NOUN.operation("kb_share", KbShare, cli="share", show=_shared, changes=True)
async def share(asked: KbShare, caller: Caller, parts: Parts) -> "SharedBase":
    """Give a user a role in a base, or take it away."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    base = (await meant(parts.readers, caller.user, asked.base)).base.id
    role = None if asked.role == "none" else asked.role
    await parts.writer.run(bases.share, caller.user, base, iso(parts.clock.now()), {asked.member: role})
    return {"base": await described(parts.readers, caller.user, base), "member": asked.member, "role": asked.role}


@NOUN.operation("kb_leave", OfBase, cli="leave", show=_left, changes=True)
async def leave(asked: OfBase, caller: Caller, parts: Parts) -> "LeftBase":
    """Leave a base that is shared with you."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    base = (await meant(parts.readers, caller.user, asked.base)).base
    await parts.writer.run(bases.leave, caller.user, base.id, iso(parts.clock.now()))
    return {"left": {"id": base.id, "name": base.name}}
