"""Times as people write them, in English and Russian: "tomorrow at 9", "every Monday at 8", «через полтора часа». Pure.

Each word becomes a letter for what it is, so that patterns of letters read both languages; what they do not know is no
time. A day without an hour means nine o'clock, so whoever answers says the time in full (``when_words.in_full``)."""

import datetime as dt
import re
from calendar import monthrange
from math import prod

from klaw.actor.clock import iso
from klaw.domain.names import zone as zone_of
from klaw.domain.task import At, Cron, Trigger
from klaw.runs.triggers import MAX_AHEAD_S, moments, normalise, read_every
from klaw.runs.when_words import MONTHS, in_full, say

_WORDS = {
    "D": "today/сегодня tomorrow/завтра послезавтра",
    "W": "mon/monday/понедельник tue/tuesday/вторник wed/wednesday/среда/среду thu/thursday/четверг"
    " fri/friday/пятница/пятницу sat/saturday/суббота/субботу sun/sunday/воскресенье",
    "V": "mondays/понедельникам tuesdays/вторникам wednesdays/средам thursdays/четвергам fridays/пятницам"
    " saturdays/субботам sundays/воскресеньям",
    "U": "s/sec/second/seconds/сек/секунд/секунду/секунды m/min/minute/minutes/мин/минут/минуту/минуты"
    " h/hour/hours d/day/days/день/дней w/week/weeks/неделю/недели/недель"
    " month/months/месяц/месяца/месяцев y/year/years/год/года/лет",
    "P": "midnight/полночь morning/am/утром/утра/утро noon/midday/полдень afternoon/pm/днём/днем"
    " evening/вечером/вечера/вечер tonight night/ночью/ночи",
    "R": "daily/ежедневно weekdays/weekday/будням/будни/будний weekends/weekend/выходным weekly/еженедельно"
    " monthly/ежемесячно yearly/ежегодно",
    "H": "_ _ ч/час/часа/часов",
    "Q": "_ _ _ дня",
    "N": "_ a/an/one/одну/один two/два/две/пару three/три four/четыре five/пять six/шесть seven/семь eight/восемь"
    " nine/девять ten/десять",
    "E": "every/each/каждый/каждую/каждое/каждые",
    "L": "по",
    "X": "next/следующий/следующую/следующее",
    "A": "at/by/on/в/во/к/на",
    "I": "in/after/через",
    "T": "the/this/эту/этот/это",
    "&": "and/и",
    "O": "of",
    "S": "st/nd/rd/th/го",
    "M": " ".join(map("/".join, zip(*MONTHS, strict=True))),
}
_MEANING: dict[str, tuple[str, float]] = {
    word.lower(): (letter, at)
    for letter, words in _WORDS.items()
    for at, same in enumerate(words.split())
    for word in same.split("/")
}
_MEANING |= {name[:3].lower(): ("M", at) for names in MONTHS for at, name in enumerate(names)} | {"май": ("M", 4)}
_MEANING |= {"half": ("N", 0.5), "пол": ("N", 0.5), "полтора": ("N", 1.5), "полторы": ("N", 1.5)}
_SECONDS = (1, 60, 3600, 86_400, 604_800)
_HOURS = (0, 9, 12, 15, 19, 20, 21)
"""What the parts of the day mean where no hour is given."""
_TONIGHT = 5
_REPEATS = ("days", "weekdays", "weekends", "weeks", "months", "years")
_TOKEN = re.compile(r"пол(?=часа)|\d{1,2}[.,]5(?=\s*[hч])|\d+|[^\W\d_]+|\S", re.IGNORECASE)


def _token(match: re.Match[str]) -> tuple[str, float, int]:
    """The letter of a word or sign, its value, and where it ends."""
    word = match[0].lower()
    if word[0].isdecimal() and len(word) <= 5:
        return "Y" if re.fullmatch(r"20\d\d", word) else "N", float(word.replace(",", ".")), match.end()
    return *_MEANING.get(word, ("?" if len(word) > 1 or word.isalpha() else word, 0)), match.end()


class _Phrase:
    """What the beginning of a text says of a time."""

    def __init__(self, text: str, now: float, zone: str) -> None:
        self.text, self.now, self.zone = text, now, zone
        self.here = dt.datetime.fromtimestamp(int(now), zone_of(zone)).replace(tzinfo=None)
        self.today, self.end, self.said = self.here.date(), 0, set[str]()
        self.day: dt.date | None = None
        self.weekdays: list[int] = []
        self.next_week, self.repeat, self.part, self.hour, self.minute = False, "", -1, -1, 0
        self.after = [0.0] * 7
        """Amounts of time from now, or between two times: of seconds, minutes … years."""
        tokens, at = list(map(_token, _TOKEN.finditer(text[:300]))), 0
        letters = "".join(letter for letter, _, _ in tokens)
        while True:
            at += letters[at : at + 1] == ","
            for takes, pattern, take in _PIECES:
                match = None if self.said & {*takes.split()} else re.compile(pattern).match(letters, at)
                if match and take(self, match[0], [value for _, value, _ in tokens[at : match.end()]]):
                    self.said |= {*takes.split()}
                    at = match.end()
                    self.end = tokens[at - 1][2]
                    break
            else:
                return

    def wrong(self, what: str, **values: str) -> ValueError:
        return ValueError(say(what, self.text, head=self.text[: self.end].strip(), **values))

    # The pieces: each notes what it says, and returns whether that can be.

    def _take_repeat(self, letters: str, values: list[float]) -> bool:
        if letters[-1] == "P":
            self.repeat, self.part = "days", int(values[-1])
        elif "R" in letters:
            self.repeat = _REPEATS[int(values[letters.index("R")])]
        elif values[-1] >= 3:
            self.repeat = ("days", "weeks", "months", "years")[int(values[-1]) - 3]
        return bool(self.repeat)

    def _take_after(self, letters: str, values: list[float]) -> bool:
        self.repeat = "interval" if letters[0] == "E" else ""
        counts: list[float] = []
        unit = 0
        for letter, value in zip(letters, values, strict=True):
            if letter == "N":
                counts.append(value)
            elif letter in "UHQ":
                unit = int(value)
                self.after[unit] += min(prod(counts), 99_999)
                counts = []
        self.after[unit] += prod(counts) if counts else 0  # "an hour and a half"
        return True

    def _take_weekday(self, letters: str, values: list[float]) -> bool:
        self.weekdays = sorted({int(value) for letter, value in zip(letters, values, strict=True) if letter in "WV"})
        self.next_week = "X" in letters
        if {*letters} & {*"ELV"} or len(self.weekdays) > 1:
            self.repeat = self.repeat or "weeks"
        return True

    def _take_near(self, letters: str, values: list[float]) -> bool:
        self.day = self.today + dt.timedelta(days=values[-1] + ("U" in letters))
        return True

    def _take_date(self, letters: str, values: list[float]) -> bool:
        numbers = [int(value) for letter, value in zip(letters, values, strict=True) if letter in "NMY"]
        day, month, *year = reversed(numbers) if "Y-" in letters else numbers
        if "M" in letters:
            day, month = (month, day + 1) if letters.find("N") > letters.index("M") else (day, month + 1)
        years = [year[0] + 2000 * (year[0] < 100)] if year else range(self.today.year, self.today.year + 9)
        there = [each for each in years if each < 9000 and 1 <= month <= 12 and 1 <= day <= monthrange(each, month)[1]]
        days = [dt.date(each, month, day) for each in there]
        self.day = next((each for each in days if year or each >= self.today), None)
        return self.day is not None

    def _take_hour(self, letters: str, values: list[float]) -> bool:
        hour, self.minute, *_ = [int(values[at]) for at, letter in enumerate(letters) if letter == "N"] + [0, 0]
        hour, part = hour if "N" in letters else 1, int(values[-1]) if letters[-1] in "PQ" else -1
        fits = bool({*letters} & {*"A:HPQ"}) and hour < 24 and self.minute < 60
        self.hour = _of_part(hour, part) if fits else -1
        return fits

    def _take_part(self, letters: str, values: list[float]) -> bool:
        self.part = int(values[-1])
        if self.day is None and (self.part == _TONIGHT or letters == "TP"):
            self.day = self.today
        return True

    def trigger(self) -> Trigger:
        """Raises ValueError, in the language of the text."""
        seconds = round(sum(factor * number for factor, number in zip(_SECONDS[:3], self.after, strict=False)))
        days = self.after[3] + 7 * self.after[4]
        if self.repeat == "interval" and not any(self.after[5:]):
            return read_every(seconds + round(86_400 * days))
        time = dt.time(9)
        if self.hour >= 0:
            time = dt.time(_of_part(self.hour, self.part), self.minute)
        elif self.part >= 0:
            time = dt.time(_HOURS[self.part])
        elif any(self.after):
            time = self.here.time()
        if self.repeat:
            return Cron(expression=f"{time.minute} {time.hour} {self._days()}", zone=self.zone)
        at_midnight = self.part == 0 and (self.weekdays or (self.day or self.today) != self.today)
        if at_midnight or (seconds and self.said & {"hour", "part"}):
            raise self.wrong("clash")  # midnight may be the beginning or the end of that day
        moment = int(self.now) + seconds
        if not seconds or any(self.after[3:]):
            day = self._first_day(time) + dt.timedelta(days=days + (self.part == 0 and self.day is not None))
            moment = moments(dt.datetime.combine(day, time), zone_of(self.zone))[0] + seconds
        if moment <= self.now:
            raise self.wrong("past", when=in_full(moment, self.zone, now=self.now, text=self.text))
        if moment > self.now + MAX_AHEAD_S:
            raise self.wrong("unknown")
        return At(instant=iso(moment), zone=self.zone)

    def _first_day(self, time: dt.time) -> dt.date:
        """The day that is meant; where several are, the first on which the hour is still to come."""
        today, is_over = self.today, time <= self.here.time()
        if any(self.after):
            month = today.year * 12 + today.month - 1 + int(self.after[5] + 12 * self.after[6])
            year, month = min(month // 12, 5000), month % 12 + 1
            return dt.date(year, month, min(today.day, monthrange(year, month)[1]))
        if self.weekdays:
            ahead = (self.weekdays[0] - today.weekday()) % 7 or 7 * is_over
            return today + dt.timedelta(days=7 - today.weekday() + self.weekdays[0] if self.next_week else ahead)
        return self.day or today + dt.timedelta(days=is_over)

    def _days(self) -> str:
        """The days of a cron expression. A day that is named must go with what repeats."""
        day, most = self.day or self.today, {"days": 2, "months": 32, "years": 367}.get(self.repeat, 8)
        if any(self.after) or (day - self.today).days >= most or (self.weekdays and self.repeat != "weeks"):
            raise self.wrong("clash")
        named = {"days": "* * *", "weekdays": "* * 1-5", "weekends": "* * 0,6", "months": f"{day.day} * *"}
        weekdays = ",".join(str((each + 1) % 7) for each in self.weekdays or (day.weekday(),))
        return {**named, "weeks": f"* * {weekdays}", "years": f"{day.day} {day.month} *"}[self.repeat]


def _of_part(hour: int, part: int) -> int:
    """An hour of a part of the day, on a clock of 24 hours."""
    night = part >= _TONIGHT
    if part in (0, 1) or (night and hour == 12):
        return hour - 12 * (hour == 12)
    return hour + 12 * (part >= 3 and (5 if night else 0) < hour < 12)


_NAMED = "[AT]*N(?:-?S)?O?M(?:,?YU?)?|A?MNS?(?!:)(?:,?YU?)?"
_PIECES = (
    ("repeat", "[EAL]*RU?|E[UP]", _Phrase._take_repeat),
    ("day repeat hour part", "E(?:N?[UHQ])+", _Phrase._take_after),
    ("day", rf"(?:A?[WD],?)*(?:A?Y-N-N|N\.N(?:\.[NY])?(?![.:])|{_NAMED})", _Phrase._take_date),
    ("day", "[EAXTL]*[WV](?:[,&]+[EL]?[WV])*", _Phrase._take_weekday),
    ("day repeat", "IN*[UHQ](?:&NN(?![UHQ])|&?N+[UHQ])*|(?:N[UHQ])+", _Phrase._take_after),
    ("day", "(?:T?UI)?D", _Phrase._take_near),
    ("hour", r"A?(?:N(?:[:.]N)?(?::N)?H?|H)(?:Q|(?:IT)?P)?(?![-/]|[:.]N)", _Phrase._take_hour),
    ("part", "(?:A|IT|T)?P", _Phrase._take_part),
)
"""What each says of a time (nothing is said twice), and its letters; Y is a year, N another number."""
_CRON = re.compile(r"(?:cron )?([\d*/,-]+ [\d*/,-]+ \S+ \S+ \S+)(?: (\S+))?", re.ASCII)


def read_when(text: str, *, now: float, zone: str) -> Trigger:
    """The trigger that a phrase means on the clock of a zone; cron expressions and ISO-8601 are phrases, too. Raises
    ValueError, which says in the language of the phrase what was understood."""
    text = " ".join(text.split())
    if found := _CRON.fullmatch(text):
        return Cron(expression=normalise(found[1]), zone=zone_of(found[2] or zone).key)
    phrase = _Phrase(text, now, zone)
    if not phrase.said:
        phrase = _Phrase(f"in {text}", now, zone)
    rest = phrase.text[phrase.end :].strip(" ,.")
    if rest.isdecimal() and int(rest[:9]) < 24 and phrase.said & {"day", "repeat"} and phrase.hour < 0:
        phrase.hour, rest = int(rest), ""
    if rest or not phrase.said:
        raise ValueError(say("rest" if phrase.said else "unknown", text, head=rest[:40]))
    return phrase.trigger()


def split(text: str, *, now: float, zone: str) -> tuple[str, str]:
    """A text that begins or ends with a time, as that phrase and the rest. Raises ValueError, as ``read_when``."""
    text = re.sub(r"^(?:me|мне)\s+", "", text.strip(), flags=re.IGNORECASE)
    phrase = _Phrase(text, now, zone)
    if phrase.said:
        rest = text[phrase.end :]
        number = re.match(r"[\s,]*(\d{1,2})\s", rest)
        if number and not phrase.said & {"hour", "part"} and not any(phrase.after):
            raise phrase.wrong("which", number=number[1])
        return text[: phrase.end], re.sub(r"^[\s,.:;–—-]+(?:(?:to|that|что|чтобы)\s+)?", "", rest, flags=re.IGNORECASE)
    tail = max(0, len(text) - 300)
    for start in [tail + each.start() for each in re.finditer(r"(?<=\s)\S", text[tail:])][-12:]:
        phrase = _Phrase(text[start:], now, zone)
        if phrase.said and not phrase.text[phrase.end :].strip(" .!"):
            return phrase.text[: phrase.end], re.sub(r"^(?:to|что|чтобы)\s+", "", text[:start].strip(" ,"))
    raise ValueError(say("unknown", text))
