"""Values of a log's JSON objects, taken only as what they should be. Pure."""

import datetime as dt
import json
from typing import Any

_WHOLE = 1 << 62


def text(value: object) -> str:
    """Text that can be stored. Raises TypeError, or ValueError for lone surrogates."""
    if not isinstance(value, str):
        raise TypeError("not text")
    value.encode()
    return value


def json_object(value: object) -> dict[str, Any]:
    """An object whose JSON can be stored. Raises TypeError, or ValueError for lone surrogates and numbers that are
    none in JSON."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def instant(value: object) -> str:
    """An ISO-8601 time with its zone. Raises TypeError or ValueError."""
    found = text(value)
    if dt.datetime.fromisoformat(found).tzinfo is None:
        raise ValueError("a time without a zone")
    return found


def optional_text(value: object) -> str | None:
    return None if value is None else text(value)


def whole(value: object) -> int:
    """A whole number that SQLite can hold. Raises TypeError or ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    if not -_WHOLE < value < _WHOLE:
        raise ValueError("too large a number")
    return value


def optional_whole(value: object) -> int | None:
    return None if value is None else whole(value)


def yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not true or false")
    return value
