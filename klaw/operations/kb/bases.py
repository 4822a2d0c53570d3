"""Bases themselves: which one is meant, listing, making, changing, sharing; and which ones a chat is answered from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict

import attrs
from attrs.filters import exclude

from klaw.domain.knowledge import Base, BaseId
from klaw.domain.names import ChatId, UserId, name_of
from klaw.domain.notes import Column
from klaw.errors import NoSuchBase
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, HasReaders, Parts
from klaw.operations.lines import Lines, Table
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


class BaseList(TypedDict):
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
        **attrs.asdict(found.base, filter=exclude("user")),
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
async def list_bases(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> BaseList:
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
    await parts.writer.run(stored.bases.put, made)
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


# -- which bases a chat is answered from -------------------------------------------------------------------------------

_OFF, _USE = frozenset({"off", "none", "выкл", "нет"}), frozenset({"use", "из"})
_USAGE = "/kb use NAME binds this chat to a base (several: with commas between them), /kb off to none."
_GONE = "A base that this chat was linked to is gone, or no longer shared with you."


@attrs.frozen(kw_only=True)
class ChatOfUser(op.OfUser):
    chat: op.ChatName = op.argument("which chat (default: main)", default="main", metavar="NAME")


@attrs.frozen(kw_only=True)
class KbUse(ChatOfUser):
    bases: tuple[op.Name, ...] = op.required("names or ids of bases", metavar="BASE")


@attrs.frozen(kw_only=True)
class KbInChat:
    text: op.Query | None = op.argument("what stands behind /kb", hidden=True)


class BasesOfChat(TypedDict):
    chat: str
    bases: list[BaseName]
    gone: tuple[str, ...]


def _chat_lines(answer: dict[str, Any]) -> Lines:
    names = ", ".join(each["name"] for each in answer["bases"])
    told = f"from: {names}" if names else "from no knowledge base"
    return [f"{answer['chat']} is answered {told}", *([_GONE] if answer["gone"] else [])]


def _in_chat(answer: dict[str, Any]) -> Lines:
    mine = {each["id"] for each in answer["bases"]}
    rows = [
        [each["name"], "answers this chat" if each["id"] in mine else "", each["description"]] for each in answer["all"]
    ]
    if not rows:
        return ["You have no knowledge bases. `klaw kb create NAME` on the server, or the page, makes one."]
    return ["Your knowledge bases:", Table(rows), *([_GONE] if answer["gone"] else []), _USAGE]


async def _answered_from(user: UserId, chat: ChatId, parts: DatabaseParts) -> BasesOfChat:
    bound = await parts.readers.run(stored.chats.bound, user, chat)
    if bound is None:
        return {"chat": name_of(chat), "bases": [], "gone": ()}
    bases: list[BaseName] = [{"id": each.base.id, "name": each.base.name} for each in bound.bases]
    return {"chat": name_of(chat), "bases": bases, "gone": bound.gone}


async def _bind(names: Sequence[str], user: UserId, chat: ChatId, parts: Parts) -> BasesOfChat:
    ids = [(await meant(each, user, parts)).base.id for each in names]
    await parts.writer.run(stored.chats.bind, user, chat, ids, parts.now())
    return await _answered_from(user, chat, parts)


@NOUN.operation("kb_use", KbUse, cli="use", show=_chat_lines, changes=True)
async def use(asked: KbUse, caller: Caller, parts: Parts) -> BasesOfChat:
    """Answer a chat from these bases, and from no others."""
    return await _bind(asked.bases, caller.user, op.chat_of(asked.chat, caller.user), parts)


@NOUN.operation("kb_off", ChatOfUser, cli="off", show=_chat_lines, changes=True)
async def off(asked: ChatOfUser, caller: Caller, parts: Parts) -> BasesOfChat:
    """Answer a chat from no base."""
    return await _bind((), caller.user, op.chat_of(asked.chat, caller.user), parts)


@NOUN.operation("kb_chat", ChatOfUser, cli="chat", show=_chat_lines, offline=True)
async def of_chat(asked: ChatOfUser, caller: Caller, parts: DatabaseParts) -> BasesOfChat:
    """Show from which bases a chat is answered."""
    return await _answered_from(caller.user, op.chat_of(asked.chat, caller.user), parts)


@NOUN.operation(
    "kb_in_chat",
    KbInChat,
    show=_in_chat,
    changes=True,
    scope=op.Scope.CHAT,
    slash=op.Slash(word="/kb", help="answer this chat from knowledge bases: /kb use NAME, /kb off", rest="text"),
)
async def in_chat(asked: KbInChat, caller: Caller, parts: Parts) -> dict[str, Any]:
    """List the bases and those that this chat is answered from, or bind it to some."""
    mine = await parts.readers.run(stored.bases.of_user, caller.user)
    word, _, rest = (asked.text or "").strip().partition(" ")
    if word.casefold() in _OFF and not rest:
        told = await _bind((), caller.user, caller.here, parts)
    elif word.casefold() in _USE and rest.strip():
        written = {each.base.name.casefold(): each.base.name for each in mine}  # a chat is no place for exact case
        whole = [rest.strip()] if rest.strip().casefold() in written else rest.split(",")
        names = [written.get(each.strip().casefold(), each.strip()) for each in whole if each.strip()]
        told = await _bind(names, caller.user, caller.here, parts)
    elif word:
        raise op.OperationError("bad_args", _USAGE, field="text")
    else:
        told = await _answered_from(caller.user, caller.here, parts)
    listed = [{"id": each.base.id, "name": each.base.name, "description": each.base.description} for each in mine]
    return {**told, "all": listed}
