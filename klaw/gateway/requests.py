"""Requests of a client and their answers: what to ask the chats for, and which error says that it cannot be had."""

from typing import assert_never

import attrs

from klaw.chats.directory import ChatDirectory
from klaw.convert import MAX_WHOLE
from klaw.domain.context_used import KEY
from klaw.domain.message import Message
from klaw.domain.names import UserId, chat_id
from klaw.errors import ProtocolError
from klaw.gateway import answers
from klaw.wire.frames import (
    ChatInfo,
    ChatList,
    GetChats,
    GetHistory,
    GetReceipt,
    GetStatus,
    History,
    Receipt,
    RequestFrame,
    Status,
    Stop,
    Stopped,
)

MAX_LISTED_CHATS = 1000

AnswerFrame = History | ChatList | Stopped | Receipt | Status


async def answer(request: RequestFrame, user: UserId, chats: ChatDirectory) -> AnswerFrame:
    """The answer to a request.

    Raises:
        ProtocolError: ``unknown_chat`` or ``unknown_turn``.
        KlawError: whatever the chats raise.

    Cancellation: a ``stop`` may or may not have been carried out; the others change nothing.
    """
    match request:
        case GetHistory():
            return await _history(request, user, chats)
        case GetChats(ref=ref, archived=archived):
            listed = await chats.listed(user, MAX_LISTED_CHATS, archived=archived)
            return ChatList(
                ref=ref,
                chats=[
                    ChatInfo(
                        name=each.name,
                        last_seq=each.last_seq,
                        segment=each.segment,
                        updated_at=each.updated_at,
                        title=each.title or None,
                        bases=list(each.bases) or None,
                    )
                    for each in listed
                ],
            )
        case Stop(chat=name, ref=ref):
            running = await chats.stop(user, name)
            if not running:
                await _known(name, user, chats)
            return Stopped(chat=name, running=running, ref=ref)
        case GetReceipt(chat=name, turn=turn, ref=ref):
            await _known(name, user, chats)
            record = await chats.receipt(user, name, turn)
            if record is None:
                raise ProtocolError("unknown_turn", "this chat has no such turn")
            return answers.receipt(name, record, ref)
        case GetStatus(chat=name, ref=ref):
            degraded = answers.degraded(chats.health())
            if name is None:
                return Status(state="degraded" if degraded else "ok", degraded=degraded, ref=ref)
            await _known(name, user, chats)
            chat = chat_id(user, name)
            now = answers.at_rest(chats.chat_status(chat), await chats.unanswered(chat))
            status = answers.chat_status(name, now)
            return attrs.evolve(status, degraded=degraded, ref=ref)
        case _:
            assert_never(request)


async def _known(name: str, user: UserId, chats: ChatDirectory) -> None:
    if await chats.session(user, name) is None:
        raise ProtocolError("unknown_chat", "you have no chat of this name")


async def _history(request: GetHistory, user: UserId, chats: ChatDirectory) -> History:
    await _known(request.chat, user, chats)
    chat = chat_id(user, request.chat)
    # One more than asked for tells whether there is more.
    if request.after is not None:
        found = await chats.after(chat, request.after, request.limit + 1)
        page = _fitting(found[: request.limit])
    else:
        found = await chats.before(chat, MAX_WHOLE if request.before is None else request.before, request.limit + 1)
        page = _fitting(found[-request.limit :][::-1])[::-1]
    return History(
        chat=request.chat,
        messages=[answers.in_history(message) for message in page],
        more=len(found) > len(page),
        ref=request.ref,
    )


def _fitting(messages: list[Message]) -> list[Message]:
    """The first messages that fit into one frame; at least one."""
    room = answers.HISTORY_CHARS
    for count, message in enumerate(messages):
        room -= len(message.content) + sum(len(str(message.metadata.get(name, ""))) for name in ("calls", KEY))
        if room < 0 and count > 0:
            return messages[:count]
    return messages
