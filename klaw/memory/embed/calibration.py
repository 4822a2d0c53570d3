"""Measures what "nothing in common" looks like to an embedding model: the mean cosine of a question and a message of
the same conversation that have nothing to do with each other.

Inside one conversation, because recall searches there: its people, tone and language make any two of its texts more
alike than two sentences from anywhere. Pure but for the embedding function.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from klaw.errors import ModelError
from klaw.memory.embed.dialogues import DIALOGUES
from klaw.memory.embed.passage import RECIPE, Passage, passage

MAX_QUERIES = 60
"""Of a conversation; more are thinned out evenly: 60 by 120 pairs put the mean's own error below 0.001."""
MAX_MESSAGES = 120
MIN_PAIRS = 100
"""With fewer, chance decides the second digit."""
NEARBY = 2
"""A query that is itself a message is not paired with messages so close to it: they are on the same matter."""
ENOUGH_QUESTIONS = 12
"""So many questions among the messages stand for what is asked; statements are more alike than question and answer."""
TOO_ALIKE = 0.999
"""A model that finds all texts so alike has told nothing about them."""

Float32: TypeAlias = npt.NDArray[np.float32]
Embed: TypeAlias = Callable[[Sequence[str] | Sequence[Passage], Literal["query", "passage"]], Float32]
"""Texts and their kind -> unit vectors (n, dimension)."""


@attrs.frozen(kw_only=True)
class Talk:
    """One conversation."""

    messages: tuple[str, ...]
    """In their order."""
    queries: tuple[str, ...]
    related: frozenset[tuple[int, int]] = frozenset()
    """Pairs (query, message) that do have something in common, and are not counted."""


@attrs.frozen(kw_only=True)
class Measured:
    """Outcome of a measurement."""

    mean: float
    deviation: float
    """Standard deviation of one pair."""
    pairs: int
    queries: int
    messages: int


def built_in() -> tuple[Talk, ...]:
    """The conversations that come with Klaw, one in English and one in Russian."""
    return tuple(Talk(queries=queries, messages=messages) for queries, messages in DIALOGUES)


def of_messages(messages: Sequence[str]) -> Talk:
    """A conversation without questions about it: its own questions serve, and without enough of them all messages."""
    asking = [at for at, text in enumerate(messages) if text.rstrip().endswith("?")]
    chosen = asking if len(asking) >= ENOUGH_QUESTIONS else list(range(len(messages)))
    near = frozenset(
        (query, message)
        for query, at in enumerate(chosen)
        for message in range(at - NEARBY, at + NEARBY + 1)
        if 0 <= message < len(messages)
    )
    return Talk(messages=tuple(messages), queries=tuple(messages[at] for at in chosen), related=near)


def measure(embed: Embed, talks: Sequence[Talk], recipe: int = RECIPE) -> Measured:
    """Mean cosine over the unrelated pairs of each conversation.

    Raises:
        ModelError: too few pairs, or the model gives no usable vectors.
    """
    cosines: list[Float32] = []
    queries = messages = 0
    for talk in talks:
        asked, said = _thin(len(talk.queries), MAX_QUERIES), _thin(len(talk.messages), MAX_MESSAGES)
        if not asked or not said:
            continue
        passages = [passage(talk.messages[at], talk.messages[at - 1] if at > 0 else None, recipe=recipe) for at in said]
        table = embed([talk.queries[at] for at in asked], "query") @ embed(passages, "passage").T
        counted = np.array([[(query, message) not in talk.related for message in said] for query in asked])
        cosines.append(table[counted])
        queries, messages = queries + len(asked), messages + len(said)
    found = np.concatenate(cosines) if cosines else np.empty(0, np.float32)
    if found.size < MIN_PAIRS:
        raise ModelError(f"too few texts: {found.size} pairs of a question and a message, at least {MIN_PAIRS} wanted")
    if not np.isfinite(found).all():
        raise ModelError("the model gives vectors that are not numbers")
    mean = float(found.mean(dtype=np.float64))
    return Measured(
        mean=mean,
        deviation=float(found.std(dtype=np.float64)),
        pairs=int(found.size),
        queries=queries,
        messages=messages,
    )


def _thin(count: int, most: int) -> list[int]:
    """At most ``most`` indices below ``count``, evenly spread."""
    return list(range(count)) if count <= most else [at * count // most for at in range(most)]
