"""The configuration described: its JSON schema, its effective values without secrets, and how two of them differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import attrs

from klaw.config.document import join_path, plain_scalar, read_written, split_path
from klaw.config.environment import Secret
from klaw.config.keys import Rule, file_key, rule_of
from klaw.config.schema import RENAMED, RETIRED, EngineConfig
from klaw.config.tools import McpServerConfig
from klaw.errors import ConfigError

RESTART = "x-restart"
"""Member of a key's schema, or its section's: a change takes effect when the server is started again."""
_WHOLE_REFERENCE = r"^\$\{[^}]+\}$"
_REFERENCE = r"\$\{[^}]+\}"
T = TypeVar("T")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", Secret: "string", Path: "string"}


def json_schema() -> dict[str, Any]:
    """Describe a configuration file as a JSON schema (draft 2020-12), for editors. A key that is no text also takes a
    text that is wholly one ``${NAME}``."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Klaw configuration"}
    described = _section(EngineConfig, path="")
    for *sections, name in RETIRED:
        properties = described["properties"]
        for section in sections:
            below = {"type": ["object", "null"], "properties": {}, "deprecated": True, "description": "Has no effect."}
            properties = properties.setdefault(section, below)["properties"]
        properties[name] = {"deprecated": True, "description": "Has no effect."}
    return schema | described


def show(config: EngineConfig) -> dict[str, Any]:
    """The effective configuration with the keys of the file, ready for JSON; secrets are ``***``."""
    shown = _shown(config)
    assert isinstance(shown, dict)
    return shown


@attrs.frozen(kw_only=True)
class KeyDescription:
    path: str
    type: str
    default: Any
    """As it stands in a file; None where ``has_default`` is false."""
    has_default: bool
    """False for a section, and for a key that must be given."""
    meaning: str
    restart: bool
    """A change takes effect when the server is started again."""


def described() -> list[KeyDescription]:
    """Every key with its type, default and meaning, sections first; ``<name>`` stands for a name that one chooses."""
    return list(_described(json_schema(), "", restart=False))


def _described(schema: Mapping[str, Any], prefix: str, *, restart: bool) -> Iterator[KeyDescription]:
    for name, found in schema["properties"].items():
        if found.get("deprecated"):
            continue
        path, has_default = f"{prefix}{name}", "default" in found
        about = {"type": _in_words(found), "default": found.get("default"), "meaning": found["description"]}
        later = restart or RESTART in found
        yield KeyDescription(path=path, has_default=has_default, restart=later, **about)
        inner, below = found, f"{path}."
        if isinstance(found.get("additionalProperties"), Mapping):
            inner, below = found["additionalProperties"], f"{path}.<name>."
        if "properties" in inner:
            yield from _described(inner, below, restart=later)


_WORDS = {"boolean": "true or false", "integer": "whole number", "object": "section", "array": "list", "string": "text"}


def _in_words(schema: Mapping[str, Any]) -> str:
    """The type of a key for people. That any key may be given as ``${NAME}`` is not repeated."""
    if "anyOf" in schema:
        return "one of " + ", ".join(json.dumps(each) for each in schema["anyOf"][0]["enum"])
    kinds = kinds_of(schema, "anything")
    if kinds[0] in ("boolean", "integer", "number"):
        kinds = [kinds[0], *(each for each in kinds if each == "null")]
    if kinds[0] == "object":
        kinds = ["object"]
        if "properties" not in schema:
            return "names with values"
    said = " or ".join(_WORDS.get(each, each) for each in kinds)
    least, above, most = (schema.get(limit) for limit in ("minimum", "exclusiveMinimum", "maximum"))
    if least is not None:
        said += f", {_shown(float(least))} to {_shown(float(most))}" if most is not None else f", from {least}"
    elif above is not None:
        said += f", over {above}" + (f" to {_shown(float(most))}" if most is not None else "")
    return said


def kinds_of(schema: Mapping[str, Any], default: str = "object") -> list[str]:
    """The JSON types of a key."""
    kinds = schema.get("type", default)
    return [kinds] if isinstance(kinds, str) else list(kinds)


def value_of(path: str, words: Sequence[str]) -> Any:
    """The value that words of a command line mean for a key. Raises ConfigError: there is no such key, or several words
    are given for one that holds a single value."""
    about: Any = json_schema()
    for name in split_path(path):
        below = about.get("properties", {}).get(name, about.get("additionalProperties"))
        if not isinstance(below, Mapping) and (below is not None or "properties" in about):
            raise ConfigError.of("unknown key", path)
        about = below or {}
    kinds = kinds_of(about, "")
    if len(words) == 1 and words[0].startswith(("{", "[")) and set(kinds) - {"string", "null"}:
        return read_written(json.dumps(path) + ": " + words[0])[path]
    if "array" in kinds:
        return [_word(word, kinds_of(about["items"])) for word in words]
    if len(words) > 1:
        raise ConfigError.of("takes one value", path)
    return _word(words[0], kinds)


def _word(word: str, kinds: Sequence[str]) -> Any:
    found = plain_scalar(word)
    if found is None and "" not in kinds:
        return None if "null" in kinds else word
    return found if set(kinds) - {"string", "null"} else word


def secrets_in(value: object, path: str = "", *, off: bool = True) -> Iterator[tuple[str, Secret]]:
    """The secrets of a configuration, or of a part, with their key paths; ``off``: also of MCP servers that are off."""
    cls: Any = type(value)
    if isinstance(value, Secret):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from secrets_in(item, join_path(path, name), off=off)
    elif attrs.has(cls) and (off or not isinstance(value, McpServerConfig) or value.enabled):
        for field in attrs.fields(cls):
            yield from secrets_in(getattr(value, field.name), join_path(path, file_key(field.name)), off=off)


def differing(one: object, other: object, path: str = "") -> Iterator[str]:
    """The paths of keys, or of entries of maps, that differ between two configurations, or two parts of them."""
    cls: Any = type(one)
    if attrs.has(cls) and cls is type(other):
        for field in attrs.fields(cls):
            below = join_path(path, file_key(field.name))
            yield from differing(getattr(one, field.name), getattr(other, field.name), below)
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            yield from differing(one.get(name), other.get(name), join_path(path, name))
    elif one != other:
        yield path


def in_effect(running: T, wanted: T) -> T:
    """The configuration ``wanted``, or a section of it, as far as a server that runs with another takes it: keys that
    need a restart stay as they are."""
    changes: dict[str, Any] = {}
    cls: Any = type(wanted)
    for field in attrs.fields(cls):
        before, value = getattr(running, field.name), getattr(wanted, field.name)
        if rule_of(field).restart:
            changes[field.name] = before
        elif attrs.has(type(value)) and type(value) is type(before):
            changes[field.name] = in_effect(before, value)
    return cast("T", attrs.evolve(cast("Any", wanted), **changes))


def _section(cls: type, path: str) -> dict[str, Any]:
    fields = attrs.fields(cls)
    properties = {file_key(field.name): _property(field, rule_of(field)) for field in fields}
    for (section, old), new in RENAMED.items():
        if section == path:
            properties[old] = properties[new] | {"deprecated": True, "description": f"Old name of {new}."}
    required = [file_key(field.name) for field in fields if field.default is attrs.NOTHING]
    described: dict[str, Any] = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    return described | ({"required": required, "type": "object"} if required else {})


def _property(field: "attrs.Attribute[Any]", rule: Rule) -> dict[str, Any]:
    described = {"description": rule.description} | _type(field.type, rule, file_key(field.name))
    if rule.restart:
        described[RESTART] = True
    default = field.default
    if not isinstance(default, attrs.Factory) and default is not attrs.NOTHING:  # type: ignore[arg-type]  # a class
        described["default"] = _shown(default)
    return described


def _type(cls: Any, rule: Rule, path: str = "") -> dict[str, Any]:
    origin, arguments = get_origin(cls), get_args(cls)
    if cls is Any:
        return {}
    if attrs.has(cls):
        return _section(cls, path)
    if origin in (UnionType, Union):  # the second is made of Literal
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        described = _type(inner, rule)
        kinds = described["type"]
        if "anyOf" in described:
            described["anyOf"].append({"type": "null"})
        return described | {"type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}
    if origin is Mapping:
        names = {"propertyNames": {"pattern": f"^(?:{rule.names})$"}} if rule.names else {}
        return {"type": ["object", "null"], **names, "additionalProperties": _type(arguments[1], rule)}
    if origin is tuple:
        items = _type(arguments[0], rule)
        return {"type": ["array", "string"] if rule.one_or_more else "array", "items": items}
    if origin is Literal:
        return {"type": "string", "anyOf": [{"enum": list(arguments)}, {"type": "string", "pattern": _WHOLE_REFERENCE}]}
    return _scalar(cls, rule)


def _scalar(cls: type, rule: Rule) -> dict[str, Any]:
    described: dict[str, Any] = {"type": _TYPES[cls]}
    if described["type"] != "string":
        # "pattern" speaks of texts only and the limits of numbers only, so both can stand side by side.
        described = {"type": [_TYPES[cls], "string"], "pattern": _WHOLE_REFERENCE}
    elif rule.pattern:
        described["pattern"] = f"^(?:{rule.pattern})$|{_REFERENCE}"
    if cls is Secret:
        described["writeOnly"] = True
    limits = {"minimum": rule.minimum, "exclusiveMinimum": rule.above, "maximum": rule.maximum}
    return described | {name: limit for name, limit in limits.items() if limit is not None}


def _shown(value: object) -> Any:
    if isinstance(value, Secret | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_shown(item) for item in value]
    cls: Any = type(value)
    if attrs.has(cls):
        return {file_key(field.name): _shown(getattr(value, field.name)) for field in attrs.fields(cls)}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
