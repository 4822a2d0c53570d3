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
from klaw.domain.tokens import estimate
from klaw.llm.endpoint import ModelEndpoint, Path, read_scores, read_vectors
from klaw.llm.errors import ProviderError, ProviderRefused
from klaw.llm.facts import ModelCheck
from klaw.llm.types import ChatMessage, Completion, Image, JsonSchema, Request, Route, ToolDescription

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.client import LlmClient

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


def trials_of(config: "EngineConfig", llm: "LlmClient", name: str) -> list[Trial]:
    """All tests of a model, ``provider/model``. Raises ConfigError: there is no such model."""
    trials: list[Trial] = [
        partial(_try_endpoint, llm, llm.router.endpoint(*named, path), path, config.embedding.dimensions)
        for path, named in config.endpoints.items()
        if "/".join(named) == name
    ]
    if trials and name not in {routed for _, routed in config.routing.places()}:
        return trials
    asking = Asking(llm, llm.router.route(name, key="NAME", alone=True), config.llm.temperature)
    return [*trials, partial(_try_chat, asking, _switched_off(config, name))]


async def try_abilities(
    config: "EngineConfig", llm: "LlmClient", name: str, abilities: Sequence[str]
) -> list[ModelCheck]:
    """Whether a model takes ``tools`` and ``images``. Never raises ProviderError."""
    asking = Asking(llm, llm.router.route(name, key="routing", alone=True), config.llm.temperature)
    return [await attempt(asking) for name, attempt in _TRIES.items() if name in abilities]


@attrs.frozen(kw_only=True)
class TimedAnswer:
    completion: Completion
    seconds: float
    arrived_s: list[float]
    """When each piece came."""


@attrs.frozen
class Asking:
    """A model that is asked; what it costs counts against the daily limits."""

    llm: "LlmClient"
    route: Route
    temperature: float | None
    arrived_s: list[float] = attrs.field(factory=list, init=False)
    """When each piece of the last answer came."""

    async def hello(self) -> "TimedAnswer | ProviderError":
        return await self.ask("Reply with one word: hello.")

    async def ask(
        self,
        text: str,
        tools: tuple[ToolDescription, ...] = (),
        images: tuple[Image, ...] = (),
        schema: JsonSchema | None = None,
    ) -> TimedAnswer | ProviderError:
        """The answer, or why there is none."""
        began, route = trio.current_time(), self.route
        self.arrived_s.clear()
        request = Request(
            model=route.model,
            messages=(ChatMessage(role="user", content=text, images=images),),
            tools=tools,
            max_tokens=min(route.max_output_tokens, MAX_TOKENS),
            temperature=self.temperature,
            json_schema=schema,
        )
        try:
            completion = await self.llm.meter().stream(
                attrs.evolve(route, json_schema=True),  # whatever is believed: it is tried
                request,
                lambda _: self.arrived_s.append(trio.current_time() - began),
            )
        except ProviderError as error:
            return error
        return TimedAnswer(completion=completion, seconds=trio.current_time() - began, arrived_s=[*self.arrived_s])


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


async def _try_chat(asking: Asking, off: Mapping[str, str]) -> list[ModelCheck]:
    answer = await asking.hello()
    if isinstance(answer, ProviderError):
        not_tried = "the model does not answer"
        rest = [ModelCheck(name, "not tried", not_tried) for name in _TRIES]
        return [ModelCheck("chat", "fails", answer.told()), ModelCheck("stream", "not tried", not_tried), *rest]
    pieces = f"{len(answer.arrived_s)} pieces, the first after {answer.arrived_s[0]:.1f} s" if answer.arrived_s else ""
    streamed = pieces if len(answer.arrived_s) > 1 else "the answer came in one piece"
    if answer.completion.usage is None:
        streamed += "; the service does not count tokens"
    checks = [ModelCheck("chat", "works", "it answers", answer.seconds), ModelCheck("stream", "works", streamed)]
    for name, attempt in _TRIES.items():
        checks.append(ModelCheck(name, "not tried", off[name]) if name in off else await attempt(asking))
    return checks


async def _try_tools(asking: Asking) -> ModelCheck:
    answer = await asking.ask("Use the tool say_ping for Anna.", tools=(_TOOL,))
    if isinstance(answer, ProviderError):
        return _failed("tools", answer)
    called = any(call.name == _TOOL.name for call in answer.completion.tool_calls)
    refused = "tools" in answer.completion.adapted
    text = "it calls a tool" if called else "it refuses tools" if refused else "it answered and called no tool"
    return _came_out("tools", answer, text, works=called, sure=called or refused)


async def _try_images(asking: Asking) -> ModelCheck:
    square = Image(data=_RED_SQUARE, media_type="image/png")
    answer = await asking.ask("Which colour is this? One word.", images=(square,))
    if isinstance(answer, ProviderError):
        return _failed("images", answer)
    seen = any(word in answer.completion.text.lower() for word in ("red", "красн"))
    text = "it sees a red square" if seen else "it accepts images, but failed the colour test"
    return _came_out("images", answer, text, works=seen, sure=seen)


async def _try_json(asking: Asking) -> ModelCheck:
    answer = await asking.ask("Which colour has the sky on a clear day?", schema=_COLOUR)
    if isinstance(answer, ProviderError):
        return _failed("json", answer)
    if "json_schema" in answer.completion.adapted:
        return _came_out("json", answer, "it refuses a JSON schema", works=False, sure=True)
    try:
        fits = isinstance(json.loads(answer.completion.text)["colour"], str)
    except (ValueError, RecursionError, TypeError, KeyError):
        fits = False
    text = "its answer fits a JSON schema" if fits else "its answer does not fit the JSON schema"
    return _came_out("json", answer, text, works=fits, sure=fits)


_Ability: TypeAlias = Literal["tools", "images", "json"]


def _came_out(name: _Ability, answer: TimedAnswer, text: str, *, works: bool, sure: bool) -> ModelCheck:
    return ModelCheck(name, "works" if works else "fails", text, answer.seconds, found=works, sure=sure)


def _failed(name: _Ability, error: ProviderError) -> ModelCheck:
    refused = isinstance(error, ProviderRefused) and error.status in _REFUSALS
    return ModelCheck(name, "fails", error.told(), found=False if refused else None)


_TRIES: Mapping[_Ability, Callable[[Asking], Awaitable[ModelCheck]]] = {
    "tools": _try_tools,
    "images": _try_images,
    "json": _try_json,
}


async def _try_endpoint(llm: "LlmClient", endpoint: ModelEndpoint, path: Path, size: int | None) -> list[ModelCheck]:
    began, meter = trio.current_time(), llm.meter()
    tokens = sum(map(estimate, (QUESTION, *TEXTS)))
    try:
        if path == "embeddings":
            asked = {"input": list(TEXTS)} | ({} if size is None else {"dimensions": size})
            read = partial(read_vectors, count=len(TEXTS), dimension=size)
            vectors = await meter.post(endpoint, asked, read, prompt_tokens=tokens, within_s=ENDPOINT_S)
            said = f"vectors of {len(vectors[0])} numbers"
        else:
            query = {"query": QUESTION, "documents": list(TEXTS), "top_n": len(TEXTS)}
            order = partial(read_scores, count=len(TEXTS))
            scores = await meter.post(endpoint, query, order, prompt_tokens=tokens, within_s=ENDPOINT_S)
            right = max(scores, key=lambda at: scores[at]) == 0
            said = "it puts the answer first" if right else "it answers, but ranks the wrong text first"
    except ProviderError as error:
        return [ModelCheck(path, "fails", error.told())]
    return [ModelCheck(path, "works", said, trio.current_time() - began)]
