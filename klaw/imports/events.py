"""What a reader of an export yields, in the order of the export: a chat, then its messages, and what cannot be read."""

import datetime as dt
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, Self, TypeAlias

import attrs

from klaw.actor.clock import iso
from klaw.domain.message import MessageKind, Role
from klaw.errors import KlawError


class ImportRefused(KlawError):
    """The export cannot be imported as it was asked. The text says what to do."""


class Broken(ImportRefused):
    """A file of the export cannot be read from some place on."""


@attrs.frozen(kw_only=True)
class ExportedChat:
    """The messages that follow are its own."""

    key: str
    """The same in a later export."""
    title: str
    name: str = ""
    """Its name in another Klaw; empty: the title gives one."""
    people: bool = False
    """People talk with each other in it: Klaw begins a new segment behind it."""
    own_ids: bool = False
    """The keys of its messages are ids of Klaw."""


@attrs.frozen(kw_only=True)
class ExportedFile:
    name: str
    size: int
    open: Callable[[], AbstractContextManager[IO[bytes]]]


@attrs.frozen(kw_only=True)
class ExportedMessage:
    key: str
    """Within its chat: the same in a later export."""
    role: Role
    text: str
    at: str
    type: MessageKind = MessageKind.TEXT
    metadata: dict[str, object] = attrs.Factory(dict)
    files: tuple[ExportedFile, ...] = ()

    @classmethod
    def of_person(cls, sender: str | None, text: str, *, key: str, at: str, files: tuple[ExportedFile, ...]) -> Self:
        """A message of a chat of people; ``sender`` None: the user's own."""
        role = Role.USER if sender is None else Role.ASSISTANT
        return cls(key=key, role=role, text=text if sender is None else f"{sender}: {text}", at=at, files=files)


@attrs.frozen
class ExportedRecord:
    what: str
    """The word of its kind (``Kind.what``)."""
    value: Any


@attrs.frozen
class Unread:
    """What should have been read and was not."""

    what: str
    why: str


OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)


def other_form(what: str, error: Exception) -> Unread:
    return Unread(what, f"has an unknown form ({type(error).__name__})")


@attrs.frozen
class LeftOut:
    """Not imported on purpose, such as a tool call."""

    why: str


@attrs.frozen
class ProjectDocument:
    """A text of a project, for the project's knowledge base."""

    key: str
    """Of the project: the same in a later export."""
    project: str
    name: str
    text: str


MADE_BY_TOOLS = "instructions, tools and thoughts"
REPLACED = "replaced by later ones"

Event: TypeAlias = ExportedChat | ExportedMessage | ExportedRecord | ProjectDocument | Unread | LeftOut

MILLISECONDS = 1e11
"""A larger number is milliseconds, not seconds."""
_FIRST, _END = dt.datetime(1990, 1, 1, tzinfo=dt.UTC).timestamp(), dt.datetime(2200, 1, 1, tzinfo=dt.UTC).timestamp()


def moment(value: object, zone: dt.tzinfo | None = dt.UTC) -> str | None:
    """A time of an export (Unix seconds or milliseconds, or ISO-8601) as it is stored here; None: not the time of a
    message. ``zone``: of a time without one; None: local time."""
    try:
        if isinstance(value, str):
            found = dt.datetime.fromisoformat(value)
            value = (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
    except (ValueError, OverflowError):
        return None
    value = value / 1_000 if value > MILLISECONDS else value
    return iso(value) if _FIRST <= value < _END else None
