"""What models answer, read strictly: JSON out of a text, with the fields that were asked for. Pure.

Errors name what is wrong and never quote the answer: they go back to the model, and their kind into the log.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import attrs
import cattrs

from klaw.domain.text import clean_output
from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.memory.topics.spans import Piece

MAX_ANSWER_CHARS = 1_000_000
"""More is not read."""
MAX_REASON_CHARS = 300
_WHOLE = re.compile(r"\s*[#+]?\d{1,9}\s*")
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)

T = TypeVar("T")


class BadAnswer(ValueError):
    """The answer cannot be used; the text says why."""


@attrs.frozen
class _Topic:
    summary: str
    start_msg_id: int
    end_msg_id: int


@attrs.frozen
class _Split:
    topics: list[_Topic]


@attrs.frozen
class _Merge:
    should_merge: bool
    topic: int
    merged_summary: str


@attrs.frozen
class _Choice:
    id: int
    reason: str = ""
    excerpt: str = ""


@attrs.frozen
class _Choices:
    topics: list[_Choice]


def _whole(value: Any, _type: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value.strip().lstrip("#+"))
    raise ValueError("not a whole number")


def _text(value: Any, _type: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("not text")
    return clean_output(value).strip()


def _truth(value: Any, _type: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise TypeError("neither true nor false")


_converter = cattrs.Converter()
_converter.register_structure_hook(int, _whole)
_converter.register_structure_hook(str, _text)
_converter.register_structure_hook(bool, _truth)


def read_json(text: str) -> Any:
    """The JSON value of an answer: alone, in a fence, or with words around it.

    Raises:
        BadAnswer: there is none, or only a part of one.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise BadAnswer("the answer is too long")
    for part in _parts(text):
        try:
            value, _ = json.JSONDecoder().raw_decode(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    raise BadAnswer("the answer is not JSON, or not all of it")


def _parts(text: str) -> Iterator[str]:
    yield text.strip()
    for fenced in _FENCE.findall(text):
        yield fenced.strip()
    for sign in "{[":
        if (at := text.find(sign)) >= 0:
            yield text[at:]


def _read(text: str, wanted: type[T]) -> T:
    value = read_json(text)
    fields = attrs.fields(wanted)  # type: ignore[arg-type]  # all of them are attrs classes
    if isinstance(value, list) and len(fields) == 1:
        value = {fields[0].name: value}  # the list alone, as small models like to answer
    try:
        return _converter.structure(value, wanted)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        names = ", ".join(field.name for field in fields)
        raise BadAnswer(f"the JSON has not the form that was asked for (an object with {names})") from error


def read_split(text: str) -> list[Piece]:
    """Pieces of a chunk. Long summaries are cut.

    Raises:
        BadAnswer: no list of topics, an empty one, or one with an empty summary.
    """
    found = _read(text, _Split).topics
    if not found:
        raise BadAnswer("the list of topics is empty")
    if any(not has_words(topic.summary) for topic in found):
        raise BadAnswer("a summary is empty")
    return [Piece(shorten(topic.summary, MAX_SUMMARY_CHARS), topic.start_msg_id, topic.end_msg_id) for topic in found]


@attrs.frozen
class Merge:
    """What the merger decided."""

    place: int
    """Of the candidate, from 1."""
    summary: str


def read_merge(text: str, candidates: int) -> Merge | None:
    """With which candidate the new topic is to be merged. None: with none, or with one that is no candidate.

    Raises:
        BadAnswer: not the form, or a merge without a summary.
    """
    found = _read(text, _Merge)
    if not found.should_merge or not 1 <= found.topic <= candidates:
        return None
    if not has_words(found.merged_summary):
        raise BadAnswer("merged_summary is empty")
    return Merge(found.topic, shorten(found.merged_summary, MAX_SUMMARY_CHARS))


@attrs.frozen
class Choice:
    """A topic that the reranker chose."""

    id: int
    reason: str
    excerpt: str
    """Empty unless the topic is long."""


def read_choices(text: str, candidates: set[int], max_excerpt_chars: int) -> list[Choice]:
    """Topics in the reranker's order, each once; ids that were no candidates are left out. Empty: it chose none.

    Raises:
        BadAnswer: not the form, or all of several ids are none of the candidates'.
    """
    named = _read(text, _Choices).topics
    found = {each.id: each for each in reversed(named) if each.id in candidates}
    if named and not found:
        raise BadAnswer("none of the ids is one of the list")
    order = dict.fromkeys(each.id for each in named if each.id in found)
    return [
        Choice(each, shorten(found[each].reason, MAX_REASON_CHARS), shorten(found[each].excerpt, max_excerpt_chars))
        for each in order
    ]


def has_words(text: str) -> bool:
    """Whether a text says anything at all."""
    return any(character.isalnum() for character in text)


def shorten(text: str, limit: int) -> str:
    """A text of at most so many characters, cut between words where that is possible."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > limit // 2 else head).rstrip() + "…"


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_STRING, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
SPLIT_SCHEMA = _object(
    {
        "topics": {
            "type": "array",
            "items": _object({"summary": _STRING, "start_msg_id": _INTEGER, "end_msg_id": _INTEGER}),
        }
    }
)
MERGE_SCHEMA = _object({"should_merge": _BOOLEAN, "reason": _STRING, "topic": _INTEGER, "merged_summary": _STRING})
CHOICES_SCHEMA = _object(
    {"topics": {"type": "array", "items": _object({"id": _INTEGER, "reason": _STRING, "excerpt": _STRING})}}
)
