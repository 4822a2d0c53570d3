"""OpenAI's Responses API: a request is read in the form of chat completions, and the answer is told as a response. Its
id names the turn that made it, so that a later request can go on from there."""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.actor.clock import iso
from klaw.api import openai
from klaw.api import transcript as transcripts
from klaw.api.completions import MODEL, Exchange, OnText, refuse, usage_of
from klaw.api.request_auth import Api
from klaw.api.streams import Stream
from klaw.context.repair import calls_of
from klaw.convert import is_storable
from klaw.domain.message import CLIENT_CALLS, CUT, Message, MessageKind, Role
from klaw.domain.names import UserId, chat_id, name_of
from klaw.errors import BadValue, Problem
from klaw.llm.types import ToolCall, Usage
from klaw.operations.operation import OperationError
from klaw.store.kinds import chats as stored_chats
from klaw.store.kinds import messages, pending, turns

_UNKNOWN = "is kept here; send the whole conversation as input"
_NULL = ("instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p", "user")
_ECHOED: Mapping[str, Any] = dict.fromkeys(_NULL) | {
    "metadata": {}, "parallel_tool_calls": True, "reasoning": {"effort": None, "summary": None}, "store": True,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "truncation": "disabled",
}  # fmt: skip
"""What a response repeats of its request; here as a request is read that does not say it."""
_SAID = (MessageKind.TEXT, MessageKind.COMMAND, MessageKind.TOOL_CALL)


def _wrong(path: str, message: str) -> BadValue:
    return BadValue((Problem(path, message),))


# -- a request in the form of chat completions -------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ResponsesRequest(openai.OpenAIChatRequest):
    NAMES: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
    }
    previous_response_id: str | None = None
    store: bool | None = None
    echo: dict[str, Any] = attrs.Factory(dict)

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], api: Api, user: UserId) -> dict[str, Any]:
        refuse({name: bool(tree.get(name)) for name in ("background", "conversation", "prompt", "top_logprobs")})
        told = {name: kept if (kept := tree.get(name)) is not None else default for name, default in _ECHOED.items()}
        given, previous = tree.get("input"), tree.get("previous_response_id")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
            raise _wrong("input", "must be a text or a list of objects")
        kinds = {"reasoning": dict, "text": dict, "tools": list}
        if wrong := [name for name, kind in kinds.items() if not isinstance(told[name], kind)]:
            raise _wrong(wrong[0], "must be a list" if wrong[0] == "tools" else "must be an object")
        if wrong := [name for name, each in told.items() if not is_storable(each)]:
            raise _wrong(wrong[0], "must hold nothing but numbers below 2^53 and valid text")
        said = _messages(await _items(items, api, user))
        if isinstance(previous, str) and said and said[0]["role"] == "tool":
            said = [*await _called(api, user, previous, any(each["role"] == "user" for each in said)), *said]
        if told["instructions"]:
            said = [{"role": "system", "content": told["instructions"]}, *said]
        return {
            **tree,
            "messages": said,
            "tools": list(_tools(told["tools"])) or None,
            "response_format": _form(told["text"].get("format")),
            "max_completion_tokens": told["max_output_tokens"],
            "reasoning_effort": told["reasoning"].get("effort"),
            "include_reasoning": bool(told["reasoning"].get("summary")),
            "echo": told,
        }


async def _items(items: Sequence[dict[str, Any]], api: Api, user: UserId) -> list[dict[str, Any]]:
    """The items; those that are only referred to as they were answered, the texts of each response as one."""
    found, seen = list[dict[str, Any]](), set[str]()
    for number, item in enumerate(items):
        key = str(item.get("id")).partition("_")[2].rpartition(".")[0]
        if item.get("type") != "item_reference":
            found.append(item)
        elif key not in seen:
            seen.add(key)
            if not (rows := await _rows(api, user, key)):
                raise _wrong(f"input[{number}].id", f"no item with this id {_UNKNOWN}")
            found.append({"role": "assistant", "content": _text(rows)})
            for call in _calls(rows):
                about = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
                found.append({"type": "function_call", **about})
    return found


def _messages(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        path = f"input[{number}]"
        match item:
            case {"type": "reasoning"}:
                pass
            case {"type": "function_call", "call_id": called, "name": name, "arguments": arguments}:
                call = {"id": called, "type": "function", "function": {"name": name, "arguments": arguments}}
                if not found or found[-1]["role"] != "assistant":
                    found.append({"role": "assistant", "content": None})
                found[-1].setdefault("tool_calls", []).append(call)
            case {"type": "function_call_output", "call_id": called, "output": output}:
                content = _content(output, f"{path}.output")
                if isinstance(content, list) and any(each["type"] != "text" for each in content):
                    raise _wrong(f"{path}.output", "must be text; send pictures in a message of the user")
                found.append({"role": "tool", "tool_call_id": called, "content": content})
            case {"role": role} if item.get("type") in (None, "message"):
                found.append({"role": role, "content": _content(item.get("content"), f"{path}.content")})
            case _:
                raise _wrong(f"{path}.type", "must be message, function_call or function_call_output, with its fields")
    return found


def _content(content: Any, path: str) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(each, f"{path}[{number}]") for number, each in enumerate(content)]


def _part(part: Any, path: str) -> dict[str, Any]:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": text} | {"type": "refusal", "refusal": text}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(address)}:
            return {"type": "image_url", "image_url": address}
    raise _wrong(f"{path}.type", "must be input_text, or input_image with a data: URL; send files to a chat")


def _tools(given: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for number, tool in enumerate(given):
        match tool:
            case {"type": "function"}:
                yield {"type": "function", "function": {name: tool[name] for name in tool if name != "type"}}
            case {"type": str(kind)} if kind.startswith("web_search"):
                continue  # Klaw has its own
            case _:
                raise _wrong(f"tools[{number}].type", "must be function; of hosted tools there is only web_search")


def _form(given: Any) -> Any:
    is_schema = isinstance(given, dict) and given.get("type") == "json_schema"
    return {"type": "json_schema", "json_schema": given} if is_schema else given


# -- responses that are kept -------------------------------------------------------------------------------------------


async def _rows(api: Api, user: UserId, key: str) -> list[Message]:
    """What a turn, or a command with this id, left in its chat, also if a variant replaced it. Nothing: it is unknown,
    somebody else's, or forgotten."""
    run, key = api.core.readers.run, key.encode("utf-8", "replace").decode()
    if (turn := await run(turns.get, user, key)) is not None:
        chat, seq, word = turn.chat, turn.last_seq, "turn"
    elif (asked := await run(messages.find, user, key)) is not None:
        chat, seq, word = asked.chat, asked.seq, "command"
    else:
        return []
    return await run(pending.of_answer, chat, seq, word, key)


async def _kept(api: Api, user: UserId, response: str, field: str = "previous_response_id") -> list[Message]:
    """``_rows`` of a response. Raises OperationError: there is none."""
    if rows := await _rows(api, user, response.removeprefix("resp_")):
        return rows
    raise OperationError("unknown_response", f"no response with this id {_UNKNOWN}", field=field)


def _text(rows: Sequence[Message]) -> str:
    return "\n\n".join(each.content for each in rows if each.type in _SAID and each.content.strip())


async def _called(api: Api, user: UserId, response: str, asks: bool) -> list[dict[str, Any]]:
    """What the results of a response's calls refer to, as messages: the calls, and, unless the user ``asks`` something
    new, the question."""
    rows = await _kept(api, user, response)
    turn = None if asks else await api.core.readers.run(turns.get, user, rows[0].metadata.get("turn", ""))
    found = await api.core.readers.run(messages.after, turn.chat, turn.last_seq - 1, 1) if turn else []
    asked = [{"role": "user", "content": each.content} for each in found if each.role is Role.USER]
    return [*asked, {"role": "assistant", "content": None, "tool_calls": openai.calls_of(_calls(rows))}]


def _calls(rows: Sequence[Message]) -> list[ToolCall]:
    """The calls of a response that the client was to carry out."""
    return [call for row in rows for call in calls_of(row) if call.id in row.metadata.get(CLIENT_CALLS, ())]


@attrs.define(kw_only=True)
class ResponsesExchange(Exchange):
    previous: str | None = None
    """The response that the question goes on from."""
    temporary: bool = False
    """It must be in a temporary chat."""

    async def run(self, on_text: OnText) -> Usage:
        if self.previous is None:
            return await super().run(on_text)
        chat = (await _kept(self.api, self.user, self.previous))[0].chat
        self.named = transcripts.RequestedChat(name_of(chat), resends=False)
        async with self.api.going_on.setdefault(chat, trio.Lock()):
            return await super().run(on_text)

    async def _found(self, new_chat: str) -> transcripts.TranscriptPlace:
        core, chats = self.api.core, self.api.services.chats
        if self.previous is not None:
            rows = await _kept(self.api, self.user, self.previous)
            place = await transcripts.place_behind(rows, self.transcript, chats, core.new_id())
        else:
            asked = self.transcript, chats, self.user, self.named, new_chat
            place = await transcripts.place_of(*asked, temporary=self.temporary)
        if self.temporary:
            chat, now = chat_id(self.user, place.chat), iso(core.clock.now())
            if not await core.writer.run(stored_chats.begin_temporary, self.user, chat, now):
                raise _wrong("store", "must not be false in a chat that is kept: name another chat, or none")
        return place


# -- what is answered --------------------------------------------------------------------------------------------------

_TEXT: Mapping[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
_FORMS: Mapping[str, tuple[str, str, str, str, Mapping[str, Any]]] = {
    "message": ("msg", "content", "content_part", "output_text", _TEXT),
    "reasoning": ("rs", "summary", "reasoning_summary_part", "reasoning_summary_text", {"type": "summary_text"}),
}
"""Items whose text comes in pieces: how their ids begin, the member with the part, words of the events about the part
and its text, and what else the part has."""


@attrs.define(kw_only=True)
class ResponseOutput:
    """A response as it comes; each step is told as an event, if there is a ``stream``."""

    key: Callable[[], str]
    """What ids are made of; known when the answer begins."""
    created_at: int
    echo: Mapping[str, Any]
    stream: Stream | None = None
    _items: list[dict[str, Any]] = attrs.field(init=False, factory=list)
    _kind: str | None = attrs.field(init=False, default=None)
    """Of the item that goes on."""
    _pieces: list[str] = attrs.field(init=False, factory=list)
    _count: int = attrs.field(init=False, default=0)
    """Of events."""

    @cached_property
    def _key(self) -> str:
        return self.key()

    async def add(self, kind: str, piece: str) -> None:
        """A piece of a ``message``, or of ``reasoning``."""
        _, _, part, text, _ = _FORMS[kind]
        if kind != self._kind:
            await self._close()
            self._kind, self._pieces = kind, []
            await self.tell("output_item.added", item=self._item("in_progress"))
            await self.tell(f"{part}.added", **self._at, part=self._part(""))
        self._pieces.append(piece)
        await self.tell(f"{text}.delta", **self._at, delta=piece, logprobs=[])

    async def call(self, call: ToolCall) -> None:
        await self._close()
        item_id, about = f"fc_{self._key}.{len(self._items)}", {"call_id": call.id, "name": call.name}
        item = {"id": item_id, "type": "function_call", **about, "arguments": call.arguments, "status": "completed"}
        await self.tell("output_item.added", item={**item, "arguments": "", "status": "in_progress"})
        await self.tell("function_call_arguments.delta", item_id=item_id, delta=call.arguments)
        await self.tell("function_call_arguments.done", item_id=item_id, **about, arguments=call.arguments)
        await self._put(item)

    async def end(self, finish_reason: str, used: Usage | None) -> dict[str, Any]:
        """The whole response."""
        await self._close()
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish_reason)
        more = {"incomplete_details": {"reason": why}} if why else {}
        whole = self.response("incomplete" if why else "completed", **more, usage=used and _usage(used))
        await self.tell(whole["status"], response=whole)
        return whole

    async def _close(self) -> None:
        if self._kind is not None:
            _, _, part, text, _ = _FORMS[self._kind]
            whole = self._part("".join(self._pieces))
            await self.tell(f"{text}.done", **self._at, text=whole["text"], logprobs=[])
            await self.tell(f"{part}.done", **self._at, part=whole)
            await self._put(self._item("completed", whole))
            self._kind = None

    def response(self, status: str, **more: Any) -> dict[str, Any]:
        head = {"id": f"resp_{self._key}", "object": "response", "created_at": self.created_at, "status": status}
        none = dict.fromkeys(("error", "incomplete_details", "usage"))
        return {**head, **none, "model": MODEL, "background": False, **self.echo, "output": self._items, **more}

    def _item(self, status: str, *parts: dict[str, Any]) -> dict[str, Any]:
        more = {"role": "assistant"} if self._kind == "message" else {}
        item_id, member = self._at["item_id"], _FORMS[str(self._kind)][1]
        return {"id": item_id, "type": self._kind, "status": status, member: parts, **more}

    def _part(self, text: str) -> dict[str, Any]:
        return {**_FORMS[str(self._kind)][4], "text": text}

    @property
    def _at(self) -> dict[str, Any]:
        prefix, member, *_ = _FORMS[str(self._kind)]
        return {"item_id": f"{prefix}_{self._key}.{len(self._items)}", f"{member}_index": 0}

    async def _put(self, item: dict[str, Any]) -> None:
        await self.tell("output_item.done", item=item)
        self._items.append(item)

    async def begin(self) -> None:
        if self._count == 0:
            for each in ("created", "in_progress"):
                await self.tell(each, response=self.response("in_progress"))

    async def tell(self, kind: str, **more: Any) -> None:
        if self.stream is None:
            return
        if kind != "created":
            await self.begin()
        index = {} if "response" in more else {"output_index": len(self._items)}
        tree = {"type": f"response.{kind}", "sequence_number": self._count, **index, **more}
        self._count += 1
        await self.stream.put(f"event: {tree['type']}\ndata: {json.dumps(tree, ensure_ascii=False)}\n\n")


def _usage(used: Usage) -> dict[str, Any]:
    prompt, made, thought = used.prompt_tokens, used.completion_tokens, used.thinking_tokens or 0
    cached = {"cached_tokens": used.cached_tokens or 0, "cache_write_tokens": used.cache_write_tokens or 0}
    counts = {"input_tokens": prompt, "output_tokens": made, "total_tokens": prompt + made}
    return {**counts, "input_tokens_details": cached, "output_tokens_details": {"reasoning_tokens": thought}}


def routes(api: Api) -> list[Route]:
    async def create(request: Request) -> Response:
        asked, exchange = await ResponsesExchange.read(api, request, ResponsesRequest)
        exchange.previous, exchange.temporary = asked.previous_response_id, asked.store is False
        now = int(api.core.clock.now())
        output = ResponseOutput(key=lambda: exchange.turn or exchange.message_id, created_at=now, echo=asked.echo)
        exchange.on_thought = partial(output.add, "reasoning") if asked.include_reasoning else None
        if asked.stream:
            return cast("Response", Stream(partial(_stream, exchange, output)))
        text, used = await exchange.whole(request.receive)
        if text:
            await output.add("message", text)
        return JSONResponse(await _end(exchange, output, used), headers=exchange.headers)

    async def show(request: Request) -> Response:
        user, response = api.grant(request).user, request.path_params["response"]
        rows = await _kept(api, user, response, "response_id")
        created = int(dt.datetime.fromisoformat(rows[0].created_at).timestamp())
        output = ResponseOutput(key=lambda: response.removeprefix("resp_"), created_at=created, echo=_ECHOED)
        if text := _text(rows):
            await output.add("message", text)
        for call in _calls(rows):
            await output.call(call)
        record = await api.core.readers.run(turns.get, user, rows[0].metadata.get("turn", ""))
        return JSONResponse(await output.end(rows[-1].metadata.get(CUT, "stop"), usage_of(record) if record else None))

    return [Route("/v1/responses", create, methods=["POST"]), Route("/v1/responses/{response}", show, methods=["GET"])]


async def _end(exchange: Exchange, output: ResponseOutput, used: Usage) -> dict[str, Any]:
    for call in exchange.calls:
        await output.call(call)
    return await output.end(exchange.finish_reason, used)


async def _stream(exchange: Exchange, output: ResponseOutput, stream: Stream) -> None:
    output.stream, exchange.on_start = stream, output.begin

    async def put(tree: dict[str, Any]) -> None:
        if "error" in tree:
            error = {"code": "server_error", "message": tree["error"]["message"]}
            await output.tell("failed", response=output.response("failed", error=error))
        else:
            await output.add("message", tree["text"])

    used = await exchange.tell(stream, put, lambda text: {"text": text}, openai.error_of)
    if used is not None:
        await _end(exchange, output, used)
