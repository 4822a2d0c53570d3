"""The JSON schema of a tool's arguments, made of the types that also check them (``klaw.convert``). Pure.

It is short, because every request carries all tools and each word is paid for. Left out is what helps no model to write
a call: that unknown members are refused, and that an optional member may be null. Bounds stay: grammars of local models
are made of them.
"""

import inspect
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from klaw.convert import Bounds, wire_name

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number"}
_BOUNDS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of ``str``, ``int``, ``float``, ``bool``, ``list[T]``, ``Literal``, ``T | None``, an attrs class, or
    one of these in ``Annotated`` with a description (a text) and ``Bounds``.

    Raises:
        TypeError: another type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        made = schema_of(inner[0])
        for note in inner[1:]:
            made |= {"description": note} if isinstance(note, str) else _bounds(note, made["type"])
        return made
    if origin in (Union, UnionType) and len(inner) == 2 and NoneType in inner:
        return schema_of(next(each for each in inner if each is not NoneType))
    if origin is Literal and len({type(each) for each in inner}) == 1:
        return {**schema_of(type(inner[0])), "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0])}
    if inspect.isclass(kind) and attrs.has(kind):
        return _object(kind)
    if inspect.isclass(kind) and kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    raise TypeError(f"a tool's parameter cannot have the type {kind!r}")


def _object(kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
    fields = attrs.fields(attrs.resolve_types(kind, include_extras=True))
    properties = {wire_name(field): schema_of(field.type) for field in fields}
    for field in fields:
        if isinstance(field.default, str | int | float):  # a boolean is one
            properties[wire_name(field)]["default"] = field.default
    required = [wire_name(field) for field in fields if field.default is attrs.NOTHING]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _bounds(note: object, kind: str) -> dict[str, Any]:
    if not isinstance(note, Bounds):
        return {}
    low, high = _BOUNDS.get(kind, ("minimum", "maximum"))
    pattern = None if note.pattern is None else f"^(?:{note.pattern})$"
    told = {low: note.at_least, high: note.at_most, "pattern": pattern}
    return {name: rule for name, rule in told.items() if rule is not None}
