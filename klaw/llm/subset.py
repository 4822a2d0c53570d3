"""JSON schemas of tools, cut down to what engines that constrain their output take. Pure.

What is left out only makes the answer freer: the tools check their arguments themselves.
"""

import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

MAX_DEPTH = 5
"""Objects and lists within each other. OpenAI takes ten levels, and four of them are around the arguments."""
MAX_NODES = 300
"""Subschemas of one tool, its references written out."""
MAX_REPETITIONS = 256
"""llama.cpp refuses a grammar with much longer repetitions, and all tools share one grammar."""
_SCALARS = ("string", "integer", "number", "boolean", "null")
_UNIONS = ("anyOf", "oneOf")


class Rules(enum.Enum):
    """What an engine takes."""

    STRICT = enum.auto()
    """OpenAI's strict mode, which all engines take: no bounds, and every member is required, so that null stands for
    one that is left out."""
    LLAMA = enum.auto()
    """llama.cpp: members can be left out, and bounds are kept, which stop a small model that repeats itself."""


class _Loose(Exception):
    """The schema, or a part of it, has no equal in the subset."""


def arguments_schema(parameters: Schema, rules: Rules) -> Schema | None:
    """The schema of a tool's arguments.

    Args:
        parameters: a JSON schema of type object; of MCP servers, so it may be anything.
        rules: of the engine.

    Returns:
        None for a tool that takes none. With STRICT ``{"type": "string"}`` where the parameters cannot be told: the
        model writes the object as JSON in a text.
    """
    if not parameters.get("properties") and not parameters.get("additionalProperties") and not _is_composed(parameters):
        return None
    try:
        fitted = _Fit(parameters, rules).fit(parameters, 0)
    except _Loose:
        fitted = None
    if fitted is None or fitted.get("type") != "object":
        return {"type": "string"} if rules is Rules.STRICT else {"type": "object"}
    return fitted


def without_nulls(value: Any, schema: Any) -> Any:
    """Arguments without the members that are null only because STRICT wants each of them written."""
    if isinstance(value, list) and isinstance(schema, Mapping):
        return [without_nulls(item, schema.get("items")) for item in value]
    if not isinstance(value, dict) or not isinstance(schema, Mapping):
        return value
    members, required = schema.get("properties"), schema.get("required")
    members = members if isinstance(members, Mapping) else {}
    kept = {}
    for name, member in value.items():
        optional = name in members and (not isinstance(required, list | tuple) or name not in required)
        if not (member is None and optional):
            kept[name] = without_nulls(member, members.get(name))
    return kept


def _is_composed(schema: Schema) -> bool:
    return any(name in schema for name in ("$ref", "allOf", "patternProperties", *_UNIONS))


class _Fit:
    """One walk over one tool's schema."""

    def __init__(self, root: Schema, rules: Rules) -> None:
        self._root = root
        self._rules = rules
        self._nodes = 0

    def fit(self, schema: object, depth: int) -> dict[str, Any]:
        """The subset's equal of a subschema. Raises _Loose."""
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise _Loose
        if "$ref" in schema:
            return self.fit(self._referred(schema["$ref"]), depth)
        if "const" in schema or "enum" in schema:
            return _choice(schema)
        for union in _UNIONS:
            if union in schema:
                return {"anyOf": [self.fit(option, depth) for option in _listed(schema[union])]}
        kind = schema.get("type") or _implied(schema)
        if isinstance(kind, list | tuple):
            return {"anyOf": [self.fit({**schema, "type": one}, depth) for one in _listed(kind)]}
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return {"type": "array", "items": self.fit(schema.get("items"), depth + 1), **self._bounds(schema, "Items")}
        if kind == "string":
            return {"type": "string", **self._bounds(schema, "Length")}
        if kind == "integer":
            return {"type": "integer", **self._range(schema)}
        if kind in _SCALARS:
            return {"type": kind}
        raise _Loose

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        members = schema.get("properties")
        if not isinstance(members, Mapping) or not members:
            raise _Loose  # an object without members breaks the grammar of some versions of llama.cpp
        required = schema.get("required")
        required = required if isinstance(required, list | tuple) else ()
        fitted: dict[str, Any] = {}
        for name, member in members.items():
            own = self.fit(member, depth + 1)
            optional = name not in required
            fitted[name] = _nullable(own) if optional and self._rules is Rules.STRICT else own
        wanted = [*members] if self._rules is Rules.STRICT else [name for name in members if name in required]
        return {"type": "object", "properties": fitted, "required": wanted, "additionalProperties": False}

    def _referred(self, reference: object) -> object:
        """What a reference within the tool's schema points to; one that leads to itself ends at MAX_NODES."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _Loose
        found: object = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            if not isinstance(found, Mapping):
                raise _Loose
            found = found.get(step.replace("~1", "/").replace("~0", "~"))
        return found

    def _bounds(self, schema: Schema, of: str) -> dict[str, int]:
        if self._rules is Rules.STRICT:
            return {}
        named = {name: schema.get(name) for name in (f"min{of}", f"max{of}")}
        return {name: most for name, most in named.items() if type(most) is int and 0 <= most <= MAX_REPETITIONS}

    def _range(self, schema: Schema) -> dict[str, int]:
        if self._rules is Rules.STRICT:
            return {}
        named = {name: schema.get(name) for name in ("minimum", "maximum")}
        return {name: bound for name, bound in named.items() if type(bound) is int and abs(bound) < 2**53}


def _listed(options: object) -> list[Any]:
    if not isinstance(options, list | tuple) or not options:
        raise _Loose
    return list(options)


def _implied(schema: Schema) -> str | None:
    return "object" if "properties" in schema else "array" if "items" in schema else None


def _choice(schema: Schema) -> dict[str, Any]:
    """An enum of texts, whole numbers, booleans and null, with the types that it holds."""
    values = [schema["const"]] if "const" in schema else _listed(schema["enum"])
    names = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
    kinds = list(dict.fromkeys(names.get(type(value), "") for value in values))
    if "" in kinds:
        raise _Loose
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return _choice({"enum": [*dict.fromkeys([*schema["enum"], None])]})
    options = schema.get("anyOf", [schema])
    null = {"type": "null"}
    return {"anyOf": options if null in options else [*options, null]}
