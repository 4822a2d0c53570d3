"""What a model wants to change in the list of facts, read strictly: each change by itself, so that one that cannot be
used takes none of the others with it. Pure.

Old facts and messages are named by numbers of the lists that the model was shown. So no answer can name a fact of
another user, nor one that it did not see.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import attrs

from klaw.domain.fact import CATEGORIES, InvalidFact, fact_text
from klaw.memory.topics.answers import BadAnswer, read_json
from klaw.memory.topics.people_answers import PEOPLE_SCHEMA, PeopleChanges, read_people

MAX_CHANGES = 20
"""Most changes that one question may bring; of more the most important ones count."""
MAX_CHARS = 500
"""Of one statement: what is longer is a copy of the conversation."""
MIN_IMPORTANCE = 20
"""Below is what the prompt calls not worth keeping."""
_FALLBACK = "other"

Action = Literal["add", "update", "delete"]


@attrs.frozen(kw_only=True)
class Change:
    """One change of the list."""

    action: Action
    fact: int
    """Number of the kept fact, from 1; 0 with ``add``."""
    text: str
    """Empty with ``delete``."""
    category: str
    importance: int
    message: int
    """Number of the user's message that says it."""


@attrs.frozen
class Changes:
    """What an answer brought."""

    wanted: tuple[Change, ...]
    refused: int
    """So many of its changes broke a rule, or were too many."""
    people: PeopleChanges = attrs.field(factory=PeopleChanges)


def read_changes(text: str, *, kept: int, said: Collection[int], known: int = 0) -> Changes:
    """The usable changes of an answer, in its order; an empty list is an answer too.

    Args:
        text: the answer.
        kept: how many kept facts the model was shown.
        said: numbers of the user's messages.
        known: how many known people it was shown.

    Raises:
        BadAnswer: no list of changes, or one of which none can be used.
    """
    value = read_json(text)
    items = value.get("facts") if isinstance(value, dict) else value
    people = read_people(value.get("people") if isinstance(value, dict) else None, known=known, said=said)
    if not isinstance(items, list):
        raise BadAnswer("the JSON has not the form that was asked for (an object with the list facts)")
    read = [change for item in items if (change := _change(item, kept, said)) is not None]
    if items and not read:
        raise BadAnswer("no entry of facts can be used: check action, fact, text, importance and message of each")
    wanted = _once(read)
    if len(wanted) > MAX_CHANGES:
        best = sorted(range(len(wanted)), key=lambda place: (-wanted[place].importance, place))[:MAX_CHANGES]
        wanted = [wanted[place] for place in sorted(best)]
    wanted = [change for change in wanted if change.action == "delete" or change.importance >= MIN_IMPORTANCE]
    return Changes(tuple(wanted), len(items) - len(wanted), people)


def _change(item: Any, kept: int, said: Collection[int]) -> Change | None:
    if not isinstance(item, dict):
        return None
    action, fact, message = item.get("action"), _whole(item.get("fact", 0)), _whole(item.get("message"))
    if action not in ("add", "update", "delete") or message not in said or message is None:
        return None
    if action == "add":
        fact = 0
    elif fact is None or not 1 <= fact <= kept:
        return None
    if action == "delete":
        return Change(action="delete", fact=fact, text="", category=_FALLBACK, importance=100, message=message)
    text, importance, category = _text(item.get("text")), _whole(item.get("importance")), item.get("category")
    if text is None or importance is None or not 0 <= importance <= 100:
        return None
    return Change(
        action="add" if action == "add" else "update",
        fact=fact,
        text=text,
        category=category if isinstance(category, str) and category in CATEGORIES else _FALLBACK,
        importance=importance,
        message=message,
    )


def _once(changes: Sequence[Change]) -> list[Change]:
    """Without second changes of one kept fact, and without second statements in the same words."""
    facts: set[int] = set()
    texts: set[str] = set()
    once = []
    for change in changes:
        if (change.fact and change.fact in facts) or (change.text and change.text in texts):
            continue
        facts.add(change.fact)
        texts.add(change.text)
        once.append(change)
    return once


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("#").isdecimal() and len(value) < 10:
        return int(value.strip().lstrip("#"))
    return None


def _text(value: Any) -> str | None:
    """One line; None when it is no statement."""
    if not isinstance(value, str) or len(value) > 4 * MAX_CHARS:
        return None
    try:
        text = " ".join(fact_text(value).split())
    except InvalidFact:
        return None
    return text if len(text) <= MAX_CHARS else None


_ITEM: dict[str, Any] = {
    "action": {"type": "string", "enum": ["add", "update", "delete"]},
    "fact": {"type": "integer"},
    "text": {"type": "string"},
    "category": {"type": "string", "enum": list(CATEGORIES)},
    "importance": {"type": "integer"},
    "message": {"type": "integer"},
}
FACTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {"type": "object", "properties": _ITEM, "required": [*_ITEM], "additionalProperties": False},
        },
        "people": PEOPLE_SCHEMA,
    },
    "required": ["facts", "people"],
    "additionalProperties": False,
}
