"""What a message of Telegram says, media included, as text. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klaw.domain.text import one_line

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
    named += _files(found)
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
    """A string, or pieces of one."""
    parts = parts or ""
    return "".join(map(_part, parts if isinstance(parts, (str, list)) else [parts]))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    text, link = str(part.get("text") or ""), part.get("href")
    return f"{text} ({link})" if link and link != text else text


def _files(found: Mapping[str, Any]) -> Iterator[str]:
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
    """A poll, or a to-do list."""
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


def _dice(kind: str, found: Any) -> str:
    return f"[{kind}: {found.get('emoji') or ''} {found.get('value') or ''}".rstrip() + "]"


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
    "dice": _dice,
}
