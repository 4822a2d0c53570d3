"""Triggers: reading them from text, and when they fire. Pure.

All fire times are whole seconds of Unix time, so that a fire time compares equal after it went through a record as
ISO-8601. cronsim reads a cron expression and finds matching times of a calendar without a zone; what the zone's clock
does is decided here, because cronsim's own rule skips jobs of the missing hour that have a ``*``, repeats some of the
others, and loses its place in shifts of half an hour. The rule:

- A time that the clock **skips** fires at the end of the gap, once for all that was skipped in it. A pattern of every
  hour (hour ``*``) just goes on: the hour before and the hour after are one hour apart.
- A time that the clock shows **twice** fires the first time. A pattern that repeats (minute written with ``*``, or
  every hour) fires both times: it follows the time that really passes.
- No moment is fired twice.
"""

import datetime as dt
import math
import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from klaw.actor.clock import from_iso, iso
from klaw.domain.names import local_time
from klaw.domain.names import zone as zone_of
from klaw.domain.task import At, Cron, Every, Trigger, duration_text, read_duration
from klaw.domain.text import span
from klaw.errors import InvalidName

MIN_EVERY_S = 60
MAX_EVERY_S = 366 * 86_400
MAX_AHEAD_S = 50 * 366 * 86_400
"""A one-time task further ahead has the wrong year."""
MAX_COUNTED = 1000
"""Missed fire times are counted up to here, which takes milliseconds."""

_MAX_TEXT = 64
_DATE_AND_TIME = re.compile(r"[0-9-]{8,10}[Tt ][0-9:.,]{2,16}([Zz]|[+-][0-9:]{2,8})?", re.ASCII)


def read_every(interval: Any) -> Every:
    seconds = read_duration(interval)
    if not MIN_EVERY_S <= seconds <= MAX_EVERY_S:
        raise ValueError(f"must be from {MIN_EVERY_S} seconds to {MAX_EVERY_S // 86_400} days, got {span(seconds)}")
    return Every(seconds=seconds)


def read_at(text: str, *, zone: str | None = None, now: float, allow_past: bool = False) -> At:
    """A moment in ISO-8601 with an offset (``2026-12-24T18:00+01:00``), or without one in the local time of ``zone``. A
    past one becomes ``now`` with ``allow_past``. Raises ValueError, which says what is wrong."""
    form = "must be a date and time in ISO-8601 with an offset, such as 2026-12-24T18:00+01:00"
    if len(text) > _MAX_TEXT or not _DATE_AND_TIME.fullmatch(text.strip()):
        raise ValueError(form)
    try:
        when = dt.datetime.fromisoformat(text.strip())
        if when.tzinfo is None and zone is not None:
            moment = moments(when.replace(microsecond=0), zone_of(zone))[0]
        else:
            moment = math.floor(when.timestamp())
    except (ValueError, OverflowError) as error:
        raise ValueError(form) from error
    if when.tzinfo is None and zone is None:
        raise ValueError(f"has no offset; it {form}, or come with a zone")
    if moment > now + MAX_AHEAD_S:
        raise ValueError("must be within the next 50 years")
    if moment <= now:
        if not allow_past:
            raise ValueError(f"is over: it was {span(now - moment)} ago; give a later time, or ask for it now")
        moment = math.floor(now)
    return At(instant=iso(moment), zone=zone if when.tzinfo is None else None)


# -- firing ----------------------------------------------------------------------------------------------------------


def next_fires(trigger: Trigger, *, anchor: float, after: float, count: int) -> tuple[int, ...]:
    """The next fire times after ``after`` and ``anchor``, from which intervals are counted; in Unix seconds."""
    return tuple(islice(_fires(trigger, anchor, after), count))


@lru_cache(maxsize=4096)
def first_fire(trigger: Trigger, anchor: float, after: float) -> int | None:
    """The first fire time after ``anchor`` and ``after``. Cached: the scheduler asks the same each time it wakes."""
    return next(_fires(trigger, anchor, after), None)


def missed(trigger: Trigger, *, anchor: float, after: float, now: float) -> tuple[int, int] | None:
    """The latest fire time up to ``now`` that is after ``anchor`` and ``after``, and how many there are, counted up to
    ``MAX_COUNTED``; None when there is none."""
    times = list(islice(takewhile(lambda moment: moment <= now, _fires(trigger, anchor, after)), MAX_COUNTED))
    if len(times) == MAX_COUNTED:
        return _latest(trigger, anchor, after, now), MAX_COUNTED
    return (times[-1], len(times)) if times else None


def _fires(trigger: Trigger, anchor: float, after: float) -> Iterator[int]:
    after = max(after, anchor)
    match trigger:
        case Cron():
            yield from cron_fires(trigger.expression, _zone(trigger.zone), after)
        case Every():
            start = math.floor(anchor)
            number = max(1, math.floor((after - start) / trigger.seconds))
            while True:
                moment = start + number * trigger.seconds
                if moment > after:
                    yield moment
                number += 1
        case At():
            moment = math.floor(from_iso(trigger.instant))
            if moment > after:
                yield moment


def _latest(trigger: Trigger, anchor: float, after: float, now: float) -> int:
    """The last fire time up to ``now``, which must exist: looks from ever further back."""
    back = 3600.0
    while True:
        found = None
        for moment in _fires(trigger, anchor, max(after, now - back)):
            if moment > now:
                break
            found = moment
        if found is not None:
            return found
        back *= 4


def _zone(name: str) -> ZoneInfo:
    try:
        return zone_of(name)
    except InvalidName:
        return zone_of("UTC")


def shown(trigger: Trigger, zone: str) -> str:
    """A trigger in one line, in the words in which it is given; a moment without a zone of its own in this one."""
    match trigger:
        case Cron():
            return f"cron {trigger.expression} {trigger.zone}"
        case Every():
            return f"every {duration_text(trigger.seconds)}"
        case At():
            return f"at {local_time(from_iso(trigger.instant), trigger.zone or zone)}"


# -- cron --------------------------------------------------------------------------------------------------------------

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


def normalise(text: str) -> str:
    """An expression with single spaces. Raises ValueError, which says why, and quotes at most a field's name."""
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


def cron_fires(expression: str, zone: ZoneInfo, after: float) -> Iterator[int]:
    """Fire times of a normalised expression after ``after``, strictly rising; ends when 50 years bring none."""
    first_field = expression.split(" ", 1)[0]
    start = dt.datetime.fromtimestamp(math.floor(after), zone).replace(tzinfo=None, fold=0)
    once, again, _ = moments(start, zone)
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
        once, again, skipped = moments(local, zone)
        while second_passes and second_passes[0] <= once:
            moment = second_passes.popleft()
            if moment > last:
                yield (last := moment)
        if once > last and not (skipped and every_hour):
            yield (last := once)
        if again is not None and repeats:
            second_passes.append(again)
    yield from (moment for moment in second_passes if moment > last)


def _check_field(index: int, field: str) -> None:
    lone = ["*"] * len(_FIELDS)
    lone[index] = field
    try:
        CronSim(" ".join(lone), dt.datetime(2000, 1, 1))  # noqa: DTZ001 - a calendar without a zone
    except CronSimError as error:
        raise ValueError(f"the {_FIELDS[index]} (field {index + 1}) must be {_RANGES[index]}") from error
    for term in field.split(","):
        step = term.partition("/")[2]
        if step and int(step) > _LARGEST_STEP[index]:
            raise ValueError(
                f"the step of the {_FIELDS[index]} (field {index + 1}) must be at most {_LARGEST_STEP[index]};"
                " for longer intervals use `every`"
            )


def moments(local: dt.datetime, zone: ZoneInfo) -> tuple[int, int | None, bool]:
    """A local time's moment in Unix seconds (the end of the gap, if the clock skips it), its second moment if the clock
    shows it twice, and whether the clock skips it."""
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
