"""A small face for programs that speak nothing but Ollama's API, such as Home Assistant."""

import json
from functools import partial
from typing import Annotated, Any, cast

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw import __version__
from klaw.actor.clock import iso
from klaw.api.completions import MODEL, ChatRequest, Exchange, refuse
from klaw.api.request_auth import Api
from klaw.api.streams import Stream
from klaw.convert import Form
from klaw.llm.types import ModelOptions, Usage
from klaw.operations.operation import OperationError

LINES = "application/x-ndjson"
NAME = f"{MODEL}:latest"
_DETAILS = {"family": MODEL, "families": [MODEL], "format": "klaw", "parameter_size": "", "quantization_level": ""}


@attrs.frozen(kw_only=True)
class OllamaChatRequest(ChatRequest):
    user: None = attrs.field(default=None, init=False)
    """Is no field of this API."""
    format: Annotated[bool, Form(bool, bool)] = False
    """Whether the answer is to have a form: "json", or a schema."""

    def options(self) -> ModelOptions:
        refuse({"format": self.format})
        return ModelOptions()


def routes(api: Api) -> list[Route]:
    async def tags(request: Request) -> Response:
        api.grant(request)
        model = {"name": NAME, "model": NAME, "modified_at": _EPOCH, "size": 0, "digest": "", "details": _DETAILS}
        return JSONResponse({"models": [model]})

    async def show(request: Request) -> Response:
        api.grant(request)
        given = await api.json(request, dict)
        if str(given.get("model") or given.get("name")).removesuffix(":latest") != MODEL:
            raise OperationError("unknown_model", f"there is only the model {MODEL}")
        told = {"modelfile": "", "parameters": "", "template": "", "details": _DETAILS, "model_info": {}}
        sees = api.parts.llm.router.route().images
        return JSONResponse({**told, "capabilities": ["completion", *["vision"] * sees], "modified_at": _EPOCH})

    async def version(_request: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def chat(request: Request) -> Response:
        asked, exchange = await Exchange.read(api, request, OllamaChatRequest)
        if asked.stream is not False:
            return cast("Response", Stream(partial(_stream, exchange), LINES))
        text, used = await exchange.whole(request.receive)
        return JSONResponse({**_said(exchange, text), **_done(exchange, used)}, headers=exchange.headers)

    return [
        Route("/api/tags", tags, methods=["GET"]),
        Route("/api/show", show, methods=["POST"]),
        Route("/api/version", version, methods=["GET"]),
        Route("/api/chat", chat, methods=["POST"]),
    ]


_EPOCH = "1970-01-01T00:00:00Z"


async def _stream(exchange: Exchange, stream: Stream) -> None:
    async def put(tree: dict[str, Any]) -> None:
        await stream.put(json.dumps(tree, ensure_ascii=False) + "\n")

    used = await exchange.tell(stream, put, lambda text: {**_said(exchange, text), "done": False}, error_of)
    if used is not None:
        stream.headers.update(exchange.headers)
        await put({**_said(exchange, ""), **_done(exchange, used)})


def error_of(problem: Response) -> dict[str, Any]:
    """A problem in the form of this API."""
    return {"error": json.loads(bytes(problem.body))["detail"]}


def _said(exchange: Exchange, text: str) -> dict[str, Any]:
    now = iso(exchange.api.core.clock.now())
    return {"model": NAME, "created_at": now, "message": {"role": "assistant", "content": text}}


def _done(exchange: Exchange, used: Usage) -> dict[str, Any]:
    counts = {"prompt_eval_count": used.prompt_tokens, "eval_count": used.completion_tokens}
    times = {"total_duration": 0, "load_duration": 0, "prompt_eval_duration": 0, "eval_duration": 0}
    return {"done": True, "done_reason": exchange.finish_reason, **counts, **times}
