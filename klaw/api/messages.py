"""Messages of a chat over HTTP: send one and wait for the answer or follow it, read, stop, see what it was made from.
What is told has the form of the WebSocket's frames (docs/protocol.md).
"""

import json
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, NotRequired, TypedDict, cast

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.asker import QUERY, Api, message_id
from klaw.api.conversation import Asked, ChatNews, Outcome, ask
from klaw.api.openapi import JSON, PREFIX, About, DescribedRoute
from klaw.api.problems import MODEL_FAILED
from klaw.api.streams import EVENTS, Stream, while_connected
from klaw.convert import FRAMES, REQUESTS, Bounds
from klaw.domain.attachment import MAX_FILES, Named
from klaw.domain.events import TextStreamed
from klaw.domain.message import Message
from klaw.domain.names import name_of
from klaw.errors import ChatBusy
from klaw.gateway import answers, requests
from klaw.wire.codec import encode
from klaw.wire.frames import (
    Delta,
    GetHistory,
    GetReceipt,
    History,
    Receipt,
    RequestFrame,
    Send,
    Stop,
    Stopped,
    StoredMessage,
)
from klaw.wire.values import ChatName

_PATH = f"{PREFIX}/chats/{{chat}}"


@attrs.frozen(kw_only=True)
class NewMessage:
    """Body of a message that is sent."""

    text: str = ""
    """Not blank, unless there are files."""
    files: Annotated[tuple[Named, ...], Bounds(at_most=MAX_FILES)] = ()
    """That were uploaded before. A message with files is never a command."""
    stream: bool = False
    """Answer with server-sent events."""
    wait: bool = True
    """Wait for the answer."""


class Failure(TypedDict):
    code: str
    message: str


class Sent(TypedDict):
    """All but ``message`` only where the answer was waited for, ``error`` where there is none."""

    message: StoredMessage
    status: NotRequired[str]
    turn: NotRequired[str | None]
    answer: NotRequired[StoredMessage | None]
    error: NotRequired[Failure]


def routes(api: Api) -> list[Route]:
    """Of one chat's messages."""

    async def answer(request: Request, frame: type[RequestFrame]) -> Response:
        """Of a request that the WebSocket has too."""
        user = api.asker(request).user
        made = QUERY.read({**request.query_params, "chat": request.path_params["chat"]}, frame)
        return _json(encode(await requests.answer(made, user, api.services.chats)))

    async def history(request: Request) -> Response:
        return await answer(request, GetHistory)

    async def receipt(request: Request) -> Response:
        return await answer(request, GetReceipt)

    async def stop(request: Request) -> Response:
        return await answer(request, Stop)

    async def send(request: Request) -> Response:
        user, services = api.asker(request).user, api.services
        new = await api.json(request, partial(REQUESTS.read, cls=NewMessage))
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

    def told_of(name: str, help_text: str, **more: Any) -> About:
        return About(name=name, help=help_text, tag="chats", of_path="chat", **more)

    read = told_of("messages_list", "Messages of a chat.", query=GetHistory, answer=History)
    sent = told_of("messages_send", "Send a message; wait for the answer or follow it.", body=NewMessage, answer=Sent)
    made = told_of("turn_receipt", "What an answer was made from.", query=GetReceipt, answer=Receipt)
    stopped = told_of("turn_stop", "Stop the running answer.", query=Stop, answer=Stopped)
    return [
        DescribedRoute(f"{_PATH}/messages", history, "GET", read),
        DescribedRoute(f"{_PATH}/messages", send, "POST", attrs.evolve(sent, gives=(JSON, EVENTS))),
        DescribedRoute(f"{_PATH}/receipt", receipt, "GET", made),
        DescribedRoute(f"{_PATH}/stop", stop, "POST", stopped),
    ]


def told(message: Message) -> dict[str, Any]:
    """A stored message as JSON has it."""
    written: dict[str, Any] = FRAMES.write(answers.in_history(message))
    return {name: value for name, value in written.items() if value is not None}


def ended(outcome: Outcome) -> dict[str, Any]:
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


async def _tell(asking: AbstractAsyncContextManager[Asked], stream: Stream) -> None:
    """What happens until the answer is there, as frames; at the end ``done``."""
    async with asking as asked:
        try:
            async for news in asked:
                for frame in _frames(news):
                    await stream.put(event(frame))
        except ChatBusy as error:
            await stream.put(event(encode(answers.refusal(error))))
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


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
