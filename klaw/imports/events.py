"""What a reader of an export yields, in the order of the export: a chat, then its messages, and what cannot be read."""

import datetime as dt
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, TypeAlias

import attrs

from klaw.actor.clock import iso
from klaw.domain.fact import Fact
from klaw.domain.message import Kind, Role
from klaw.domain.person import Person
from klaw.errors import KlawError


class ImportRefused(KlawError):
    """The export cannot be imported as it was asked. The text says what to do."""


class Broken(ImportRefused):
    """A file of the export cannot be read from some place on."""


@attrs.frozen(kw_only=True)
class ExportedChat:
    """A chat begins; the messages that follow are its own."""

    key: str
    """By which its program knows it: the same in a later export."""
    title: str
    name: str = ""
    """It had in another Klaw; empty: by its title."""
    people: bool = False
    """People talk with each other in it, so that Klaw does not go on in their place: it ends with its segment."""
    own_ids: bool = False
    """The keys of its messages are ids of Klaw."""


@attrs.frozen(kw_only=True)
class ExportedFile:
    """A file of a message that the export has."""

    name: str
    size: int
    """Bytes, as the export says."""
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    """Raises OSError, ImportRefused, and what a damaged ZIP raises."""


@attrs.frozen(kw_only=True)
class ExportedMessage:
    """A message of the chat before it."""

    key: str
    """By which its program knows it within the chat: the same in a later export."""
    role: Role
    text: str
    at: str
    """ISO-8601 UTC with milliseconds."""
    type: Kind = Kind.TEXT
    metadata: dict[str, object] = attrs.Factory(dict)
    files: tuple[ExportedFile, ...] = ()

    @classmethod
    def of_person(
        cls, sender: str | None, text: str, *, key: str, at: str, files: tuple[ExportedFile, ...]
    ) -> "ExportedMessage":
        """A message of a chat of people; ``sender`` None: the user's own."""
        role = Role.USER if sender is None else Role.ASSISTANT
        return cls(key=key, role=role, text=text if sender is None else f"{sender}: {text}", at=at, files=files)


@attrs.frozen
class ExportedRecord:
    """A fact or a person that another Klaw knows."""

    value: Fact | Person


@attrs.frozen
class Unread:
    """Something of the export that should have been read and was not."""

    what: str
    why: str


OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)
"""What readers raise where an export has another form than is known."""


def other_form(what: str, error: Exception) -> Unread:
    return Unread(what, f"has another form than is known ({type(error).__name__})")


@attrs.frozen
class LeftOut:
    """A part that is not imported on purpose, such as a call of a tool."""

    why: str


@attrs.frozen
class ProjectDocument:
    """A text of a project, which knowledge bases are made of."""

    project: str
    name: str
    text: str


MADE_BY_TOOLS = "instructions, tools and thoughts"
REPLACED = "replaced by later ones"

Event: TypeAlias = ExportedChat | ExportedMessage | ExportedRecord | ProjectDocument | Unread | LeftOut

MILLISECONDS = 1e11
"""A larger number is no second of a time to come, but a millisecond."""
_FIRST, _END = dt.datetime(1990, 1, 1, tzinfo=dt.UTC).timestamp(), dt.datetime(2200, 1, 1, tzinfo=dt.UTC).timestamp()


def moment(value: object, zone: dt.tzinfo | None = dt.UTC) -> str | None:
    """A time as exports have it (Unix seconds or milliseconds, or ISO-8601) as it is stored here; None: it is not
    there, or no time of a message. ``zone``: where it says none; None: the machine's own."""
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
