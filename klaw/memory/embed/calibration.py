"""Measures what "nothing in common" looks like to an embedding model: the mean cosine of a question and a message of
the same conversation that have nothing to do with each other.

Inside one conversation, because recall searches there: its people, tone and language make any two of its texts more
alike than two sentences from anywhere. Sync code for a worker thread.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import attrs
import numpy as np

from klaw.convert import JOURNAL, Bounds
from klaw.errors import BadValue, ModelError
from klaw.memory.embed.passage import RECIPE, PassageText, passage
from klaw.memory.embed.token_coder import Floats
from klaw.models.manifest import Calibration

MAX_QUERIES = 60
"""Queries of a conversation; more are thinned out evenly: 60 by 120 pairs put the mean's own error below 0.001."""
MAX_MESSAGES = 120
MIN_PAIRS = 100
NEARBY = 2
"""A query that is itself a message is not paired with messages so close to it: they are on the same matter."""
ENOUGH_QUESTIONS = 12
"""So many questions among the messages stand for what is asked; statements are more alike than question and answer."""
TOO_ALIKE = 0.999
"""A model that finds all texts so alike says nothing about them."""

_BUILT_IN = tuple(Path(__file__).with_name(f"dialogue_{language}.json") for language in ("en", "ru"))
"""A person's talks with an assistant, and questions asked later: nearly all pairs are unrelated."""

_PROOF_TEXTS = (
    "My sister Anna is allergic to peanuts.",
    "The spare key lies under the third flower pot.",
    "В четверг в половине десятого приём у зубного врача.",
    "Сосед сверху опять залил нам ванную.",
)

Kind: TypeAlias = Literal["query", "passage"]
Embed: TypeAlias = Callable[[Sequence[str | PassageText], Kind], Floats]
"""Texts and their kind -> unit vectors (n, dimension)."""


@attrs.frozen(kw_only=True)
class Talk:
    messages: tuple[str, ...]
    queries: tuple[str, ...]
    related: frozenset[tuple[int, int]] = frozenset()
    """Pairs (query, message) that do have something in common, and are not counted."""


@attrs.frozen(kw_only=True)
class CosineMeasurement:
    mean: float
    deviation: float
    """Standard deviation of one pair."""
    pairs: int
    queries: int
    messages: int


def built_in() -> tuple[Talk, ...]:
    return tuple(read_talk(path) for path in _BUILT_IN)


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


def measure(embed: Embed, talks: Sequence[Talk]) -> CosineMeasurement:
    """Mean cosine over the unrelated pairs. Raises ModelError: too few of them, or no usable vectors."""
    cosines: list[Floats] = []
    queries = messages = 0
    for talk in talks:
        asked, said = _thin(len(talk.queries), MAX_QUERIES), _thin(len(talk.messages), MAX_MESSAGES)
        if not asked or not said:
            continue
        passages = [passage(talk.messages[at], talk.messages[at - 1] if at > 0 else None) for at in said]
        table = embed([talk.queries[at] for at in asked], "query") @ embed(passages, "passage").T
        counted = np.array([[(query, message) not in talk.related for message in said] for query in asked])
        cosines.append(table[counted])
        queries, messages = queries + len(asked), messages + len(said)
    found = np.concatenate(cosines) if cosines else np.empty(0, np.float32)
    if found.size < MIN_PAIRS:
        raise ModelError(f"too few texts: {found.size} pairs of a question and a message, at least {MIN_PAIRS} wanted")
    if not np.isfinite(found).all():
        raise ModelError("the model gives vectors that are not numbers")
    return CosineMeasurement(
        mean=float(found.mean(dtype=np.float64)),
        deviation=float(found.std(dtype=np.float64)),
        pairs=int(found.size),
        queries=queries,
        messages=messages,
    )


def calibrate(embed: Embed) -> Calibration:
    """Measure on the built-in conversations. Raises like ``measure``."""
    found = measure(embed, built_in())
    # Also a model that knows nothing of these texts has to load; at 1 the calibrated distance would be infinite.
    mean = min(found.mean, TOO_ALIKE)
    return Calibration(
        random_cosine=mean, deviation=found.deviation, pairs=found.pairs, recipe=RECIPE, texts="built-in"
    )


def prove(embed: Embed, model_id: str) -> None:
    """Check a model before another's vectors are dropped for it. Raises ModelError."""
    kinds: tuple[Kind, ...] = ("passage", "query")
    for kind in kinds:
        found = embed(_PROOF_TEXTS, kind)
        if not np.isfinite(found).all() or not np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-3):
            raise ModelError(f"{model_id}: gives no usable vectors; the other model's are kept")
        if (found @ found.T - np.eye(len(_PROOF_TEXTS))).max() >= TOO_ALIKE:
            raise ModelError(f"{model_id}: gives different texts the same vector; the other model's are kept")


def _thin(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else [at * count // most for at in range(most)]


# -- files -------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _TalkMessage:
    content: str
    id: str = ""


@attrs.frozen(kw_only=True)
class _TalkQuestion:
    query: str
    evidence: list[str] = attrs.Factory(list)


@attrs.frozen(kw_only=True)
class _TalkFile:
    messages: Annotated[list[_TalkMessage], Bounds(1)]
    questions: list[_TalkQuestion] = attrs.Factory(list)


def read_talk(path: Path) -> Talk:
    """One file as one conversation: a text with one message a line, or a JSON object
    ``{"messages": [{"id", "content"}], "questions": [{"query", "evidence": [message ids]}]}``; ``questions`` and ids
    are optional, other keys are left alone. Raises ModelError, which names a wrong field."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as exc:
        raise ModelError(f"{path}: cannot be read ({exc.strerror or type(exc).__name__})") from exc
    except UnicodeDecodeError as exc:
        raise ModelError(f"{path}: is not UTF-8 text") from exc
    if not text.lstrip().startswith("{"):
        lines = dict.fromkeys(line.strip() for line in text.splitlines())
        return of_messages([line for line in lines if line])
    try:
        found = JOURNAL.read(json.loads(text), _TalkFile)
    except BadValue as wrong:
        raise ModelError(f"{path}: {'; '.join(map(str, wrong.problems))}") from wrong
    except ValueError as exc:
        raise ModelError(f"{path}: looks like JSON but is not ({exc})") from exc
    contents = tuple(each.content for each in found.messages)
    if not found.questions:
        return of_messages(contents)
    place = {each.id: at for at, each in enumerate(found.messages) if each.id}
    related = {
        (number, place[each])
        for number, question in enumerate(found.questions)
        for each in question.evidence
        if each in place
    }
    return Talk(messages=contents, queries=tuple(each.query for each in found.questions), related=frozenset(related))
