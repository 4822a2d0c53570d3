"""Models that do not chat: OpenAI's ``/embeddings``, ``/rerank`` as llama.cpp, vLLM, Infinity, Jina and Cohere serve
it, and sound (``klaw.llm.voice``).

Numbers are not trusted: each result must name a text that was sent, once, and hold nothing but finite numbers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from klaw.llm.errors import ContextTooLong, ProviderError, ProviderMalformed, ProviderRefused
from klaw.llm.providers.http import ReadReply, Sent
from klaw.llm.service import Service
from klaw.llm.types import Usage

T = TypeVar("T")

_OF_THE_TEXT = frozenset({400, 413, 422})


@attrs.frozen(kw_only=True)
class ModelEndpoint:
    """A model behind an address of its own. ``name`` is ``provider/model``."""

    service: Service
    name: str
    model: str

    async def post(
        self, members: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T], within_s: float
    ) -> tuple[T, Usage | None]:
        """Ask; ``Meter.post`` counts, too. Returns what ``read`` makes of the answer, in a thread, and what the
        provider counted. ``within_s`` includes repetitions. Raises ProviderError."""

        def whole(answer: Mapping[str, Any]) -> tuple[T, Usage | None]:
            return read(answer), _usage(answer)

        return await self.service.call(lambda provider: provider.post(self.model, members, whole, within_s))

    async def exchange(self, sent: Sent, read: ReadReply[T], within_s: float, **headers: str) -> T:
        """``HttpProvider.exchange``. Raises ProviderError."""
        return await self.service.call(lambda made: made.exchange(self.model, sent, read, within_s, **headers))


class NotNumbers(ProviderMalformed):
    """The answer has something else in place of numbers; models overflow on single texts."""


def is_of_the_text(error: ProviderError) -> bool:
    """Whether a failure may be about one of the texts only, so that the model can still be asked."""
    if isinstance(error, ProviderRefused):
        return isinstance(error, ContextTooLong) or error.status in _OF_THE_TEXT
    return isinstance(error, NotNumbers)


def read_vectors(answer: Mapping[str, Any], count: int, dimension: int | None = None) -> list[list[float]]:
    """The vectors of ``count`` texts, in their order; ``dimension`` None: of any one size. Raises ProviderMalformed."""
    placed = _by_index(answer.get("data"), count)
    if len(placed) < count:
        raise ProviderMalformed(f"the LLM provider gave {len(placed)} vectors for {count} texts")
    vectors = [_numbers(placed[index].get("embedding")) for index in range(count)]
    wanted = len(vectors[0]) if dimension is None else dimension
    odd = next((len(vector) for vector in vectors if len(vector) != wanted or not wanted), None)
    if odd is not None:
        raise ProviderMalformed(f"the LLM provider gave a vector of {odd} numbers, {wanted} were expected")
    return vectors


def read_scores(answer: Mapping[str, Any], count: int) -> dict[int, float]:
    """Relevance by a document's index, on any scale, perhaps not of all ``count``. Raises ProviderMalformed."""
    placed = _by_index(answer.get("results"), count)
    scores = _numbers([each.get("relevance_score") for each in placed.values()])
    return dict(zip(placed, scores, strict=True))


def _by_index(items: object, count: int) -> dict[int, Mapping[str, Any]]:
    if not isinstance(items, list) or not items:
        raise ProviderMalformed("the LLM provider gave no list of results")
    read = (each for each in items if isinstance(each, dict))
    placed: dict[int, Mapping[str, Any]] = {each["index"]: each for each in read if type(each.get("index")) is int}
    if len(placed) != len(items) or not placed.keys() <= set(range(count)):
        raise ProviderMalformed("the LLM provider's results do not have the index of a text each")
    return placed


def _numbers(values: object) -> list[float]:
    try:
        if isinstance(values, list) and all(type(each) in (int, float) for each in values):
            numbers = list(map(float, values))
            if all(map(math.isfinite, numbers)):
                return numbers
    except OverflowError:
        pass
    raise NotNumbers("the LLM provider's results have something else in place of numbers")


def _usage(answer: Mapping[str, Any]) -> Usage | None:
    told = answer.get("usage")
    counts = [told.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(told, dict) else []
    counted = max((each for each in counts if type(each) is int), default=0)
    return Usage(prompt_tokens=counted, completion_tokens=0) if counted > 0 else None
