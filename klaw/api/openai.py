"""The face for programs that speak OpenAI's API: models, chat completions, embeddings."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import attrs
import numpy as np
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.completions import MODEL, ChatRequest, Exchange, prompt_messages, refuse
from klaw.api.request_auth import Api
from klaw.api.streams import Stream
from klaw.convert import FRAMES, Bounds, Form
from klaw.domain import tokens
from klaw.domain.message import ThinkingLevel
from klaw.domain.names import UserId
from klaw.errors import BadValue, EmbeddingUnavailable, Problem
from klaw.llm.types import JsonSchema, ModelOptions, ToolCall, ToolDescription, Usage
from klaw.operations.operation import OperationError

EMBEDDING_S = 120.0
TOOL_NAME = "[A-Za-z0-9_-]{1,64}"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MODEL = {"id": MODEL, "object": "model", "created": 0, "owned_by": "klaw"}


@attrs.frozen(kw_only=True)
class FunctionTool:
    name: Annotated[str, Bounds(pattern=TOOL_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None

    @property
    def told(self) -> ToolDescription:
        form = self.parameters or {"type": "object", "properties": {}}
        return ToolDescription(name=self.name, description=self.description or "", parameters=form)


@attrs.frozen(kw_only=True)
class ClientTool:
    function: FunctionTool
    type: Literal["function"] = "function"


def chosen_tool(value: Any) -> str:
    """``tool_choice``: a word, or the name in ``{"type": "function", "function": {"name": …}}``."""
    if value is None or value in ("auto", "none", "required"):
        return value or "auto"
    function = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
        raise TypeError('must be "auto", "none", "required" or {"type": "function", "function": {"name": …}}')
    return name


def answer_form(value: Any) -> JsonSchema | None:
    """``response_format``."""
    kind = value.get("type", "text") if isinstance(value, Mapping) else None
    if value is None or kind == "text":
        return None
    if kind == "json_object":
        return JsonSchema(name="object", schema={}, strict=False)
    form = value.get("json_schema") if kind == "json_schema" else None
    schema = form.get("schema") if isinstance(form, Mapping) else None
    if not isinstance(form, Mapping) or not isinstance(schema, Mapping):
        text = 'must be {"type": "text"}, {"type": "json_object"}, or "json_schema" with its {"name", "schema"}'
        raise TypeError(text)
    name = _NOT_IN_NAME.sub("_", str(form.get("name") or "answer"))[:64]
    return JsonSchema(name=name, schema=schema, strict=form.get("strict") is True)


def stops(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ValueError("must be a text or a list of texts")
    return found


_LEVELS: Mapping[str, ThinkingLevel] = {
    **dict.fromkeys(("none", "minimal"), "off"),
    "low": "low",
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh", "max"), "high"),
}


def thinking_level(value: Any) -> ThinkingLevel | None:
    if value is not None and (not isinstance(value, str) or value not in _LEVELS):
        raise ValueError(f"must be one of {', '.join(_LEVELS)}")
    return _LEVELS[value] if value is not None else None


@attrs.frozen(kw_only=True, slots=False)
class Sampling:
    """Members that are passed on as they are."""

    temperature: Annotated[float | None, Bounds(0, 2)] = None
    stop: Annotated[list[str], Form(stops, list)] = attrs.Factory(list)
    seed: int | None = None
    top_p: Annotated[float | None, Bounds(0, 1)] = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: Annotated[float | None, Bounds(-2, 2)] = None
    frequency_penalty: Annotated[float | None, Bounds(-2, 2)] = None

    @property
    def sampling(self) -> dict[str, Any]:
        """See ``ModelOptions.sampling``."""
        names = ("stop", "seed", "top_p", "logit_bias", "presence_penalty", "frequency_penalty")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value not in (None, [], {})}


@attrs.frozen(kw_only=True)
class OpenAIChatRequest(Sampling, ChatRequest):
    stream_options: dict[str, Any] | None = None
    n: int | None = 1
    logprobs: bool | None = False
    tools: list[ClientTool] | None = None
    tool_choice: Annotated[str, Form(chosen_tool, str)] = "auto"
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    response_format: Annotated[JsonSchema | None, Form(answer_form, dict)] = None
    max_tokens: Annotated[int | None, Bounds(1)] = None
    max_completion_tokens: Annotated[int | None, Bounds(1)] = None
    reasoning_effort: Annotated[ThinkingLevel | None, Form(thinking_level, str)] = None
    modalities: list[str] | None = None
    include_reasoning: bool | None = False
    """The answer has ``reasoning_content``: what the model thought."""

    def options(self) -> ModelOptions:
        refuse(
            {
                "n": self.n not in (None, 1),
                "logprobs": bool(self.logprobs),
                "functions": bool(self.functions),
                "modalities": "audio" in (self.modalities or ()),
            }
        )
        return ModelOptions(
            tools=offered([each.function for each in self.tools or ()], self.tool_choice),
            tool_choice=self.tool_choice,
            parallel_calls=self.parallel_tool_calls is not False,
            form=self.response_format,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            temperature=self.temperature,
            sampling=self.sampling,
            thinking=self.reasoning_effort,
        )


def offered(tools: Sequence[FunctionTool], choice: str) -> tuple[ToolDescription, ...]:
    """The client's tools. Raises BadValue: two have one name, or the chosen one is not among them."""
    names = [each.name for each in tools]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise BadValue((Problem("tools", f"must have different names; {doubled} comes twice"),))
    if choice not in ("auto", "none", *(names and ["required"]), *names):
        raise BadValue((Problem("tool_choice", "must be one of the tools"),))
    return tuple(each.told for each in tools)


@attrs.frozen(kw_only=True)
class CompletionRequest(OpenAIChatRequest):
    """Of a client that has no messages yet."""

    NAMES: ClassVar[Mapping[str, str]] = {"messages": "prompt"}

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], _api: Api, _user: UserId) -> dict[str, Any]:
        given = tree.get("prompt")
        prompt = given[0] if isinstance(given, list) and len(given) == 1 else given
        if not isinstance(prompt, str):
            raise BadValue((Problem("prompt", "must be a text, or a list of one text"),))
        refuse({name: tree.get(name) not in (None, False, 0) for name in ("echo", "logprobs")})
        refuse({"best_of": tree.get("best_of") not in (None, 1)})
        return {**tree, "messages": prompt_messages(prompt, tree.get("suffix")), "logprobs": None}


def _texts(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise ValueError("must be a text or a list of texts")
    return found


@attrs.frozen(kw_only=True)
class EmbeddingRequest:
    input: Annotated[list[str], Form(_texts, list), Bounds(1, 256)]
    encoding_format: Literal["float", "base64"] = "float"


def routes(api: Api) -> list[Route]:
    async def models(request: Request) -> Response:
        api.grant(request)
        return JSONResponse({"object": "list", "data": [_MODEL]})

    async def model(request: Request) -> Response:
        api.grant(request)
        if request.path_params["model"] != MODEL:
            raise OperationError("unknown_model", f"there is only the model {MODEL}")
        return JSONResponse(_MODEL)

    async def complete(request: Request) -> Response:
        asked, exchange = await Exchange.read(api, request, OpenAIChatRequest)
        head = {"id": f"chatcmpl-{api.core.new_id()}", "created": int(api.core.clock.now()), "model": MODEL}
        if asked.stream:
            with_usage = bool((asked.stream_options or {}).get("include_usage"))
            streaming = partial(_stream, exchange, head, with_usage=with_usage, thinks=bool(asked.include_reasoning))
            return cast("Response", Stream(streaming))
        text, used = await exchange.whole(request.receive, thinks=bool(asked.include_reasoning))
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if exchange.calls:
            message |= {"content": text or None, "tool_calls": calls_of(exchange.calls)}
        if exchange.thought:
            message["reasoning_content"] = "".join(exchange.thought)
        choice = {"index": 0, "message": message, "finish_reason": exchange.finish_reason}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(used)}
        return JSONResponse(body, headers=exchange.headers)

    async def continue_text(request: Request) -> Response:
        asked, exchange = await Exchange.read(api, request, CompletionRequest)
        now = int(api.core.clock.now())
        head = {"id": f"cmpl-{api.core.new_id()}", "object": "text_completion", "created": now, "model": MODEL}
        if asked.stream:
            with_usage = bool((asked.stream_options or {}).get("include_usage"))
            return cast("Response", Stream(partial(_stream, exchange, head, with_usage=with_usage, of_text=True)))
        text, used = await exchange.whole(request.receive)
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": exchange.finish_reason}
        body = {**head, "choices": [choice], "usage": _usage(used)}
        return JSONResponse(body, headers=exchange.headers)

    async def embed(request: Request) -> Response:
        api.grant(request)
        asked = await api.json(request, partial(FRAMES.read, cls=EmbeddingRequest))
        vectors = await vectors_of(api, asked.input)
        in_base64 = asked.encoding_format == "base64"
        told = [base64.b64encode(raw).decode() if in_base64 else numbers(raw) for raw in vectors]
        data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(told)]
        counted = sum(map(tokens.estimate, asked.input))
        usage = {"prompt_tokens": counted, "total_tokens": counted}
        return JSONResponse({"object": "list", "model": MODEL, "data": data, "usage": usage})

    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{model}", model, methods=["GET"]),
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/completions", continue_text, methods=["POST"]),
        Route("/v1/embeddings", embed, methods=["POST"]),
    ]


async def vectors_of(api: Api, texts: Sequence[str]) -> list[bytes]:
    """Raises OperationError: there are none now."""
    try:
        with trio.fail_after(EMBEDDING_S):
            return [await api.parts.embedder.passage_in_background(text) for text in texts]
    except EmbeddingUnavailable as error:
        raise OperationError("unavailable", f"there are no vectors now: {error}") from None


def numbers(vector: bytes) -> list[float]:
    found: list[float] = np.frombuffer(vector, "<f4").tolist()
    return found


async def _stream(
    exchange: Exchange,
    head: dict[str, Any],
    stream: Stream,
    *,
    with_usage: bool,
    thinks: bool = False,
    of_text: bool = False,
) -> None:
    """``of_text``: as an old completion."""
    head = head if of_text else {**head, "object": "chat.completion.chunk"}
    last = {"usage": None} if with_usage else {}
    roles = iter([{"role": "assistant"}])

    async def put(tree: dict[str, Any]) -> None:
        await stream.put(f"data: {json.dumps(tree, ensure_ascii=False)}\n\n")

    def said(text: str, member: str = "content") -> dict[str, Any]:
        piece = {"text": text, "logprobs": None} if of_text else {"delta": {**next(roles, {}), member: text}}
        return {**head, "choices": [{"index": 0, **piece, "finish_reason": None}], **last}

    async def think(text: str) -> None:
        await put(said(text, "reasoning_content"))

    exchange.on_thought = think if thinks else None
    used = await exchange.tell(stream, put, said, error_of)
    if used is not None:
        if exchange.calls:
            numbered = [{"index": place, **call} for place, call in enumerate(calls_of(exchange.calls))]
            role = next(roles, {})
            first = {**role, "content": None} if role else {}
            calling = {"index": 0, "delta": {**first, "tool_calls": numbered}, "finish_reason": None}
            await put({**head, "choices": [calling], **last})
        none: dict[str, Any] = {"text": "", "logprobs": None} if of_text else {"delta": {}}
        end = {"index": 0, **none, "finish_reason": exchange.finish_reason}
        await put({**head, "choices": [end], **last})
        if with_usage:
            await put({**head, "choices": [], "usage": _usage(used)})
    await stream.put("data: [DONE]\n\n")


def calls_of(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Calls in the form of this API."""
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def error_of(problem: Response) -> dict[str, Any]:
    """A problem in the form of this API."""
    told = json.loads(bytes(problem.body))
    kind = "invalid_request_error" if problem.status_code < 500 else "server_error"
    param = told["errors"][0]["field"] if told.get("errors") else None
    return {"error": {"message": told["detail"], "type": kind, "param": param, "code": told["code"]}}


def _usage(used: Usage) -> dict[str, int]:
    prompt, made = used.prompt_tokens, used.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
