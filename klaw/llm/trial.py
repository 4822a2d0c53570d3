"""Tests a model with a few tiny questions. They are fixed: no user's data is sent."""

import base64
import json
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import attrs
import trio

from klaw.config.document import join_path
from klaw.config.keys import file_key
from klaw.config.llm import LOCAL_PROVIDER, EndpointPath
from klaw.domain.tokens import estimate
from klaw.llm import voice
from klaw.llm.endpoint import ModelEndpoint, read_scores, read_vectors
from klaw.llm.errors import ProviderError, ProviderRefused
from klaw.llm.facts import ModelCheck
from klaw.llm.types import ChatMessage, Completion, Image, JsonSchema, Request, Route, ToolDescription

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.client import LlmClient, Meter

T = TypeVar("T")

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
_RED_SQUARE = Image(
    data=base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP7/tF7hIASyp6lTCQQCgUAgEAgEgi/BAjLD/C5w"
        "/SM9AAAAAElFTkSuQmCC"
    ),
    media_type="image/png",
)


_Ability: TypeAlias = Literal["tools", "images", "json"]
Trial: TypeAlias = Callable[[], Awaitable[list[ModelCheck]]]
"""Never raises ProviderError."""


def trials_of(config: "EngineConfig", llm: "LlmClient", name: str) -> list[Trial]:
    """All tests of a model, ``provider/model``. Raises ConfigError: there is no such model."""
    trials: list[Trial] = [
        partial(_try_endpoint, llm, llm.router.endpoint(*named, path), path, config)
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
    return [await _try(asking, name) for name in _TRIES if name in abilities]


@attrs.frozen
class TimedAnswer:
    completion: Completion
    seconds: float


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

    async def ask(self, text: str, images: tuple[Image, ...] = (), **wanted: Any) -> TimedAnswer | ProviderError:
        """The answer, or why there is none. ``wanted``: fields of the request."""
        # Whatever is believed of JSON schemas: it is tried.
        began, route = trio.current_time(), attrs.evolve(self.route, json_schema=True)
        self.arrived_s.clear()
        said, most = ChatMessage(role="user", content=text, images=images), min(route.max_output_tokens, MAX_TOKENS)
        request = Request(model=route.model, messages=(said,), max_tokens=most, temperature=self.temperature, **wanted)
        try:
            completion = await self.llm.meter().stream(
                route, request, lambda _: self.arrived_s.append(trio.current_time() - began)
            )
        except ProviderError as error:
            return error
        return TimedAnswer(completion, trio.current_time() - began)


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
    came = asking.arrived_s
    streamed = f"{len(came)} pieces, the first after {came[0]:.1f} s" if came[1:] else "the answer came in one piece"
    if answer.completion.usage is None:
        streamed += "; the service does not count tokens"
    checks = [ModelCheck("chat", "works", "it answers", answer.seconds), ModelCheck("stream", "works", streamed)]
    for name in _TRIES:
        checks += [ModelCheck(name, "not tried", off[name]) if name in off else await _try(asking, name)]
    return checks


async def _try(asking: Asking, name: _Ability) -> ModelCheck:
    asked, judge = _TRIES[name]
    answer = await asking.ask(**asked)
    if isinstance(answer, ProviderError):
        refused = isinstance(answer, ProviderRefused) and answer.status in _REFUSALS
        return ModelCheck(name, "fails", answer.told(), found=False if refused else None)
    works, sure, text = judge(answer.completion)
    return ModelCheck(name, "works" if works else "fails", text, answer.seconds, found=works, sure=sure)


def _calls(said: Completion) -> tuple[bool, bool, str]:
    """Whether it works, whether that is sure, and what was seen."""
    called, refused = any(call.name == _TOOL.name for call in said.tool_calls), "tools" in said.adapted
    text = "it calls a tool" if called else "it refuses tools" if refused else "it answered and called no tool"
    return called, called or refused, text


def _sees(said: Completion) -> tuple[bool, bool, str]:
    seen = any(word in said.text.lower() for word in ("red", "красн"))
    return seen, seen, "it sees a red square" if seen else "it accepts images, but failed the colour test"


def _fits(said: Completion) -> tuple[bool, bool, str]:
    if "json_schema" in said.adapted:
        return False, True, "it refuses a JSON schema"
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        if isinstance(json.loads(said.text)["colour"], str):
            return True, True, "its answer fits a JSON schema"
    return False, False, "its answer does not fit the JSON schema"


_TRIES: Mapping[_Ability, tuple[dict[str, Any], Callable[[Completion], tuple[bool, bool, str]]]] = {
    "tools": ({"text": "Use the tool say_ping for Anna.", "tools": (_TOOL,)}, _calls),
    "images": ({"text": "Which colour is this? One word.", "images": (_RED_SQUARE,)}, _sees),
    "json": ({"text": "Which colour has the sky on a clear day?", "json_schema": _COLOUR}, _fits),
}


async def _try_endpoint(
    llm: "LlmClient", endpoint: ModelEndpoint, path: EndpointPath, config: "EngineConfig"
) -> list[ModelCheck]:
    began, meter, said = trio.current_time(), llm.meter(), ""
    try:
        if path == "embeddings":
            size = config.embedding.dimensions
            asked: dict[str, Any] = {"input": list(TEXTS)} | ({} if size is None else {"dimensions": size})
            vectors = await _posted(meter, endpoint, asked, partial(read_vectors, count=len(TEXTS), dimension=size))
            said = f"vectors of {len(vectors[0])} numbers"
        elif path == "rerank":
            asked = {"query": QUESTION, "documents": list(TEXTS), "top_n": len(TEXTS)}
            scores = await _posted(meter, endpoint, asked, partial(read_scores, count=len(TEXTS)))
            right = max(scores, key=lambda at: scores[at]) == 0
            said = "it puts the answer first" if right else "it answers, but ranks the wrong text first"
        elif path == "audio/transcriptions":
            await voice.listen(meter, endpoint, _SILENCE, "wav", "audio/wav")
            said = "it listens"
        else:
            sound, kind = await voice.say(meter, endpoint, "Hello.", {"voice": config.voice.voice})
            said = f"it speaks: {len(sound):,} bytes of {kind}"
    except ProviderError as error:
        return [ModelCheck(path, "fails", error.told())]
    return [ModelCheck(path, "works", said, trio.current_time() - began)]


def _posted(
    meter: "Meter", endpoint: ModelEndpoint, asked: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]
) -> Awaitable[T]:
    tokens = sum(map(estimate, (QUESTION, *TEXTS)))
    return meter.post(endpoint, asked, read, prompt_tokens=tokens, within_s=ENDPOINT_S)


_SECOND = 32_000
_SOUND = b"RIFF", 36 + _SECOND, b"WAVEfmt ", 16, 1, 1, 16_000, _SECOND, 2, 16, b"data", _SECOND
_SILENCE = struct.pack("<4sI8sIHHIIHH4sI", *_SOUND) + bytes(_SECOND)
"""A second of it as a WAV file."""
