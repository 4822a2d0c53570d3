"""JSON schemas of what models are to write, made of the types that also check it (``klaw.convert``). Each word of a
request is paid for, so what helps no model to write a call is left out: that unknown members are refused, and that an
optional member may be null. Grammars of local models are made of the bounds. Pure."""

import enum
import inspect
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from klaw.convert import MAX_WHOLE, MOST_ENTRIES, Bounds, Check, wire_name

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number"}
_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


@attrs.frozen
class SchemaType:
    """In ``Annotated``: the type for the schema, where it is not the one that the value is read as. A tuple stands for
    one of its texts."""

    kind: Any


def schema_of(kind: Any, *, closed: bool = False, exact: bool = False) -> dict[str, Any]:
    """The schema of ``str``, ``int``, ``float``, ``bool``, ``list[T]``, ``tuple[T, ...]``, ``dict[str, Any]``,
    ``Literal``, an enum of texts, a ``NewType``, ``T | None``, an attrs class, or one of these in ``Annotated`` with a
    description (a text), ``Bounds`` and ``SchemaType``. ``closed``: objects have all their members and no others, as
    every provider takes the form of an answer. ``exact``: also what helps no model, that is null, no other members, and
    general limits of numbers and lists."""
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    origin, inner = get_origin(kind), get_args(kind)
    part = partial(schema_of, closed=closed, exact=exact)
    if origin is Annotated:
        told = next((note.kind for note in inner[1:] if isinstance(note, SchemaType)), inner[0])
        made = part(told)
        for note in inner[1:] if not closed else ():  # some refuse bounds in the form of an answer
            limits = note.form if exact and isinstance(note, Check) else note
            made |= {"description": note} if isinstance(note, str) else _bounds(limits, made["type"])
        return made
    if origin in (Union, UnionType) and len(inner) == 2 and NoneType in inner:
        made = part(next(each for each in inner if each is not NoneType))
        return _or_null(made) if exact else made
    if isinstance(kind, tuple):
        return {"type": "string", "enum": list(kind)}
    if origin is Literal and len({type(each) for each in inner}) == 1:
        return {**schema_of(type(inner[0])), "enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": part(inner[0]), **({"maxItems": MOST_ENTRIES} if exact else {})}
    if origin is dict:
        return {"type": "object"}
    if inspect.isclass(kind) and issubclass(kind, enum.StrEnum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if inspect.isclass(kind) and attrs.has(kind):
        return _object(kind, closed=closed, exact=exact)
    if inspect.isclass(kind) and kind in _PLAIN:
        limited = exact and kind in (int, float)
        return {"type": _PLAIN[kind], **({"minimum": -MAX_WHOLE, "maximum": MAX_WHOLE} if limited else {})}
    raise TypeError(f"a model cannot be told of the type {kind!r}")


def _or_null(made: dict[str, Any]) -> dict[str, Any]:
    values = {"enum": [*made["enum"], None]} if "enum" in made else {}
    return {**made, "type": [made["type"], "null"], **values}


def _object(kind: type[attrs.AttrsInstance], *, closed: bool, exact: bool) -> dict[str, Any]:
    fields = attrs.fields(attrs.resolve_types(kind, include_extras=True))
    properties = {wire_name(field): schema_of(field.type, closed=closed, exact=exact) for field in fields}
    if closed:
        return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    for field in fields:
        if isinstance(field.default, str | int | float):  # a boolean is one
            properties[wire_name(field)]["default"] = field.default
    for field in fields if exact else ():
        properties[wire_name(field)] |= _about(field)
    required = [wire_name(field) for field in fields if field.default is attrs.NOTHING]
    made = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    return {**made, "additionalProperties": False} if exact else made


def _about(field: "attrs.Attribute[Any]") -> dict[str, Any]:
    """What an argument of an operation (``operations.operation.Argument``) says for people who fill in a form."""
    about = field.metadata.get("argument")
    if about is None:
        return {}
    title = about.title or field.name.replace("_", " ").capitalize()
    examples = {"examples": list(about.examples)} if about.examples else {}
    return {"title": title, **({"description": about.help} if about.help else {}), **examples}


def _bounds(note: object, kind: str | list[str]) -> dict[str, Any]:
    if not isinstance(note, Bounds):
        return {}
    kind = kind if isinstance(kind, str) else kind[0]
    low, high = _BOUNDS.get(kind, ("minimum", "maximum"))
    pattern = None if note.pattern is None else f"^(?:{note.pattern})$"
    told = {low: note.at_least, high: note.at_most, "pattern": pattern}
    return {name: rule for name, rule in told.items() if rule is not None}
