"""Carrying out an operation: reading its arguments, checking who asks, and handing it the parts that it needs.

Every door comes through here, so that what a user may do is decided in one place.
"""

import enum
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, cast

import attrs

from klaw.convert import REQUESTS
from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.errors import BadValue, KlawError, Problem
from klaw.operations.operation import Operation, OperationError, Scope, supplied
from klaw.operations.short_ids import lengthened


@attrs.frozen(kw_only=True)
class Asker:
    """Who asks."""

    user: UserId | None = None
    """None: whoever runs the server."""
    chat: ChatId | None = None
    """Where a slash command was given."""


OPERATOR = Asker()


@attrs.frozen
class Call:
    """An operation with arguments that are valid."""

    operation: Operation
    asked: Any

    @property
    def deadline_s(self) -> float:
        """How long it may take."""
        return self.operation.deadline_s


def read(operation: Operation, given: Mapping[str, Any]) -> Call:
    """Check arguments as JSON has them. Raises OperationError: ``bad_args``, or the noun's own code for its fields."""
    try:
        return Call(operation, REQUESTS.read(dict(given), operation.arguments))
    except BadValue as error:
        problems = error.problems
    if all(each.path.partition(".")[0] == "fields" for each in problems):
        inner = [Problem(each.path.removeprefix("fields").lstrip(".") or "fields", each.message) for each in problems]
        raise OperationError(operation.noun.invalid, problems=inner)
    raise OperationError("bad_args", problems=problems)


async def perform(call: Call, asker: Asker, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out an operation; the result is as JSON has it.

    Args:
        call: what is asked.
        asker: who asks.
        parts: of the server, by the names that handlers use for them.

    Raises:
        OperationError: the asker may not, or it cannot be done.
        KlawError, trio.TooSlowError: a part failed or did not answer.

    Cancellation: what changes something may or may not be done.
    """
    operation = call.operation
    user = _allowed(call, asker)
    asked = await lengthened(parts["readers"], user, call.asked)
    told = {"parts": parts, "asked": asked, "user": user, "asker": asker, "chat": asker.chat}
    available = ChainMap(told, cast("dict[str, Any]", parts))  # some parts are made when they are asked for
    try:
        result = await operation.handler(**supplied(operation.handler, available))
    except KlawError as error:
        if isinstance(error, OperationError) or not error.code:
            raise
        problems = getattr(error, "problems", ())
        raise OperationError(error.code, str(error), field=error.argument, problems=problems) from None
    answer: dict[str, Any] = plain(result)
    return answer


def plain(value: Any) -> Any:
    """A value as JSON has it: attrs classes become objects, tuples lists, enums their values."""
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.value if isinstance(value, enum.Enum) else value


def _allowed(call: Call, asker: Asker) -> UserId:
    """Whose data it is about. Raises OperationError (``forbidden``)."""
    if call.operation.scope is Scope.CHAT and asker.chat is None:
        raise OperationError("bad_request", "this is asked in a chat")
    named = getattr(call.asked, "user", None)
    if asker.user is None:
        return UserId(named or LOCAL_USER)
    if call.operation.scope is Scope.OPERATOR or named not in (None, asker.user):
        raise OperationError("forbidden", "only whoever runs the server may ask this; users see their own data")
    return asker.user
