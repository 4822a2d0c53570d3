"""What WhatsApp itself writes into a chat: dates and times before messages, in any locale's order, digits and words,
and notices. Its words are those of ``whatsapp.toml``, and those of Unicode's CLDR for the halves of a day
(``cldr.toml``). Pure."""

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Literal, TypeAlias
from unicodedata import category, decimal, normalize

import attrs


def _words(name: str) -> Mapping[str, str]:
    return tomllib.loads((resources.files(__package__) / name).read_text(encoding="utf-8"))


WORDS, CLDR = _words("whatsapp.toml"), _words("cldr.toml")

Order: TypeAlias = Literal["dmy", "mdy", "ymd"]
PLACES: Mapping[Order, tuple[int, int, int]] = {"ymd": (0, 1, 2), "dmy": (2, 1, 0), "mdy": (2, 0, 1)}
FIRST_YEAR = 2009
MARKS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
MOST_CHARS = 80
MOST_LETTERS = 30
_SPACE = r"[ \u00a0\u2000-\u200a\u202f\u3000]"
_BRACKET = re.compile(rf"[{MARKS}]*\[(?P<stamp>[^\]]{{6,{MOST_CHARS}}})\]{_SPACE}?(?P<rest>.*)", re.DOTALL)
_DASH = re.compile(rf"{_SPACE}[{MARKS}]*[-–—][{MARKS}]*{_SPACE}")
_COMMA = re.compile(rf"[:.]\w\w(?:[:.]\w\w)?(?:{_SPACE}?[^\W\d]{{1,20}})?,{_SPACE}")
_DATE = re.compile(
    r"(?P<era>[rh]|令和|平成|民[国國])?(?<!\d)(?P<a>\d{1,4})(?P<by> ?[./-] ?| ?[年년] ?)"
    r"(?P<b>\d{1,2}) ?[./\-月월] ?(?P<c>\d{1,4})(?!\d)"
)
_TIME = re.compile(r"(?<!\d)(\d{1,2}) ?[:.h時时點点시] ?(\d{1,2})(?: ?(?:[:.分분]|min) ?(\d{1,2}))?(?!\d)")
NIGHT, MIDDAY = -1, -2
"""Parts of the day with hours of both halves: till five in the morning, and from six in the evening on; the others."""
_HALVES = {
    word: hour
    for name, hour in (("night", NIGHT), ("midday", MIDDAY), ("after_noon", 12), ("before_noon", 0))
    for word in CLDR[name].split()
}


@attrs.frozen
class Stamp:
    numbers: tuple[int, int, int]
    era: str
    time: tuple[int, int, int]
    style: str

    def at(self, order: Order) -> dt.datetime | None:
        """The telephone's local time; None: no such day."""
        year, month, day = (self.numbers[place] for place in PLACES[order])
        try:
            if 1380 <= year < 1425:
                return dt.datetime.combine(_persian(year, month, day), dt.time(*self.time))
            return dt.datetime(_year(year, self.era), month, day, *self.time)  # noqa: DTZ001 - see its zone
        except ValueError:
            return None

    def may_be(self, order: Order) -> bool:
        if any(each in self.style for each in "年년오"):
            return order == "ymd"
        return order != "mdy" or "." not in self.style.split("0")[1]  # between full stops the day stands first


def _year(year: int, era: str) -> int:
    """In the Gregorian calendar: others count from 1911 (Taiwan), from the accession of an emperor, from Buddha. Raises
    ValueError."""
    if era:
        return year + {"r": 2018, "令": 2018, "h": 1988, "平": 1988, "民": 1911}[era[0]]
    if year < 100:
        year += 2000 if year < 50 else 2500
    elif year < 200:
        year += 1911
    if 2550 <= year < 2650:
        year -= 543
    if not 1970 <= year < 2100:
        raise ValueError("no year of a message")
    return year


def _persian(year: int, month: int, day: int) -> dt.date:
    """Raises ValueError."""
    if not (1 <= month <= 12 and 1 <= day <= (31 if month < 7 else 30)):
        raise ValueError("no such day")
    leap_years = sum(each % 33 in (1, 5, 9, 13, 17, 22, 26, 30) for each in range(1380, year))
    days = (year - 1380) * 365 + leap_years + (month - 1) * 30 + min(month - 1, 6) + day - 1
    return dt.date(2001, 3, 21) + dt.timedelta(days)


def split(line: str) -> Iterator[tuple[str, str]]:
    """Possible stamps of a line, and the rest of it; the likeliest first."""
    if (found := _BRACKET.match(line)) is not None:
        yield f"[{found['stamp']}", found["rest"]
        return
    head = line[:MOST_CHARS]
    if not any(map(str.isdecimal, head[:16])):
        return
    for separator in (_DASH, _COMMA):
        for found in separator.finditer(head):
            yield head[: found.start() if separator is _DASH else found.end()], line[found.end() :]


@lru_cache(maxsize=512)
def stamp(text: str) -> Stamp | None:
    """None: it is something else."""
    plain = (text if text.isascii() else "".join(map(_plain, normalize("NFKC", text)))).casefold().strip(" ,")
    date = _DATE.search(plain)
    if date is None:
        return None
    rest = f"{plain[: date.start()]}\0{plain[date.end() :]}"
    time = _TIME.search(rest)
    if time is None:
        return None
    hour, minute, second = int(time[1]), int(time[2]), int(time[3] or 0)
    before, behind = rest[: time.start()], rest[time.end() :]
    if any(map(str.isdecimal, before + behind)) or sum(map(str.isalpha, before + behind)) > MOST_LETTERS:
        return None
    before = before.partition("\0")[2] if "\0" in before else before  # of the day's name, if anything
    if (half := _half(behind, True)) is not None:
        hour, behind = _of_day(hour, half[0]), half[1]
    elif (half := _half(before, False)) is not None:
        hour, before = _of_day(hour, half[0]), half[1]
    if hour > 23 or minute > 59 or second > 59:
        return None
    numbers = int(date["a"]), int(date["b"]), int(date["c"])
    written = f"{date[0]}|{' '.join(before.split())}|{time[0]}|{' '.join(behind.split())}"
    return Stamp(numbers, date["era"] or "", (hour, minute, second), re.sub(r"\d+", "0", written))


def _plain(character: str) -> str:
    kind = category(character)
    return str(decimal(character)) if kind == "Nd" else "" if kind == "Cf" else " " if kind == "Zs" else character


def letters(text: str) -> str:
    """A word as ``CLDR`` has it: in small letters, without marks of punctuation."""
    return "".join(each for each in normalize("NFKC", text).casefold() if category(each)[0] in "LM")


_CONNECTIVES = ("de", "du", "in", "an", "to", "ma", "at", "om", "um", "od", "do", "la", "le", "da", "en", "el")
"""Words for a half of the day in one language that stand before a time in others."""
_SEPARATORS = re.compile(r"[\s,،()\[\]\0日일]+")


def _half(words: str, is_behind: bool) -> tuple[int, str] | None:
    """A half of the day among words: its first hour, ``NIGHT`` or ``MIDDAY``, and the other words."""
    if not any(map(str.isalpha, words)):
        return None
    pieces = list(filter(None, _SEPARATORS.split(words)))
    for size in range(min(len(pieces), 4), 0, -1):
        for first in range(len(pieces) - size + 1):
            word = letters("".join(pieces[first : first + size]))
            is_sure = is_behind or word not in _CONNECTIVES or "." in pieces[first]
            if word in _HALVES and is_sure:
                return _HALVES[word], " ".join([*pieces[:first], "A", *pieces[first + size :]])
    return None


def _of_day(hour: int, begin: int) -> int:
    if hour > 12:
        return hour
    hour %= 12
    return hour + begin if begin >= 0 else hour if (hour < 6) is (begin == NIGHT) else hour + 12


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("\n", ""), re.IGNORECASE)


LEFT_OUT = _pattern(WORDS["left_out"])
"""A picture, a recording, a document that the export does not have."""
EDITED = _pattern(WORDS["edited"])
_ATTACHED = WORDS["attached"].replace("\n", "")
_ATTACHED_TOO = WORDS["attached_too"].replace("\n", "")
_FILE = re.compile(
    rf"\u200e<[^:<>\n]{{1,40}}:\s?(?P<a>[^<>\n]{{1,255}})>"
    rf"|<(?:{_ATTACHED})[^:<>\n]{{0,20}}:\s?(?P<b>[^<>\n]{{1,255}})>"
    rf"|^[{MARKS}]*(?P<c>(?:IMG|VID|AUD|PTT|STK|DOC)-\d{{8}}-WA\d{{4,8}}\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^\u200e(?P<d>\S[^\n]{{0,255}}?\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^[{MARKS}]*(?P<e>\S[^\n]{{0,255}}?\.\w{{2,5}}) "
    rf"\((?:[^()\n]{{0,30}}(?:{_ATTACHED}|{_ATTACHED_TOO})[^()\n]{{0,30}})\)",
    re.IGNORECASE | re.MULTILINE,
)
_DOCUMENT = re.compile(r"\u200e?(\S[^\n\u200e]{0,254}\.\w{2,5})(?: • \u200e[^\n\u200e]{1,40})? ?\u200e(?=\S)")
"""On an iPhone: its name, its pages, and whether it is there."""
_NOTE = re.compile(r"[ \n]?\u200e?<([^<>:\n]{3,80})>\s*\Z")
_PROGRAMS = _pattern(WORDS["encryption"])
_MESSAGES = re.compile(rf"\W*(?:{WORDS['messages']})".replace("\n", ""), re.IGNORECASE)
"""A notice of encryption."""
_COLON = _pattern(WORDS["notices"])
_YOU = ("you", "you're", "вы", "du", "sie", "vous", "tú", "usted", "você", "tu", "hai", "ви", "siz", "u", "jij")
_QUOTES = (("“", "”"), ("„", "“”"), ("«", "»"), ("「", "」"), ("『", "』"), ("‘", "’"))
_SENTENCE = re.compile(r"\w{4}(?:[.!?] |。 ?)\w")
MOST_WORDS = 8
MOST_PLACEHOLDER, MOST_GONE = 60, 120
_SIGNS = re.compile(r"[<(\u200e]")


def _normal(text: str) -> str:
    plain = re.sub(f"[{MARKS}]", "", normalize("NFKC", text)).casefold().replace("’", "'").replace("‘", "'")
    return " ".join(plain.split()).rstrip(".。।۔ ")


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(_normal, text.split("|"))))


GONE = _listed(WORDS["gone"])
"""Deleted messages, missed calls, and media that were not exported, without any mark."""
_WAITING = tuple(_listed(WORDS["waiting"]))


def _is_gone(text: str) -> bool:
    if len(text) > MOST_GONE:
        return False
    plain = _normal(text)
    return text.strip() == "null" or plain in GONE or plain.startswith(_WAITING)


def _is_programs(text: str) -> bool:
    return _is_gone(text) or bool(_MESSAGES.match(text) and _PROGRAMS.search(text[:100]))


def is_of_person(text: str, is_marked: bool) -> bool:
    """Whether a person sent it, if only what was deleted or not exported."""
    first = text.partition("\n")[0][:100]
    is_placeholder = len(first) < MOST_PLACEHOLDER and ("<" in first or (is_marked and "\u200e" in first))
    return bool(
        not text.strip() or _is_gone(text) or (is_placeholder and LEFT_OUT.search(first)) or said(text, is_marked)[0]
    )


def is_sender(name: str, known: dict[str, int]) -> bool:
    """Whether a name, and not the beginning of a notice, stands before a colon. ``known``: how often each does in the
    chat."""
    if any(name.rfind(opening) > max(map(name.rfind, closing)) for opening, closing in _QUOTES) or name.count('"') % 2:
        return False
    words, count = name.split(), known.get(name, 0)
    is_sentence = sum(each[0].islower() for each in words[1:]) * 3 > len(words[1:]) * 2 and len(words) > 3
    if _COLON.search(name) or (count < 2 and (len(words) > MOST_WORDS or is_sentence or _SENTENCE.search(name))):
        return False
    for size in range(1, len(words) - 1):
        other = " ".join(words[:size])
        if sum(each[0].isupper() for each in words[size:]) * 2 >= len(words) - size:
            continue  # so go names on, and no sentences
        is_known = known.get(other.removesuffix("'s").removesuffix("’s"), 0) > count and len(words) - size > 2
        if is_known or other.casefold() in _YOU:
            return False
    return True


def said(text: str, is_marked: bool) -> tuple[str, list[str]]:
    """What a person wrote, files in brackets, and the names of these files. Empty: it was the program, before whose
    words an iPhone puts U+200E (``is_marked``)."""
    if not _SIGNS.search(text):
        return "" if _is_programs(text) else re.sub(f"[{MARKS}]", "", text).strip(), []
    files: list[str] = []

    def file(found: re.Match[str]) -> str:
        files.append(next(filter(None, found.groups())).strip())
        return f"[file: {files[-1]}]"

    if is_marked and (document := _DOCUMENT.match(text)) is not None:
        behind = text[document.end() - 1 :]
        there, _, more = behind.partition("\n")
        text = behind if there.startswith("\u200e<") else f"[file: {document[1]}]\n{more}".rstrip()
    text = _FILE.sub(file, text)
    if (note := _NOTE.search(text)) is not None and (EDITED.search(note[1]) or (is_marked and "\u200e" in note[0])):
        text = text[: note.start()]
    first, _, more = text.partition("\n")
    bare = re.fullmatch(rf"[{MARKS}]*<\s?([^<>\n]{{2,80}})>\s*", first)
    is_programs = is_marked and first.startswith("\u200e") and not first.rstrip().endswith((":", "："))
    if (bare and LEFT_OUT.search(bare[1])) or (is_programs and "://" not in first):
        text = more
    elif is_marked and "\u200e" in first:
        before, _, behind = first.rpartition("\u200e")
        if len(behind) < MOST_PLACEHOLDER and LEFT_OUT.search(behind):
            text = "\n".join(filter(None, (before.rstrip(), more)))
    if _is_programs(text):
        text = ""
    return re.sub(f"[{MARKS}]", "", text).strip(), files
