"""Days on the installation's calendar: when each begins, and when its talk is to be drawn into facts. Pure.

Both are moments of a zone's clock. What that clock skips counts as the end of the gap, and what it shows twice as the
first time; so days follow each other without a gap and without an overlap, whatever summer time does.
"""

import datetime as dt
import re
from zoneinfo import ZoneInfo

_DAY = dt.timedelta(days=1)
TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
"""A time of day, such as 03:30."""


def start_of(day: dt.date, zone: ZoneInfo) -> float:
    """When a day begins, in Unix seconds."""
    return _moment(day, dt.time(), zone)


def due_at(day: dt.date, at: dt.time, zone: ZoneInfo) -> float:
    """When a day is to be drawn: at a time of the day after."""
    return _moment(day + _DAY, at, zone)


def due_days(now: float, at: dt.time, zone: ZoneInfo, most: int) -> list[dt.date]:
    """The days that may be drawn now, the oldest first: of the last ``most`` days before today those that are due."""
    today = _date(now, zone)
    days = [today - _DAY * ago for ago in range(most, 0, -1)]
    return [day for day in days if due_at(day, at, zone) <= now]


def next_due(now: float, at: dt.time, zone: ZoneInfo) -> float:
    """When the next day becomes due, after ``now``."""
    today = _date(now, zone)
    moments = (due_at(today + _DAY * ahead, at, zone) for ahead in (-1, 0, 1))
    return next(moment for moment in moments if moment > now)


def time_of(text: str) -> dt.time:
    """The time of day of a text such as 03:30. Raises ValueError."""
    if not TIME.fullmatch(text):
        raise ValueError("a time of day is written as 03:30")
    return dt.time.fromisoformat(text)


def _date(now: float, zone: ZoneInfo) -> dt.date:
    return dt.datetime.fromtimestamp(now, zone).date()


def _moment(day: dt.date, at: dt.time, zone: ZoneInfo) -> float:
    # fold=0: the first of two; in a gap the offset before it, which is as long after the gap's begin as it should be.
    return dt.datetime.combine(day, at, zone).timestamp()
