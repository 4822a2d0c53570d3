"""Raw fields of a request about something that is kept: which of them are wrong."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klaw.errors import Problem


def problems_in(
    fields: Mapping[str, Any],
    known: Sequence[str],
    wrong: Callable[[str, Any], str | None],
    *,
    needed: str | None = None,
) -> list[Problem]:
    """Everything that is wrong with raw fields. Pure.

    Args:
        fields: as they were sent.
        known: the names that there are.
        wrong: what is wrong with a field's value, None for nothing.
        needed: one that must be there.
    """
    problems = [Problem("fields", f"has the fields {', '.join(known)} only")] if set(fields) - set(known) else []
    if needed is not None and needed not in fields:
        problems.append(Problem(needed, "is required"))
    if not fields:
        problems.append(Problem("fields", f"must have at least one of {', '.join(known)}"))
    checked = [(field, wrong(field, fields[field])) for field in known if field in fields]
    return problems + [Problem(field, text) for field, text in checked if text is not None]
