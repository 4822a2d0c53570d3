"""Facts: the long-lived statements of archival memory. Pure."""

import enum
import re
from typing import Annotated, NewType

import attrs

from klaw.convert import OMIT, Bounds, Check, Wire
from klaw.domain.imported import ORIGIN, ImportId
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Column, Edit, MadeFrom, Quotes, unprefixed
from klaw.domain.text import clean_output, folded, one_line
from klaw.errors import InvalidValue

FactId = NewType("FactId", str)

MAX_TEXT = 2_000
"""Characters: a statement, not a document."""
MAX_CATEGORY = 32
CATEGORIES = ("identity", "preference", "person", "project", "event", "place", "health", "work", "other")
"""What the model is offered; others are allowed."""
DEFAULT_IMPORTANCE = 50
STANDING_IMPORTANCE = 90
"""A fact stands in every context from here on."""
STANDING_CATEGORY = "identity"
"""Facts of this category do so too."""

_CATEGORY = r"[a-z][a-z0-9_-]*"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


class FactSource(enum.StrEnum):
    TOOL = "tool"
    USER = "user"
    ARCHIVIST = "archivist"
    """Drawn from a topic, or from a day's talk, in the background."""
    CHAT = "chat"
    """Drawn from a message, in the background."""


class Origin(enum.StrEnum):
    """Whose words it goes back to. What a model wrote is never the user's own."""

    USER = "user"
    """The person's own words, given by a command."""
    ASSISTANT = "assistant"
    """A model wrote it, from a conversation alone."""
    TOOL = "tool"
    """A model wrote it after reading something from outside (web, MCP, a program)."""


def fact_text(text: str) -> str:
    """A text as it is kept: without control characters and outer space. Raises InvalidValue, which says why."""
    kept = clean_output(text).strip()
    if not any(character.isalnum() for character in kept):
        raise InvalidValue("text: is empty, or has no letter or digit")
    if len(kept) > MAX_TEXT:
        raise InvalidValue(f"text: has at most {MAX_TEXT} characters; save several facts, or write a file")
    return kept


def category_name(name: str) -> str:
    if not re.fullmatch(_CATEGORY, name) or len(name) > MAX_CATEGORY:
        raise InvalidValue("category: must have 1 to 32 of a-z, 0-9, _ and -, and begin with a letter")
    return name


_Text = Annotated[str, Check(unprefixed(fact_text), Bounds(1, MAX_TEXT))]
Category = Annotated[str, Check(unprefixed(category_name)), Bounds(1, MAX_CATEGORY, _CATEGORY)]


@attrs.frozen(kw_only=True)
class Fact:
    """One statement. Times are ISO-8601 UTC."""

    id: Annotated[FactId, Column("fact")]
    user: Annotated[UserId, Wire("user_id")]
    text: Annotated[str, Quotes(), Edit("one complete sentence", title="Text", given=_Text), Column(wide=True)]
    category: Annotated[
        Category,
        Edit("identity, preference, person, project, event and so on", title="Category", offered=CATEGORIES),
        Column(),
    ] = "other"
    importance: Annotated[
        int,
        Bounds(0, 100),
        Edit("0 to 100; 90 and above: always used, unless a program saved it over MCP", title="Importance"),
        Column(right=True),
    ] = DEFAULT_IMPORTANCE
    source: Annotated[FactSource, Column(alone=True)]
    origin: Annotated[Origin, Column("in the words of", alone=True)]
    chat: Annotated[ChatId | None, Wire("chat_id")] = None
    message: Annotated[str | None, Wire("message_id"), MadeFrom("message")] = None
    turn: Annotated[str | None, Wire("turn_id"), MadeFrom("turn")] = None
    """The turn, or the run, that saved it."""
    topic: Annotated[str | None, MadeFrom("topic"), Column(alone=True)] = None
    created_at: str
    updated_at: Annotated[str, Column("changed")]
    superseded_by: Annotated[FactId | None, Column("replaced by", alone=True)] = None
    """The newer statement that replaced it: then no search finds it."""
    day: Annotated[str | None, OMIT, Column(alone=True)] = None
    """Date of the day whose talk it was drawn from."""
    client: Annotated[str | None, OMIT, Column("saved by", alone=True)] = None
    """The program that saved it over MCP: ``mcp:`` and the id of its token."""
    imported: Annotated[ImportId | None, OMIT, MadeFrom("import"), Column("from", shown=ORIGIN.__add__)] = None

    @property
    def active(self) -> bool:
        return self.superseded_by is None


def check(fact: Fact) -> None:
    if not _ID.fullmatch(fact.id):
        raise InvalidValue("id: has 1 to 64 of A-Z, a-z, 0-9, '_', '.', ':' and '-'")
    if fact.text != fact_text(fact.text):
        raise InvalidValue("text: has control characters, or space around it")
    category_name(fact.category)
    if isinstance(fact.importance, bool) or not 0 <= fact.importance <= 100:
        raise InvalidValue("importance: is a whole number from 0 to 100")
    if fact.superseded_by == fact.id:
        raise InvalidValue("superseded_by: is the fact itself")


def normal_form(text: str) -> str:
    """What two texts with the same words have in common: case, width, punctuation and space do not count."""
    return one_line("".join(each if each.isalnum() or each in _MEANING else " " for each in folded(text)))


_MEANING = frozenset("+-−%#@/*°$€₽£¥<>=&")
"""Signs that change what is said: +5 and -5 are two facts."""
