"""Tests a model with a few tiny questions. They are fixed: no user's data is sent."""

import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import trio

from klaw.config.document import join_path
from klaw.config.llm import LOCAL_PROVIDER
from klaw.llm.endpoint import ModelEndpoint, Path, read_scores, read_vectors
from klaw.llm.errors import ProviderError, ProviderRefused
from klaw.llm.types import ChatMessage, Completion, Delta, Image, Request, Route, ToolDescription

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
_USE_TOOL = "Use the tool say_ping for Anna."
_RED_SQUARE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP7/tF7hIASyp6lTCQQCgUAgEAgEgi/BAjLD/C5w"
    "/SM9AAAAAElFTkSuQmCC"
)


@attrs.frozen
class ModelCheck:
    """One ability of a model."""

    name: Literal["chat", "stream", "tools", "images", "embeddings", "rerank"]
    state: Literal["works", "fails", "not tried"]
    text: str
    seconds: float | None = None


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
    provider = name.partition("/")[0]
    key = "localModel" if provider == LOCAL_PROVIDER else join_path(f"providers.{provider}.models", route.model)
    no_images = "it takes none" if provider == LOCAL_PROVIDER else f"{key}.images is false"
    return [*trials, partial(_try_chat, route, config.llm.temperature, f"{key}.tools is false", no_images)]


async def _try_chat(route: Route, temperature: float | None, no_tools: str, no_images: str) -> list[ModelCheck]:
    """``no_tools``, ``no_images``: why they are not tried."""
    answer = await _ask(route, temperature, "Reply with one word: hello.")
    if isinstance(answer, str):
        rest: tuple[Literal["stream", "tools", "images"], ...] = ("stream", "tools", "images")
        not_tried = [ModelCheck(name, "not tried", "the model does not answer") for name in rest]
        return [ModelCheck("chat", "fails", answer), *not_tried]
    pieces = f"{len(answer.arrived_s)} pieces, the first after {answer.arrived_s[0]:.1f} s" if answer.arrived_s else ""
    return [
        ModelCheck("chat", "works", "it answers", answer.seconds),
        ModelCheck("stream", "works", pieces if len(answer.arrived_s) > 1 else "the answer came in one piece"),
        await _try_tools(route, temperature) if route.tools else ModelCheck("tools", "not tried", no_tools),
        await _try_images(route, temperature) if route.images else ModelCheck("images", "not tried", no_images),
    ]


async def say_hello(route: Route, temperature: float | None) -> "TimedAnswer":
    """Let a model say a word. Raises ProviderError."""
    return await _asked(route, temperature, "Reply with one word: hello.")


async def calls_tools(route: Route, temperature: float | None) -> bool | None:
    """Whether a model calls a tool that is offered to it; None: it could not be asked."""
    try:
        return _called(await _asked(route, temperature, _USE_TOOL, tools=(_TOOL,)))
    except ProviderRefused:
        return False
    except ProviderError:
        return None


def _called(answer: "TimedAnswer") -> bool:
    return any(call.name == _TOOL.name for call in answer.completion.tool_calls)


async def _try_tools(route: Route, temperature: float | None) -> ModelCheck:
    answer = await _ask(route, temperature, _USE_TOOL, tools=(_TOOL,))
    if isinstance(answer, str):
        return ModelCheck("tools", "fails", answer)
    called = _called(answer)
    text = "it calls a tool" if called else "it answered and called no tool"
    return ModelCheck("tools", "works" if called else "fails", text, answer.seconds)


async def _try_images(route: Route, temperature: float | None) -> ModelCheck:
    square = Image(data=_RED_SQUARE, media_type="image/png")
    answer = await _ask(route, temperature, "Which colour is this? One word.", images=(square,))
    if isinstance(answer, str):
        return ModelCheck("images", "fails", answer)
    seen = any(word in answer.completion.text.lower() for word in ("red", "красн"))
    text = "it sees a red square" if seen else "it accepts images, but failed the colour test"
    return ModelCheck("images", "works" if seen else "fails", text, answer.seconds)


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
) -> TimedAnswer | str:
    """The answer, or why there is none."""
    try:
        return await _asked(route, temperature, text, tools, images)
    except ProviderError as error:
        return error.told()


async def _asked(
    route: Route,
    temperature: float | None,
    text: str,
    tools: tuple[ToolDescription, ...] = (),
    images: tuple[Image, ...] = (),
) -> TimedAnswer:
    arrived_s: list[float] = []
    began = trio.current_time()

    def note(_: Delta) -> None:
        arrived_s.append(trio.current_time() - began)

    request = Request(
        model=route.model,
        messages=(ChatMessage(role="user", content=text, images=images),),
        tools=tools,
        max_tokens=min(route.max_output_tokens, MAX_TOKENS),
        temperature=temperature,
    )
    completion = await route.provider.stream(request, note)
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
