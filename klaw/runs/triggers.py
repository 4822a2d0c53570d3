"""Triggers: reading them from text, and when they fire. Pure.

All fire times are whole seconds of Unix time, so that one and the same fire time always compares equal, also after it
went through a record as ISO-8601.
"""

import datetime as dt
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import attrs

from klaw.actor.clock import from_iso, iso
from klaw.domain.names import local_time
from klaw.domain.names import zone as zone_of
from klaw.domain.task import At, Cron, Every, Trigger, duration_text, read_duration
from klaw.domain.text import span
from klaw.errors import InvalidName
from klaw.runs.cron import fires, moment_of

MIN_EVERY_S = 60
MAX_EVERY_S = 366 * 86_400
MAX_AHEAD_S = 50 * 366 * 86_400
"""A one-time task further ahead has the wrong year."""
MAX_COUNTED = 1000
"""Missed fire times are counted up to here, which takes milliseconds."""

_MAX_TEXT = 64
_DATE_AND_TIME = re.compile(r"[0-9-]{8,10}[Tt ][0-9:.,]{2,16}([Zz]|[+-][0-9:]{2,8})?", re.ASCII)


@attrs.frozen(kw_only=True)
class MissedFires:
    latest: int
    """The last of them, in Unix seconds."""
    count: int
    """How many there are, the last one included; at most ``MAX_COUNTED``."""


# -- reading ---------------------------------------------------------------------------------------------------------


def read_every(interval: Any) -> Every:
    """An interval: see ``read_duration``. Raises ValueError."""
    seconds = read_duration(interval)
    if not MIN_EVERY_S <= seconds <= MAX_EVERY_S:
        raise ValueError(f"must be from {MIN_EVERY_S} seconds to {MAX_EVERY_S // 86_400} days, got {span(seconds)}")
    return Every(seconds=seconds)


def read_at(text: str, *, zone: str | None = None, now: float, allow_past: bool = False) -> At:
    """A moment in ISO-8601 with an offset (``2026-12-24T18:00+01:00``), or without one in the local time of ``zone``.
    One that is over becomes ``now`` with ``allow_past``, else it is refused. Raises ValueError, which says what is
    wrong."""
    form = "must be a date and time in ISO-8601 with an offset, such as 2026-12-24T18:00+01:00"
    if len(text) > _MAX_TEXT or not _DATE_AND_TIME.fullmatch(text.strip()):
        raise ValueError(form)
    try:
        when = dt.datetime.fromisoformat(text.strip())
        local = moment_of(when.replace(microsecond=0), zone_of(zone)) if when.tzinfo is None and zone else None
        moment = math.floor(when.timestamp()) if local is None else local
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
    """The next fire times after ``after``, at most ``count``, in Unix seconds. Those up to ``anchor``, the task's
    ``anchor_at``, are over, and intervals are counted from it."""
    return tuple(islice(_fires(trigger, anchor, after), count))


@lru_cache(maxsize=4096)
def first_fire(trigger: Trigger, anchor: float, after: float) -> int | None:
    """The first fire time after ``anchor`` and ``after``; None when there is none.

    It is remembered: a scheduler asks the same for every task each time it wakes.
    """
    return next(_fires(trigger, anchor, after), None)


def missed(trigger: Trigger, *, anchor: float, after: float, now: float) -> MissedFires | None:
    """The fire times after ``anchor`` and ``after``, up to and with ``now``; None when there are none."""
    times = _fires(trigger, anchor, after)
    counted = 0
    latest = None
    for moment in times:
        if moment > now:
            break
        counted, latest = counted + 1, moment
        if counted == MAX_COUNTED:
            latest = _latest(trigger, anchor, after, now)
            break
    return None if latest is None else MissedFires(latest=latest, count=counted)


def _fires(trigger: Trigger, anchor: float, after: float) -> Iterator[int]:
    after = max(after, anchor)
    match trigger:
        case Cron():
            yield from fires(trigger.expression, _zone(trigger.zone), after)
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
    """The zone of a stored task; UTC where this machine does not know it."""
    try:
        return zone_of(name)
    except InvalidName:
        return zone_of("UTC")


# -- showing ---------------------------------------------------------------------------------------------------------


def shown(trigger: Trigger, zone: str) -> str:
    """A trigger in one line, in the words in which it is given; a moment without a zone of its own in this one."""
    match trigger:
        case Cron():
            return f"cron {trigger.expression} {trigger.zone}"
        case Every():
            return f"every {duration_text(trigger.seconds)}"
        case At():
            return f"at {local_time(from_iso(trigger.instant), trigger.zone or zone)}"
