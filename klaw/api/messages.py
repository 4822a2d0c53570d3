"""Sending a message over HTTP, and waiting for its answer or following it. What is told has the form of the
WebSocket's frames (docs/protocol.md)."""

import json
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, NotRequired, TypedDict, cast

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.conversation import AnswerOutcome, ChatNews, SentMessage, ask
from klaw.api.openapi import JSON, PREFIX, About, DescribedRoute
from klaw.api.problems import MODEL_FAILED
from klaw.api.request_auth import Api, message_id
from klaw.api.streams import EVENTS, Stream, while_connected
from klaw.convert import FRAMES, REQUESTS, Bounds
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.events import TextStreamed
from klaw.domain.message import Message
from klaw.domain.names import name_of
from klaw.errors import ChatBusy
from klaw.gateway import answers
from klaw.gateway.refusals import error_frame
from klaw.wire.codec import encode, tree_of
from klaw.wire.frames import Delta, Send, StoredMessage
from klaw.wire.values import ChatName


@attrs.frozen(kw_only=True)
class MessageBody:
    """Body of a message that is sent."""

    text: str = ""
    """Not blank, unless there are files."""
    files: Annotated[tuple[NamedFile, ...], Bounds(at_most=MAX_FILES)] = ()
    """That were uploaded before. A message with files is never a command."""
    stream: bool = False
    """Answer with server-sent events."""
    wait: bool = True
    """Wait for the answer."""


class TurnFailure(TypedDict):
    code: str
    message: str


class SendAnswer(TypedDict):
    """All but ``message`` only where the answer was waited for; ``error`` if there is no answer."""

    message: StoredMessage
    status: NotRequired[str]
    turn: NotRequired[str | None]
    answer: NotRequired[StoredMessage | None]
    error: NotRequired[TurnFailure]


def routes(api: Api) -> list[Route]:
    """The route that sends a message."""

    async def send(request: Request) -> Response:
        user, services = api.grant(request).user, api.services
        new = await api.json(request, partial(REQUESTS.read, cls=MessageBody))
        chat = FRAMES.read(request.path_params["chat"], ChatName)
        frame = Send(id=message_id(request.headers, api), chat=chat, text=new.text, files=new.files)
        asking = ask(services.chats, services.hub, user, frame.chat, frame.id, frame.text, files=new.files)
        if new.stream or "text/event-stream" in request.headers.get("accept", ""):
            return cast("Response", Stream(partial(_tell, asking)))
        async with asking as asked:
            if not new.wait:
                return JSONResponse({"message": told(asked.message)}, 202)
            outcome = await while_connected(request.receive, asked.wait)
        return JSONResponse(
            {"message": told(asked.message), **ended(outcome)}, MODEL_FAILED if outcome.code is not None else 200
        )

    sent = About(
        name="messages_send",
        help="Send a message; wait for the answer or follow it.",
        tag="chats",
        of_path="chat",
        body=MessageBody,
        answer=SendAnswer,
        gives=(JSON, EVENTS),
    )
    return [DescribedRoute(f"{PREFIX}/chats/{{chat}}/messages", send, "POST", sent)]


def told(message: Message) -> dict[str, Any]:
    """A stored message as JSON has it."""
    tree: dict[str, Any] = tree_of(StoredMessage.of(message))
    return tree


def ended(outcome: AnswerOutcome) -> dict[str, Any]:
    """How a message was answered, as JSON has it."""
    error = None
    if outcome.code is not None:
        error = {"code": outcome.code, "message": outcome.text or "the answer failed"}
    return {
        "status": outcome.status.value if outcome.status is not None else "done",
        "turn": outcome.turn,
        "answer": told(outcome.answer) if outcome.answer is not None else None,
        **({"error": error} if error else {}),
    }


async def _tell(asking: AbstractAsyncContextManager[SentMessage], stream: Stream) -> None:
    """What happens until the answer is there, as frames; at the end ``done``."""
    async with asking as asked:
        try:
            async for news in asked:
                for frame in _frames(news):
                    await stream.put(event(frame))
        except ChatBusy as error:
            await stream.put(event(encode(error_frame(error))))
        if asked.outcome is not None:
            await stream.put(f"event: done\ndata: {json.dumps(ended(asked.outcome), ensure_ascii=False)}\n\n")


def _frames(news: ChatNews) -> list[str]:
    if isinstance(news, Message):
        return [answers.message_text(news, replayed=False)]
    if isinstance(news, TextStreamed):
        return [encode(Delta(chat=name_of(news.chat), turn=news.turn, offset=news.offset, text=news.text))]
    return answers.event_texts(news)


def event(frame: str) -> str:
    """A frame as an event; its type is the event's name."""
    return f"event: {json.loads(frame)['type']}\ndata: {frame}\n\n"
