"""The face for programs that speak OpenAI's API: models, chat completions, embeddings."""

import base64
import json
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
from klaw.domain.names import UserId
from klaw.errors import EmbeddingUnavailable
from klaw.llm.types import Usage
from klaw.operations.operation import OperationError

EMBEDDING_S = 120.0
_MODEL = {"id": MODEL, "object": "model", "created": 0, "owned_by": "klaw"}


def _kind(value: Any) -> str | None:
    """A word, or the word of an object that has more: ``{"type": "json_object"}``."""
    if isinstance(value, Mapping):
        mode = value.get("allowed_tools")
        value = mode.get("mode") if isinstance(mode, Mapping) else value.get("type") or "function"
    if value is not None and not isinstance(value, str):
        raise TypeError("must be a text or an object")
    return value


@attrs.frozen(kw_only=True)
class OpenAIChatRequest(ChatRequest):
    stream_options: dict[str, Any] | None = None
    n: int | None = 1
    logprobs: bool | None = False
    response_format: Annotated[str | None, Form(_kind, str)] = None
    tool_choice: Annotated[str | None, Form(_kind, str)] = None
    function_call: Annotated[str | None, Form(_kind, str)] = None
    modalities: list[str] | None = None
    include_reasoning: bool | None = False
    """The answer has ``reasoning_content``: what the model thought."""

    def check(self) -> None:
        refuse(
            {
                "n": self.n not in (None, 1),
                "logprobs": bool(self.logprobs),
                "response_format": self.response_format not in (None, "text"),
                "tool_choice": self.tool_choice not in (None, "none", "auto"),
                "function_call": self.function_call not in (None, "none", "auto"),
                "modalities": "audio" in (self.modalities or ()),
            }
        )


@attrs.frozen(kw_only=True)
class CompletionRequest(OpenAIChatRequest):
    """Of a client that has no messages yet."""

    NAMES: ClassVar[Mapping[str, str]] = {"messages": "prompt"}

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], _api: Api, _user: UserId) -> dict[str, Any]:
        given = tree.get("prompt")
        prompt = given[0] if isinstance(given, list) and len(given) == 1 else given
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
        thought: list[str] = []

        async def keep(text: str) -> None:
            thought.append(text)

        exchange.on_thought = keep if asked.include_reasoning else None
        text, used = await exchange.whole(request.receive)
        message = {"role": "assistant", "content": text}
        if thought:
            message["reasoning_content"] = "".join(thought)
        choice = {"index": 0, "message": message, "finish_reason": exchange.finish_reason}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(used)}
        return JSONResponse(body, headers=exchange.headers)

    async def continue_text(request: Request) -> Response:
        asked, exchange = await Exchange.read(api, request, CompletionRequest)
        now = int(api.core.clock.now())
        head = {"id": f"cmpl-{api.core.new_id()}", "object": "text_completion", "created": now, "model": MODEL}
        if asked.stream:
            with_usage = bool((asked.stream_options or {}).get("include_usage"))
            return cast("Response", Stream(partial(_stream_text, exchange, head, with_usage=with_usage)))
        text, used = await exchange.whole(request.receive)
        body = {**head, "choices": [_text_choice(text, exchange.finish_reason)], "usage": _usage(used)}
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


def _text_choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


async def _stream_text(exchange: Exchange, head: dict[str, Any], stream: Stream, *, with_usage: bool) -> None:
    async def put(tree: dict[str, Any]) -> None:
        await stream.put(f"data: {json.dumps(tree, ensure_ascii=False)}\n\n")

    used = await exchange.tell(stream, put, lambda text: {**head, "choices": [_text_choice(text, None)]}, error_of)
    if used is not None:
        stream.headers.update(exchange.headers)
        await put({**head, "choices": [_text_choice("", exchange.finish_reason)]})
        if with_usage:
            await put({**head, "choices": [], "usage": _usage(used)})
    await stream.put("data: [DONE]\n\n")


async def _stream(exchange: Exchange, head: dict[str, Any], stream: Stream, *, with_usage: bool, thinks: bool) -> None:
    head = {**head, "object": "chat.completion.chunk"}
    last = {"usage": None} if with_usage else {}

    async def put(tree: dict[str, Any]) -> None:
        await stream.put(f"data: {json.dumps(tree, ensure_ascii=False)}\n\n")

    def said(text: str, member: str = "content") -> dict[str, Any]:
        delta = {member: text} if stream.begun else {"role": "assistant", member: text}
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **last}

    async def think(text: str) -> None:
        stream.headers.update(exchange.headers)
        await put(said(text, "reasoning_content"))

    exchange.on_thought = think if thinks else None
    used = await exchange.tell(stream, put, said, error_of)
    if used is not None:
        stream.headers.update(exchange.headers)
        end = {"index": 0, "delta": {}, "finish_reason": exchange.finish_reason}
        await put({**head, "choices": [end], **last})
        if with_usage:
            await put({**head, "choices": [], "usage": _usage(used)})
    await stream.put("data: [DONE]\n\n")


def error_of(problem: Response) -> dict[str, Any]:
    """A problem in the form of this API."""
    told = json.loads(bytes(problem.body))
    kind = "invalid_request_error" if problem.status_code < 500 else "server_error"
    param = told["errors"][0]["field"] if told.get("errors") else None
    return {"error": {"message": told["detail"], "type": kind, "param": param, "code": told["code"]}}


def _usage(used: Usage) -> dict[str, int]:
    prompt, made = used.prompt_tokens, used.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
