"""Notes on the fields of a noun's class. They say once, beside the type, what forgetting, operations, the terminal, the
page and MCP need to know about a field. Pure.

    @attrs.frozen(kw_only=True)
    class Fact:
        text: Annotated[str, Check(fact_text), Quotes(), Edit("the new text"), Column()]
        message: Annotated[str | None, Wire("message_id"), MadeFrom("message")] = None
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

import attrs

Maker: TypeAlias = Literal["message", "turn", "run", "topic", "import", "source", "person"]


@attrs.frozen
class MadeFrom:
    """The field holds the id of what this was made from. It is forgotten together with that."""

    what: Maker


@attrs.frozen
class Quotes:
    """The field may repeat what somebody said. Forgetting searches it and redacts it."""

    stays: bool = False
    """Something is known by the field, such as a task by its name: it is reported, never redacted."""


@attrs.frozen
class Edit:
    """People may set the field, with add and edit."""

    help: str
    """One line for ``--help``, the form on the page and the MCP tool."""
    name: str = ""
    """What the argument is called, if not like the field."""
    given: Any = None
    """The argument's type, if not the field's; it may refuse what old records have."""
    option: str | None = None
    """On the command line, if not ``--name``."""
    title: str = ""
    offered: tuple[str, ...] = ()
    """Values that the page offers; others are valid too."""


@attrs.frozen
class Column:
    """Lists show the field, and so does whatever shows one thing alone. None is left out."""

    title: str = ""
    """Head of the column, if not the field's name."""
    right: bool = False
    wide: bool = False
    """Values are long: the column stands last."""
    alone: bool = False
    """Only what shows one thing alone has it."""
    shown: Callable[[Any], str] | None = None
    """What people see of a value, if not the value itself."""


N = TypeVar("N")


def notes(cls: Any, note: type[N]) -> dict[str, N]:
    """The fields of a class that have a note of a kind, in their order."""
    return {name: each for name, of_field in _notes(cls).items() for each in of_field if isinstance(each, note)}


@cache
def _notes(cls: Any) -> dict[str, tuple[Any, ...]]:
    fields = attrs.fields(attrs.resolve_types(cls, include_extras=True))
    return {field.name: getattr(field.type, "__metadata__", ()) for field in fields}


def unprefixed(function: Callable[[Any], N]) -> Callable[[Any], N]:
    """A check whose errors do not begin with the field's name, because the path of a problem has it."""

    def check(value: Any) -> N:
        try:
            return function(value)
        except ValueError as error:
            raise ValueError(str(error).partition(": ")[2] or str(error)) from None

    return check
