"""JSON schemas of what is answered, made of the types that the handlers name. Pure."""

import enum
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs

from klaw.convert import wire_name
from klaw.domain.notes import Column, notes
from klaw.operations import answers
from klaw.operations.operation import Operation

Schema: TypeAlias = dict[str, Any]

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def answer_type(operation: Operation) -> Any:
    """The type of what an operation answers."""
    if operation.answers is not None:
        return operation.answers
    return get_type_hints(operation.handler, localns=vars(answers), include_extras=True).get("return", Any)


def schema_of_answer(kind: Any, named: dict[str, Schema], *, written: bool = False) -> Schema:
    """The schema of a ``TypedDict``, an attrs class with all its fields, ``list[T]``, ``dict[str, T]``, ``tuple``,
    ``Literal``, an enum of texts, a ``NewType``, a union of these, or ``Any``.

    Args:
        named: gets the schemas of the classes, to which ``$ref`` points, by their names.
        written: attrs classes are as their converter writes them: with the names outside, and what has a default may
            be left out.

    Raises:
        TypeError: another type, or a second class of the same name.
    """
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    origin, inner = get_origin(kind), get_args(kind)
    part = partial(schema_of_answer, named=named, written=written)
    if origin is Annotated:
        return part(next((note for note in inner[1:] if is_typeddict(note)), inner[0]))
    if origin in (NotRequired, Required):
        return part(inner[0])
    if kind is Any:
        return {}
    if origin in (Union, UnionType):
        parts = [part(each) for each in inner]
        if all(each.keys() == {"type"} for each in parts):
            return {"type": [each["type"] for each in parts]}
        return {"anyOf": parts}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": part(inner[0])}
    if origin in (dict, Mapping):
        entries = part(inner[1])
        return {"type": "object", **({"additionalProperties": entries} if entries else {})}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if inspect.isclass(kind) and issubclass(kind, enum.StrEnum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if is_typeddict(kind) or (inspect.isclass(kind) and attrs.has(kind)):
        return _named(kind, named, written=written)
    raise TypeError(f"no schema is known of the type {kind!r}")


def _named(kind: Any, named: dict[str, Schema], *, written: bool) -> Schema:
    is_class = attrs.has(kind)
    name, of = kind.__name__, f"{kind.__module__}.{kind.__qualname__}"
    if is_class and ".wire." in of:
        written = True  # frames are never written otherwise
    elif is_class and written:
        name, of = f"{name}Written", f"{of} as it is written"
    if name not in named:
        named[name] = {"$comment": of}  # one that holds itself finds it
        hints = get_type_hints(kind, localns=vars(answers), include_extras=True)
        if is_class:
            fields = attrs.fields(attrs.resolve_types(kind, localns=vars(answers), include_extras=True))
            names = {each.name: wire_name(each) if written else each.name for each in fields}
            required = [names[each.name] for each in fields if not written or each.default is attrs.NOTHING]
        else:
            names, required = dict.fromkeys(hints), sorted(kind.__required_keys__)
        properties = {names[each] or each: schema_of_answer(hints[each], named, written=written) for each in names}
        for each, column in notes(kind, Column).items() if is_class else ():
            properties[names[each]] = {**properties[names[each]], "title": column.title or each}
        named[name] |= {"type": "object", "properties": properties, "required": required}
    if named[name]["$comment"] != of:
        raise TypeError(f"two classes have the name {name}")
    return {"$ref": f"#/components/schemas/{name}"}
