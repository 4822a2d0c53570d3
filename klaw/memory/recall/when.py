"""Times as people give them to a search: ``2024-05-01``, ``2024-05-01T18:30+03:00``, ``7d``, ``yesterday``. Pure.

Everything without an offset is UTC, as all of Klaw's times. A day, month or year is meant as a whole: as a beginning
it counts from its first moment, as an end to its last.
"""

import re
from datetime import UTC, date, datetime, timedelta

FORMS = "2024-05-01, 2024-05, 2024-05-01T18:30+03:00, 7d, 2w, today, yesterday"

_FIRST_YEAR = 1900
_DAYS_BACK = {
    "today": 0,
    "сегодня": 0,
    "yesterday": 1,
    "вчера": 1,
    "day before yesterday": 2,
    "the day before yesterday": 2,
    "позавчера": 2,
}
_AGO = re.compile(r"([0-9]{1,6}) ?(h|d|w|ч|д|н)")
_HOURS = {"h": 1, "ч": 1, "d": 24, "д": 24, "w": 168, "н": 168}
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_DOTTED = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")


class BadTime(ValueError):
    """A text that names no time; says which forms there are and never quotes the text."""

    def __init__(self) -> None:
        super().__init__(f"must be a time like {FORMS}; without an offset it is UTC")


def read_since(text: str, now: float) -> float:
    """Unix seconds of the beginning that a text names. ``now`` is what "yesterday" is counted from. Raises BadTime."""
    return _read(text, now)[0]


def read_until(text: str, now: float) -> float:
    """Unix seconds of the end that a text names, not included; a day, month or year is over then. Raises BadTime."""
    return _read(text, now)[1]


def _read(text: str, now: float) -> tuple[float, float]:
    """First moment, and the first one after it."""
    given = " ".join(text.split()).casefold()
    try:
        for read in (_named_day, _ago, _numbers, _moment):
            found = read(given, datetime.fromtimestamp(now, UTC))
            if found is not None and found[0].year >= _FIRST_YEAR:
                return found[0].timestamp(), found[1].timestamp()
    except (ValueError, OverflowError):
        pass
    raise BadTime


Span = tuple[datetime, datetime]


def _named_day(given: str, now: datetime) -> Span | None:
    back = _DAYS_BACK.get(given)
    return _day(now.date() - timedelta(days=back)) if back is not None else None


def _ago(given: str, now: datetime) -> Span | None:
    match = _AGO.fullmatch(given)
    if match is None:
        return None
    moment = now - timedelta(hours=int(match[1]) * _HOURS[match[2]])
    return moment, moment


def _numbers(given: str, _now: datetime) -> Span | None:
    """A year, a month, or a day with points."""
    if match := _MONTH.fullmatch(given):
        year, month = int(match[1]), int(match[2] or 1)
        following = (year, month + 1) if match[2] and month < 12 else (year + 1, 1)
        return _day(date(year, month, 1))[0], _day(date(*following, 1))[0]
    if match := _DOTTED.fullmatch(given):
        return _day(date(int(match[3]), int(match[2]), int(match[1])))
    return None


def _moment(given: str, _now: datetime) -> Span:
    """A day, or a day with a time."""
    try:
        return _day(date.fromisoformat(given))
    except ValueError:
        moment = datetime.fromisoformat(given.upper())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment, moment


def _day(day: date) -> Span:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start, start + timedelta(days=1)
