"""What operations answer: the types that their handlers name, and that the description of the API is made of. Only type
checkers and who describes the API import them: they need the store's classes, which the command line does without.

An attrs class stands for an object with all its fields (``perform.plain``).
"""

import pkgutil
from collections.abc import Collection
from importlib import import_module
from typing import Any, NotRequired, TypedDict

import attrs


def named(name: str) -> Any:
    """The type of this name, of any module here. Raises KeyError."""
    found: dict[str, Any] = {}
    for each in pkgutil.iter_modules(__path__):
        found |= vars(import_module(f"{__name__}.{each.name}"))
    return found[name]


def fields_of(name: str, cls: type[Any], *without: str, maybe: Collection[str] = (), **more: Any) -> Any:
    """The type of an object with the fields of a class.

    Args:
        name: of the type.
        cls: its attrs class.
        without: fields that it does not have.
        maybe: fields that may be left out.
        more: other fields with their types, also in place of one of the class.
    """
    made: Any = TypedDict
    kinds = {field.name: field.type for field in attrs.fields(attrs.resolve_types(cls, include_extras=True))}
    of_class: dict[str, Any] = {each: kind for each, kind in kinds.items() if each not in without}
    return made(name, {**of_class, **{each: NotRequired[kinds[each]] for each in maybe}, **more})
