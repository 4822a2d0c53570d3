"""Days of local time: the day of a moment, the days that a question names ("on 5 January 2024", "on New Year's Eve",
«в прошлом месяце»), and the times that people give to a search (``2024-05-01``, ``7d``, ``yesterday``). English and
Russian. Pure.

In a question only expressions that can hardly mean anything else are read: "may" is a month in "in May" or "5 May", not
in "may I". What was said on those days, or soon after, is what such a question is about. In the times of a search, a
day, month or year is meant as a whole."""

import calendar
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial

import attrs

from klaw.domain.names import clock_text
from klaw.errors import InvalidValue

MAX_QUERY_CHARACTERS = 2_000
MAX_PERIODS = 4

_ENGLISH_MONTHS = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_RUSSIAN_MONTHS = (
    r"янв(?:ар[ьяе])?|фев(?:рал[ьяе])?|март[ае]?|апр(?:ел[ьяе])?|ма[йяе]|июн[ьяе]|июл[ьяе]|авг(?:уст[ае]?)?"
    r"|сен(?:тябр[ьяе])?|окт(?:ябр[ьяе])?|ноя(?:бр[ьяе])?|дек(?:абр[ьяе])?"
)
_MONTH = rf"(?P<month>{_ENGLISH_MONTHS}|{_RUSSIAN_MONTHS})\.?"
_MONTH_STARTS = ("jan feb mar apr may jun jul aug sep oct nov dec", "янв фев мар апр ма июн июл авг сен окт ноя дек")
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|-?го|-?е)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"

_NUMBER_WORDS = (
    "one two three four five six seven eight nine ten",
    "один два три четыре пять шесть семь восемь девять десять",
)
_COUNTS = {
    **{word: number for line in _NUMBER_WORDS for number, word in enumerate(line.split(), 1)},
    **dict.fromkeys(("", "a", "an", "одну"), 1),
    **dict.fromkeys(("couple of", "a couple of", "две", "пару"), 2),
    **dict.fromkeys(("few", "a few", "несколько"), 3),
}
_COUNT = "|".join(sorted((word for word in _COUNTS if word), key=len, reverse=True))
_WEEKDAY_STARTS = ("mon tue wed thu fri sat sun", "пон вто сре чет пят суб вос")
_WEEKDAYS = {name: number for line in _WEEKDAY_STARTS for number, name in enumerate(line.split())}


def local_day(moment: float, zone: tzinfo | None = None) -> date:
    """The day of a moment (Unix seconds) in a zone, or in the machine's local time."""
    return datetime.fromtimestamp(moment, UTC).astimezone(zone).date()


def local_clock(moment: str, zone: tzinfo | None = None) -> str:
    """An ISO-8601 time in a zone, or in local time, as models read it: ``2026-11-23 Mon 09:00 +01:00``."""
    local = datetime.fromisoformat(moment).astimezone(zone).replace(second=0, microsecond=0)
    return clock_text(local.isoformat())


def start_of_day(day: date, zone: tzinfo | None = None) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


@attrs.frozen
class Period:
    first: date
    last: date


def find_periods(text: str, *, today: date, latest: date) -> tuple[Period, ...]:
    """The days that a text names, at most ``MAX_PERIODS``; relative ones only where it names no date.

    "Yesterday" is counted from ``today``; a month or day without its year is the last one up to ``latest``."""
    head = text[:MAX_QUERY_CHARACTERS]
    relative = (period for _, period in _relative(head, today))
    found = tuple(dict.fromkeys(_absolute(head, latest))) or tuple(dict.fromkeys(relative))
    return found[:MAX_PERIODS]


Reader = Callable[[re.Match[str], date], Period | None]


def _absolute(text: str, latest: date) -> Iterator[Period]:
    for pattern, read in _ABSOLUTE:
        rest = []
        end = 0
        for match in pattern.finditer(text):
            period = read(match, latest)
            if period is None:
                continue
            yield period
            rest.append(text[end : match.start()])
            end = match.end()
        text = " \x00 ".join([*rest, text[end:]])


def _relative(text: str, today: date) -> Iterator[tuple[str, Period]]:
    for pattern, read in _RELATIVE:
        match = pattern.search(text)
        period = read(match, today) if match else None
        if match is not None and period is not None:
            yield match[0], period


def _read_day(match: re.Match[str], latest: date) -> Period | None:
    groups = match.groupdict()
    month = _month_number(groups["month"])
    year = groups.get("year")
    if year is None:
        # 29 February was perhaps not in this year or the last.
        years = (latest.year - back for back in range(5))
        days = (_make(each, month, int(groups["day"])) for each in years)
        return next((_one(day) for day in days if day is not None and day <= latest), None)
    return _one(_make(int(year), month, int(groups["day"])))


def _read_numbers(match: re.Match[str], _latest: date) -> Period | None:
    year, month, day = (int(match[name]) for name in ("year", "month", "day"))
    return _one(_make(year + 2000 if year < 100 else year, month, day))


def _read_slashes(match: re.Match[str], _latest: date) -> Period | None:
    """Day first or month first: read only where one of both is impossible."""
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    readings = {_make(year, second, first), _make(year, first, second)} - {None}
    return _one(readings.pop()) if len(readings) == 1 else None


def _read_month(match: re.Match[str], latest: date) -> Period:
    month, year = _month_number(match["month"]), match.groupdict().get("year")
    if year is None:
        year = latest.year if month <= latest.month else latest.year - 1
    return _whole_month(int(year), month)


def _read_ago(match: re.Match[str], today: date) -> Period | None:
    groups = match.groupdict()
    count = int(groups["number"]) if groups.get("number") else _COUNTS[(groups.get("word") or "").lower()]
    if count > 1000:
        return None
    unit = match["unit"].lower()
    if unit.startswith(("day", "д")):
        return _around(today - timedelta(days=count))
    if unit.startswith(("week", "нед")):
        return _around(today - timedelta(weeks=count), 3)
    if unit.startswith(("month", "мес")):
        return _around(today - timedelta(days=round(30.44 * count)), 15)
    return _around(today - timedelta(days=365 * min(count, 100)), 120)


def _read_weekday(match: re.Match[str], today: date) -> Period:
    weekday = _WEEKDAYS[match["weekday"].lower()[:3]]
    return _around(today - timedelta(days=(today.weekday() - weekday) % 7 or 7))


def _last_week(_match: re.Match[str], today: date) -> Period:
    monday = today - timedelta(days=today.weekday())
    return Period(monday - timedelta(days=7), monday - timedelta(days=1))


def _last_month(_match: re.Match[str], today: date) -> Period:
    last = today.replace(day=1) - timedelta(days=1)
    return Period(last.replace(day=1), last)


def _read_named(month: int, day: int, slack: int, match: re.Match[str], latest: date) -> Period | None:
    """A day that has a name: of the year that is given, or the last one up to ``latest``."""
    years = [int(match["year"])] if match["year"] else [latest.year, latest.year - 1]
    periods = (_around(date(year, month, day), slack) for year in years)
    return next((each for each in periods if match["year"] or each.first <= latest), None)


def _month_number(name: str) -> int:
    folded = name.lower()
    if folded.isdecimal():
        return int(folded)
    numbered = (pair for line in _MONTH_STARTS for pair in enumerate(line.split(), 1))
    return next(number for number, start in numbered if folded.startswith(start))


def _make(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _one(day: date | None) -> Period | None:
    return _around(day) if day is not None else None


def _around(day: date, slack: int = 0) -> Period:
    return Period(day - timedelta(days=slack), day + timedelta(days=slack))


def _whole_year(year: int) -> Period:
    return Period(date(year, 1, 1), date(year, 12, 31))


def _whole_month(year: int, month: int) -> Period:
    return Period(date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1]))


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_NAMED = (
    (r"new\s+year['’]?s['’]?\s+eve|новогодн\w+\s+ночь", 12, 31, 0),
    (r"new\s+year(?:['’]?s)?(?:\s+day)?|нов(?:ый|ого|ым|ому)\s+год\w{0,2}", 1, 1, 1),
    (r"рождеств\w+", 1, 7, 1),
    (
        r"(?:(?:saint|st\.?)\s+)?valentine['’]?s?(?:\s+day)?|день\s+(?:святого\s+валентина|вс[её]х\s+влюбл[её]нных)",
        2,
        14,
        0,
    ),
    (r"д(?:ень|ня)\s+победы", 5, 9, 0),
    (r"halloween|х[еэ]ллоуин\w*", 10, 31, 0),
    (r"christmas(?:\s+(?:eve|day))?|xmas", 12, 25, 1),
)
"""Patterns of days with a name, with month, day, and the days before and after that the name means too."""
_ON = r"\b(?:on|at|over|last|this|since|на|в|во|под|с)\s+(?:(?:the|прошл\w+|эт\w+)\s+)?"
_IN_MONTH = "in|during|since|until|early|late|mid|last|this|в|во|весь|с|до"
_ABSOLUTE: tuple[tuple[re.Pattern[str], Reader], ...] = (
    (_compile(r"(?<!\d)(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)"), _read_numbers),
    (_compile(r"(?<![\d.])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>(?:\d\d){1,2})(?![\d.]\d)"), _read_numbers),
    (_compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?![\d/])"), _read_slashes),
    *(
        (_compile(rf"{_ON}(?:{name})(?!\w)(?:,?\s+(?:of\s+)?{_YEAR}\b)?"), partial(_read_named, month, day, slack))
        for name, month, day, slack in _NAMED
    ),
    (_compile(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH},?\s+(?:of\s+)?{_YEAR}\b"), _read_day),
    (_compile(rf"\b{_MONTH}\s+{_DAY},?\s+{_YEAR}\b"), _read_day),
    (_compile(rf"\b{_MONTH},?\s+(?:of\s+)?{_YEAR}\b"), _read_month),
    (_compile(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?!\w)"), _read_day),
    (_compile(rf"\b{_MONTH}\s+{_DAY}\b(?![:.]\d)"), _read_day),
    (
        _compile(r"\b(?:on|since|until|till|from|от|с|со|до|после)\s+(?P<day>\d\d?)\.(?P<month>[01]\d)(?![.,:]?\d)"),
        _read_day,
    ),
    (_compile(rf"\b(?:{_IN_MONTH})[\s-]+{_MONTH}(?!\w)"), _read_month),
    (_compile(rf"\b(?:in|during|since|of|в|за|с)\s+{_YEAR}\b"), lambda match, _: _whole_year(int(match["year"]))),
)
_LAST = r"(?:last|previous|past)"
_PRESENT_RU = r"(?:прошл\w+|предыдущ\w+)"
_RELATIVE: tuple[tuple[re.Pattern[str], Reader], ...] = (
    (_compile(r"\bday\s+before\s+yesterday\b|\bпозавчера\b"), lambda _, today: _around(today - timedelta(days=2))),
    (
        _compile(r"(?<!before )\byesterday\b|\blast\s+night\b|\bвчера\w*"),
        lambda _, today: _around(today - timedelta(days=1)),
    ),
    (_compile(r"\btoday\b|\bthis\s+morning\b|\bсегодня\w*"), lambda _, today: _around(today)),
    (
        _compile(
            rf"\b(?:(?P<number>\d{{1,4}})|(?P<word>{_COUNT}))\s+"
            r"(?P<unit>days?|weeks?|months?|years?|дн(?:я|ей)|недел\w+|месяц\w*|год\w*|лет)\s+(?:ago|назад)\b"
        ),
        _read_ago,
    ),
    (_compile(r"(?<!\d\s)\b(?P<unit>день|неделю|месяц|год)\s+назад\b"), _read_ago),
    (_compile(rf"\b{_LAST}\s+week\b|\bна\s+{_PRESENT_RU}\s+неделе\b"), _last_week),
    (_compile(rf"\b{_LAST}\s+month\b|\bв\s+{_PRESENT_RU}\s+месяце\b"), _last_month),
    (_compile(rf"\b{_LAST}\s+year\b|\bв\s+{_PRESENT_RU}\s+году\b"), lambda _, today: _whole_year(today.year - 1)),
    (
        _compile(
            r"\b(?:last|прошл\w+)\s+"
            r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday"
            r"|понедельник|вторник|сред[уы]|четверг|пятниц[уы]|суббот[уы]|воскресень[ея])\b"
        ),
        _read_weekday,
    ),
)


FORMS = "2024-05-01, 2024-05, 2024-05-01T18:30+03:00, 7d, 2w, today, yesterday, last Tuesday"

_EARLIEST = date(1900, 1, 1)
_AGO = re.compile(r"([0-9]{1,6}) ?(h|d|w|ч|д|н)")
_HOURS = {"h": 1, "ч": 1, "d": 24, "д": 24, "w": 168, "н": 168}
_YEAR_OR_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_DOTTED = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")


def read_since(text: str, now: float, zone: tzinfo | None = None) -> float:
    """The beginning of a time that a person gave, in Unix seconds. Raises InvalidValue, which lists the forms."""
    return _read(text, now, zone)[0]


def read_until(text: str, now: float, zone: tzinfo | None = None) -> float:
    """The end of the day, month or year, exclusive."""
    return _read(text, now, zone)[1]


def _read(text: str, now: float, zone: tzinfo | None) -> tuple[float, float]:
    given = " ".join(text.split()).casefold()
    try:
        first, end = _ago(given, now) or _days(given, local_day(now, zone), zone) or _moment(given, zone)
        if first >= start_of_day(_EARLIEST):
            return first, end
    except (ValueError, OverflowError):
        pass
    raise InvalidValue(f"must be a time like {FORMS}; without an offset it is local time")


def _ago(given: str, now: float) -> tuple[float, float] | None:
    match = _AGO.fullmatch(given)
    moment = now - int(match[1]) * 3600 * _HOURS[match[2]] if match else None
    return (moment, moment) if moment is not None else None


def _days(given: str, today: date, zone: tzinfo | None) -> tuple[float, float] | None:
    if match := _YEAR_OR_MONTH.fullmatch(given):
        period = _whole_month(int(match[1]), int(match[2])) if match[2] else _whole_year(int(match[1]))
    elif match := _DOTTED.fullmatch(given):
        period = _around(date(int(match[3]), int(match[2]), int(match[1])))
    elif named := dict(_relative(given, today)).get(given.removeprefix("the ")):
        period = named
    else:
        try:
            period = _around(date.fromisoformat(given))
        except ValueError:
            return None
    return start_of_day(period.first, zone), start_of_day(period.last + timedelta(days=1), zone)


def _moment(given: str, zone: tzinfo | None) -> tuple[float, float]:
    moment = datetime.fromisoformat(given.upper())
    seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    return seconds, seconds
