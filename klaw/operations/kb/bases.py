"""Bases themselves: listing, making, changing, sharing, deleting."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.knowledge import MAX_DESCRIPTION, MAX_NAME, Base, BaseId, base_name
from klaw.domain.names import UserId
from klaw.domain.text import clean_output, plural
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.kb.noun import NOUN, OfBase, meant
from klaw.operations.kb.sources import sources_table, told

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import BaseAnswer, Bases, LeftBase, OneBase, SharedBase, ShownBase
    from klaw.store.engine.database import Readers
    from klaw.store.kinds.knowledge.bases import Membership
    from klaw.store.kinds.knowledge.documents import Counted

MOST_PROBLEMS = 20

BaseName = Annotated[str, Check(base_name, Bounds(1, MAX_NAME))]
Description = Annotated[str, Bounds(0, MAX_DESCRIPTION)]
Language = Annotated[str, Bounds(0, 3, r"([a-z]{2,3})?")]
_LANGUAGE = "code of the language of most texts, such as en or ru"
_DESCRIPTION = "what is in it"


@attrs.frozen(kw_only=True)
class NewBase:
    name: BaseName = op.required("the base's name, which no other base of yours has", words=True)
    description: Description = op.argument(_DESCRIPTION, default="", metavar="TEXT")
    language: Language = op.argument(_LANGUAGE, default="", metavar="CODE")


@attrs.frozen(kw_only=True)
class KbCreate(op.OfUser):
    fields: NewBase = op.argument("the base", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class BaseFields:
    name: BaseName | None = op.argument("a new name")
    description: Description | None = op.argument(_DESCRIPTION, metavar="TEXT")
    language: Language | None = op.argument(_LANGUAGE, metavar="CODE")


@attrs.frozen(kw_only=True)
class KbEdit(OfBase):
    fields: Annotated[BaseFields, Check(op.something, Bounds(1))] = op.argument("what to change", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class KbShare(OfBase):
    member: op.UserName = op.required("the user", metavar="USER")
    role: Literal["viewer", "editor", "none"] = op.argument(
        "viewer asks and reads, editor also changes sources, none takes the base away (default: viewer)",
        default="viewer",
    )


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any]) -> op.Lines:
    if not answer["bases"]:
        return ["no knowledge bases: `klaw kb create NAME` makes one"]
    rows = [["base", "role", "documents", "passages", "name"]]
    for each in answer["bases"]:
        role = each["role"] if each["role"] == "owner" else f"{each['role']} (of {each['owner']})"
        rows.append([each["id"], role, str(each["documents"]), str(each["passages"]), each["name"]])
    return [op.Table(rows, right=frozenset({2, 3}))]


def _base(answer: dict[str, Any]) -> op.Lines:
    base = answer["base"]
    members = [f"{user} ({role})" for user, role in base["members"].items()]
    rows = [
        ("base", base["id"]),
        ("name", base["name"]),
        ("about", base["description"] or None),
        ("language", base["language"] or None),
        ("owner", base["owner"]),
        ("shared with", ", ".join(members) or None),
        ("changed", op.minute(base["updated_at"])),
    ]
    return [op.details(rows)]


def _whole(answer: dict[str, Any]) -> op.Lines:
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


def _shared(answer: dict[str, Any]) -> op.Lines:
    role = answer["role"]
    who, name = answer["member"], answer["base"]["name"]
    return [f"{name} is no longer shared with {who}" if role == "none" else f"{who} is now {role} of {name}"]


def _left(answer: dict[str, Any]) -> op.Lines:
    return [f"{answer['left']['name']} is no longer shared with you"]


# -- the operations ---------------------------------------------------------------------------------------------------


def _described(found: "Membership", counted: "list[Counted]") -> "BaseAnswer":
    """A base as one of its members is told of it; only the owner is told who else is."""
    base = found.base
    return {
        "id": base.id,
        "name": base.name,
        "description": base.description,
        "language": base.language,
        "created_at": base.created_at,
        "updated_at": base.updated_at,
        "owner": found.base.user,
        "role": found.role,
        "members": dict(found.base.members) if found.role == "owner" else {},
        "documents": sum(each.documents for each in counted),
        "passages": sum(each.passages for each in counted),
    }


async def described(readers: "Readers", user: UserId, base: BaseId) -> "BaseAnswer":
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
    by_base: dict[str, list[Counted]] = {}
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
async def create(asked: KbCreate, caller: Caller, parts: Parts) -> "OneBase":
    """Make a knowledge base."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    new, at = asked.fields, iso(parts.core.clock.now())
    about = clean_output(new.description)
    made = Base(
        id=BaseId(parts.core.new_id()), user=caller.user, name=new.name, description=about, language=new.language,
        created_at=at, updated_at=at,
    )  # fmt: skip
    await parts.writer.run(bases.create, made)
    return {"base": await described(parts.readers, caller.user, made.id)}


@NOUN.operation("kb_edit", KbEdit, cli="edit", show=_base, changes=True)
async def edit(asked: KbEdit, caller: Caller, parts: Parts) -> "OneBase":
    """Change a base's name, description or language."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases

    base = (await meant(parts.readers, caller.user, asked.base)).base.id
    given = attrs.asdict(asked.fields, filter=lambda _field, value: value is not None)
    if "description" in given:
        given["description"] = clean_output(given["description"])
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
