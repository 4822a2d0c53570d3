"""Users, chats and time zones: identifiers and rules for names that come from outside."""

import datetime as dt
import difflib
import re
import secrets
import unicodedata
from functools import lru_cache
from typing import NewType
from zoneinfo import ZoneInfo, available_timezones

from klaw.errors import InvalidName

UserId = NewType("UserId", str)
ChatId = NewType("ChatId", str)
"""``user:name``; unique over all users. Clients only see and send the name."""

LOCAL_USER = UserId("local")
DEFAULT_CHAT = "main"
MAX_CHAT_NAME = 64
MAX_CLIENT_ID = 64
_MOST_PIECES = 4
"""Characters of one letter at most, before it is normalised."""

USER_FORM = r"[a-z0-9][a-z0-9_-]{0,31}"
CLIENT_ID_FORM = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}"
CHAT_FORM = r"[^\x00-/:-@\[-`{-\x7f][^\x00-\x1f!-,/:-@\[-^`{-\x7f]{0,63}"
"""The rule for a normalised chat's name as far as a JSON schema can say it."""

_USER = re.compile(USER_FORM)
_CLIENT_ID = re.compile(CLIENT_ID_FORM)


def user_id(name: str) -> UserId:
    if not _USER.fullmatch(name):
        raise InvalidName("a user name has 1 to 32 of a-z, 0-9, _ and -, and begins with a letter or digit")
    return UserId(name)


@lru_cache(maxsize=4096)
def chat_name(text: str) -> str:
    """Check and normalise (NFC) a chat's name. Raises InvalidName, which says the rule."""
    if len(text) > MAX_CHAT_NAME * _MOST_PIECES:  # before anything is done with it: it comes from anybody
        raise InvalidName(f"a chat name has at most {MAX_CHAT_NAME} characters")
    name = unicodedata.normalize("NFC", text)
    if not 1 <= len(name) <= MAX_CHAT_NAME:
        raise InvalidName(f"a chat name has 1 to {MAX_CHAT_NAME} characters, got {len(name)}")
    if not name[0].isalnum() or name[-1] == " " or "  " in name or ".." in name:
        raise InvalidName("a chat name begins with a letter or digit and has no '..' and no doubled or final space")
    if not all(each in "_-. " or unicodedata.category(each)[0] in "LNM" for each in name):
        raise InvalidName("a chat name has letters, digits, '_', '-', '.' and spaces only")
    return name


def chat_id(user: UserId, name: str) -> ChatId:
    return ChatId(f"{user}:{chat_name(name)}")


def name_of(chat: ChatId) -> str:
    return chat.split(":", 1)[1]


def user_of(chat: ChatId) -> UserId:
    return UserId(chat.split(":", 1)[0])


NEW_CHAT = "chat-[0-9]" + 7 * "[0-9a-z]"
"""The form of the names that Klaw makes, for regular expressions and SQLite's GLOB: such a chat is called by its title
only."""


GROUP = "group-"
"""What the names of users begin with that are groups of a messenger."""


def is_group(user: UserId) -> bool:
    """Whether a user is a group of people, who share one memory and see each other's messages."""
    return user.startswith(GROUP)


def new_chat_name() -> str:
    """A name for a chat that nobody names."""
    return f"chat-{secrets.randbelow(10)}{secrets.token_hex(4)[1:]}"


def client_id(text: str) -> str:
    if not _CLIENT_ID.fullmatch(text):
        raise InvalidName(
            f"a message id has 1 to {MAX_CLIENT_ID} of A-Z, a-z, 0-9, '_', '.', ':' and '-', and begins with a letter"
            " or digit"
        )
    return text


MAX_ZONE = 64

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_OFFSET = re.compile(r"(?:UTC|GMT)? ?([+−–-]) ?([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_CITIES = {
    "MSK": "Europe/Moscow", "МСК": "Europe/Moscow", "CEST": "Europe/Berlin", "EEST": "Europe/Riga",
    "BST": "Europe/London", "EDT": "America/New_York", "CDT": "America/Chicago", "MDT": "America/Denver",
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "JST": "Asia/Tokyo", "KST": "Asia/Seoul",
    "AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "NZST": "Pacific/Auckland",
    "+03:30": "Asia/Tehran", "+04:30": "Asia/Kabul", "+05:30": "Asia/Kolkata", "+05:45": "Asia/Kathmandu",
    "+06:30": "Asia/Yangon", "+08:45": "Australia/Eucla", "+09:30": "Australia/Darwin",
    "+10:30": "Australia/Lord_Howe", "+12:45": "Pacific/Chatham", "-03:30": "America/St_Johns",
    "-09:30": "Pacific/Marquesas",
}  # fmt: skip
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Files beside the zones on some systems; what they mean depends on the machine."""
_NO_AREAS = ("posix/", "right/")
"""Copies of all zones; those of ``right`` count leap seconds, which Unix time does not."""


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name such as ``Europe/Berlin``; case matters. A distance from UTC (``UTC+3``, ``+03:00``)
    means what people mean by it; IANA's name has the other sign: ``Etc/GMT-3``. Raises InvalidName, which suggests a
    near one."""
    if offset := _OFFSET.fullmatch(name.strip()):
        sign, hours, minutes = offset.groups()
        return ZoneInfo(_zone_of_offset("+" if sign == "+" else "-", hours, minutes))
    if name.upper() in _CITIES and not _ZONE.fullmatch(name):
        raise InvalidName(f"there is no time zone of this name{_suggestion(name)}")
    if len(name) > MAX_ZONE or not _ZONE.fullmatch(name) or name in _NO_ZONES or name.startswith(_NO_AREAS):
        raise InvalidName("a time zone has an IANA name such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidName(f"there is no time zone of this name{_suggestion(name)}") from error


def local_time(moment: float, name: str) -> str:
    """A moment (Unix seconds) on a zone's clock: ``2026-11-23T09:00:00+01:00``; in UTC if the zone is unknown here."""
    try:
        known: dt.tzinfo = zone(name)
    except InvalidName:
        known = dt.UTC
    return dt.datetime.fromtimestamp(moment, known).isoformat(timespec="seconds")


def clock_text(moment: str) -> str:
    """What ``local_time`` gave, as people read it: ``2026-11-23 Mon 09:00 +01:00``."""
    when = dt.datetime.fromisoformat(moment)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[when.weekday()]
    seconds = f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
    return f"{when:%Y-%m-%d} {day} {seconds} {moment[19:]}"


def _zone_of_offset(sign: str, hours: str, minutes: str | None) -> str:
    number, minutes = int(hours), minutes or "00"
    if minutes != "00" or number > (14 if sign == "+" else 12):
        city = _CITIES.get(f"{sign}{number:02}:{minutes}")
        raise InvalidName(f"a time zone has an IANA name such as {city or 'Europe/Berlin or UTC'}")
    return f"Etc/GMT{'-' if sign == '+' else '+'}{number}" if number else "UTC"


def _suggestion(name: str) -> str:
    if city := _CITIES.get(name.upper()):
        return f"; did you mean {city}?"
    known = {known.lower(): known for known in available_timezones() if not known.startswith(_NO_AREAS)}
    cities = {known.rpartition("/")[2]: known for known in sorted(known, reverse=True)}
    wanted = name.lower()
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
    if wanted in cities:
        near = [cities[wanted]]
    return f"; did you mean {known[near[0]]}?" if near else ""
