"""Tests a model with a few tiny questions. They are fixed: no user's data is sent."""

import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import trio

from klaw.config.document import join_path
from klaw.config.llm import LOCAL_PROVIDER
from klaw.llm.endpoint import ModelEndpoint, Path, read_scores, read_vectors
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, Completion, Delta, Image, Provider, Request, ToolDescription

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.router import Router

MAX_TOKENS = 512

State: TypeAlias = Literal["works", "fails", "not tried"]

_TOOL = ToolDescription(
    name="say_ping",
    description="Says ping to somebody.",
    parameters={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)


@attrs.frozen
class ModelCheck:
    """One ability of a model."""

    name: Literal["chat", "stream", "tools", "images", "embeddings", "rerank"]
    state: State
    text: str
    seconds: float | None = None


def trials_of(config: "EngineConfig", router: "Router", name: str) -> "list[ChatTrial | EndpointTrial]":
    """All tests of a model, ``provider/model``. Raises ConfigError: there is no such model."""
    trials: list[ChatTrial | EndpointTrial] = [
        EndpointTrial(endpoint=router.endpoint(*named, path), path=path, dimensions=config.embedding.dimensions)
        for path, named in config.endpoints.items()
        if "/".join(named) == name
    ]
    if trials and name not in {routed for _, routed in config.routing.places()}:
        return trials
    route = router.route(name, key="NAME", alone=True)
    provider = name.partition("/")[0]
    key = "localModel" if provider == LOCAL_PROVIDER else join_path(f"providers.{provider}.models", route.model)
    chat = ChatTrial(
        provider=route.provider,
        model=route.model,
        max_tokens=route.max_output_tokens,
        temperature=config.llm.temperature,
        tools="" if route.tools else f"{key}.tools is false",
        images="" if route.images else "it takes none" if provider == LOCAL_PROVIDER else f"{key}.images is false",
    )
    return [*trials, chat]


@attrs.frozen(kw_only=True)
class ChatTrial:
    """A test of chats. ``tools`` and ``images``: why they are not tried; empty when they are."""

    provider: Provider
    model: str
    max_tokens: int
    temperature: float | None = None
    tools: str = ""
    images: str = ""

    async def run(self) -> list[ModelCheck]:
        """Never raises ProviderError."""
        answer = await self._ask("Reply with one word: hello.")
        if isinstance(answer, str):
            rest: tuple[Literal["stream", "tools", "images"], ...] = ("stream", "tools", "images")
            not_tried = [ModelCheck(name, "not tried", "the model does not answer") for name in rest]
            return [ModelCheck("chat", "fails", answer), *not_tried]
        came = "the answer came in one piece"
        if answer.pieces > 1:
            came = f"{answer.pieces} pieces, the first after {answer.first_s:.1f} s"
        return [
            ModelCheck("chat", "works", "it answers", answer.seconds),
            ModelCheck("stream", "works", came),
            await self._tools() if not self.tools else ModelCheck("tools", "not tried", self.tools),
            await self._images() if not self.images else ModelCheck("images", "not tried", self.images),
        ]

    async def _tools(self) -> ModelCheck:
        answer = await self._ask("Use the tool say_ping for Anna.", tools=(_TOOL,))
        if isinstance(answer, str):
            return ModelCheck("tools", "fails", answer)
        called = any(call.name == _TOOL.name for call in answer.completion.tool_calls)
        text = "it calls a tool" if called else "it answered and called no tool"
        return ModelCheck("tools", "works" if called else "fails", text, answer.seconds)

    async def _images(self) -> ModelCheck:
        square = Image(data=red_square(), media_type="image/png")
        answer = await self._ask("Which colour is this? One word.", images=(square,))
        if isinstance(answer, str):
            return ModelCheck("images", "fails", answer)
        seen = any(word in answer.completion.text.lower() for word in ("red", "красн"))
        text = "it sees a red square" if seen else "it accepts images, but failed the colour test"
        return ModelCheck("images", "works" if seen else "fails", text, answer.seconds)

    async def _ask(
        self, text: str, tools: tuple[ToolDescription, ...] = (), images: tuple[Image, ...] = ()
    ) -> "_TimedAnswer | str":
        """The answer, or why there is none."""
        arrived: list[float] = []

        def note(_: Delta) -> None:
            arrived.append(trio.current_time())

        began = trio.current_time()
        request = Request(
            model=self.model,
            messages=(ChatMessage(role="user", content=text, images=images),),
            tools=tools,
            max_tokens=min(self.max_tokens, MAX_TOKENS),
            temperature=self.temperature,
        )
        try:
            completion = await self.provider.stream(request, note)
        except ProviderError as error:
            return error.told()
        return _TimedAnswer(
            completion=completion,
            seconds=trio.current_time() - began,
            first_s=arrived[0] - began if arrived else 0.0,
            pieces=len(arrived),
        )


QUESTION = "Кто живёт в доме с красной крышей?"
TEXTS = ("Anna lives in the house with the red roof.", "Вчера весь день шёл дождь.")
ENDPOINT_S = 30.0


@attrs.frozen(kw_only=True)
class EndpointTrial:
    """A test of a model for embeddings or for reranking."""

    endpoint: ModelEndpoint
    path: Path
    dimensions: int | None

    async def run(self) -> list[ModelCheck]:
        """Never raises ProviderError."""
        began = trio.current_time()
        try:
            said = await (self._embed() if self.path == "embeddings" else self._rerank())
        except ProviderError as error:
            return [ModelCheck(self.path, "fails", error.told())]
        return [ModelCheck(self.path, "works", said, trio.current_time() - began)]

    async def _embed(self) -> str:
        asked = {"input": list(TEXTS)} | ({} if self.dimensions is None else {"dimensions": self.dimensions})
        read = partial(read_vectors, count=len(TEXTS), dimension=self.dimensions)
        vectors, _ = await self.endpoint.post(asked, read, ENDPOINT_S)
        return f"vectors of {len(vectors[0])} numbers"

    async def _rerank(self) -> str:
        asked = {"query": QUESTION, "documents": list(TEXTS), "top_n": len(TEXTS)}
        scores, _ = await self.endpoint.post(asked, partial(read_scores, count=len(TEXTS)), ENDPOINT_S)
        right = max(scores, key=lambda at: scores[at]) == 0
        return "it puts the answer first" if right else "it answers, but ranks the wrong text first"


@attrs.frozen(kw_only=True)
class _TimedAnswer:
    completion: Completion
    seconds: float
    first_s: float
    pieces: int


def red_square(side: int = 32) -> bytes:
    """A PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
