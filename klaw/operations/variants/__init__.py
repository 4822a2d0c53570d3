"""Saying something else in a chat, having a message answered again, and going from one variant to another."""

from typing import Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.names import CLIENT_ID_FORM, client_id, name_of
from klaw.operations import chats
from klaw.operations import operation as op
from klaw.operations.chat import MAX_MODEL_NAME, check_model, session_of
from klaw.operations.chats import NOUN
from klaw.operations.handler import Caller, Parts

Seq = Annotated[int, Bounds(1)]
_MODEL = op.argument("the model that answers, PROVIDER/MODEL (default: the chat's)", metavar="NAME")


@attrs.frozen(kw_only=True)
class ChatsRegenerate(chats.OfChat):
    seq: Seq | None = op.argument("the message's number (default: your last message)", metavar="SEQ")
    model: Annotated[str, Bounds(1, MAX_MODEL_NAME)] | None = _MODEL


@attrs.frozen(kw_only=True)
class ChatsEdit(ChatsRegenerate):
    text: str = op.argument("what you say instead", default="", positional=True, words=True)
    files: Annotated[tuple[NamedFile, ...], Bounds(at_most=MAX_FILES)] | None = op.argument(
        "its files, uploaded before; without this those of the old message", hidden=True
    )
    id: Annotated[str, Check(client_id, Bounds(pattern=CLIENT_ID_FORM))] | None = op.argument(
        "the new message's id: then it may be sent again", hidden=True
    )


@attrs.frozen(kw_only=True)
class ChatsVariant(chats.OfChat):
    seq: Seq = op.required("the number of a message that has variants", metavar="SEQ")
    number: Seq = op.required("which of them to show: 1 for the first", metavar="N")


class ShownVariant(TypedDict):
    """``seq``: the message that is answered now."""

    chat: str
    seq: int | None


def _lines(answer: dict[str, Any]) -> list[str]:
    if answer["seq"] is None:
        return [f"another variant is shown in chat {answer['chat']}"]
    return [f"message {answer['seq']} of chat {answer['chat']} is being answered"]


@NOUN.operation("chats_edit", ChatsEdit, cli="edit", changes=True, route="POST {chat}/edit", show=_lines)
async def edit(asked: ChatsEdit, caller: Caller, parts: Parts) -> ShownVariant:
    """Say something else in place of one of your messages, and have it answered. The old message and what followed it
    are kept as another variant."""
    if not asked.text.strip() and not asked.files:
        raise op.OperationError("nothing_said", "must not be empty", field="text")
    wish = {"which": asked.seq, "edits": True, "files": asked.files}
    return await _vary(asked, caller, parts, wish, id=asked.id, text=asked.text, model=asked.model)


@NOUN.operation(
    "chats_regenerate", ChatsRegenerate, cli="regenerate", changes=True, route="POST {chat}/regenerate", show=_lines
)
async def regenerate(asked: ChatsRegenerate, caller: Caller, parts: Parts) -> ShownVariant:
    """Have a message answered again, by the same model or another one. The old answer and what followed it are kept as
    another variant."""
    return await _vary(asked, caller, parts, {"which": asked.seq}, model=asked.model)


@NOUN.operation("chats_variant", ChatsVariant, cli="variant", changes=True, route="POST {chat}/variant", show=_lines)
async def variant(asked: ChatsVariant, caller: Caller, parts: Parts) -> ShownVariant:
    """Show another variant of a message, with all that followed that one."""
    return await _vary(asked, caller, parts, {"which": asked.seq, "number": asked.number})


async def _vary(asked: chats.OfChat, caller: Caller, parts: Parts, wish: dict[str, Any], **said: Any) -> ShownVariant:
    from klaw.chats.requests import Submit
    from klaw.store.kinds.variants.replace import Wish

    chat = op.chat_of(asked.chat, caller.user)
    await session_of(chat, parts)
    if said.get("model") is not None:
        check_model(parts.llm, said["model"])
    new = Submit(id=said.get("id") or parts.core.new_id(), text=said.get("text", ""), model=said.get("model"))
    question = await parts.chats.vary(caller.user, name_of(chat), Wish(**wish), new)
    return {"chat": name_of(chat), "seq": question.message.seq if question is not None else None}
