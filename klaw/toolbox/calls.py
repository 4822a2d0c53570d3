"""Making what a model wrote as tool calls fit to be stored, sent back and carried out. Pure.

Providers refuse a request whose messages hold a call with a doubled id, an odd name or arguments that are no JSON
object, and a chat whose history holds one would be stuck for ever. So a call is put right before it is stored; what was
wrong with it is said in its result.
"""

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import attrs

from klaw.convert import MOST_VALUES, read_json
from klaw.domain.text import clean, cut, printable
from klaw.llm.types import ToolCall

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""What OpenAI and Anthropic both take."""
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME = 64
SHOWN_CHARS = 120
MAX_ARGUMENTS = 1_000_000
MAX_SHOWN = 8
"""Arguments of a call that are shown."""

DOUBLED = "Two calls of this round have the same id; only the first was carried out. Call it again alone."
TOO_MANY = "Too many calls at once: only {most} are carried out in one round. Call it again in the next one."


@attrs.frozen(kw_only=True)
class PreparedCall:
    """A call that can be stored: its id is unique, and its name and arguments are such as every provider takes."""

    call: ToolCall
    arguments: Mapping[str, Any] = attrs.Factory(dict)
    problem: str | None = None


def prepare(
    calls: Sequence[ToolCall], *, taken: Container[str], new_id: Callable[[], str], most: int
) -> tuple[PreparedCall, ...]:
    """Correct the calls of one round.

    Args:
        calls: from the provider.
        taken: ids of earlier rounds, since some providers count from 0 in each answer.
        most: calls that are carried out in one round; the model is told to repeat the others.
    """
    prepared: list[PreparedCall] = []
    seen: set[str] = set()
    for number, call in enumerate(calls):
        doubled = call.id in seen
        seen.add(call.id)
        unusable = doubled or call.id in taken or not _ID.fullmatch(call.id)
        own = ToolCall(id=new_id() if unusable else call.id, name=_name(call.name), arguments="{}")
        arguments, problem = parse_arguments(call.arguments)
        if doubled:
            problem = DOUBLED
        elif number >= most:
            problem = TOO_MANY.format(most=most)
        if problem is None:
            own = attrs.evolve(own, arguments=clean(json.dumps(arguments, ensure_ascii=False)))
        prepared.append(PreparedCall(call=own, arguments={} if problem else arguments, problem=problem))
    return tuple(prepared)


def in_short(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call for the user who watches: one line of printable characters, at most ``SHOWN_CHARS``."""
    parts = []
    for name, value in list(arguments.items())[:MAX_SHOWN]:
        text = (
            value[: SHOWN_CHARS + 1] if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        line = printable(" ".join(text[: SHOWN_CHARS + 1].split()))
        parts.append(line if len(arguments) == 1 else f"{printable(name[:MAX_NAME])}: {line}")
    return cut(", ".join(parts), SHOWN_CHARS)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call and what is wrong with them."""
    shown = json.dumps(clean(text[:SHOWN_CHARS]), ensure_ascii=False)
    if len(text) > MAX_ARGUMENTS:
        return {}, f"The arguments have more than {MAX_ARGUMENTS:,} characters. Do it in several calls."
    try:
        value = _json(text) if text.strip() else {}
        if isinstance(value, str):  # some models encode the object twice
            value = _json(value)
    except RecursionError:
        return {}, "The arguments are nested too deep."
    except json.JSONDecodeError:
        return {}, f"The arguments are not JSON. They must be one JSON object; they began with {shown}."
    except ValueError:
        return {}, f"The arguments hold NaN, a number that is too large, or more than {MOST_VALUES:,} values."
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return {}, f"The arguments must be one JSON object with the parameters by name; they were {shown}."
    if not _is_sound(value):
        return {}, "The arguments hold NaN or a number that is too large, or are nested too deep."
    return value, None


def _json(text: str) -> object:
    return read_json(clean(text).encode())


def _is_sound(value: object) -> bool:
    """Whether it can be written as JSON again: NaN cannot, and 1e999 is read as infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def _name(name: str) -> str:
    return _NOT_IN_NAME.sub("_", name)[:MAX_NAME] or "unnamed"
