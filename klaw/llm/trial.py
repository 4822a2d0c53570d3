"""Tests a model with a few tiny questions. They are fixed: no user's data is sent."""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import trio

from klaw.config.document import join_path
from klaw.config.keys import file_key
from klaw.config.llm import LOCAL_PROVIDER
from klaw.llm.endpoint import ModelEndpoint, Path, read_scores, read_vectors
from klaw.llm.errors import ProviderError, ProviderRefused
from klaw.llm.facts import ModelCheck
from klaw.llm.types import ChatMessage, Completion, Delta, Image, JsonSchema, Request, Route, ToolDescription

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.router import Router

MAX_TOKENS = 512
ENDPOINT_S = 30.0
QUESTION = "Кто живёт в доме с красной крышей?"
TEXTS = ("Anna lives in the house with the red roof.", "Вчера весь день шёл дождь.")
_TOOL = ToolDescription(
    name="say_ping",
    description="Says ping to somebody.",
    parameters={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)
_COLOUR = JsonSchema(
    name="sky",
    schema={
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
_REFUSALS = frozenset({400, 404, 415, 422, 500, 501})
_RED_SQUARE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP7/tF7hIASyp6lTCQQCgUAgEAgEgi/BAjLD/C5w"
    "/SM9AAAAAElFTkSuQmCC"
)


Trial: TypeAlias = Callable[[], Awaitable[list[ModelCheck]]]
"""Never raises ProviderError."""


def trials_of(config: "EngineConfig", router: "Router", name: str) -> list[Trial]:
    """All tests of a model, ``provider/model``. Raises ConfigError: there is no such model."""
    trials: list[Trial] = [
        partial(_try_endpoint, router.endpoint(*named, path), path, config.embedding.dimensions)
        for path, named in config.endpoints.items()
        if "/".join(named) == name
    ]
    if trials and name not in {routed for _, routed in config.routing.places()}:
        return trials
    route = router.route(name, key="NAME", alone=True)
    return [*trials, partial(_try_chat, route, config.llm.temperature, _switched_off(config, name))]


async def try_abilities(
    config: "EngineConfig", router: "Router", name: str, abilities: Sequence[str]
) -> list[ModelCheck]:
    """Whether a model takes ``tools`` and ``images``. Never raises ProviderError."""
    route = router.route(name, key="routing", alone=True)
    return [await ask(route, config.llm.temperature) for name, ask in _TRIES.items() if name in abilities]


async def say_hello(route: Route, temperature: float | None) -> "TimedAnswer | ProviderError":
    """Let a model say a word."""
    return await _ask(route, temperature, "Reply with one word: hello.")


def _switched_off(config: "EngineConfig", name: str) -> dict[str, str]:
    """The abilities that are not tried, and why."""
    provider, _, model = name.partition("/")
    if provider == LOCAL_PROVIDER:
        off = {"images": "it takes none", "json": "it takes none"}
        return off if config.local_model.tools else {**off, "tools": "localModel.tools is false"}
    settings = config.providers.get(provider)
    own = settings.models.get(model) if settings is not None else None
    key = join_path(f"providers.{provider}.models", model)
    keys = {"tools": "tools", "images": "images", "json": "json_schema"}
    return {
        each: f"{key}.{file_key(field)} is false" for each, field in keys.items() if getattr(own, field, 1) is False
    }


async def _try_chat(route: Route, temperature: float | None, off: Mapping[str, str]) -> list[ModelCheck]:
    answer = await say_hello(route, temperature)
    if isinstance(answer, ProviderError):
        rest: tuple[Literal["stream", "tools", "images", "json"], ...] = ("stream", "tools", "images", "json")
        not_tried = [ModelCheck(name, "not tried", "the model does not answer") for name in rest]
        return [ModelCheck("chat", "fails", answer.told()), *not_tried]
    pieces = f"{len(answer.arrived_s)} pieces, the first after {answer.arrived_s[0]:.1f} s" if answer.arrived_s else ""
    streamed = pieces if len(answer.arrived_s) > 1 else "the answer came in one piece"
    if answer.completion.usage is None:
        streamed += "; the service does not count tokens"
    checks = [ModelCheck("chat", "works", "it answers", answer.seconds), ModelCheck("stream", "works", streamed)]
    for name in _TRIES:
        why = off.get(name)
        checks.append(await _TRIES[name](route, temperature) if why is None else ModelCheck(name, "not tried", why))
    return checks


async def _try_tools(route: Route, temperature: float | None) -> ModelCheck:
    answer = await _ask(route, temperature, "Use the tool say_ping for Anna.", tools=(_TOOL,))
    if isinstance(answer, ProviderError):
        return _failed("tools", answer)
    called = any(call.name == _TOOL.name for call in answer.completion.tool_calls)
    refused = "tools" in answer.completion.adapted
    text = "it calls a tool" if called else "it refuses tools" if refused else "it answered and called no tool"
    state: Literal["works", "fails"] = "works" if called else "fails"
    return ModelCheck("tools", state, text, answer.seconds, found=called, sure=called or refused)


async def _try_images(route: Route, temperature: float | None) -> ModelCheck:
    square = Image(data=_RED_SQUARE, media_type="image/png")
    answer = await _ask(route, temperature, "Which colour is this? One word.", images=(square,))
    if isinstance(answer, ProviderError):
        return _failed("images", answer)
    seen = any(word in answer.completion.text.lower() for word in ("red", "красн"))
    text = "it sees a red square" if seen else "it accepts images, but failed the colour test"
    return ModelCheck("images", "works" if seen else "fails", text, answer.seconds, found=seen, sure=seen)


async def _try_json(route: Route, temperature: float | None) -> ModelCheck:
    answer = await _ask(route, temperature, "Which colour has the sky on a clear day?", schema=_COLOUR)
    if isinstance(answer, ProviderError):
        return _failed("json", answer)
    if "json_schema" in answer.completion.adapted:
        return ModelCheck("json", "fails", "it refuses a JSON schema", answer.seconds, found=False)
    try:
        fits = isinstance(json.loads(answer.completion.text)["colour"], str)
    except (ValueError, RecursionError, TypeError, KeyError):
        fits = False
    text = "its answer fits a JSON schema" if fits else "its answer does not fit the JSON schema"
    return ModelCheck("json", "works" if fits else "fails", text, answer.seconds, found=fits, sure=fits)


_TRIES: Mapping[Literal["tools", "images", "json"], Callable[[Route, float | None], Awaitable[ModelCheck]]] = {
    "tools": _try_tools,
    "images": _try_images,
    "json": _try_json,
}


def _failed(name: Literal["tools", "images", "json"], error: ProviderError) -> ModelCheck:
    refused = isinstance(error, ProviderRefused) and error.status in _REFUSALS
    return ModelCheck(name, "fails", error.told(), found=False if refused else None)


@attrs.frozen(kw_only=True)
class TimedAnswer:
    completion: Completion
    seconds: float
    arrived_s: list[float]
    """When each piece came."""


async def _ask(
    route: Route,
    temperature: float | None,
    text: str,
    tools: tuple[ToolDescription, ...] = (),
    images: tuple[Image, ...] = (),
    schema: JsonSchema | None = None,
) -> TimedAnswer | ProviderError:
    """The answer, or why there is none."""
    arrived_s: list[float] = []
    began = trio.current_time()

    def note(_: Delta) -> None:
        arrived_s.append(trio.current_time() - began)

    request = Request(
        model=route.model,
        messages=(ChatMessage(role="user", content=text, images=images),),
        tools=tools,
        max_tokens=min(route.max_output_tokens, MAX_TOKENS) + route.thinking_tokens,
        thinking=route.thinking,
        temperature=temperature,
        json_schema=schema,
        context_tokens=route.context_tokens if route.loads_context else None,
    )
    try:
        completion = await route.provider.stream(request, note)
    except ProviderError as error:
        return error
    return TimedAnswer(completion=completion, seconds=trio.current_time() - began, arrived_s=arrived_s)


async def _try_endpoint(endpoint: ModelEndpoint, path: Path, dimensions: int | None) -> list[ModelCheck]:
    began = trio.current_time()
    try:
        if path == "embeddings":
            asked = {"input": list(TEXTS)} | ({} if dimensions is None else {"dimensions": dimensions})
            read = partial(read_vectors, count=len(TEXTS), dimension=dimensions)
            vectors, _ = await endpoint.post(asked, read, ENDPOINT_S)
            said = f"vectors of {len(vectors[0])} numbers"
        else:
            query = {"query": QUESTION, "documents": list(TEXTS), "top_n": len(TEXTS)}
            scores, _ = await endpoint.post(query, partial(read_scores, count=len(TEXTS)), ENDPOINT_S)
            right = max(scores, key=lambda at: scores[at]) == 0
            said = "it puts the answer first" if right else "it answers, but ranks the wrong text first"
    except ProviderError as error:
        return [ModelCheck(path, "fails", error.told())]
    return [ModelCheck(path, "works", said, trio.current_time() - began)]
