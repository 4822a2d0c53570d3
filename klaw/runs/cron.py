"""When a cron expression fires, in real time. Pure.

cronsim reads the expression and finds matching times of a calendar without a zone; what the zone's clock does is
decided here, because cronsim's own rule skips jobs of the missing hour that have a ``*``, repeats some of the others,
and loses its place in shifts of half an hour. The rule:

- A time that the clock **skips** fires at the end of the gap, once for all that was skipped in it. A pattern of every
  hour (hour ``*``) just goes on: the hour before and the hour after are one hour apart.
- A time that the clock shows **twice** fires the first time. A pattern that repeats (minute written with ``*``, or
  every hour) fires both times: it follows the time that really passes.
- No moment is fired twice.
"""

import datetime as dt
import math
from collections import deque
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_EXPRESSION = 256
_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
_RANGES = ("0 to 59", "0 to 23", "1 to 31, L or LW", "1 to 12 or JAN to DEC", "0 to 7 or SUN to SAT")
_LARGEST_STEP = (59, 23, 31, 12, 7)
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND = dt.timedelta(seconds=1)
_LAST_YEAR = 9900
"""Far below the end of Python's calendar, so that no arithmetic here can overflow."""


def normalise(text: str) -> str:
    """Check an expression's form and give it with single spaces. Raises ValueError: its text says why, and
    quotes at most a field's name."""
    if len(text) > MAX_EXPRESSION:
        raise ValueError(f"must have at most {MAX_EXPRESSION} characters, got {len(text)}")
    if any(not " " <= character <= "~" and character != "\t" for character in text):
        raise ValueError("must have ASCII characters only, and no control characters")
    fields = text.split()
    if fields and fields[0].startswith("@"):
        written = _ALIASES.get(fields[0].lower())
        raise ValueError(f"must have five fields; write {written!r}" if written else "must have five fields")
    if len(fields) != len(_FIELDS):
        raise ValueError(f"must have five fields ({', '.join(_FIELDS)}), got {len(fields)}")
    for index, field in enumerate(fields):
        _check_field(index, field)
    expression = " ".join(fields)
    try:
        next(CronSim(expression, dt.datetime(2000, 1, 1)))  # noqa: DTZ001 - a calendar without a zone
    except (CronSimError, StopIteration) as error:  # each field is right by itself
        raise ValueError("never fires: there is no such day in these months") from error
    return expression


def fires(expression: str, zone: ZoneInfo, after: float) -> Iterator[int]:
    """Fire times of a normalised expression in Unix seconds, strictly after ``after`` and strictly rising; ends when 50
    years bring none."""
    first_field = expression.split(" ", 1)[0]
    start = dt.datetime.fromtimestamp(math.floor(after), zone).replace(tzinfo=None, fold=0)
    once, again, _ = _moments(start, zone)
    if again is not None:  # what matched earlier in the doubled time comes a second time
        start -= dt.timedelta(seconds=again - once)
    calendar = CronSim(expression, start - _SECOND)
    every_hour = len(calendar.hours) == 24
    repeats = every_hour or first_field.startswith("*")
    last = after
    second_passes: deque[int] = deque()
    for local in calendar:
        if local.year > _LAST_YEAR:
            break
        once, again, skipped = _moments(local, zone)
        while second_passes and second_passes[0] <= once:
            moment = second_passes.popleft()
            if moment > last:
                yield (last := moment)
        if once > last and not (skipped and every_hour):
            yield (last := once)
        if again is not None and repeats:
            second_passes.append(again)
    yield from (moment for moment in second_passes if moment > last)


def moment_of(local: dt.datetime, zone: ZoneInfo) -> int:
    """The moment of a time on a zone's clock, in Unix seconds: of a doubled time the first, of a skipped one the end
    of the gap."""
    return _moments(local, zone)[0]


def _check_field(index: int, field: str) -> None:
    """Check one field by itself, so that the error can name it."""
    lone = ["*"] * len(_FIELDS)
    lone[index] = field
    try:
        CronSim(" ".join(lone), dt.datetime(2000, 1, 1))  # noqa: DTZ001 - a calendar without a zone
    except CronSimError as error:
        raise ValueError(f"the {_FIELDS[index]} (field {index + 1}) must be of {_RANGES[index]}") from error
    for term in field.split(","):
        step = term.partition("/")[2]
        if step and int(step) > _LARGEST_STEP[index]:
            raise ValueError(
                f"the step of the {_FIELDS[index]} (field {index + 1}) must be at most {_LARGEST_STEP[index]};"
                " for longer intervals use `every`"
            )


def _moments(local: dt.datetime, zone: ZoneInfo) -> tuple[int, int | None, bool]:
    """A local time's moment, its second moment if the clock shows it twice, and whether the clock skips it."""
    first = int(local.replace(tzinfo=zone, fold=0).timestamp())
    second = int(local.replace(tzinfo=zone, fold=1).timestamp())
    if first <= second:
        return first, (second if second > first else None), False
    return _end_of_gap(zone, second, first), None, True


def _end_of_gap(zone: ZoneInfo, before: int, after: int) -> int:
    """The first second with the new offset; ``before`` has the old one and ``after`` the new."""
    old = dt.datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if dt.datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after
