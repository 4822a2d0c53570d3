"""How one key of the configuration is declared: default, meaning and rule in one place. The reader, the attrs
validators, the JSON schema and ``klaw config describe`` all use the ``Rule`` in the field's metadata.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import attrs

from klaw.config.environment import Secret

_RULE = "klaw.rule"

TOKENS_MAX = 10_000_000
HOUR_S = 3600
DAY_S = 24 * HOUR_S
YEAR_S = 366 * DAY_S

MODEL_NAME: Mapping[str, Any] = {
    "pattern": r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "hint": "be a model's name: letters, digits, '.', '_' and '-', no '/'",
}
ADDRESS: Mapping[str, Any] = {
    "pattern": r"https?://[^/\s@?#]+(/[^\s?#]*)?",
    "hint": "be an http:// or https:// address without user name, password, query or fragment",
}
HEADERS: Mapping[str, Any] = {
    "factory": dict,
    "pattern": r"[\x20-\x7e]*",
    "hint": "be printable ASCII text",
    "names": r"[0-9A-Za-z!#$%&'*+.^_`|~-]+",
    "names_hint": "be an HTTP header name",
}
USERS: Mapping[str, Any] = {
    "default": ("local",),
    "pattern": r"\*|[a-z0-9][a-z0-9_-]{0,31}",
    "hint": "be a user's name, or *",
    "one_or_more": True,
}


@attrs.frozen(kw_only=True)
class Rule:
    """What a key means and which values of its type are allowed."""

    description: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    """For a text, or every text in a list or map: a regular expression for the whole of it."""
    names: str | None = None
    hint: str = ""
    """The pattern in words, to follow "must "."""
    names_hint: str = ""
    one_or_more: bool = False
    """One text by itself is a list of that text."""
    restart: bool = False
    """A change of the key, or of any in its section, takes effect when the server is started again."""

    def broken_by(self, value: object) -> str | None:
        """Which part of the rule a value of the right type breaks."""
        if isinstance(value, Secret):
            value = value.literal  # what it refers to is checked when it is looked up
        if isinstance(value, str):
            return None if self.pattern is None or re.fullmatch(self.pattern, value) else f"must {self.hint}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not -math.inf < value < math.inf:
            return "must be a finite number"
        if self.minimum is not None and value < self.minimum:
            return f"must be >= {_plain(self.minimum)}"
        if self.above is not None and value <= self.above:
            return f"must be > {_plain(self.above)}"
        if self.maximum is not None and value > self.maximum:
            return f"must be <= {_plain(self.maximum)}"
        return None

    def name_broken_by(self, name: str) -> str | None:
        if self.names is None or re.fullmatch(self.names, name):
            return None
        return f"the name must {self.names_hint}"


@runtime_checkable
class HasRules(Protocol):
    """A section with rules between its keys."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys, as in the file (empty: the section itself), and what is wrong with each."""
        ...


def key(
    description: str,
    default: Any = attrs.NOTHING,
    *,
    factory: Callable[[], Any] | None = None,
    within: tuple[float, float] | None = None,
    up_to: float | None = None,
    **limits: Any,
) -> Any:
    """Declare one key; without ``default`` and ``factory`` it is required. ``within`` is the least and the most of a
    number, ``up_to`` the most of one that is over 0, ``limits`` are fields of ``Rule``."""
    if within is not None:
        limits |= {"minimum": within[0], "maximum": within[1]}
    if up_to is not None:
        limits |= {"above": 0, "maximum": up_to}
    rule = Rule(description=description, **limits)

    def validate(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        names = value if isinstance(value, Mapping) else ()
        values = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        for broken in filter(None, (*map(rule.name_broken_by, names), *map(rule.broken_by, values))):
            raise ValueError(f"{file_key(attribute.name)} {broken}")

    if factory is not None:
        default = attrs.Factory(factory)
    return attrs.field(default=default, validator=validate, metadata={_RULE: rule})


def section(cls: type, *, restart: bool = False) -> Any:
    """Declare a key that holds a section; its meaning is the first line of the class's docstring."""
    return key((cls.__doc__ or "").partition("\n")[0], factory=cls, restart=restart)


def rule_of(attribute: "attrs.Attribute[Any]") -> Rule:
    return cast("Rule", attribute.metadata[_RULE])


def file_key(name: str) -> str:
    """The key in the file for an attribute: ``debounce_ms`` -> ``debounceMs``, ``ping_s`` -> ``pingSeconds``."""
    head, *rest = name.split("_")
    if rest and rest[-1] == "s":
        rest[-1] = "seconds"
    return head + "".join(word.capitalize() for word in rest)


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)
