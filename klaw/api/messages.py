"""Messages of a chat over HTTP: send one and wait for the answer or follow it, read, stop, see what it was made from.
What is told has the form of the WebSocket's frames (docs/protocol.md).
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, TypeAlias, cast

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope
from starlette.types import Send as SendFunction

from klaw.api.asker import Api
from klaw.api.conversation import Asked, ChatNews, Outcome, ask
from klaw.convert import FRAMES, REQUESTS, Bounds, Converter
from klaw.domain.events import TextStreamed
from klaw.domain.message import Message
from klaw.domain.names import name_of
from klaw.errors import ChatBusy
from klaw.gateway import answers, requests
from klaw.wire.codec import encode
from klaw.wire.frames import Delta, GetHistory, GetReceipt, RequestFrame, Send, Stop

QUERY = Converter(forbid_unknown=True, lenient=True)
"""Reads what stands in a URL, where all values are texts."""
KEEP_ALIVE_S = 15.0
"""A stream without an event for so long sends a comment, so that nothing between takes it for dead."""
Put: TypeAlias = Callable[[str], Awaitable[None]]
"""Sends an event."""
_PATH = "/api/v1/chats/{chat}"


@attrs.frozen(kw_only=True)
class NewMessage:
    """Body of a message that is sent."""

    text: Annotated[str, Bounds(1)]
    stream: bool = False
    """Answer with server-sent events."""
    wait: bool = True
    """Wait for the answer."""


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
        new = REQUESTS.read(await api.json(request), NewMessage)
        message_id = request.headers.get("idempotency-key") or api.core.new_id()
        frame = FRAMES.read({"id": message_id, "chat": request.path_params["chat"], "text": new.text}, Send)
        asking = ask(services.chats, services.hub, user, frame.chat, frame.id, frame.text)
        if new.stream or "text/event-stream" in request.headers.get("accept", ""):
            return cast("Response", EventStream(asking, _tell))
        async with asking as asked:
            if not new.wait:
                return JSONResponse({"message": told(asked.message)}, 202)
            outcome = await asked.wait()
        return JSONResponse({"message": told(asked.message), **ended(outcome)}, _status(outcome))

    return [
        Route(f"{_PATH}/messages", history, methods=["GET"]),
        Route(f"{_PATH}/messages", send, methods=["POST"]),
        Route(f"{_PATH}/receipt", receipt, methods=["GET"]),
        Route(f"{_PATH}/stop", stop, methods=["POST"]),
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


def _status(outcome: Outcome) -> int:
    """A failed answer is an error of what is behind the server; the message is stored all the same."""
    return 502 if outcome.code is not None else 200


async def _tell(asked: Asked, put: Put) -> None:
    """What happens until the answer is there, as frames; at the end ``done``."""
    try:
        async for news in asked:
            for frame in _frames(news):
                await put(event(frame))
    except ChatBusy as error:
        await put(event(encode(answers.refusal(error))))
    if asked.outcome is not None:
        await put(f"event: done\ndata: {json.dumps(ended(asked.outcome), ensure_ascii=False)}\n\n")


def _frames(news: ChatNews) -> list[str]:
    if isinstance(news, Message):
        return [answers.message_text(news, replayed=False)]
    if isinstance(news, TextStreamed):
        return [encode(Delta(chat=name_of(news.chat), turn=news.turn, offset=news.offset, text=news.text))]
    return answers.event_texts(news)


def event(frame: str) -> str:
    """A frame as an event; its type is the event's name."""
    return f"event: {json.loads(frame)['type']}\ndata: {frame}\n\n"


class EventStream:
    """An answer of server-sent events about a message.

    Args:
        asking: sends the message. What it raises becomes an ordinary answer.
        tell: tells the events of it.
        headers: beside those of an event stream.
    """

    def __init__(
        self,
        asking: AbstractAsyncContextManager[Asked],
        tell: Callable[[Asked, Put], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._asking = asking
        self._tell = tell
        self._headers = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"} | dict(
            headers or {}
        )
        self._sent_at = 0.0

    async def __call__(self, _scope: Scope, receive: Receive, send: SendFunction) -> None:
        async with self._asking as asked:
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_wait_for_disconnect, receive, nursery.cancel_scope)
                nursery.start_soon(self._stay_alive, send)
                await self._tell(asked, partial(self._send, send))
                nursery.cancel_scope.cancel(reason="all was sent")
            await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: SendFunction, text: str) -> None:
        self._sent_at = trio.current_time()
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _stay_alive(self, send: SendFunction) -> None:
        while True:
            await trio.sleep_until(self._sent_at + KEEP_ALIVE_S)
            if trio.current_time() >= self._sent_at + KEEP_ALIVE_S:
                await self._send(send, ": \n\n")


async def _wait_for_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel(reason="the client has gone")


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
