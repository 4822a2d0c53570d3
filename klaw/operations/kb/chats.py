"""Which bases a chat is answered from."""

from collections.abc import Sequence
from typing import Any, TypedDict

import attrs

from klaw.domain.names import ChatId, UserId, name_of
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.kb.bases import NOUN, BaseName, meant
from klaw.operations.lines import Lines, Table

_OFF, _USE = frozenset({"off", "none", "выкл", "нет"}), frozenset({"use", "из"})
_USAGE = "/kb use NAME binds this chat to a base (several: with commas between them), /kb off to none."
_GONE = "A base that the chat was bound to is gone, or no longer shared with you."


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


def _lines(answer: dict[str, Any]) -> Lines:
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


async def _told(user: UserId, chat: ChatId, parts: DatabaseParts) -> BasesOfChat:
    bound = await parts.readers.run(stored.chats.bound, user, chat)
    if bound is None:
        return {"chat": name_of(chat), "bases": [], "gone": ()}
    bases: list[BaseName] = [{"id": each.base.id, "name": each.base.name} for each in bound.bases]
    return {"chat": name_of(chat), "bases": bases, "gone": bound.gone}


async def _bind(names: Sequence[str], user: UserId, chat: ChatId, parts: Parts) -> BasesOfChat:
    ids = [(await meant(each, user, parts)).base.id for each in names]
    await parts.writer.run(stored.chats.bind, user, chat, ids, parts.now())
    return await _told(user, chat, parts)


@NOUN.operation("kb_use", KbUse, cli="use", show=_lines, changes=True)
async def use(asked: KbUse, caller: Caller, parts: Parts) -> BasesOfChat:
    """Answer a chat from these bases, and from no others."""
    return await _bind(asked.bases, caller.user, op.chat_of(asked.chat, caller.user), parts)


@NOUN.operation("kb_off", ChatOfUser, cli="off", show=_lines, changes=True)
async def off(asked: ChatOfUser, caller: Caller, parts: Parts) -> BasesOfChat:
    """Answer a chat from no base."""
    return await _bind((), caller.user, op.chat_of(asked.chat, caller.user), parts)


@NOUN.operation("kb_chat", ChatOfUser, cli="chat", show=_lines, offline=True)
async def of_chat(asked: ChatOfUser, caller: Caller, parts: DatabaseParts) -> BasesOfChat:
    """Show from which bases a chat is answered."""
    return await _told(caller.user, op.chat_of(asked.chat, caller.user), parts)


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
        told = await _told(caller.user, caller.here, parts)
    listed = [{"id": each.base.id, "name": each.base.name, "description": each.base.description} for each in mine]
    return {**told, "all": listed}
