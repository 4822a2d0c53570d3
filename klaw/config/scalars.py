"""What counts as a bool, an int, a text, ...: strict readers of single values, and how messages name a value.

No message quotes a text that could hold a secret, nor anything that came from the environment.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from klaw.config.document import kind_of, plain_scalar
from klaw.config.environment import Reference, Secret

_QUOTED_MAX = 40
"""Longest text or number that a message repeats."""


class BrokenRuleError(Exception):
    """One value breaks one rule; the text is the problem's message."""


class ReportedError(Exception):
    """The value is ``UNREADABLE``: its problem is on the list already."""


def _scalar(value: object) -> object:
    """Give the scalar that is meant: one that is wholly ``${NAME}`` may stand for a number or a bool."""
    if isinstance(value, Reference):
        text = _looked_up(value)
        try:
            return plain_scalar(text) if value.whole else text
        except ValueError:
            return text
    return value


def _looked_up(value: Reference) -> str:
    try:
        return value.text()
    except ValueError as exc:
        raise BrokenRuleError(f"{exc} (line {value.line})") from None


def number_reader(kind: type, wanted: str) -> Callable[[object, object], Any]:
    """Reads a bool, an int or a float; a whole number is a float too."""

    def read(value: object, _: object) -> Any:
        scalar = _scalar(value)
        if type(scalar) is kind:
            return scalar
        if kind is float and isinstance(scalar, int) and not isinstance(scalar, bool):
            return float(scalar)
        raise _mismatch(wanted, value, scalar)

    return read


def read_str(value: object, _: object) -> str:
    if isinstance(value, Reference):
        return _looked_up(value)
    if isinstance(value, str):
        return value
    raise _mismatch("a text", value, value)


def read_secret(value: object, _: object) -> Secret:
    if not isinstance(value, str | Reference):
        raise BrokenRuleError(f"must be a text, got {kind_of(value)} (put the value in quotes)")
    return Secret(value)


def read_path(value: object, cls: object) -> Path:
    text = read_str(value, cls)
    if "\0" in text or not text.startswith(("/", "~/")):
        raise BrokenRuleError("must be an absolute path, or start with ~/")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BrokenRuleError("starts with ~/ and no home folder is known") from None


def read_choice(value: object, cls: object) -> str:
    choices: tuple[str, ...] = get_args(cls)
    text = _looked_up(value) if isinstance(value, Reference) else value
    if isinstance(text, str) and text in choices:
        return text
    raise _mismatch(f"one of {', '.join(choices)}" if len(choices) > 1 else f"{choices[0]!r}", value, text)


def read_json(value: object) -> object:
    """Turn a part of the tree into plain JSON values."""
    if isinstance(value, dict):
        return {name: read_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [read_json(item) for item in value]
    return _scalar(value) if isinstance(value, Reference) else value


def _mismatch(wanted: str, value: object, made: object) -> BrokenRuleError:
    return BrokenRuleError(f"must be {wanted}, got {shown(value, made, quote_text=True)}")


def shown(value: object, made: object, *, quote_text: bool = False) -> str:
    """Name the type of a value of the tree and, where that cannot give a secret away, quote it."""
    if isinstance(value, Reference):
        return f"{kind_of(made)} (from a reference)"
    quotable = isinstance(value, int | float) or (quote_text and isinstance(value, str))
    text = json.dumps(value) if isinstance(value, bool) else repr(value)
    if not quotable or len(text) > _QUOTED_MAX:
        return kind_of(value)
    return f"the text {text}" if isinstance(value, str) else text
