"""Chats of WhatsApp: ``_chat.txt``, ``WhatsApp Chat with NAME.txt``, alone or in a ZIP with its media. Whether 3/4 is
the third of April or the fourth of March is decided over the whole file: by a number over 12, else by the order of the
messages."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import attrs

from klaw.domain.text import cut, normalized, one_line
from klaw.imports import whatsapp_format as words
from klaw.imports.events import Event, ExportedChat, ExportedMessage, ImportRefused, LeftOut, Unread, moment
from klaw.imports.export_files import ExportEntry, OpenedExport, each_file
from klaw.imports.whatsapp_format import FIRST_YEAR, MARKS, PLACES, Order, Stamp, split, stamp

SOURCE = "whatsapp"
FILES = r"[^/]*(?:chat|whatsapp|чат)[^/]*\.txt"
MOST_NAMED = 12
MAX_LINE = 1 << 20
"""A longer line becomes several."""
MOST_SPAN = 3
"""A chat is not read in an order in which it lasts this many times as long: its years might be its days."""

_SENDER = re.compile(
    rf"[{MARKS}~\s]{{0,9}}(?P<name>(?:[^:\n]|:(?![ \u00a0{MARKS}]|$)){{1,100}}?)\s?:"
    rf"(?:[ \u00a0]|(?=[{MARKS}])|$)(?P<text>.*)",
    re.DOTALL,
)
_REST_OF_NAME = re.compile(r"([^\u200e\n]{1,60}): ?(?=\u200e[^<])")
"""Of a group that has a colon in its name, before a notice on an iPhone."""
_TITLE = re.compile(
    r"^(?:whatsapp chat (?:with|-) ?|whatsapp-chat (?:mit|-) |(?:chat|discussion|conversa) (?:de |do )?whatsapp "
    r"(?:con|avec|com|-) |чат whatsapp (?:с контактом |с группой |с |- )|chat )|(?: \(\d+\)|-\d)$|^_chat$",
    re.IGNORECASE,
)


@attrs.frozen
class _MessageHead:
    """The first line of a message, or of a notice."""

    stamp: Stamp
    style: tuple[str, bool]
    """How its date is written, and whether in brackets: the same in a whole file."""
    sender: str
    """Empty for a notice of the program."""
    text: str

    @property
    def is_marked(self) -> bool:
        """Whether U+200E stands before what the program writes, as on an iPhone."""
        return self.style[1]

    @property
    def is_of_person(self) -> bool:
        return bool(self.sender) and words.is_of_person(self.text, self.is_marked)


def read(
    export: OpenedExport, me: str | None, order: Order | None, zone: dt.tzinfo | None, title: str | None
) -> Iterator[Event]:
    """Read all chats of an export. ``me`` is the user's name in them, ``order`` that of the numbers of a date (None:
    the file tells), ``zone`` that of the telephone (None: local time), ``title`` that of the chat (None: by the names
    of the files). Raises ImportRefused: ``me`` or ``order`` is needed."""

    def chat(file: ExportEntry) -> Iterator[Event]:
        facts = _FileFacts.of(file)
        if not facts.messages:
            yield Unread(file.name, "contains no WhatsApp message")
            return
        if facts.odd:
            much = f"{len(facts.odd):,} lines begin with a time in unknown words"
            yield Unread(file.name, f"{much}: they were read as parts of the messages before them")
        named = title or title_of(file.stem) or title_of(export.path.stem)
        named = named or facts.named_in(f"{file.stem} {export.path.stem}")
        yield from _ChatReader(file, me, order or facts.order(file.name), zone, named, facts).events()

    files = export.files(FILES) or export.files(r"[^/]+\.txt", "chat as text (_chat.txt)")
    yield from each_file(files, chat)


def _lines(file: ExportEntry) -> Iterator[str]:
    return (line.decode("utf-8", "replace").rstrip("\r\n") for line in file.lines(MAX_LINE))


def _style(file: ExportEntry) -> tuple[str, bool] | None:
    """How most of the first messages are dated: somebody may have pasted others before them."""
    found = filter(None, (_parse(line) for line in _lines(file)))
    return next((style for style, _ in Counter(each.style for each in islice(found, 1_000)).most_common(1)), None)


def _heads(
    file: ExportEntry, style: tuple[str, bool] | None, odd: list[str] | None = None
) -> Iterator[tuple[_MessageHead | None, str]]:
    """The lines of a file, each with the head that it is. A pasted message is no head: its style is another one, or its
    date does not exist. ``odd`` gets stamps that differ from the others in words only."""
    for text in _lines(file):
        head = _parse(text, style)
        if head is None and odd is not None and (other := _parse(text)) is not None:
            odd += [other.stamp.style] if style and _shape(other.style) == _shape(style) else []
        yield head, text


def _shape(style: tuple[str, bool]) -> tuple[str, bool]:
    return re.sub(r"[^\W\d_]+|\.(?=\||$)|\s", "", style[0]), style[1]


def _parse(line: str, style: tuple[str, bool] | None = None) -> _MessageHead | None:
    """None: the line belongs to the message before, or is written in another style."""
    for written, rest in split(line):
        found = stamp(written)
        if found is None or not any(found.at(order) for order in PLACES):
            continue
        own = found.style, written.startswith("[")
        if style in (None, own):
            said = _SENDER.match(rest)
            if said is None:
                return _MessageHead(found, own, "", rest)
            name, text = said["name"], said["text"]
            if own[1] and (more := _REST_OF_NAME.match(text)) and not words.LEFT_OUT.search(text, more.end()):
                name, text = f"{name}: {more[1]}", text[more.end() :]
            return _MessageHead(found, own, one_line(re.sub(f"[{MARKS}]", "", name)), text)
    return None


@attrs.define
class _DateFacts:
    """The dates of a file, their numbers read in one order."""

    is_likely: bool = True
    """None of them is before WhatsApp."""
    is_sorted: bool = True
    first: dt.datetime = dt.datetime.max  # noqa: DTZ901 - in the telephone's time
    last: dt.datetime = dt.datetime.min  # noqa: DTZ901


@attrs.define
class _FileFacts:
    style: tuple[str, bool] | None
    messages: int = 0
    heard: Counter[str] = attrs.Factory(Counter)
    """Before a colon, in lines that are no notices."""
    groups: Counter[str] = attrs.Factory(Counter)
    orders: dict[Order, _DateFacts] = attrs.Factory(lambda: {order: _DateFacts() for order in PLACES})
    """Those in which all dates exist."""
    odd: list[str] = attrs.Factory(list)
    """Stamps with unknown words."""
    short: bool = False
    """The first number has at most two digits."""
    senders: dict[str, int] = attrs.Factory(dict)

    @classmethod
    def of(cls, file: ExportEntry) -> "_FileFacts":
        found = cls(_style(file))
        for line in filter(None, (head for head, _ in _heads(file, found.style, found.odd))):
            found.messages += bool(line.sender)
            if line.sender:
                (found.heard if line.is_of_person else found.groups)[line.sender] += 1
            found._date(line.stamp)
        found.senders = {name: count for name, count in found.heard.items() if words.is_sender(name, found.heard)}
        return found

    def _date(self, of: Stamp) -> None:
        self.short |= of.numbers[0] < 100
        for order, facts in [*self.orders.items()]:
            at = of.at(order) if of.may_be(order) else None
            if at is None:
                del self.orders[order]
                continue
            facts.is_likely &= FIRST_YEAR <= at.year < FIRST_YEAR + 40
            facts.is_sorted &= at >= facts.last
            facts.first, facts.last = min(at, facts.first), max(at, facts.last)

    def order(self, name: str) -> Order:
        """Raises ImportRefused."""
        if not self.orders:
            raise ImportRefused(f"{name}: its dates cannot be read in any order of their numbers")
        possible = {order: facts for order, facts in self.orders.items() if facts.is_likely} or self.orders
        if self.short and len(possible) > 1 and "ymd" in possible:
            spans = {order: facts.last - facts.first for order, facts in possible.items()}
            is_ymd = spans.pop("ymd") * MOST_SPAN < min(spans.values())
            possible = {order: facts for order, facts in possible.items() if (order == "ymd") is is_ymd}
        fitting = [order for order, facts in possible.items() if facts.is_sorted or len(possible) == 1]
        if len(fitting) != 1:
            which = "its dates may be day/month or month/day, and nothing in the file tells which"
            raise ImportRefused(f"{name}: {which}: give --dates dmy or mdy")
        return fitting[0]

    @property
    def group(self) -> str:
        """A group whose notices stand under its name; empty: none is seen."""
        return next((name for name, _ in self.groups.most_common() if name not in self.senders), "")

    def named_in(self, stem: str) -> str:
        """The only sender after whom a file is called, in whatever language; empty: there is none."""
        stem = re.sub("whatsapp|chat", " ", normalized("NFC", stem).casefold())
        forms = {name: re.escape(normalized("NFC", name).casefold()) for name in self.senders}
        found = [name for name, form in forms.items() if re.search(f"(?<![a-zа-яё]){form}(?![a-zа-яё])", stem)]
        return found[0] if len(found) == 1 else ""

    def named(self) -> str:
        often = sorted(self.senders, key=self.senders.__getitem__, reverse=True)
        names = [cut(name, 40) for name in often[:MOST_NAMED]]
        return ", ".join(names) + (" and others" if len(self.senders) > MOST_NAMED else "")


def title_of(stem: str) -> str:
    """The title of the chat in a file of this name; empty: WhatsApp did not name it so."""
    named = stem = normalized("NFC", stem)
    while (cut_ := _TITLE.sub("", named).strip()) != named:
        named = cut_
    return named if named != stem else ""


@attrs.define(eq=False)
class _ChatReader:
    _file: ExportEntry
    _me: str | None
    _order: Order
    _zone: dt.tzinfo | None
    _title: str
    _facts: _FileFacts
    _times: Counter[tuple[str, ...]] = attrs.Factory(Counter)

    def events(self) -> Iterator[Event]:
        is_own = self._whose()
        others = sorted(name for name in self._facts.senders if not is_own(name))
        title = self._title or self._facts.group or ", ".join(others[:3]) or "WhatsApp"
        yield ExportedChat(key=title.casefold(), title=title, people=True)
        line: _MessageHead | None = None
        said: list[str] = []
        for head, text in _heads(self._file, self._facts.style):
            if head is None:
                said.append(text)
                continue
            yield from self._message(line, said, is_own)
            line, said = head, [head.text]
        yield from self._message(line, said, is_own)

    def _whose(self) -> Callable[[str], bool]:
        """Whether a sender is the user. Raises ImportRefused."""
        senders, me = self._facts.senders, self._me
        names = {name: normalized("NFC", name).casefold() for name in senders}
        if me is None and len(names) == 2 and self._title.casefold() in names.values():
            (me,) = (name for name, own in names.items() if own != self._title.casefold())
        if me is None and [*names.values()] == [self._title.casefold()]:  # who only listened
            return lambda _name: False
        if me is None:
            raise ImportRefused(f"{self._file.name}: who are you? Give --me NAME; in it are {self._facts.named()}")
        wanted = normalized("NFC", one_line(me)).casefold()
        if wanted not in names.values():
            nobody = "nobody in it has that name: give --me one of"
            raise ImportRefused(f"{self._file.name}: {nobody} {self._facts.named()}")
        return lambda name: names.get(name) == wanted

    def _message(self, line: _MessageHead | None, said: list[str], is_own: Callable[[str], bool]) -> Iterator[Event]:
        if line is None:
            return
        text = "\n".join(said)
        if line.sender not in self._facts.senders:
            yield LeftOut("notices")
            return
        text, named = words.said(text, line.is_marked)
        at = line.stamp.at(self._order)
        if not text or at is None:
            yield LeftOut("deleted or not exported" if line.is_of_person else "notices")
            return
        # Nothing numbers the messages: by the telephone's clock, the sender and the text they are known again, and by
        # their order where somebody said the same twice in a minute.
        same = (at.isoformat(), line.sender, text)
        self._times[same] += 1
        stored = moment(at.replace(tzinfo=self._zone).timestamp())
        if stored is None:
            yield Unread(f"{self._file.name}, a message of {at.date()}", "has an impossible time")
            return
        found = {name: self._file.beside(name) for name in named}
        for name in (name for name, file in found.items() if file is None):
            yield Unread(f"{self._title or self._file.name}, {stored[:16]}", f"{cut(name, 60)} is not in the export")
        sender = None if is_own(line.sender) else line.sender
        key = "\0".join((*same, str(self._times[same])))
        files = tuple(file for file in found.values() if file is not None)
        yield ExportedMessage.of_person(sender, text, key=key, at=stored, files=files)
