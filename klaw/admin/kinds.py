"""Kinds of values that several requests have. Pure."""

from typing import Any, NewType

MAX_LIMIT = 100
"""Most results on a page."""

Limit = NewType("Limit", int)
"""How many results a page has."""

Fields = NewType("Fields", dict[str, Any])
"""Raw fields of a task; ``klaw.subagents.drafting`` reads them and names every wrong one."""
