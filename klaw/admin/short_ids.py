"""Ids in requests may be shortened: a beginning that only one has stands for it."""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.admin.answers import check_user
from klaw.admin.requests import Receipt, Request, Why
from klaw.domain.names import LOCAL_USER, UserId
from klaw.operations.short_ids import ID, MOST_TOLD, only, read_id
from klaw.store.engine.database import Readers
from klaw.store.overview import IdKind, beginning_with

_FIELDS: Mapping[type[Any], tuple[tuple[str, IdKind], ...]] = {
    Receipt: (("turn", "turn"), ("why", "message")),
    Why: (("message", "message"),),
}


async def lengthened(readers: Readers, request: Request) -> Request:
    """The request with every id whole; what is no beginning of one stays as it is, for its handler to refuse.

    Raises:
        BadRequest: ``bad_args`` for a name of a user; ``ambiguous_id`` with those that begin so.
        StorageError: the store cannot be read.
    """
    changed: dict[str, str] = {}
    for field, kind in _FIELDS.get(type(request), ()):
        given = getattr(request, field)
        if given is None:
            continue
        user = check_user(named) if (named := getattr(request, "user", None)) else UserId(LOCAL_USER)
        head, text = read_id(given)
        if not ID.fullmatch(text) or (kind == "message" and text.isdecimal()):
            continue
        of: IdKind = "fact" if head == "fact:" else "person" if head else kind
        found = await readers.run(beginning_with, of, user, text, MOST_TOLD + 1)
        changed[field] = f"{head}{only(found, field) or text}"
    whole: Any = request
    return attrs.evolve(whole, **changed) if changed else request
