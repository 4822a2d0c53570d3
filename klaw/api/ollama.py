"""The face for programs that speak nothing but Ollama's API, such as Home Assistant."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.actor.clock import iso
from klaw.api.completions import MODEL, Exchange, prompt_messages
from klaw.api.openai import EmbeddingRequest, OpenAIChatRequest, numbers, vectors_of
from klaw.api.request_auth import Api
from klaw.api.streams import Stream
from klaw.convert import FRAMES
from klaw.domain.names import UserId
from klaw.errors import BadValue, Problem
from klaw.llm.types import ToolCall, Usage
from klaw.operations.operation import OperationError

LINES = "application/x-ndjson"
NAME = f"{MODEL}:latest"
VERSION = "0.12.11"
"""Of Ollama's API as far as it is spoken here: programs refuse older servers, or leave out tools and thinking."""
_EPOCH = "1970-01-01T00:00:00Z"
_DETAILS = {"family": MODEL, "families": [MODEL], "format": "klaw", "parameter_size": "", "quantization_level": ""}
_MODEL = {"name": NAME, "model": NAME, "digest": "", "details": _DETAILS, "modified_at": _EPOCH}
_LOADED = {"size": 0, "size_vram": 0, "expires_at": "9999-12-31T23:59:59Z"}
_MODELS_ARE_KLAWS = "Klaw chooses its models itself, see klaw models; programs cannot load, make or remove any"
_OF_MODELS = ("pull", "push", "create", "copy", "delete", "blobs/{digest}")


@attrs.frozen(kw_only=True)
class OllamaChatRequest(OpenAIChatRequest):
    NAMES: ClassVar[Mapping[str, str]] = {
        "response_format": "format",
        "max_completion_tokens": "options.num_predict",
        "reasoning_effort": "think",
        **{name: f"options.{name}" for name in ("temperature", "top_p", "seed", "stop")},
    }
    user: None = attrs.field(default=None, init=False)
    """Is no field of this API."""

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], _api: Api, _user: UserId) -> dict[str, Any]:
        options, form, think = tree.get("options") or {}, tree.get("format"), tree.get("think")
        if not isinstance(options, dict):
            raise BadValue((Problem("options", "must be an object"),))
        most = options.get("num_predict")
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
        return {
            **{name: tree.get(name) for name in ("messages", "stream", "tools")},
            **{name: options.get(name) for name in ("temperature", "top_p", "seed", "stop")},
            "max_completion_tokens": None if isinstance(most, int) and most < 0 else most,  # no limit
            "response_format": {"type": "json_object"} if form == "json" else schema if form else None,
            "reasoning_effort": {True: "medium", False: "none"}[think] if isinstance(think, bool) else think,
            "include_reasoning": bool(think),
        }


class NothingToSay(Exception):
    """The model is only to be loaded, or unloaded."""


@attrs.frozen(kw_only=True)
class OllamaGenerateRequest(OllamaChatRequest):
    NAMES: ClassVar[Mapping[str, str]] = {**OllamaChatRequest.NAMES, "messages": "prompt"}

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], api: Api, user: UserId) -> dict[str, Any]:
        if tree.get("prompt") in (None, "") and not tree.get("suffix") and not tree.get("images"):
            raise NothingToSay
        messages = prompt_messages(*(tree.get(name) for name in ("prompt", "suffix", "system", "images")))
        return await super().in_chat_form({**tree, "messages": messages}, api, user)


def routes(api: Api) -> list[Route]:
    async def models(request: Request) -> Response:
        """The model, which is always loaded."""
        api.grant(request)
        context = api.parts.llm.router.route().context_tokens
        return JSONResponse({"models": [{**_MODEL, **_LOADED, "context_length": context}]})

    async def show(request: Request) -> Response:
        api.grant(request)
        given = await api.json(request, dict)
        if str(given.get("model") or given.get("name")).removesuffix(":latest") != MODEL:
            raise OperationError("unknown_model", f"there is only the model {MODEL}")
        route = api.parts.llm.router.route()
        can = {"tools": route.tools, "vision": route.images, "thinking": route.thinking is not None}
        about = {"general.architecture": MODEL, f"{MODEL}.context_length": route.context_tokens}
        told = {"modelfile": "", "parameters": "", "template": "", "details": _DETAILS, "model_info": about}
        capabilities = ["completion", *(name for name, there in can.items() if there)]
        return JSONResponse({**told, "capabilities": capabilities, "modified_at": _EPOCH})

    async def version(_request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def answer(kind: type[OllamaChatRequest], request: Request) -> Response:
        try:
            asked, exchange = await Exchange.read(api, request, kind)
        except NothingToSay:
            now = iso(api.core.clock.now())
            return JSONResponse({"model": NAME, "created_at": now, "response": "", "done": True, "done_reason": "load"})
        thinks = bool(asked.include_reasoning)
        told = partial(_said if kind is OllamaChatRequest else _generated, exchange)
        if asked.stream is not False:
            return cast("Response", Stream(partial(_stream, exchange, told, thinks=thinks), LINES))
        text, used = await exchange.whole(request.receive, thinks=thinks)
        whole = {**told(text, "".join(exchange.thought), exchange.calls), **_done(exchange, used)}
        return JSONResponse(whole, headers=exchange.headers)

    async def embed(request: Request) -> Response:
        api.grant(request)
        is_old = request.url.path == "/api/embeddings"
        name = "prompt" if is_old else "input"
        asked = await api.json(request, lambda tree: FRAMES.read({"input": tree.get(name)}, EmbeddingRequest))
        found = [numbers(each) for each in await vectors_of(api, asked.input)]
        if is_old:
            return JSONResponse({"embedding": found[0]})
        return JSONResponse({"model": NAME, "embeddings": found, "total_duration": 0, "load_duration": 0})

    async def refuse_models(request: Request) -> Response:
        api.grant(request)
        raise OperationError("not_allowed", _MODELS_ARE_KLAWS)

    return [
        Route("/api/tags", models, methods=["GET"]),
        Route("/api/ps", models, methods=["GET"]),
        Route("/api/show", show, methods=["POST"]),
        Route("/api/version", version, methods=["GET"]),
        Route("/api/chat", partial(answer, OllamaChatRequest), methods=["POST"]),
        Route("/api/generate", partial(answer, OllamaGenerateRequest), methods=["POST"]),
        *(Route(f"/api/{word}", embed, methods=["POST"]) for word in ("embed", "embeddings")),
        *(Route(f"/api/{word}", refuse_models, methods=["GET", "POST", "DELETE"]) for word in _OF_MODELS),
    ]


async def _stream(exchange: Exchange, told: "partial[dict[str, Any]]", stream: Stream, *, thinks: bool) -> None:
    async def put(tree: dict[str, Any]) -> None:
        await stream.put(json.dumps(tree, ensure_ascii=False) + "\n")

    async def think(text: str) -> None:
        await put({**told("", text), "done": False})

    exchange.on_thought = think if thinks else None
    used = await exchange.tell(stream, put, lambda text: {**told(text), "done": False}, error_of)
    if used is not None:
        await put({**told("", "", exchange.calls), **_done(exchange, used)})


def error_of(problem: Response) -> dict[str, Any]:
    """A problem in the form of this API."""
    return {"error": json.loads(bytes(problem.body))["detail"]}


def _head(exchange: Exchange) -> dict[str, Any]:
    return {"model": NAME, "created_at": iso(exchange.api.core.clock.now())}


def _said(exchange: Exchange, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text, **({"thinking": thinking} if thinking else {})}
    if calls:
        message["tool_calls"] = [
            {"id": each.id, "function": {"name": each.name, "arguments": json.loads(each.arguments or "{}")}}
            for each in calls
        ]
    return {**_head(exchange), "message": message}


def _generated(exchange: Exchange, text: str, thinking: str = "", _calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
    return {**_head(exchange), "response": text, "context": [], **({"thinking": thinking} if thinking else {})}


def _done(exchange: Exchange, used: Usage) -> dict[str, Any]:
    counts = {"prompt_eval_count": used.prompt_tokens, "eval_count": used.completion_tokens}
    times = {"total_duration": 0, "load_duration": 0, "prompt_eval_duration": 0, "eval_duration": 0}
    reason = "stop" if exchange.calls else exchange.finish_reason
    return {"done": True, "done_reason": reason, **counts, **times}
