"""Ids in requests may be shortened: a beginning that only one has stands for it."""

import re
from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.names import UserId
from klaw.operations.operation import OperationError

if TYPE_CHECKING:
    from klaw.store.engine.database import Readers
    from klaw.store.overview import IdKind

SHORTEST = 4
"""Characters; a shorter text is a name, or a slip."""
MOST_TOLD = 10
ID = re.compile(rf"[0-9][0-9a-f]{{{SHORTEST - 1},63}}")
"""How Klaw's ids look; a name or a number is none."""


async def lengthened(readers: "Readers", user: UserId, asked: Any) -> Any:
    """The arguments with every id whole; what is no beginning of one stays as it is, for the handler to refuse.

    Raises:
        OperationError: ``ambiguous_id`` with those that begin so.
        StorageError: the store cannot be read.
    """
    from klaw.store.overview import beginning_with

    changed: dict[str, Any] = {}
    for field in attrs.fields(type(asked)):
        kind: IdKind | None = field.metadata["argument"].id_of
        given = getattr(asked, field.name)
        if kind is None or given is None:
            continue
        head, text = read_id(given)
        if not ID.fullmatch(text) or (kind == "message" and text.isdecimal()):
            continue
        of: IdKind = "fact" if head == "fact:" else "person" if head else kind
        found = await readers.run(beginning_with, of, user, text, MOST_TOLD + 1)
        changed[field.name] = f"{head}{only(found, field.name) or text}"
    return attrs.evolve(asked, **changed) if changed else asked


def only(found: list[str], field: str) -> str | None:
    """What was found; None when there is nothing. Raises OperationError when there are several."""
    if len(found) <= 1:
        return found[0] if found else None
    more = " …" if len(found) > MOST_TOLD else ""
    several = f"several ids begin so: {', '.join(found[:MOST_TOLD])}{more}"
    raise OperationError("ambiguous_id", several, field=field)


def read_id(given: str) -> tuple[str, str]:
    """What stands before the id, and the id: ``klaw forget`` names facts and people by ``fact:ID``."""
    head, colon, text = given.partition(":")
    return (f"{head}:", text) if colon and head in ("fact", "person") else ("", given)
