"""From a Python type to a JSON schema and to a check of what a model wrote. Pure.

Strict, with four exceptions that only have one possible meaning and that small models need: a number or a boolean
written as its JSON text in quotes ("5", "true"), a whole number written as 5.0, a list or an object written as its JSON
text in quotes, and null for a parameter that has a default.
"""

import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union

import attrs

from klaw.domain.text import has_forbidden

MAX_NAMES_SHOWN = 12
MAX_WHOLE = 2**63


@attrs.frozen(kw_only=True)
class Limit:
    """Bounds of a parameter, in ``Annotated``: of a number's value, or of the length of a text or a list."""

    at_least: float | None = None
    at_most: float | None = None
    pattern: str | None = None
    """For a text: a regular expression for the whole of it."""


class Unfit(Exception):
    """A value does not have its shape. The text names the parameter and the rule; the model is shown it."""


Read: TypeAlias = Callable[[object, str], Any]
"""Takes the value and its path; returns what the function gets. Raises Unfit."""


@attrs.frozen
class Shape:
    """One type: how the model is told of it, and how its value is read."""

    schema: Mapping[str, Any]
    read: Read


def shape_of(annotation: Any) -> Shape:
    """The shape of ``str``, ``int``, ``float``, ``bool``, ``list[T]``, ``Literal``, ``T | None``, an attrs class, or
    one of these in ``Annotated`` with a description (a text) and a ``Limit``.

    Raises:
        TypeError: another type.
    """
    if typing.get_origin(annotation) is Annotated:
        base, *notes = typing.get_args(annotation)
        return _annotated(shape_of(base), notes)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin is Literal:
        return _choice(arguments)
    if origin in (list, Sequence) or annotation is list:
        return _list(shape_of(arguments[0]) if arguments else Shape({}, _anything))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _list(shape_of(arguments[0]))
        return Shape(inner.schema, lambda value, path: tuple(inner.read(value, path)))
    if inspect.isclass(annotation) and attrs.has(annotation):
        return _class(annotation)
    plain: dict[Any, Shape] = {
        str: Shape({"type": "string"}, _text),
        bool: Shape({"type": "boolean"}, _truth),
        int: Shape({"type": "integer"}, _whole),
        float: Shape({"type": "number"}, _number),
    }
    try:
        return plain[annotation]
    except (KeyError, TypeError):
        raise TypeError(f"a tool's parameter cannot have the type {annotation!r}") from None


def object_shape(parameters: Mapping[str, tuple[Shape, Any]], make: Callable[..., Any] = dict) -> Shape:
    """A JSON object with named members.

    Args:
        parameters: name -> (shape, default); ``inspect.Parameter.empty`` for none.
        make: called with the members that were given, by name.
    """
    required = [name for name, (_, default) in parameters.items() if default is inspect.Parameter.empty]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _with_default(shape.schema, default) for name, (shape, default) in parameters.items()},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required

    def read(value: object, path: str) -> Any:
        value = _unquoted(value, dict)
        if not isinstance(value, dict):
            raise Unfit(f"{path or 'the arguments'} must be a JSON object, not {_kind(value)}")
        unknown = [str(name) for name in value if name not in parameters]
        if unknown:
            known = ", ".join(list(parameters)[:MAX_NAMES_SHOWN]) or "none at all"
            raise Unfit(f"there is no parameter {_shown(_join(path, unknown[0]))}; known are: {known}")
        given = {}
        for name, (shape, default) in parameters.items():
            has_default = default is not inspect.Parameter.empty
            if name not in value:
                if not has_default:
                    raise Unfit(f"the parameter {_join(path, name)} is missing")
            elif not (value[name] is None and has_default):
                given[name] = shape.read(value[name], _join(path, name))
        return make(**given)

    return Shape(schema, read)


def _with_default(schema: Mapping[str, Any], default: Any) -> Mapping[str, Any]:
    if isinstance(default, str | int | float | bool):
        return {**schema, "default": default}
    return schema


def _annotated(shape: Shape, notes: Sequence[Any]) -> Shape:
    for note in notes:
        if isinstance(note, str):
            shape = Shape({**shape.schema, "description": note}, shape.read)
        elif isinstance(note, Limit):
            shape = _limited(shape, note)
    return shape


def _limited(shape: Shape, limit: Limit) -> Shape:
    kinds = shape.schema.get("type")
    kind = kinds if isinstance(kinds, str) else next((name for name in kinds or () if name != "null"), "")
    low, high = {
        "string": ("minLength", "maxLength"),
        "array": ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    told: dict[str, Any] = {low: limit.at_least, high: limit.at_most, "pattern": _anchored(limit.pattern)}
    unit = {"string": " characters", "array": " entries"}.get(kind, "")

    def read(value: object, path: str) -> Any:
        found = shape.read(value, path)
        if found is None:
            return found
        size = found if isinstance(found, int | float) else len(found)
        verb = "have" if unit else "be"
        if limit.at_least is not None and size < limit.at_least:
            raise Unfit(f"{path} must {verb} at least {limit.at_least}{unit}")
        if limit.at_most is not None and size > limit.at_most:
            raise Unfit(f"{path} must {verb} at most {limit.at_most}{unit}")
        if limit.pattern is not None and not re.fullmatch(limit.pattern, found):
            raise Unfit(f"{path} must match the pattern {limit.pattern}")
        return found

    return Shape({**shape.schema, **{name: rule for name, rule in told.items() if rule is not None}}, read)


def _anchored(pattern: str | None) -> str | None:
    return None if pattern is None else f"^(?:{pattern})$"


def _optional(members: tuple[Any, ...]) -> Shape:
    others = [member for member in members if member is not type(None)]
    if len(others) != 1:
        raise TypeError("of unions a tool's parameter may only have T | None")
    inner = shape_of(others[0])
    if len(others) == len(members):
        return inner
    kind = inner.schema.get("type")
    schema = {**inner.schema, "type": [kind, "null"]} if isinstance(kind, str) else dict(inner.schema)
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return Shape(schema, lambda value, path: None if value is None else inner.read(value, path))


def _choice(options: tuple[Any, ...]) -> Shape:
    kinds = {type(option) for option in options}
    if not kinds <= {str, int} or len(kinds) != 1:
        raise TypeError("a Literal of a tool's parameter has texts only or whole numbers only")
    inner = shape_of(kinds.pop())

    def read(value: object, path: str) -> Any:
        found = inner.read(value, path)
        if found not in options:
            raise Unfit(f"{path} must be one of: {', '.join(map(str, options))}")
        return found

    return Shape({**inner.schema, "enum": list(options)}, read)


def _list(item: Shape) -> Shape:
    def read(value: object, path: str) -> Any:
        value = _unquoted(value, list)
        if not isinstance(value, list):
            raise Unfit(f"{path} must be a list, not {_kind(value)}")
        return [item.read(entry, f"{path}[{number}]") for number, entry in enumerate(value)]

    return Shape({"type": "array", "items": item.schema}, read)


def _class(kind: type) -> Shape:
    hints = typing.get_type_hints(kind, include_extras=True)
    members: dict[str, tuple[Shape, Any]] = {}
    for field in attrs.fields(kind):
        default = field.default if field.default is not attrs.NOTHING else inspect.Parameter.empty
        members[field.name] = (shape_of(hints[field.name]), default)
    inner = object_shape(members, kind)

    def read(value: object, path: str) -> Any:
        try:
            return inner.read(value, path)
        except (ValueError, TypeError):  # a validator of the class; its text is for programmers
            raise Unfit(f"{path} has members that do not go together") from None

    return Shape(inner.schema, read)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise Unfit(f"{path} must be a text, not {_kind(value)}")
    if has_forbidden(value):
        raise Unfit(f"{path} must not hold NUL or half a surrogate pair")
    return value


def _truth(value: object, path: str) -> bool:
    value = _unquoted(value.lower() if isinstance(value, str) else value, bool)
    if not isinstance(value, bool):
        raise Unfit(f"{path} must be true or false, not {_kind(value)}")
    return value


def _whole(value: object, path: str) -> int:
    value = _unquoted(value, int, float)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit(f"{path} must be a whole number, not {_kind(value)}")
    if not -MAX_WHOLE <= value < MAX_WHOLE:
        raise Unfit(f"{path} is too large a number")
    return value


def _number(value: object, path: str) -> float:
    value = _unquoted(value, int, float)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit(f"{path} must be a number, not {_kind(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise Unfit(f"{path} must be a finite number")
    return found


def _anything(value: object, _path: str) -> Any:
    return value


def _unquoted(value: object, *kinds: type) -> object:
    """The value that a text is the JSON of, if it is of one of the kinds; else the value as it is."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if type(found) in kinds else value


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(name: str) -> str:
    return json.dumps(name[:80])


Schema = Mapping[str, Any]


def told(schema: Schema) -> dict[str, Any]:
    """The schema in short, as a model is told it: every request carries all tools, so each word is paid for.

    Left out is what helps no model to write a call: that unknown members are refused, and that an optional member may
    be null. Bounds stay: grammars of local models are made of them. Not for schemas of others: there null may mean
    something.
    """
    kept = dict(schema)
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]
    kinds = kept.get("type")
    if isinstance(kinds, list):
        (kept["type"],) = (kind for kind in kinds if kind != "null")
        if "enum" in kept:
            kept["enum"] = [each for each in kept["enum"] if each is not None]
    if "properties" in kept:
        kept["properties"] = {name: told(member) for name, member in kept["properties"].items()}
    if isinstance(kept.get("items"), Mapping):
        kept["items"] = told(kept["items"])
    return kept
