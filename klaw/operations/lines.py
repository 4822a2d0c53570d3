"""What operations show of their answers: lines, tables and times. A door makes harmless what they hold. Pure."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from klaw.llm.prices import Prices, Rate

LAYERS = {"window": "conversation", "pending": "question"}
"""Names of layers of a request as people are told them; the others are told as they are."""


@attrs.frozen
class Table:
    """Rows with aligned columns; ``right`` names the columns that are flush right."""

    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


@attrs.frozen
class MarkedLine:
    """A line whose parts ``marks`` (begin and end) are set in bold where that can be done."""

    text: str
    marks: Sequence[Sequence[int]]


@attrs.frozen
class Again:
    """A line that names the command as it was given, but for some arguments: for the next page of a list."""

    before: str
    changed: Mapping[str, Any]
    """Arguments with their other values."""
    after: str = ""

    def text(self, command: Callable[..., str]) -> str:
        return f"{self.before}{command(**self.changed)}{self.after}"


PlainLine: TypeAlias = str | Table | MarkedLine
Line: TypeAlias = PlainLine | Again
Lines: TypeAlias = Sequence[Line]


@attrs.frozen
class ShownLines:
    lines: Sequence[Line]
    notes: Sequence[str | Again] = ()
    """What a person should know beside them; on a terminal they do not mix with the lines."""
    found: bool = True
    """Whether there was what was asked for; if not, a command's exit code is 1."""
    degraded: bool = False
    """Whether something works with limits only; then it is 3, for monitoring."""


def details(rows: Sequence[tuple[str, str | None]]) -> Table:
    """What one thing is: names and values, without those that are None."""
    return Table([[name, value] for name, value in rows if value is not None])


def minute(time: str | None) -> str:
    """A stored time in local time, to the minute."""
    return _here(time, "%Y-%m-%d %H:%M") if time else "-"


def days(first: str, last: str) -> str:
    """The days here of two stored times: one day, or from one to the other."""
    return " to ".join(dict.fromkeys(_here(each, "%Y-%m-%d") for each in (first, last)))


def _here(time: str, form: str) -> str:
    try:
        return dt.datetime.fromisoformat(time).astimezone().strftime(form)
    except (ValueError, OverflowError):  # of a damaged row, which is to be seen
        return time


def size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"


def with_commands(shown: Lines | ShownLines, command: Callable[..., str]) -> tuple[list[PlainLine], list[str]]:
    """The lines and the notes of what is shown, with each ``Again`` as its text."""
    shown = shown if isinstance(shown, ShownLines) else ShownLines(shown)
    lines = [each.text(command) if isinstance(each, Again) else each for each in shown.lines]
    return lines, [each.text(command) if isinstance(each, Again) else each for each in shown.notes]


def told_prices(prices: "Prices") -> str:
    rates = (prices.input, prices.output, prices.cached_input, prices.cache_write)
    if not any(rate is not None and (rate.base or rate.tiers) for rate in rates):
        return "free"
    cached = f", {_rate(prices.cached_input)} cached" if prices.cached_input else ""
    return f"{_rate(prices.input)} in{cached}, {_rate(prices.output)} out"


def _rate(rate: "Rate") -> str:
    more = " (more for long prompts)" if rate.tiers else ""
    return f"${rate.base.normalize():f}{more}"
