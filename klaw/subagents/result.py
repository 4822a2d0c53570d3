"""Reading a subagent's final text: is it for the person, or does it say that there is nothing to say? Pure."""

import json
import re
from typing import Any, TypeAlias

import attrs

NO_TEXT = "the final text is empty"
MAX_REASON = 500
"""Characters of a reason that are kept."""

_MAX_SILENT = 4096
"""A longer text is a message, whatever it looks like."""
_FENCE = re.compile(r"\A```[ \t]*(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```\Z", re.DOTALL | re.IGNORECASE)


@attrs.frozen
class Deliver:
    """The text is for the person."""

    text: str


@attrs.frozen
class Silent:
    """Nothing is to be delivered."""

    reason: str


Result: TypeAlias = Deliver | Silent


def read(text: str) -> Result:
    """Read a final text.

    Only an empty text, and a text that is nothing but ``{"silent": true, "reason": …}`` (white space around it and a
    code fence are allowed), is silent. All else is delivered, also a text that quotes such an object, an object with
    further members (they may be the message) and one that is not valid JSON: a message too many does less harm than
    one that is lost.
    """
    whole = text.strip()
    if not whole:
        return Silent(NO_TEXT)
    if len(whole) > _MAX_SILENT:
        return Deliver(whole)
    fenced = _FENCE.match(whole)
    value = _object(fenced.group(1) if fenced else whole)
    if value is None or value.get("silent") is not True or not value.keys() <= {"silent", "reason"}:
        return Deliver(whole)
    reason = value.get("reason")
    if reason is not None and not isinstance(reason, str):
        return Deliver(whole)
    return Silent((reason or "").strip()[:MAX_REASON] or "no reason given")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members
