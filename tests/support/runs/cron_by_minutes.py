"""Cron by brute force: every minute of real time is looked at on the zone's clock. Shares no code with klaw."""

import datetime as dt
from collections.abc import Iterator
from zoneinfo import ZoneInfo

_LOWEST = (0, 0, 1, 1, 0)
_HIGHEST = (59, 23, 31, 12, 7)


def _values(index: int, field: str) -> set[int]:
    """The numbers of a field made of numbers, ``*``, ranges, lists and steps."""
    found: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        if body == "*":
            low, high = _LOWEST[index], _HIGHEST[index]
        elif "-" in body:
            low, high = map(int, body.split("-"))
        else:
            low, high = int(body), int(body)
            if step:
                high = _HIGHEST[index]
        found.update(range(low, high + 1, int(step or 1)))
    return found


class Expression:
    """Five cron fields."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        self._sets = [_values(index, field) for index, field in enumerate(fields)]
        self._and = fields[2].startswith("*") or fields[4].startswith("*")
        self.every_hour = self._sets[1] == set(range(24))
        self.repeats = fields[0].startswith("*") or self.every_hour

    def matches(self, local: dt.datetime) -> bool:
        minutes, hours, days, months, weekdays = self._sets
        if local.minute not in minutes or local.hour not in hours or local.month not in months:
            return False
        by_day = local.day in days
        by_weekday = bool({local.isoweekday(), local.isoweekday() % 7} & weekdays)
        return (by_day and by_weekday) if self._and else (by_day or by_weekday)


def fire_times(text: str, zone: str, start: int, end: int) -> Iterator[int]:
    """Fire times after ``start``, up to and with ``end`` (Unix seconds), by the rule of docs/scheduling.md."""
    expression, clock = Expression(text), ZoneInfo(zone)
    moment = start // 60 * 60
    before = dt.datetime.fromtimestamp(moment, clock)
    while (moment := moment + 60) <= end:
        local = dt.datetime.fromtimestamp(moment, clock)
        fires = expression.matches(local) and (local.fold == 0 or expression.repeats)
        if local.utcoffset() > before.utcoffset() and not expression.every_hour:
            skipped = before.replace(tzinfo=None) + dt.timedelta(minutes=1)
            while skipped < local.replace(tzinfo=None):
                fires = fires or expression.matches(skipped)
                skipped += dt.timedelta(minutes=1)
        before = local
        if fires:
            yield moment
