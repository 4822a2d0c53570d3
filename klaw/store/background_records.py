"""Entries of the memory journal about work in the background: days whose talk was drawn into facts, and what calls to
models used. They hold numbers and names only, nothing that was said. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store.fields import optional_text, text, whole, yes_or_no
from klaw.store.topic_records import members, ranges

DAY, SPENT = "day", "spent"
"""The words in ``what``."""

MAX_SOURCE = 32


@attrs.frozen(kw_only=True)
class DayEntry:
    """Messages of a user's day that were drawn into facts."""

    entry: int
    time: str
    user: UserId
    day: str
    """Date on the installation's calendar, such as 2026-11-21."""
    messages: tuple[int, ...]
    """Their row ids, ascending."""
    done: bool
    """Nothing is left of the day."""


@attrs.frozen(kw_only=True)
class SpentEntry:
    """What one piece of work used of models."""

    entry: int
    time: str
    user: UserId
    source: str
    """What it was for: topics, facts, reranker …"""
    chat: ChatId | None
    parts: tuple[Mapping[str, Any], ...]
    """One for each model that answered; see ``domain.usage.record``."""


BackgroundEntry: TypeAlias = DayEntry | SpentEntry


def background_key(entry: BackgroundEntry) -> tuple[str, str]:
    """The words in ``what`` and ``key``."""
    return (DAY, entry.day) if isinstance(entry, DayEntry) else (SPENT, entry.source)


def background_value(entry: BackgroundEntry) -> dict[str, Any]:
    """What the journal's line has beside whose it is and the key."""
    if isinstance(entry, DayEntry):
        return {"messages": ranges(entry.messages), "done": entry.done}
    return {"chat_id": entry.chat, "models": [dict(part) for part in entry.parts]}


def read_background(record: dict[str, Any]) -> BackgroundEntry:
    """The entry of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    if record["op"] != "put":
        raise ValueError("op is none of background work")
    entry, time, user = whole(record["entry"]), text(record["time"]), UserId(text(record["user_id"]))
    key, value = text(record["key"]), record["value"]
    if record["what"] == DAY:
        return DayEntry(
            entry=entry,
            time=time,
            user=user,
            day=date(key),
            messages=members(value["messages"]),
            done=yes_or_no(value["done"]),
        )
    chat = optional_text(value["chat_id"])
    return SpentEntry(
        entry=entry,
        time=time,
        user=user,
        source=source(key),
        chat=ChatId(chat) if chat is not None else None,
        parts=tuple(_part(part) for part in value["models"]),
    )


def date(given: str) -> str:
    """A date as it is kept. Raises ValueError."""
    if dt.date.fromisoformat(given).isoformat() != given:
        raise ValueError("a date is not written as YYYY-MM-DD")
    return given


def source(given: str) -> str:
    """What spending is for, as it is kept. Raises ValueError."""
    if not 1 <= len(given) <= MAX_SOURCE:
        raise ValueError(f"source: has 1 to {MAX_SOURCE} characters")
    return given


def _part(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("what a model used is no object")
    return {text(name): text(each) if name == "model" else whole(each) for name, each in value.items()}
