"""Questions whose answer is JSON: its form from an attrs class that ``klaw.convert`` reads, its value out of what a
model wrote (``Text`` and ``Whole`` take what models write in their place), and one more try with the error. Errors name
what is wrong and never quote the answer: they go back to the model. Pure.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import attrs
import structlog

from klaw.actor.threads import read_input
from klaw.convert import MOST_ENTRIES, Converter, Form
from klaw.domain.text import clean_output
from klaw.errors import BadAnswer, BadValue
from klaw.json_schema import schema_of
from klaw.llm.types import ChatMessage, JsonSchema

MAX_ANSWER_CHARS = 1_000_000
MAX_QUOTED_CHARS = 4_000
MAX_ENTRIES = 20_000
"""Small models go on and on."""
_WHOLE = re.compile(r"\s*[#+]?\d{1,9}\s*")
_FENCE = re.compile(r"```[a-zA-Z]*[^\S\n]*\n(.*?)```", re.DOTALL)
_ANSWERS = Converter(lenient=True, most=MAX_ENTRIES)

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger("klaw.llm")


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("must be a text")
    return clean_output(value).strip()


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value.strip().lstrip("#+"))
    raise ValueError("must be a whole number")


Text: TypeAlias = Annotated[str, Form(_text, str)]
"""Without control characters and space around it; null is empty."""
Whole: TypeAlias = Annotated[int, Form(_whole, int)]
"""Also "12", "#12" and 12.0, as models write the numbers of a list."""


@attrs.frozen
class Usable(Generic[T]):
    """The entries of a list that have their form; ``refused`` counts the others."""

    entries: tuple[T, ...] = ()
    refused: int = 0


def usable(value: object, cls: type[T]) -> Usable[T]:
    """Read the entries of a list one by one, so that a bad one takes none of the others with it."""
    if not isinstance(value, list):
        raise TypeError("must be a list")
    entries = []
    for each in value[:MOST_ENTRIES]:
        try:
            entries.append(_ANSWERS.read(each, cls))
        except BadValue:
            continue
    return Usable(tuple(entries), len(value) - len(entries))


async def ask_json(
    say: Callable[[tuple[ChatMessage, ...], JsonSchema], Awaitable[str]],
    messages: tuple[ChatMessage, ...],
    name: str,
    answer: type[T],
    read: Callable[[T], R],
) -> R | None:
    """Ask, and ask once more, with the error, when the answer cannot be used. ``say`` makes the call, ``name`` names
    the form for the model, ``read`` makes the result, or raises BadAnswer where a rule is broken. Returns None when
    neither answer could be used: a third question costs as much and seldom brings more."""
    schema = JsonSchema(name=name, schema=schema_of(answer, closed=True))
    for _ in range(2):
        said = await say(messages, schema)
        try:
            return read(await read_input(len(said), read_answer, said, answer))
        except BadAnswer as error:
            again = f"This answer cannot be used: {error}. Answer again, with JSON of the form that was asked for only."
            quoted = said[:MAX_QUOTED_CHARS].strip() or "(nothing)"
            messages += (ChatMessage(role="assistant", content=quoted), ChatMessage(role="user", content=again))
    log.info("answer_refused", name=name)
    return None


def read_answer(text: str, cls: type[T]) -> T:
    """The value of an answer, in a fence or between words; a list alone becomes the first field. Raises BadAnswer."""
    value = _json_in(text)
    if isinstance(value, list):
        value = {attrs.fields(cls)[0].name: value}  # type: ignore[arg-type]  # all of them are attrs classes
    try:
        return _ANSWERS.read(value, cls)
    except BadValue as error:
        problem = error.problems[0]
        raise BadAnswer(f"{problem.path}: {problem.message}") from None


def _json_in(text: str) -> Any:
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
