"""Chats that WhatsApp exported: ``_chat.txt``, ``WhatsApp Chat with NAME.txt``, alone or in a ZIP with its media.

The dates are written as the telephone writes them, so that 3/4 may be the third of April or the fourth of March. That
is decided over the whole file: by a number over 12, else by the order in which messages stand.
"""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import attrs

from klaw.domain.message import Role
from klaw.domain.text import cut, normalized, one_line
from klaw.imports.events import Chat, Event, ImportRefused, LeftOut, Message, Unread, moment
from klaw.imports.files import UNREADABLE, Export, File

SOURCE = "whatsapp"
FILES = r"[^/]*(?:chat|whatsapp|чат)[^/]*\.txt"
Order: TypeAlias = Literal["dmy", "mdy", "ymd"]
MOST_NAMED = 12
MAX_LINE = 1 << 20
"""Bytes; a longer one is several."""

_MARKS = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
"""Directions of writing, which telephones put before and into lines."""
_HEAD = re.compile(
    rf"[{_MARKS}]*(?P<open>\[)?(?P<a>\d{{1,4}})(?P<by>[./-])(?P<b>\d{{1,2}})(?P=by)(?P<c>\d{{1,4}})(?:\s?г\.|\sà)?,?[\s{_MARKS}]+"
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2}))?"
    rf"(?:\s*(?P<half>[apдп]\.?\s?[mмп]\.?))?(?P<close>(?(open)\]|\s+[-–]))[ {_MARKS}]*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SENDER = re.compile(rf"[{_MARKS}~\s]{{0,9}}(?P<name>[^:\n]{{1,100}}?):(?:[ {_MARKS}]|$)(?P<text>.*)", re.DOTALL)
_ATTACHED = re.compile(
    rf"[{_MARKS}]*<(?:attached|прикреплено|вложение|файл|Anhang|adjunto|pièce jointe|allegato|anexado)[^:>]{{0,20}}:"
    rf"\s*(?P<a>[^>]{{1,255}})>|^[{_MARKS}]*(?P<b>\S.{{0,255}}?\.\w{{2,5}}) \((?:file attached|файл добавлен|"
    r"файл прикреплён|файл прикреплен|Datei angehängt|archivo adjunto|fichier joint|file allegato|arquivo anexado)\)",
    re.IGNORECASE | re.MULTILINE,
)
_NOTICE = re.compile(
    "end-to-end encrypted|сквозным шифрованием|сквозное шифрование|Ende-zu-Ende-verschlüsselt|cifrados de extremo a"
    " extremo|chiffrés de bout en bout|crittografati end-to-end|criptografia de ponta a ponta",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"^(?:whatsapp chat (?:with|-) ?|whatsapp-chat (?:mit|-) |(?:chat|discussion|conversa) (?:de |do )?whatsapp "
    r"(?:con|avec|com|-) |чат whatsapp (?:с контактом |с группой |с |- )|chat )|(?: \(\d+\)|-\d)$|^_chat$",
    re.IGNORECASE,
)


@attrs.frozen
class _Line:
    """The first line of a message, or of a notice."""

    numbers: tuple[int, int, int]
    style: tuple[str, bool]
    """What separates the numbers, and whether there are brackets: the same in a whole file."""
    time: tuple[int, int, int]
    sender: str
    """Empty: a notice of the program."""
    text: str


def read(
    export: Export, me: str | None, order: Order | None, zone: dt.tzinfo | None, title: str | None
) -> Iterator[Event]:
    """All chats of an export.

    Args:
        export: what was given.
        me: the name of the person whose telephone it was, as it stands in the chat.
        order: of the numbers of a date; None: the file tells.
        zone: of the telephone: the times are its; None: the machine's own.
        title: of the chat; None: by the names of the files.

    Raises:
        ImportRefused: ``me`` or ``order`` is needed, and why.
    """
    for file in export.files(FILES, "chat as text (_chat.txt)"):
        count = 0
        try:
            facts = _Facts.of(file)
            if not facts.messages:
                yield Unread(file.name, "has no message of WhatsApp in it")
                continue
            named = title or facts.title(file.stem) or facts.title(export.path.stem)
            found = _Reading(file, me, order or facts.order(file.name), zone, named, facts)
            for event in found.events():
                yield event
                count += isinstance(event, Message)
        except UNREADABLE as error:
            yield Unread(f"{file.name}, after message {count}", str(error) or type(error).__name__)


def _lines(file: File) -> Iterator[str]:
    with file.open() as stream:
        while line := stream.readline(MAX_LINE):
            yield line.decode("utf-8", "replace").rstrip("\r\n")


def _heads(file: File) -> Iterator[tuple[_Line | None, str]]:
    """The lines of a file, each with what it is the head of. What somebody pasted from another chat is no head: it is
    written in another way than the file, or has a date that does not exist."""
    style = None
    for text in _lines(file):
        head = _parse(text)
        style = style or (head.style if head is not None else None)
        is_head = head is not None and head.style == style and any(_when(head, order) for order in _PLACES)
        yield head if is_head else None, text


def _parse(line: str) -> _Line | None:
    """The head of a message; None: the line goes on with the one before."""
    head = _HEAD.match(line)
    if head is None:
        return None
    hour, half = int(head["hour"]), (head["half"] or "").casefold()[:1]
    if half:
        hour = hour % 12 + (12 if half in ("p", "п") else 0)
    said = _SENDER.match(head["rest"])
    time = hour, int(head["minute"]), int(head["second"] or 0)
    if time > (23, 59, 59) or time[1] > 59 or time[2] > 59:
        return None
    numbers = int(head["a"]), int(head["b"]), int(head["c"])
    sender, text = (one_line(said["name"]), said["text"]) if said else ("", head["rest"])
    return _Line(numbers, (head["by"], head["open"] is not None), time, sender, text)


@attrs.define
class _Facts:
    """What only the whole file tells."""

    messages: int = 0
    senders: Counter[str] = attrs.Factory(Counter)
    orders: dict[Order, bool] = attrs.Factory(lambda: {"ymd": True, "dmy": True, "mdy": True})
    """Whether all dates can be read so."""
    sorted: dict[Order, bool] = attrs.Factory(lambda: {"ymd": True, "dmy": True, "mdy": True})
    """Whether they then ascend."""

    @classmethod
    def of(cls, file: File) -> "_Facts":
        found = cls()
        last: dict[Order, dt.datetime] = {}
        for line in filter(None, (head for head, _ in _heads(file))):
            found.messages += bool(line.sender)
            if line.sender and not _NOTICE.search(line.text):
                found.senders[line.sender] += 1
            for order, possible in found.orders.items():
                at = _when(line, order) if possible else None
                # Between full stops the day stands first, and a year that stands first has four digits.
                unusual = {"mdy": line.style[0] == ".", "ymd": line.numbers[0] < 1000}
                if at is None or unusual.get(order, False):
                    found.orders[order] = False
                else:
                    found.sorted[order] &= at >= last.get(order, at)
                    last[order] = at
        return found

    def order(self, name: str) -> Order:
        """Raises ImportRefused."""
        possible: list[Order] = [order for order, whether in self.orders.items() if whether]
        if not possible:
            raise ImportRefused(f"{name}: its dates cannot be read, in whatever order their numbers are")
        ascending = [order for order in possible if self.sorted[order]]
        if len(possible) > 1 and len(ascending) == 1:
            possible = ascending
        if len(possible) > 1:
            raise ImportRefused(
                f"{name}: its dates may be day/month or month/day, which nothing tells: give --dates dmy or mdy"
            )
        return possible[0]

    def title(self, stem: str) -> str:
        """The chat's name by that of a file; empty: that says nothing."""
        named = stem = normalized("NFC", stem)
        while (cut_ := _TITLE.sub("", named).strip()) != named:
            named = cut_
        return named if named != stem else ""

    def named(self) -> str:
        """Those who speak, as they are told to a person."""
        names = [cut(name, 40) for name, _ in self.senders.most_common(MOST_NAMED)]
        return ", ".join(names) + (" and others" if len(self.senders) > MOST_NAMED else "")


_PLACES: Mapping[Order, tuple[int, int, int]] = {"ymd": (0, 1, 2), "dmy": (2, 1, 0), "mdy": (2, 0, 1)}
"""Of year, month and day."""


def _when(line: _Line, order: Order) -> dt.datetime | None:
    """The moment on the telephone's clock; None: there is no such day."""
    year, month, day = (line.numbers[place] for place in _PLACES[order])
    if 100 <= year < 1000 or max(month, day) > 31:
        return None
    try:
        return dt.datetime(year + (2000 if year < 100 else 0), month, day, *line.time)  # noqa: DTZ001 - see its zone
    except ValueError:
        return None


@attrs.define(eq=False)
class _Reading:
    """One pass over a file."""

    _file: File
    _me: str | None
    _order: Order
    _zone: dt.tzinfo | None
    _title: str
    _facts: _Facts
    _times: Counter[tuple[str, ...]] = attrs.Factory(Counter)

    def events(self) -> Iterator[Event]:
        is_own = self._whose()
        others = sorted(name for name in self._facts.senders if not is_own(name))
        title = self._title or ", ".join(others[:3]) or "WhatsApp"
        yield Chat(key=title.casefold(), title=title, people=True)
        line: _Line | None = None
        said: list[str] = []
        for head, text in _heads(self._file):
            if head is None:
                said.append(text)
                continue
            yield from self._message(line, said, is_own)
            line, said = head, [head.text]
        yield from self._message(line, said, is_own)

    def _whose(self) -> Callable[[str], bool]:
        """Tells whether a sender is the person whose telephone it was. Raises ImportRefused."""
        senders, me = self._facts.senders, self._me
        names = {name: normalized("NFC", name).casefold() for name in senders}
        if me is None and len(names) == 2 and self._title.casefold() in names.values():
            (me,) = (name for name, own in names.items() if own != self._title.casefold())
        if me is None:
            raise ImportRefused(f"{self._file.name}: who are you? Give --me NAME; in it are {self._facts.named()}")
        wanted = normalized("NFC", one_line(me)).casefold()
        if wanted not in names.values():
            raise ImportRefused(f"{self._file.name}: nobody is called so in it: give --me one of {self._facts.named()}")
        return lambda name: names.get(name) == wanted

    def _message(self, line: _Line | None, said: list[str], is_own: Callable[[str], bool]) -> Iterator[Event]:
        if line is None:
            return
        text = "\n".join(said)
        if not line.sender or _NOTICE.search(text):
            yield LeftOut("notices")
            return
        named = [(each["a"] or each["b"]).strip() for each in _ATTACHED.finditer(text)]
        text = _ATTACHED.sub(lambda found: f"[file: {(found['a'] or found['b']).strip()}]", text)
        text = re.sub(f"[{_MARKS}]", "", text).strip()
        at = _when(line, self._order)
        if not text or at is None:
            return
        # Nothing numbers the messages: by the telephone's clock, the sender and the text they are known again, and by
        # their order where somebody said the same twice in a minute.
        same = (at.isoformat(), line.sender, text)
        self._times[same] += 1
        stored = moment(at.replace(tzinfo=self._zone).timestamp())
        if stored is None:
            yield Unread(f"{self._file.name}, a message of {at.date()}", "has no time that a message can have")
            return
        found = {name: self._file.beside(name) for name in named}
        for name in (name for name, file in found.items() if file is None):
            yield Unread(f"{self._title or self._file.name}, {stored[:16]}", f"{cut(name, 60)} is not in the export")
        own = is_own(line.sender)
        yield Message(
            key="\0".join((*same, str(self._times[same]))),
            role=Role.USER if own else Role.ASSISTANT,
            text=text if own else f"{line.sender}: {text}",
            at=stored,
            files=tuple(file for file in found.values() if file is not None),
        )
