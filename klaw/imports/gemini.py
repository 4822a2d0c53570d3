"""Gemini, as Google Takeout gives it: a list of what was asked and answered, ``MyActivity.json`` or ``.html``. Where it
names no conversations, what was asked on one day (UTC) is a chat: its key is the same in a later export, also when
something of that day was deleted meanwhile."""

import datetime as dt
import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import attrs

from klaw.domain.message import Role
from klaw.domain.text import cut, normalized, one_line
from klaw.imports import events
from klaw.imports.export_files import ExportEntry, OpenedExport, each_file
from klaw.imports.json_stream import items, pieces
from klaw.imports.whatsapp_format import CLDR, letters, stamp

SOURCE = "gemini"
_FOLDER = r"[^/]*(?:gemini|bard)[^/]*/(?:[^/]+/)*"
FILES = rf"(?:{_FOLDER}[^/]+|[^/]*activity[^/]*)\.(?:json|html?)"
_PRODUCT = re.compile("gemini|bard", re.IGNORECASE)
_CHAT = re.compile(r"gemini\.google\.com/(?:u/\d+/)?app/([0-9A-Za-z_-]{6,64})")
_ASKED = re.compile(r"(?:Prompted(?: with)?|Asked(?: Gemini| Bard)?|Said|Branched|Answered)\b[:\s]+")
_OTHER = re.compile(r"(?:Created|Used|Gave|Selected|Viewed|Shared|Deleted|Added|Edited)\b")
FEW, NEARLY_ALL = 4, 0.9
"""So many prompts show what stands around each of them: in any language, somebody “prompted” something."""
MAX_TITLE, MAX_TIME = 60, 80

_CARD = re.compile(rb'<div class="outer-cell\b')
_HEADER = re.compile(r'mdl-typography--title">(.*?)</p>', re.DOTALL)
_BODY = re.compile(r'mdl-typography--body-1">(.*?)</div>\s*<div class="content-cell[^>]*text-right', re.DOTALL)
_BREAK, _LOCAL = re.compile(r"<br\s*/?>"), re.compile(r'(?:href|src)="([^":]+)"')
_CLOCK = re.compile(r"(?<!\d)\d{1,2}[:.]\d\d[:.]\d\d(?!\d)")
_ZONE = re.compile(r"\s(?!AM|PM)(?P<name>[A-ZА-Я]{1,5})?(?:(?P<hours>[+-]\d{1,2})(?::?(?P<minutes>\d\d))?)?\Z")
_MONTHS = {word: number for number in range(1, 13) for word in CLDR[f"month_{number}"].split()}


@attrs.frozen
class _Exchange:
    at: str
    chat: str
    title: str
    answer: str
    files: Mapping[str, str]
    """Names in the export, with those for people."""

    @property
    def key(self) -> str:
        """The same for the page and for the list, whose times are exact to a thousandth of a second."""
        return f"{self.at[:19]} {' '.join(self.title.split())}"


def read(export: OpenedExport, zone: dt.tzinfo | None, to_text: Callable[[str], str]) -> Iterator[events.Event]:
    """Read all conversations. ``zone`` is that of times whose own is not known (None: local time); ``to_text`` makes
    text of an answer's HTML. The whole list is held in memory, since its newest entry stands first."""
    found: dict[str, _Exchange] = {}

    def entries(file: ExportEntry) -> Iterator[events.Event]:
        with file.open() as stream:
            head = stream.peek(1)  # type: ignore[attr-defined] # it is buffered
            values = items(stream) if b'"header"' in head else iter(())
            if head.lstrip().startswith(b"<"):
                values = (
                    _entry(each.decode(errors="replace"), zone) for each, _ in islice(pieces(stream, _CARD), 1, None)
                )
            for number, each in enumerate(values, 1):
                yield from _take(found, to_text, each, f"{file.name}, entry {number}")

    yield from each_file(export.files(FILES, "MyActivity.json"), entries)
    stored = {each.name.rpartition("/")[2]: each for each in export.files(rf"{_FOLDER}[^/]+") if export.has_several}
    yield from _chats(found, stored)


def _take(found: dict[str, _Exchange], to_text: Callable[[str], str], entry: Any, place: str) -> Iterator[events.Event]:
    try:
        product = " ".join((str(entry.get("header") or ""), *map(str, entry.get("products") or ())))
        answers, chat = entry.get("safeHtmlItem") or (), _CHAT.search(str(entry.get("titleUrl") or ""))
        texts = [to_text(str(each["html"])) for each in ([answers] if isinstance(answers, dict) else answers)]
        title, at, files = entry["title"].strip(), events.moment(entry.get("time")), _files(entry)
    except events.OTHER_FORM as error:
        yield events.other_form(place, error)
        return
    if product.strip() and not _PRODUCT.search(product):
        yield events.LeftOut("of other products of Google")
    elif at is None:
        yield events.Unread(place, "has no time that can be read: choose JSON in Takeout, not HTML")
    else:
        exchange = _Exchange(at, chat[1] if chat else "", title, "\n\n".join(filter(None, texts)), files)
        found.setdefault(exchange.key, exchange)


def _files(entry: Any) -> dict[str, str]:
    named: dict[str, str] = {}
    attached = entry.get("attachedFiles") or []
    listed = [*(entry.get("subtitles") or ()), *(attached if isinstance(attached, list) else [attached])]
    for each in (*listed, entry.get("imageFile"), *(entry.get("audioFiles") or ())):
        url, name = (each.get("url"), each.get("name")) if isinstance(each, dict) else (each, each)
        if isinstance(url, str) and ":" not in url:
            named.setdefault(url, str(name or url).lstrip("- \u00a0"))
    return named


def _chats(found: Mapping[str, _Exchange], stored: Mapping[str, ExportEntry]) -> Iterator[events.Event]:
    before, behind = _around([each.title for each in found.values() if each.answer and not _ASKED.match(each.title)])
    chats: dict[str, list[tuple[_Exchange, str]]] = {}
    for each in sorted(found.values(), key=lambda each: each.at):
        if said := _asked(each, before, behind):
            chats.setdefault(each.chat or each.at[:10], []).append((each, said))
        else:
            yield events.LeftOut("other activity")
    for key, exchanges in chats.items():
        first, said = exchanges[0]
        title = cut(one_line(said), MAX_TITLE) if first.chat else f"Gemini {key}"
        yield events.ExportedChat(key=key, title=title)
        for each, said in exchanges:
            yield from _messages(each, said, stored)


def _asked(of: _Exchange, before: str, behind: str) -> str:
    """What was asked; empty: the entry tells of something else."""
    if (verb := _ASKED.match(of.title)) is not None:
        return of.title[verb.end() :]
    if _OTHER.match(of.title) or not (of.answer or (before and of.title.startswith(before))):
        return ""
    return of.title.removeprefix(before).removesuffix(behind).strip()


def _around(titles: list[str]) -> tuple[str, str]:
    """What stands before nearly all titles, or else behind them."""
    if len(titles) < FEW:
        return "", ""
    before = re.sub(r"\w+\Z", "", _common(titles))
    behind = "" if before else re.sub(r"\A\W+", "", _common([each[::-1] for each in titles])[::-1])
    return before, behind if len(behind) > 2 else ""


def _common(texts: list[str]) -> str:
    shared = ""
    while True:
        longer, count = Counter(each[: len(shared) + 1] for each in texts).most_common(1)[0]
        if count < NEARLY_ALL * len(texts) or longer == shared:
            return shared
        shared = longer


def _messages(of: _Exchange, said: str, stored: Mapping[str, ExportEntry]) -> Iterator[events.Event]:
    files = []
    for url, name in of.files.items():
        if (file := stored.get(url.rpartition("/")[2])) is not None:
            files.append(attrs.evolve(file.attached(), name=name))
        else:
            yield events.Unread(f"Gemini, {of.at[:16]}", f"{cut(one_line(name), 60)} is not in the export")
    text = "\n".join((said, *(f"[file: {name}]" for name in of.files.values())))
    yield events.ExportedMessage(key=f"{of.key} user", role=Role.USER, text=text, at=of.at, files=tuple(files))
    if of.answer:
        yield events.ExportedMessage(key=f"{of.key} assistant", role=Role.ASSISTANT, text=of.answer, at=of.at)


# -- the page ----------------------------------------------------------------------------------------------------------


def _entry(card: str, zone: dt.tzinfo | None) -> dict[str, Any]:
    """An entry of the page, as the list has it."""
    header, found, chat = _HEADER.search(card), _BODY.search(card), _CHAT.search(card)
    body = found[1] if found else ""
    lines = _BREAK.split(body)
    times = ((number, _moment(_bare(each), zone)) for number, each in enumerate(lines) if number)
    place, at = next((each for each in times if each[1]), (1, None))
    # Files stand before the time, behind a line that counts them.
    last = next((number - 1 for number, each in enumerate(lines[:place]) if _LOCAL.search(each)), place)
    return {
        "header": _bare(header[1]) if header else "",
        "title": "\n".join(map(_bare, lines[: max(last, 1)])),
        "titleUrl": chat[0] if chat else "",
        "time": at,
        "attachedFiles": [html.unescape(each) for each in _LOCAL.findall(body)],
        "safeHtmlItem": [{"html": "<br>".join(lines[place + 1 :])}],
    }


def _bare(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\u00a0", " ").strip()


def _moment(text: str, zone: dt.tzinfo | None) -> str | None:
    """A time such as “Mar 1, 2026, 3:04:05 PM UTC”, in any language. Another name of a zone is that of the user's."""
    text = normalized("NFKC", text)
    if len(text) > MAX_TIME or _CLOCK.search(text) is None:
        return None
    if (named := _ZONE.search(text)) is not None:
        text = text[: named.start()]
        if (hours := named["hours"]) or named["name"] in ("UTC", "GMT"):
            minutes = int(f"{'-' * (hours or '').startswith('-')}{named['minutes'] or 0}")
            zone = dt.timezone(dt.timedelta(hours=int(hours or 0), minutes=minutes))
    clock = _CLOCK.search(text)
    date, numbers = _CLOCK.sub("\0", text), [*map(int, re.findall(r"\d+", _CLOCK.sub("", text)))]
    month = next((each for each in re.findall(r"[^\W\d_]+\.?", date) if letters(each) in _MONTHS), "")
    if month and len(numbers) == 2:
        date, numbers = date.replace(month, ""), [max(numbers), _MONTHS[letters(month)], min(numbers)]
    if clock is None or len(numbers) != 3:
        return None
    year, middle, day = numbers if numbers[0] > 31 else numbers[::-1]
    found = stamp(f"{year}/{middle}/{day} {re.sub(r'[0-9]+[./-]?', '', date).replace(chr(0), clock[0])}")
    at = found.at("ymd") if found is not None else None
    return None if at is None else events.moment(at.replace(tzinfo=zone).timestamp())
