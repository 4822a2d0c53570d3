"""An embedding model of a provider: OpenAI's ``/embeddings``, behind the interface of ``EmbeddingModel``. Every text
that is embedded goes to that provider. Sync code for a thread that Trio started (``klaw.actor.threads``): the call
itself runs on the event loop, and is given up when whoever waits for the thread is cancelled."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import attrs
import numpy as np
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.config.memory import EmbeddingConfig
from klaw.config.schema import EngineConfig
from klaw.domain import tokens
from klaw.domain.names import LOCAL_USER
from klaw.errors import ModelAway, ModelError
from klaw.llm.client import LlmClient, Meter, note_spending
from klaw.llm.endpoint import ModelEndpoint, is_of_the_text, read_vectors
from klaw.llm.errors import ProviderError
from klaw.memory.embed.calibration import Kind, calibrate
from klaw.memory.embed.passage import RECIPE, PassageText
from klaw.memory.embed.token_coder import Floats, Reading, TokenCoder, unit
from klaw.models.manifest import Calibration, read_beside, store
from klaw.store.engine.writer import Writer

if TYPE_CHECKING:
    from klaw.memory.embed.model import EmbeddingModel

AnyModel: TypeAlias = "EmbeddingModel | RemoteModel"

TEXTS_IN_REQUEST = 10
"""What the strictest known service takes at once (Alibaba's text-embedding-v4)."""
WINDOW_TOKENS = 350
"""Longer texts are sent in parts. Estimated tokens: far enough below the 512 of small models."""
QUERY_S, PASSAGES_S = 2.0, 60.0
"""Longest wait for a request with a question, whose vector nobody waits longer for; with passages."""
MAX_DIMENSION = 8192
"""Limit of sqlite-vec."""
NOTE_S = 600.0
"""Shortest time between two notes on what was spent."""
_EMPTY = "-"
"""Stands for a text without characters, which some services refuse."""
_TINY = 1e-12

log = structlog.get_logger("klaw.embedder")


@attrs.define(kw_only=True, eq=False)
class RemoteModel:
    """A provider's embedding model, and what it costs. Once it is loaded, it has the attributes of ``EmbeddingModel``.
    A passage is sent as one text with its context: pooling a text's own tokens needs the model's states."""

    endpoint: ModelEndpoint
    config: EmbeddingConfig
    llm: LlmClient
    folder: Path
    """Keeps what was measured of models."""
    clock: Clock
    writer: Writer | None = None
    """Stores notes on what was spent."""
    lanes: int = 4
    """Questions that are embedded at the same time."""
    coder: TokenCoder | None = attrs.field(default=None, init=False)
    """Always None: codes of tokens need the model's states."""
    trouble: str | None = attrs.field(default=None, init=False)
    """Why the last call failed."""
    meter: Meter = attrs.field(init=False, default=attrs.Factory(lambda self: self.llm.meter(), takes_self=True))
    dimension: int = attrs.field(init=False)
    model_id: str = attrs.field(init=False)
    random_cosine: float = attrs.field(init=False)
    _loaded: bool = attrs.field(default=False, init=False)
    _noted_at: float = attrs.field(default=-math.inf, init=False)

    def load(self) -> Self:
        """Ask the model for a vector, and measure it if that was never done. Raises ModelError."""
        self._loaded = False
        self.dimension = len(self.ask([_EMPTY], self.config.dimensions, PASSAGES_S)[0])
        if self.dimension > MAX_DIMENSION:
            raise ModelError(
                f"{self.endpoint.name}: vectors of {self.dimension} numbers are too long, {MAX_DIMENSION} at most"
            )
        shaping = f"{self.config.query_prefix}\n{self.config.passage_prefix}"
        prefixed = f"+{hashlib.sha256(shaping.encode()).hexdigest()[:12]}" if shaping.strip("\n") else ""
        self.model_id = f"{self.endpoint.name}@{self.dimension}{prefixed}"
        self.random_cosine = self._calibrate().random_cosine
        self._loaded = True
        return self

    def embed(self, texts: Sequence[str | PassageText], kind: Kind) -> Floats:
        """See ``EmbeddingModel``. Raises ModelAway: it cannot be asked now; ModelError: it refuses one of the texts."""
        prefix = self.config.query_prefix if kind == "query" else self.config.passage_prefix
        parts = [(at, prefix + part) for at, text in enumerate(texts) for part in _parts(text)]
        sums = np.zeros((len(texts), self.dimension), np.float64)
        for first in range(0, len(parts), TEXTS_IN_REQUEST):
            sent = parts[first : first + TEXTS_IN_REQUEST]
            within_s = QUERY_S if kind == "query" else PASSAGES_S
            made = np.asarray(self.ask([part for _, part in sent], self.dimension, within_s))
            with np.errstate(over="ignore"):
                lengths = np.linalg.norm(made, axis=1)
            if not ((lengths > _TINY) & np.isfinite(lengths)).all():
                raise ModelError(f"{self.model_id}: gives a vector of no length, or of too much")
            for (at, part), vector, length in zip(sent, made, lengths, strict=True):
                sums[at] += len(part) * vector / length
        return unit(sums)

    def read(self, texts: Sequence[str | PassageText], *, kind: Kind) -> list[Reading]:
        return [Reading(vector.tobytes()) for vector in self.embed(texts, kind).astype("<f4")]

    def close(self) -> None:
        """The provider's connections are the router's."""

    def _calibrate(self) -> Calibration:
        folder = self.folder / hashlib.sha256(self.model_id.encode()).hexdigest()[:12]
        known = read_beside(folder, self.model_id)
        if known is not None and known.recipe == RECIPE:
            return known
        made = calibrate(self.embed)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            store(folder, self.model_id, made)
        except (ModelError, OSError) as error:  # it is measured again at the next start
            log.warning("calibration_not_kept", error=type(error).__name__)
        return made

    def ask(self, texts: Sequence[str], dimension: int | None, within_s: float) -> list[list[float]]:
        try:
            made = trio.from_thread.run(partial(self._post, texts, dimension, within_s))
        except ProviderError as error:
            if is_of_the_text(error):
                raise ModelError(str(error)) from error
            self.trouble = str(error)
            raise ModelAway(self.trouble) from error
        self.trouble = None
        return made

    async def _post(self, texts: Sequence[str], dimension: int | None, within_s: float) -> list[list[float]]:
        asked = {} if self.config.dimensions is None else {"dimensions": self.config.dimensions}

        def read(answer: Mapping[str, Any]) -> list[list[float]]:
            return read_vectors(answer, len(texts), dimension)

        members = {"input": list(texts), **asked}
        prompt = sum(map(tokens.estimate, texts))
        return await self.meter.post(self.endpoint, members, read, prompt_tokens=prompt, within_s=within_s)

    def problems(self) -> Mapping[str, str]:
        """Empty until the model is loaded: until then the embedder says what is wrong."""
        if self.trouble is None or not self._loaded:
            return {}
        return {"embeddings_failing": f"no vectors of questions and new messages: {self.trouble}"}

    async def note_spending(self, *, at_once: bool = False) -> None:
        """Store what was spent, for ``local``, if the last note is long enough ago: the journal must not grow fast."""
        if self.writer is not None and (at_once or trio.current_time() >= self._noted_at + NOTE_S):
            self._noted_at = trio.current_time()
            await note_spending(self.meter.take(), self.writer, iso(self.clock.now()), "embedding", LOCAL_USER)


def remote_of(
    config: EngineConfig, llm: LlmClient, models_dir: Path, clock: Clock, writer: Writer | None = None
) -> RemoteModel | None:
    """The provider's model of a configuration; None where it is one of this machine."""
    if (named := config.endpoints.get("embeddings")) is None:
        return None
    return RemoteModel(
        endpoint=llm.router.endpoint(*named, "embeddings"),
        config=config.embedding,
        llm=llm,
        folder=models_dir / "remote",
        clock=clock,
        writer=writer,
    )


def _parts(text: str | PassageText) -> list[str]:
    passage = PassageText(text) if isinstance(text, str) else text
    whole = f"{passage.context}\n{passage.text}" if passage.context else passage.text or _EMPTY
    size = math.ceil(len(whole) / max(1, math.ceil(tokens.estimate(whole) / WINDOW_TOKENS)))
    return [whole[begin : begin + size] for begin in range(0, len(whole), size)]
