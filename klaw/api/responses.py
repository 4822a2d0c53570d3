"""OpenAI's Responses API: what came is read in the form of chat completions, and the answer told as a response. Its id
names the turn that made it, so that a later request can go on from there."""

import datetime as dt
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.actor.clock import iso
from klaw.api import transcript as transcripts
from klaw.api.completions import MODEL, Exchange, OnText, refuse
from klaw.api.openai import OpenAIChatRequest, error_of
from klaw.api.request_auth import Api
from klaw.api.streams import Stream
from klaw.chats.requests import Submit
from klaw.domain.branch import REPLACED
from klaw.domain.message import CUT, Message, MessageKind, Role
from klaw.domain.names import UserId, chat_id, name_of
from klaw.errors import BadValue, Problem
from klaw.llm.types import ToolCall, Usage
from klaw.operations.operation import OperationError
from klaw.store.kinds import chats as stored_chats
from klaw.store.kinds import messages, turns
from klaw.store.kinds.variants.replace import Wish

ROWS = 1_000
"""Rows behind a question among which its answer is looked for, and behind an answer what followed it."""
_BLANK: Mapping[str, Any] = {
    "object": "response",
    "model": MODEL,
    "background": False,
    "error": None,
    "incomplete_details": None,
    "usage": None,
}
_ECHOED: Mapping[str, Any] = {
    **dict.fromkeys(("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "user")),
    **dict.fromkeys(("temperature", "top_p")),
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}
"""What a response repeats of its request, with what it says where that says nothing."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def _wrong(path: str, message: str) -> BadValue:
    return BadValue((Problem(path, message),))


# -- a request in the form of chat completions -------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ResponsesRequest(OpenAIChatRequest):
    NAMES: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
    }
    previous_response_id: str | None = None
    store: bool | None = None
    echo: dict[str, Any] = attrs.Factory(dict)
    """What the response repeats."""

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], api: Api, user: UserId) -> dict[str, Any]:
        refuse({name: bool(tree.get(name)) for name in ("background", "conversation", "prompt", "top_logprobs")})
        effort, form = _object(tree, "reasoning"), _object(tree, "text")
        given, previous = tree.get("input"), tree.get("previous_response_id")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
            raise _wrong("input", "must be a text or a list of objects")
        said = _messages([each async for each in _items(items, api, user)])
        if isinstance(previous, str) and said and not any(each["role"] == "user" for each in said):
            asked = await question_of(api, user, previous)
            said = [{"role": "user", "content": asked.content}, *said]
        if tree.get("instructions"):
            said = [{"role": "system", "content": tree["instructions"]}, *said]
        return {
            **tree,
            "messages": said,
            "tools": list(_tools(tree.get("tools"))) or None,
            "tool_choice": _tool_choice(tree.get("tool_choice")),
            "response_format": _form(form.get("format")),
            "max_completion_tokens": tree.get("max_output_tokens"),
            "reasoning_effort": effort.get("effort"),
            "include_reasoning": bool(effort.get("summary")),
            "echo": {name: told if (told := tree.get(name)) is not None else _ECHOED[name] for name in _ECHOED},
        }


def _object(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    if not isinstance(found, Mapping | None):
        raise _wrong(name, "must be an object")
    return found or {}


async def _items(items: Sequence[dict[str, Any]], api: Api, user: UserId) -> AsyncIterator[dict[str, Any]]:
    """The items, with those that were only referred to."""
    seen = set[str]()
    for number, item in enumerate(items):
        if item.get("type") != "item_reference":
            yield item
            continue
        kind, _, rest = str(item.get("id")).partition("_")
        key = rest.rpartition(".")[0]
        if kind == "rs" or (kind == "msg" and key in seen):
            continue  # a response's texts are told as one
        rows = await rows_of(api, user, key)
        if kind == "msg" and rows:
            seen.add(key)
            yield {"role": "assistant", "content": _text_of(rows)}
        else:
            raise _wrong(f"input[{number}].id", "is no item of a response that is kept here; send the item itself")


def _messages(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        match item:
            case {"type": "reasoning"}:
                pass
            case {"type": "function_call", "call_id": called, "name": name, "arguments": arguments}:
                call = {"id": called, "type": "function", "function": {"name": name, "arguments": arguments}}
                if not found or found[-1]["role"] != "assistant":
                    found.append({"role": "assistant", "content": None})
                found[-1].setdefault("tool_calls", []).append(call)
            case {"type": "function_call_output", "call_id": called, "output": output}:
                content = _content(output, f"input[{number}].output")
                found.append({"role": "tool", "tool_call_id": called, "content": content})
            case {"role": role} if item.get("type") in (None, "message"):
                found.append({"role": role, "content": _content(item.get("content"), f"input[{number}].content")})
            case _:
                raise _wrong(f"input[{number}].type", "must be message, function_call or function_call_output")
    return found


def _content(content: Any, path: str) -> Any:
    if not isinstance(content, list):
        return content
    found: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": text} | {"type": "refusal", "refusal": text}:
                found.append({"type": "text", "text": text})
            case {"type": "input_image", "image_url": str(address)}:
                found.append({"type": "image_url", "image_url": address})
            case _:
                text = "must be input_text, or input_image with a data: URL; send files as attachments of a chat"
                raise _wrong(f"{path}[{number}].type", text)
    return found


def _tools(given: Any) -> Iterator[dict[str, Any]]:
    for number, tool in enumerate(given if isinstance(given, list) else ()):
        match tool:
            case {"type": "function"}:
                yield {"type": "function", "function": {name: each for name, each in tool.items() if name != "type"}}
            case {"type": str(kind)} if kind.startswith("web_search"):
                pass  # Klaw has its own
            case _:
                raise _wrong(
                    f"tools[{number}].type", "must be function, or web_search, of which Klaw has its own"
                )


def _tool_choice(given: Any) -> Any:
    match given:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": tools}:
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(_tools(tools))}}
        case {}:
            raise _wrong("tool_choice", "must be auto, none, required, or one of the functions in tools")
    return given


def _form(given: Any) -> Any:
    match given:
        case {"type": "json_schema"}:
            return {
                "type": "json_schema",
                "json_schema": {name: each for name, each in given.items() if name != "type"},
            }
    return given


# -- responses that are kept -------------------------------------------------------------------------------------------


async def rows_of(api: Api, user: UserId, key: str) -> list[Message]:
    """What a turn, or the command with this id, left in its chat, also if a variant replaced it; nothing if it is
    unknown, of somebody else, or forgotten."""
    run = api.core.readers.run
    if (turn := await run(turns.get, user, key)) is not None:
        chat, seq, word = turn.chat, turn.last_seq, "turn"
    elif (asked := await run(messages.find, user, key)) is not None:
        chat, seq, word = asked.chat, asked.seq, "command"
    else:
        return []
    found = await run(messages.kept_after, chat, seq, ROWS, variants=True)
    return [each for each in found if each.metadata.get(word) == key]


async def kept_rows(api: Api, user: UserId, response: str, field: str) -> list[Message]:
    """``rows_of`` a response. Raises OperationError: there is none."""
    rows = await rows_of(api, user, response.removeprefix("resp_"))
    if not rows:
        text = f"{field}: no response of yours with this id is kept here; send the whole conversation as input"
        raise OperationError("unknown_response", text, field=field)
    return rows


async def question_of(api: Api, user: UserId, response: str) -> Message:
    """The message of the user that a response answers. Raises OperationError."""
    rows = await kept_rows(api, user, response, "previous_response_id")
    before = await api.core.readers.run(messages.before, rows[0].chat, rows[0].seq, ROWS)
    return next((each for each in reversed(before) if each.role is Role.USER), rows[0])


def _text_of(rows: Sequence[Message]) -> str:
    said = (MessageKind.TEXT, MessageKind.COMMAND, MessageKind.TOOL_CALL)
    return "\n\n".join(each.content for each in rows if each.type in said and each.content.strip())


@attrs.define(kw_only=True)
class ResponsesExchange(Exchange):
    previous: str | None = None
    """The response that the question goes on from."""
    temporary: bool = False
    """It is to be kept in a temporary chat."""

    async def run(self, on_text: OnText) -> Usage:
        if self.previous is None:
            return await super().run(on_text)
        chat = (await kept_rows(self.api, self.user, self.previous, "previous_response_id"))[-1].chat
        self.named = transcripts.RequestedChat(name_of(chat), resends=False)
        async with self.api.going_on.setdefault(chat, trio.Lock()):
            return await super().run(on_text)

    async def _found(self, new_chat: str) -> transcripts.TranscriptPlace:
        core, chats = self.api.core, self.api.services.chats
        if self.previous is not None:
            place = await self._behind(self.previous)
        else:
            asked = self.transcript, chats, self.user, self.named, new_chat
            place = await transcripts.place_of(*asked, temporary=self.temporary)
        if self.temporary:
            chat, now = chat_id(self.user, place.chat), iso(core.clock.now())
            if not await core.writer.run(stored_chats.begin_temporary, self.user, chat, now):
                raise _wrong("store", "false cannot be had in a chat that is kept; name another one, or none")
        return place

    async def _behind(self, response: str) -> transcripts.TranscriptPlace:
        """The place behind a response. What followed it there becomes another variant; if it stands in another variant
        itself, that one is shown again. Raises OperationError, AnswerRunning, BadValue."""
        core, chats = self.api.core, self.api.services.chats
        last = (await kept_rows(self.api, self.user, response, "previous_response_id"))[-1]
        name, missing = name_of(last.chat), self.transcript.history
        row = await core.readers.run(messages.find, self.user, last.id)
        if row is not None and REPLACED in row.metadata:
            await chats.vary(self.user, name, Wish(which=last.id, number=1), Submit(id=core.new_id(), text=""))
        behind = await chats.after(last.chat, last.seq, ROWS)
        asked = next((each for each in behind if (each.role, each.type) == (Role.USER, MessageKind.TEXT)), None)
        if asked is not None and missing:
            raise _wrong("input", "must be one message where an earlier response than the newest is gone on from")
        return transcripts.TranscriptPlace(chat=name, missing=missing, replaced=asked)


# -- what is answered --------------------------------------------------------------------------------------------------


@attrs.frozen
class ItemForm:
    """How an item whose text comes in pieces is told."""

    prefix: str
    """Begins its ids."""
    member: str
    index: str
    part: str
    text: str
    """Begin the names of events about the part and about its text."""
    blank: Mapping[str, Any]
    """The part without a text."""
    more: Mapping[str, Any]
    """Of the item."""


_FORMS = {
    "message": ItemForm(
        *("msg", "content", "content_index", "content_part", "output_text"),
        {"type": "output_text", "annotations": [], "logprobs": []},
        {"role": "assistant"},
    ),
    "reasoning": ItemForm(
        *("rs", "summary", "summary_index", "reasoning_summary_part", "reasoning_summary_text"),
        {"type": "summary_text"},
        {},
    ),
}


@attrs.define(kw_only=True)
class ResponseOutput:
    """The items of a response, as they come; each step is told as an event, if there is a ``stream``."""

    key: Callable[[], str]
    """What ids are made of, known when the first piece comes."""
    created_at: int
    echo: Mapping[str, Any]
    stream: Stream | None = None
    _id: str = attrs.field(init=False, default="")
    _items: list[dict[str, Any]] = attrs.field(init=False, factory=list)
    _kind: str | None = attrs.field(init=False, default=None)
    """Of the item that goes on."""
    _pieces: list[str] = attrs.field(init=False, factory=list)
    _number: int = attrs.field(init=False, default=0)

    async def begin(self) -> None:
        if not self._id:
            self._id = self.key()
            for kind in ("created", "in_progress"):
                await self._tell(kind, response=self._response("in_progress"))

    async def add(self, kind: str, piece: str) -> None:
        """A piece of a ``message``, or of ``reasoning``."""
        form = _FORMS[kind]
        if kind != self._kind:
            await self._close()
            self._kind, self._pieces = kind, []
            item = {"id": self._item_id(form), "type": kind, "status": "in_progress", form.member: [], **form.more}
            await self._tell("output_item.added", item=item)
            await self._tell(f"{form.part}.added", form, part={**form.blank, "text": ""})
        self._pieces.append(piece)
        await self._tell(f"{form.text}.delta", form, delta=piece, logprobs=[])

    async def _close(self) -> None:
        await self.begin()
        if self._kind is not None:
            form, text = _FORMS[self._kind], "".join(self._pieces)
            part = {**form.blank, "text": text}
            await self._tell(f"{form.text}.done", form, text=text, logprobs=[])
            await self._tell(f"{form.part}.done", form, part=part)
            ended = {"id": self._item_id(form), "type": self._kind, "status": "completed", form.member: [part]}
            await self._put({**ended, **form.more})
            self._kind = None

    async def call(self, call: ToolCall) -> None:
        await self._close()
        about = {"type": "function_call", "call_id": call.id, "name": call.name}
        item = {"id": f"fc_{self._id}.{len(self._items)}", **about, "arguments": call.arguments, "status": "completed"}
        at = {"item_id": item["id"], "output_index": len(self._items)}
        await self._tell("output_item.added", item={**item, "arguments": "", "status": "in_progress"})
        await self._tell("function_call_arguments.delta", **at, delta=call.arguments)
        await self._tell("function_call_arguments.done", **at, name=call.name, arguments=call.arguments)
        await self._put(item)

    async def end(self, finish_reason: str, used: Usage | None) -> dict[str, Any]:
        """The whole response."""
        await self._close()
        why = _INCOMPLETE.get(finish_reason)
        more = {"incomplete_details": {"reason": why}} if why is not None else {}
        whole = self._response("completed" if why is None else "incomplete", **more, usage=_usage(used))
        await self._tell(whole["status"], response=whole)
        return whole

    async def fail(self, message: str) -> None:
        await self.begin()
        await self._tell(
            "failed", response=self._response("failed", error={"code": "server_error", "message": message})
        )

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        head = {"id": f"resp_{self._id}", "created_at": self.created_at, "status": status, "output": self._items}
        return {**_BLANK, **self.echo, **head, **more}

    def _item_id(self, form: ItemForm) -> str:
        return f"{form.prefix}_{self._id}.{len(self._items)}"

    async def _put(self, item: dict[str, Any]) -> None:
        await self._tell("output_item.done", item=item)
        self._items.append(item)

    async def _tell(self, kind: str, form: ItemForm | None = None, **more: Any) -> None:
        if self.stream is None:
            return
        at = {"item_id": self._item_id(form), form.index: 0} if form is not None else {}
        index = {} if "response" in more else {"output_index": len(self._items)}
        tree = {"type": f"response.{kind}", "sequence_number": self._number, **index, **at, **more}
        self._number += 1
        await self.stream.put(f"event: {tree['type']}\ndata: {json.dumps(tree, ensure_ascii=False)}\n\n")


def _usage(used: Usage | None) -> dict[str, Any] | None:
    if used is None:
        return None
    prompt, made = used.prompt_tokens, used.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens or 0, "cache_write_tokens": used.cache_write_tokens or 0
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": used.thinking_tokens or 0},
        "total_tokens": prompt + made,
    }  # fmt: skip


def routes(api: Api) -> list[Route]:
    async def create(request: Request) -> Response:
        asked, exchange = await ResponsesExchange.read(api, request, ResponsesRequest)
        exchange.previous, exchange.temporary = asked.previous_response_id, asked.store is False
        output = ResponseOutput(
            key=lambda: exchange.turn or exchange.message_id, created_at=int(api.core.clock.now()), echo=asked.echo
        )
        if asked.include_reasoning:
            exchange.on_thought = partial(output.add, "reasoning")
        if asked.stream:
            return cast("Response", Stream(partial(_stream, exchange, output)))
        text, used = await exchange.whole(request.receive)
        if text:
            await output.add("message", text)
        for call in exchange.calls:
            await output.call(call)
        return JSONResponse(await output.end(exchange.finish_reason, used), headers=exchange.headers)

    async def show(request: Request) -> Response:
        user, response = api.grant(request).user, request.path_params["response"]
        rows = await kept_rows(api, user, response, "response_id")
        created = int(dt.datetime.fromisoformat(rows[0].created_at).timestamp())
        output = ResponseOutput(key=lambda: response.removeprefix("resp_"), created_at=created, echo=_ECHOED)
        if text := _text_of(rows):
            await output.add("message", text)
        return JSONResponse(await output.end(rows[-1].metadata.get(CUT, "stop"), None))

    return [Route("/v1/responses", create, methods=["POST"]), Route("/v1/responses/{response}", show, methods=["GET"])]


async def _stream(exchange: ResponsesExchange, output: ResponseOutput, stream: Stream) -> None:
    output.stream = stream

    async def put(tree: dict[str, Any]) -> None:
        if "error" in tree:
            await output.fail(tree["error"]["message"])
        else:
            await output.add("message", tree["text"])

    used = await exchange.tell(stream, put, lambda text: {"text": text}, error_of)
    if used is not None:
        stream.headers.update(exchange.headers)
        for call in exchange.calls:
            await output.call(call)
        await output.end(exchange.finish_reason, used)
