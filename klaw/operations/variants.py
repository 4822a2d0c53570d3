"""Saying something else in a chat, having a message answered again, and going from one variant to another."""

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.names import client_id, name_of
from klaw.operations import chats, stored
from klaw.operations import operation as op
from klaw.operations.chat import MAX_MODEL_NAME, check_model, session_of
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines

if TYPE_CHECKING:
    from klaw.domain.message import Message

Seq = Annotated[int, Bounds(1)]
Model = Annotated[str, Bounds(1, MAX_MODEL_NAME)]


@attrs.frozen(kw_only=True)
class ChatsEdit(chats.OfChat):
    seq: Seq | None = op.argument("the number of the message (default: your last one)", metavar="SEQ")
    message: op.Name | None = op.argument("its id, in place of its number", metavar="ID", hidden=True)
    text: str = op.argument("what you say instead", default="", positional=True, words=True)
    files: Annotated[tuple[NamedFile, ...], Bounds(at_most=MAX_FILES)] | None = op.argument(
        "its files, uploaded before; without this those of the old message", hidden=True
    )
    model: Model | None = op.argument("the model that answers it, PROVIDER/MODEL", metavar="NAME")
    id: op.Name | None = op.argument("the new message's id, with which this may be repeated", hidden=True)


@attrs.frozen(kw_only=True)
class ChatsRegenerate(chats.OfChat):
    seq: Seq | None = op.argument("the number of the question or its answer (default: the last one)", metavar="SEQ")
    message: op.Name | None = op.argument("its id, in place of its number", metavar="ID", hidden=True)
    model: Model | None = op.argument("the model that answers, PROVIDER/MODEL (default: the chat's)", metavar="NAME")


@attrs.frozen(kw_only=True)
class ChatsVariant(chats.OfChat):
    seq: Seq = op.required("the number of a message that has variants", metavar="SEQ")
    number: Seq = op.required("which of them to show: 1 for the first", metavar="N")


class NowAnswered(TypedDict):
    """``seq`` and ``id`` are those of the message that is answered now."""

    chat: str
    seq: int
    id: str


class VariantNow(TypedDict):
    chat: str
    branched: int


def _answered(answer: dict[str, Any]) -> Lines:
    return [f"message {answer['seq']} of chat {answer['chat']} is being answered"]


def _shown(answer: dict[str, Any]) -> Lines:
    return [f"another variant is shown in chat {answer['chat']}"]


@chats.NOUN.operation("chats_edit", ChatsEdit, cli="edit", changes=True, route="POST {chat}/edit", show=_answered)
async def edit(asked: ChatsEdit, caller: Caller, parts: Parts) -> NowAnswered:
    """Say something else in place of one of your messages, and have it answered. The old message and what followed it
    are kept as another variant."""
    from klaw.chats.requests import Submit

    if not asked.text.strip() and not asked.files:
        raise op.OperationError("bad_args", "must not be empty", field="text")
    if asked.id is not None:
        op.understood("id", client_id, asked.id)
    name = await _chat(asked, caller, parts)
    said = Submit(
        id=asked.id or parts.core.new_id(), text=asked.text, files=asked.files or (), model=_model(asked.model, parts)
    )
    which = asked.message or asked.seq
    new = await parts.chats.edit(caller.user, name, which, said, keep_files=asked.files is None)
    return _now(name, new)


@chats.NOUN.operation(
    "chats_regenerate", ChatsRegenerate, cli="regenerate", changes=True, route="POST {chat}/regenerate", show=_answered
)
async def regenerate(asked: ChatsRegenerate, caller: Caller, parts: Parts) -> NowAnswered:
    """Have a message answered again, by the same model or another one. The old answer and what followed it are kept as
    another variant."""
    from klaw.chats.requests import Submit

    name = await _chat(asked, caller, parts)
    wishes = Submit(id=parts.core.new_id(), text="", model=_model(asked.model, parts))
    return _now(name, await parts.chats.answer_again(caller.user, name, asked.message or asked.seq, wishes))


@chats.NOUN.operation(
    "chats_variant", ChatsVariant, cli="variant", changes=True, route="POST {chat}/variant", show=_shown
)
async def variant(asked: ChatsVariant, caller: Caller, parts: Parts) -> VariantNow:
    """Show another variant of a message, with all that followed that one."""
    name = await _chat(asked, caller, parts)
    await parts.chats.show_variant(caller.user, name, asked.seq, asked.number)
    session = await parts.readers.run(stored.messages.session, op.chat_of(asked.chat, caller.user))
    return {"chat": name, "branched": session.branched if session is not None else 0}


async def _chat(asked: chats.OfChat, caller: Caller, parts: Parts) -> str:
    """The name of a chat that is there. Raises OperationError."""
    chat = op.chat_of(asked.chat, caller.user)
    await session_of(chat, parts)
    return name_of(chat)


def _model(name: str | None, parts: Parts) -> str | None:
    if name is not None:
        check_model(parts.llm, name)
    return name


def _now(name: str, message: "Message") -> NowAnswered:
    return {"chat": name, "seq": message.seq, "id": message.id}
