"""What Klaw says of times and reminders, in the language of the person's text. Pure."""

import datetime as dt
import re
from typing import Any

from klaw.domain.names import local_time
from klaw.domain.task import Cron, Every, Trigger, duration_text

_MONTHS = (
    "January February March April May June July August September October November December",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
)
_WEEKDAYS = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "понедельник вторник среда четверг пятница суббота воскресенье",
)
MONTHS, WEEKDAYS = [line.split() for line in _MONTHS], [line.split() for line in _WEEKDAYS]
_REPEATS = {
    r"\* \* \*": ("every day", "каждый день"),
    r"\* \* 1-5": ("on weekdays", "по будням"),
    r"\* \* 0,6": ("on weekends", "по выходным"),
    r"\* \* \d": ("every week", "каждую неделю"),
    r"\d+ \* \*": ("every month", "каждый месяц"),
    r"\d+ \d+ \*": ("every year", "каждый год"),
}
"""By what cron expressions have behind the hour."""
_EXAMPLES = (
    'like "tomorrow 9:00", "in 20 minutes", "on Friday at 7 pm" or "every day at 8"',
    "например «завтра в 9», «через 20 минут», «в пятницу в 7 вечера» или «каждый день в 8»",
)
_TEXTS = {
    "unknown": ("no time was understood; write it {examples}", "время не распознано; напишите его, {examples}"),
    "rest": ('"{head}" is no time; write the time {examples}', "«{head}» — не время; напишите его, {examples}"),
    "past": ('{when} is over; write a later time, like "tomorrow 9:00"', "{when}: это уже прошло; укажите время позже"),
    "which": (
        'after "{head}", is {number} the hour? Then write "at {number}"',
        "после «{head}»: {number} — это час? Тогда напишите «в {number}»",
    ),
    "clash": ('in "{head}" times clash; write one, {examples}', "в «{head}» времена не сочетаются, {examples}"),
    "added": ("I'll remind you: {when}", "Напомню: {when}"),
    "then": (", then {repeat}", ", затем {repeat}"),
    "reminder": ("⏰ Reminder: {text}", "⏰ Напоминание: {text}"),
    "late": (
        "⏰ Reminder ({when}; late, because Klaw was not running or its clock was not set): {text}",
        "⏰ Напоминание ({when}; с опозданием, потому что Klaw не работал или часы не были установлены): {text}",
    ),
    "near": ("Today, ;Tomorrow, ;", "Сегодня, ;Завтра, ;"),
}


def _language(text: str) -> int:
    """0 for English, 1 for Russian: the one whose letters a text has."""
    return int(bool(re.search("[а-яё]", text, re.IGNORECASE)))


def say(key: str, text: str, /, **values: Any) -> str:
    """What is said, in the language of a text."""
    return _TEXTS[key][_language(text)].format(examples=_EXAMPLES[_language(text)], **values)


def in_full(moment: float, zone: str | None, *, now: float, text: str = "") -> str:
    """A moment in Unix seconds on a zone's clock (None: the server's), in the language of a text:
    ``Tomorrow, Friday 27 November, 09:00``."""
    when, today = (
        dt.datetime.fromisoformat(local_time(each, zone)) if zone else dt.datetime.fromtimestamp(each).astimezone()
        for each in (moment, now)
    )
    ahead, spoken = (when.date() - today.date()).days, _language(text)
    near = say("near", text).split(";")[ahead] if 0 <= ahead < 2 else ""
    year = f" {when.year}" if when.year != today.year else ""
    weekday = WEEKDAYS[spoken][when.weekday()] + "," * spoken
    return f"{near}{weekday} {when.day} {MONTHS[spoken][when.month - 1]}{year}, {when:%H:%M}"


def repeat_of(trigger: Trigger, text: str = "") -> str | None:
    """How often it fires; None for a single time, and for what has no short name."""
    if isinstance(trigger, Every):
        return f"{('every', 'каждые')[_language(text)]} {duration_text(trigger.seconds)}"
    days = trigger.expression.split(" ", 2)[2] if isinstance(trigger, Cron) else ""
    return next((names[_language(text)] for form, names in _REPEATS.items() if re.fullmatch(form, days)), None)


def added(trigger: Trigger, first: float, zone: str, *, now: float, text: str) -> str:
    """What a person is told of a new reminder."""
    repeat = repeat_of(trigger, text)
    when = in_full(first, zone, now=now, text=text)
    return say("added", text, when=when) + (say("then", text, repeat=repeat) if repeat else "")
