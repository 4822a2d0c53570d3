"""Calendars (iCalendar) and contacts (vCard), as people would write them down."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

from klaw.knowledge.reading.formats.text import open_text
from klaw.knowledge.reading.output import Output, UnreadableError, one_line

MAX_CHARS = 32 * 1024 * 1024
_EVENTS = ("VEVENT", "VTODO", "VJOURNAL")
_TIME = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z?))?")
DAY_CHARS = len("Mon 2026-03-02")
_COMMON_KINDS = ("pref", "internet", "voice")
_ESCAPED = re.compile(r"\\(.)")
_EVENT_LINES = {
    "RRULE": "Repeats", "RDATE": "Also", "EXDATE": "Except", "DUE": "Due", "LOCATION": "Where",
    "ORGANIZER": "Organizer", "ATTENDEE": "With", "STATUS": "Status", "CATEGORIES": "Categories", "URL": "Link",
    "DESCRIPTION": "Description", "COMMENT": "Comment",
}  # fmt: skip
_CONTACT_LINES = {
    "NICKNAME": "Nickname", "ORG": "Organization", "TITLE": "Title", "ROLE": "Role", "TEL": "Phone", "EMAIL": "Mail",
    "ADR": "Address", "BDAY": "Birthday", "ANNIVERSARY": "Anniversary", "URL": "Link", "IMPP": "Messenger",
    "RELATED": "Related", "CATEGORIES": "Categories", "NOTE": "Note",
}  # fmt: skip


def read_calendar(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Each event with its times as they are written, the zone beside them."""
    for calendar in _components(file, output):
        output.title(_first(calendar, "X-WR-CALNAME"))
        for event in calendar.components():
            if event.name in _EVENTS:
                summary = _first(event, "SUMMARY")
                found = [summary, *_when(event), *_lines(event, _EVENT_LINES)]
                output.block("\n".join(filter(None, found)), headings=(summary,) if summary else ())


def read_contacts(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    for card in _components(file, output):
        parts = [_plain(part) for part in _raw(card, "N").split(";")]
        name = _first(card, "FN") or " ".join(filter(None, (*parts[1:3], parts[0])))
        output.block("\n".join([name, *_lines(card, _CONTACT_LINES)]), headings=(name,) if name else ())


def _components(file: BinaryIO, output: Output) -> Iterator[Any]:
    vobject = import_module("vobject")
    text = open_text(file, output).read(MAX_CHARS + 1)
    if len(text) > MAX_CHARS:
        raise UnreadableError("too_much_text", f"has more than {MAX_CHARS >> 20} million characters")
    number = 0
    try:
        for component in vobject.readComponents(text, transform=False, ignoreUnreadable=True, allowQP=True):
            number += 1
            yield component
    except vobject.base.ParseError:
        if not number:
            raise UnreadableError("broken", "is damaged, or not what its name says") from None
        output.problem("part_broken", f"is damaged behind entry {number:,}")


def _raw(component: Any, name: str) -> str:
    found = component.contents.get(name.lower(), ())
    return str(found[0].value) if found else ""


def _first(component: Any, name: str) -> str:
    return one_line(_plain(_raw(component, name)))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], text).strip()


def _lines(component: Any, wanted: Mapping[str, str]) -> Iterator[str]:
    """``Phone (cell): …``, in the order of those that are wanted."""
    for name, word in wanted.items():
        for line in component.contents.get(name.lower(), ()):
            text = str(line.value)
            if name in ("RDATE", "EXDATE", "DUE"):
                text = ", ".join(_time(each, _zone(line)) for each in text.split(","))
            elif name == "RRULE":
                text = text.replace(";", ", ").lower().replace("=", " ")
            elif name in ("ADR", "ORG"):
                text = ", ".join(filter(None, (_plain(part) for part in re.split(r"(?<!\\);", text))))
            text = _plain(text).removeprefix("mailto:").removeprefix("MAILTO:").removeprefix("tel:")
            own = [
                each.value for each in component.contents.get("x-ablabel", ()) if each.group == line.group is not None
            ]
            kinds = [kind for each in line.params.get("TYPE", []) for kind in each.split(",")] + line.singletonparams
            kinds = [kind.lower() for kind in kinds if kind.lower() not in _COMMON_KINDS]
            label = ", ".join([each.strip("_$!<>") for each in own[:1]] or kinds)
            person = line.params.get("CN", [""])[0]
            if text or person:
                shown = f"{word} ({label})" if label else word
                yield f"{shown}: {f'{person} ({text})' if person else text}"


def _zone(line: Any) -> str:
    return str(line.params.get("TZID", [""])[0]) if hasattr(line, "params") else ""


def _time(text: str, zone: str) -> str:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return text
    day = "-".join(found.groups()[:3])
    try:
        day = f"{dt.date.fromisoformat(day):%a} {day}"
    except ValueError:
        return text
    return f"{day} {found[4]}:{found[5]}{' UTC' if found[6] else f' ({zone})' if zone else ''}" if found[4] else day


def _when(event: Any) -> Iterator[str]:
    times = {name: event.contents[name][0] for name in ("dtstart", "dtend", "duration") if name in event.contents}
    if "dtstart" in times:
        start = times["dtstart"]
        when = _time(start.value, _zone(start))
        if "dtend" in times:
            end = times["dtend"].value
            if end.isdigit() and end > start.value:  # the first day on which it is over
                with suppress(ValueError):
                    end = f"{dt.date.fromisoformat(end) - dt.timedelta(days=1):%Y%m%d}"
            until = _time(end, _zone(times["dtend"]))
            if until != when:
                same = len(until) > DAY_CHARS and until[:DAY_CHARS] == when[:DAY_CHARS]
                when = f"{when.removesuffix(until[DAY_CHARS + 6 :])} to {until[DAY_CHARS + 1 :] if same else until}"
        elif "duration" in times:
            when += f", for {times['duration'].value.removeprefix('P').replace('T', ' ').strip().lower()}"
        yield f"When: {when}"
