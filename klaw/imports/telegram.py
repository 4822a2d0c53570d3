"""Exports of Telegram Desktop as JSON: ``result.json`` of one chat, or of the whole account. Messages are read one by
one, because a chat of many years is one list."""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

import attrs

from klaw.domain.text import cut, normalized, one_line
from klaw.imports import events
from klaw.imports.export_files import UNREADABLE, ExportEntry, OpenedExport
from klaw.imports.json_stream import DECODER, decoded, pieces, walk

SOURCE = "telegram"
FILES = r"result\.json"
_LISTS = ("", "chats.list.item.", "left_chats.list.item.")
_MESSAGES = frozenset(f"{each}messages.item" for each in _LISTS)
_MESSAGE = "messages.item"
_HEADS = {f"{each}{name}": name for each in _LISTS for name in ("name", "type", "id")}
_OWN_ID = "personal_information.user_id"
_CHAT, _DAMAGED = "chat", "damaged message"
MOST_NAMED = 12
_BEGIN = re.compile(rb'\{\s*"id"\s*:\s*(-?\d{1,20})\s*,\s*"type"\s*:\s*"')
HEAD_CHARS = 8_192
_ACCOUNT = re.compile(r'"personal_information"\s*:\s*\{[^{}]{0,2000}?"user_id"\s*:\s*(\d{1,20})')
_HEAD = re.compile(r'\{((?:[^{}"\[\]]|"(?:[^"\\]|\\.)*+"){0,200})"messages"\s*:\s*\[\s*\Z', re.DOTALL)
_MEMBER = re.compile(r'"(name|type|id)"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?\d{1,20}))')
_BAD_ESCAPE = re.compile(r'\\(?:(u[0-9a-fA-F]{4}|[bfnrt"\\/])|.?)', re.DOTALL)


def read(export: OpenedExport, me: str | None, zone: dt.tzinfo | None) -> Iterator[events.Event]:
    """Read all chats of an export. ``me`` is the user's name, ``zone`` that of times without one in exports of earlier
    versions (None: local time). Raises ImportRefused: the export does not say who the user is."""
    for file in export.files(FILES, "result.json"):
        reader = _TelegramReader(file, me, zone)
        try:
            try:
                with file.open() as stream:
                    for place, value in walk(stream, _MESSAGES):
                        yield from reader.take(place, value)
            except events.Broken:
                with file.open() as stream:
                    yield from reader.salvage(_salvaged(stream))
            yield from reader.begin()
        except UNREADABLE as error:
            yield events.Unread(f"{file.name}, after message {reader.last} of {reader.title}", str(error))


@attrs.define(eq=False)
class _TelegramReader:
    _file: ExportEntry
    _me: str | None
    _zone: dt.tzinfo | None
    last: object = 0
    _own: str = ""
    """The account's own ``from_id``, where the export has it."""
    _head: dict[str, Any] = attrs.Factory(dict)
    _begun: bool = True
    _chats: int = 0
    _names: dict[str, str] = attrs.Factory(dict)
    _tasks: dict[object, Any] = attrs.Factory(dict)
    """The last texts of entries of to-do lists, by their numbers."""

    @property
    def title(self) -> str:
        head = self._head
        if head.get("type") == "saved_messages":
            return str(head.get("name") or "Saved messages")
        return str(head.get("name") or f"Deleted account {head.get('id', '')}".rstrip())

    def take(self, place: str, value: Any) -> Iterator[events.Event]:
        if place == _OWN_ID:
            self._own = f"user{value}"
        elif place in _HEADS:
            name = _HEADS[place]
            if name in self._head or self._begun:
                self._head = {}
            self._head[name], self._begun = value, False
        elif place in _MESSAGES:
            yield from self.begin()
            try:
                self.last = value.get("id")
                yield from self._message(value)
            except events.OTHER_FORM as error:
                yield events.other_form(f"{self.title}, message {self.last}", error)

    def salvage(self, found: Iterator[tuple[str, Any]]) -> Iterator[events.Event]:
        taken = (self._chats, self.last) if self._chats else None
        chats, is_new, head, damaged = 0, False, self._head, 0
        for place, value in found:
            if place == _OWN_ID:
                self._own = f"user{value}"
            elif place == _CHAT:
                head, is_new = value, True
            else:
                chats, was_new, is_new = chats + is_new, is_new, False
                if taken is not None:
                    taken = None if taken == (chats, value.get("id") if place == _MESSAGE else None) else taken
                    continue
                if was_new:
                    self._head, self._begun = head, False
                yield from self.begin()
                if place == _MESSAGE:
                    yield from self.take(place, value)
                else:
                    damaged += 1
                    yield events.Unread(f"{self.title}, message {value}", "is damaged JSON")
        if not damaged:
            yield events.Unread(self._file.name, "is damaged JSON between its messages, which were read")

    def begin(self) -> Iterator[events.Event]:
        if not self._begun:
            self._begun = True
            self._chats += 1
            yield events.ExportedChat(key=str(self._head.get("id", self.title)), title=self.title, people=True)

    def _message(self, found: Any) -> Iterator[events.Event]:
        if found.get("type") == "service" and (said := self._changed(found)):
            about = {key: found.get(key) for key in ("id", "date", "date_unixtime")}
            found = {**about, "type": "message", "from": found.get("actor"), "from_id": found.get("actor_id"), **said}
        for each in (found.get("todo_list") or {}).get("answers") or ():
            self._tasks[each.get("id")] = each.get("text")
        if found.get("type") != "message":
            yield events.LeftOut("notices" if found.get("type") == "service" else "not exported by Telegram")
            return
        text, rest = text_of(found)
        yield from (events.LeftOut(each) for each in rest)
        if not text:
            if not rest:
                yield events.LeftOut("without text")
            return
        at = events.moment(_number(found.get("date_unixtime"))) or events.moment(found.get("date"), self._zone)
        if at is None:
            yield events.Unread(f"{self.title}, message {self.last}", "has no time")
            return
        files = []
        for name in _files(found):
            file = self._file.beside(name)
            if file is not None:
                files.append(file)
            else:
                yield events.Unread(
                    f"{self.title}, message {self.last}", f"{cut(one_line(name), 60)} is not in the export"
                )
        sender = None if self._is_own(found) else self._sender(found)
        yield events.ExportedMessage.of_person(sender, text, key=str(found["id"]), at=at, files=tuple(files))

    def _changed(self, found: Any) -> dict[str, Any]:
        """What a notice says of a to-do list, or with a gift, in words of people."""
        done, open_ = found.get("completed") or (), found.get("incompleted") or ()
        tasks = [*(found.get("items") or ())]
        tasks += [{"text": self._tasks.get(each, f"{each}"), "completed": each in done} for each in (*done, *open_)]
        said = {"todo_list": tasks and {"title": "changed", "answers": tasks}, "text": found.get("gift_text")}
        return {key: value for key, value in said.items() if value}

    def _sender(self, found: Any) -> str:
        """The name may stand in another message only, or be the chat's."""
        own = str(found.get("from_id") or "")
        if name := one_line(str(found.get("from") or "")):
            self._names[own] = name
            return name
        is_other = self._head.get("type") == "personal_chat" and own == f"user{self._head.get('id')}"
        return self._names.get(own) or (self._head.get("name") if is_other else None) or "Deleted account"

    def _is_own(self, found: Any) -> bool:
        name, kind, sender = one_line(str(found.get("from") or "")), self._head.get("type"), found.get("from_id")
        if isinstance(sender, int):  # of earlier versions
            sender = f"user{sender}"
        if self._me is not None:
            return _alike(self._me) in (_alike(name), _alike(str(sender)))
        if kind == "saved_messages":
            return True
        if self._own:
            return bool(sender == self._own)
        if kind in ("personal_chat", "bot_chat"):  # its id is that of the other one
            return bool(sender != f"user{self._head.get('id')}")
        raise events.ImportRefused(
            f"{self._file.name}: does not say who you are: give --me NAME; in it are {self._senders()}"
        )

    def _senders(self) -> str:
        names: dict[str, None] = {}
        with suppress(*UNREADABLE), self._file.open() as stream:
            for place, value in walk(stream, _MESSAGES):
                if place in _MESSAGES and isinstance(value, dict) and value.get("from"):
                    names[cut(one_line(str(value["from"])), 40)] = None
                if len(names) > MOST_NAMED:
                    return f"{', '.join(list(names)[:MOST_NAMED])} and others"
        return ", ".join(names)


def _salvaged(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """What can be read of damaged JSON, with its place as of ``walk``: the account, heads of chats as a whole,
    messages, and the ids of messages that cannot be read. Raises Broken: it is cut off."""
    for number, (piece, is_last) in enumerate(pieces(stream, _BEGIN)):
        between = piece.decode(errors="replace")
        is_cut = is_last and not between.rstrip().endswith("}")
        begin = _BEGIN.match(piece) if number else None
        if begin is not None:
            value, between = decoded(piece)
            if value is not None:
                yield _MESSAGE, value
            elif not is_cut:
                yield _DAMAGED, begin[1].decode()
        if is_cut:
            raise events.Broken("is cut off: the rest was not read")
        if (own := _ACCOUNT.search(between)) is not None:
            yield _OWN_ID, own[1]
        if (head := _HEAD.search(between, max(0, len(between) - HEAD_CHARS))) is not None:
            yield _CHAT, {found[1]: _member(found) for found in _MEMBER.finditer(head[1])}


def _member(found: re.Match[str]) -> Any:
    if found[3]:
        return int(found[3])
    return DECODER.decode(_BAD_ESCAPE.sub(lambda escape: escape[0] if escape[1] else "\ufffd", f'"{found[2]}"'))


def _alike(name: str) -> str:
    return normalized("NFC", name).casefold()


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return float(value)
    return None


def _files(found: Any) -> list[str]:
    """Paths in the export; not of stickers, and not of what it says it does not have."""
    if found.get("media_type") == "sticker":
        return []
    return [name for key in ("photo", "file") if isinstance(name := found.get(key), str) and not name.startswith("(")]


_ABOUT = frozenset(
    {
        *("id", "type", "date", "date_unixtime", "edited", "edited_unixtime", "from", "from_id", "author", "via_bot"),
        *("text", "text_entities", "forwarded_from", "forwarded_from_id", "saved_from", "reply_to_message_id"),
        *("reply_to_peer_id", "photo", "photo_file_size", "file", "file_name", "file_size", "thumbnail", "media_type"),
        *("thumbnail_file_size", "mime_type", "duration_seconds", "width", "height", "performer", "title"),
        *("sticker_emoji", "media_spoiler", "self_destruct_period_seconds", "live_location_period_seconds"),
        *("contact_vcard", "contact_vcard_file_size", "inline_bot_buttons", "reactions", "signature", "views"),
        *("reply_to_story_id", "reply_to_checklist_item", "topic_id", "reply_markup", "paid_stars_amount", "quote"),
        *("forwards", "location_information", "place_name", "address", "game_title", "game_description", "game_link"),
        *("entities", "replies", "boosts_applied"),
    }
)
"""Said elsewhere, or about a message."""
_WHOLE = frozenset({"JPY", "KRW", "VND", "CLP", "ISK", "UGX", "PYG", "XTR", "XAF", "XOF", "RWF"})
_THOUSANDS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})
"""Currencies without hundredths, and with thousandths."""


def text_of(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text of a message, media in brackets; and the kinds of its other content. Raises one of ``OTHER_FORM``."""
    named, rest = [], []
    if "forwarded_from" in found:
        named.append(f"[forwarded from {one_line(str(found['forwarded_from'] or 'a deleted account'))}]")
    named += _media(found)
    if found.get("place_name") or found.get("address") or found.get("location_information"):
        named.append(_place(found))
    if found.get("game_title"):
        named.append(_told("game", found["game_title"], found.get("game_description")))
    for key, value in found.items():
        if key in _ABOUT or not value or not isinstance(value, dict | list | str):
            continue
        kind = " ".join(re.findall(r"[a-z]+", key.removesuffix("_information"))) or "content"
        kind = kind[:MOST_KIND]
        told = "" if isinstance(value, str) else _KINDS.get(key, _any)(kind, value)
        if told:
            named.append(told)
        else:
            rest.append(f"of the kind {kind}")
    said = _said(found.get("text") or found.get("text_entities"))
    return "\n".join([*named, *([said] if said.strip() else [])]), rest


def _told(kind: str, *parts: object) -> str:
    return f"[{kind}: {', '.join(one_line(str(each)) for each in parts if each not in (None, ''))}]"


def _said(parts: Any) -> str:
    parts = parts or ""
    return "".join(map(_part, parts if isinstance(parts, (str, list)) else [parts]))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    text, link = str(part.get("text") or ""), part.get("href")
    return f"{text} ({link})" if link and link != text else text


def _media(found: Mapping[str, Any]) -> Iterator[str]:
    for key, kind in (("photo", "photo"), ("file", found.get("media_type") or "file")):
        if found.get(key):
            name = str(found.get("file_name") or found[key])
            name = "" if name.startswith("(") else name.rpartition("/")[2]
            if kind == "sticker":
                name = str(found.get("sticker_emoji") or "")
            elif kind == "audio_file" and found.get("title"):
                name = " – ".join(str(each) for each in (found.get("performer"), found["title"]) if each)
            yield f"[{str(kind).replace('_', ' ')}{': ' if name else ''}{name}]"


def _place(found: Mapping[str, Any]) -> str:
    at = found.get("location_information") or {}
    return _told("place", found.get("place_name"), found.get("address"), at.get("latitude"), at.get("longitude"))


def _listed(kind: str, found: Any) -> str:
    lines = [_told(kind, _said(found.get("question") or found.get("title")))]
    for each in found.get("answers") or found.get("items") or ():
        notes = [f"{each['voters']}"] if isinstance(each.get("voters"), int) else []
        notes += ["chosen"] if each.get("chosen") else []
        notes += ["done"] if each.get("completed") or each.get("completed_by") or each.get("completion_date") else []
        lines.append(f"- {_said(each.get('text'))}{' (' + ', '.join(notes) + ')' if notes else ''}")
    return "\n".join(lines)


def _contact(kind: str, found: Any) -> str:
    name = " ".join(str(found[each]) for each in ("first_name", "last_name") if found.get(each))
    return f"[{kind}: {' '.join(filter(None, (name, str(found.get('phone_number') or ''))))}]"


def _invoice(kind: str, found: Any) -> str:
    amount, currency = found.get("amount"), str(found.get("currency") or "")
    if isinstance(amount, int):  # of the smallest unit
        digits = 0 if currency in _WHOLE else 3 if currency in _THOUSANDS else 2
        amount = f"{amount / 10**digits:.{digits}f} {currency}"
    return _told(kind, found.get("title"), found.get("description"), amount)


MAX_DEPTH, MOST_KIND = 20, 40


def _any(kind: str, found: Any) -> str:
    """Unknown content: its texts, and numbers with their names. Empty: it has no words."""
    parts = list(_scalars(found))
    if not any(isinstance(value, str) and any(map(str.isalpha, value)) for _, value in parts):
        return ""
    return _told(kind, *(value if isinstance(value, str) else f"{name} {value}".strip() for name, value in parts))


def _scalars(found: Any, depth: int = 0) -> Iterator[tuple[str, object]]:
    pairs = found.items() if isinstance(found, dict) else (("", each) for each in found)
    for name, value in pairs if depth < MAX_DEPTH else ():
        if isinstance(value, dict | list):
            yield from _scalars(value, depth + 1)
        elif value and not isinstance(value, bool):
            yield name.replace("_", " "), value


_KINDS: Mapping[str, Callable[[str, Any], str]] = {
    "poll": _listed,
    "todo_list": lambda _kind, found: _listed("to-do list", found),
    "contact_information": _contact,
    "invoice_information": _invoice,
    "dice": lambda kind, found: f"[{kind}: {found.get('emoji') or ''} {found.get('value') or ''}".rstrip() + "]",
}
