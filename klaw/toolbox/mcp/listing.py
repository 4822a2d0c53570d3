"""A server's list of tools, made to fit the protocol, the toolbox and every provider, whatever the server wrote. Pure.

Tools are offered as ``server__tool``: a server's own name holds no ``__`` and ends in no ``_`` (the configuration sees
to it), so tools of two servers never share a name; within a server a digest tells names apart that become one when they
are cleaned or cut.

Providers refuse a whole request for one odd schema, and a chat would be stuck for ever. So a schema is rebuilt from
what is known to be harmless: references within it are filled in, recursion ends, unknown keywords go, sizes are
bounded. What cannot be kept is left open ("anything"): the server checks its arguments itself.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import attrs

from klaw.convert import unquoted
from klaw.domain.text import clean_output, cut, has_forbidden
from klaw.errors import BadValue, Problem
from klaw.toolbox.spec import MAX_NAME, Arguments

MAX_LISTED_NAME = 200
MAX_ENTRIES = 2_000
MAX_BLOCKS = 1_000
MAX_DESCRIPTION = 1_200
"""Every request to the model carries all descriptions."""


@attrs.frozen(kw_only=True)
class ListedTool:
    name: str
    description: str
    schema: Any
    output: Any = None
    """The schema of its structured results, as the server wrote it."""


@attrs.frozen(kw_only=True)
class ListedEntry:
    """A resource or a template of resources, by its URI, or a prompt, by its name."""

    key: str
    name: str = ""
    description: str = ""
    required: tuple[str, ...] = ()
    """Arguments of a prompt that must be given."""
    arguments: tuple[str, ...] = ()
    """All its arguments."""


OUTPUT = "klaw/outputSchema"
"""Key in the ``_meta`` of a listed tool: the SDK must not check results by a schema that a server wrote."""
ENTRIES = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""The other lists of a server, and what names an entry of each."""
MAX_KEY = 1_000
MAX_ARGUMENTS = 30


def fitted(result: Mapping[str, Any]) -> dict[str, Any]:
    """What Klaw reads of a result, with at most ``MAX_BLOCKS`` of content: the SDK makes an object of each."""
    made = dict(result)
    if "tools" in result:
        entries = result["tools"] if isinstance(result["tools"], list) else []
        made["tools"] = [_tool(each) for each in entries[:MAX_ENTRIES] if _is_tool(each)]
    for kind, key in ENTRIES.items():
        if kind in result:
            entries = result[kind] if isinstance(result[kind], list) else []
            made[kind] = [_entry(each, key) for each in entries[:MAX_ENTRIES] if _is_named(each, key)]
    if not isinstance(result.get("nextCursor"), str):
        made.pop("nextCursor", None)
    content = result.get("content")
    if isinstance(content, list) and len(content) > MAX_BLOCKS:
        kept = content[: MAX_BLOCKS - 1]
        left_out = {"type": "text", "text": f"[{len(content) - len(kept)} more parts are left out]"}
        made["content"] = [*kept, left_out]
    return made


def chosen(listed: Sequence[ListedTool], patterns: Sequence[str], most: int) -> tuple[tuple[ListedTool, ...], int]:
    """The tools that the configuration wants, by name, and how many of them were left out."""
    by_name = {tool.name: tool for tool in reversed(listed)}
    wanted = [by_name[name] for name in sorted(by_name) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return tuple(wanted[:most]), max(0, len(wanted) - most)


def described(server: str, text: str) -> str:
    """A tool's description for models: bounded, and with where it comes from."""
    plain = cut(clean_output(text[: MAX_DESCRIPTION * 2]).strip(), MAX_DESCRIPTION)
    origin = f"(From the MCP server {server}.)"
    return f"{plain}\n{origin}" if plain else origin


def _is_tool(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    execution = entry.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        return False  # it can only be called as a task, which Klaw does not do
    name = entry.get("name")
    return isinstance(name, str) and 0 < len(name) <= MAX_LISTED_NAME and not has_forbidden(name)


def _tool(entry: Mapping[str, Any]) -> dict[str, Any]:
    about = {"name": entry["name"], "description": _told(entry), "inputSchema": _schema(entry.get("inputSchema"))}
    return {**about, "_meta": {OUTPUT: entry["outputSchema"]}} if "outputSchema" in entry else about


def _told(entry: Mapping[str, Any]) -> str:
    texts = (entry.get(key) for key in ("description", "title"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _is_named(entry: object, key: str) -> bool:
    name = entry.get(key) if isinstance(entry, dict) else None
    return isinstance(name, str) and 0 < len(name) <= MAX_KEY and not has_forbidden(name)


def _entry(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    name = entry.get("name")
    about = {key: entry[key], "name": name if isinstance(name, str) else "", "description": cut(_told(entry), MAX_TEXT)}
    if key == "name":
        given = entry.get("arguments")
        named = [each for each in (given if isinstance(given, list) else []) if _is_named(each, "name")]
        about["arguments"] = [
            {"name": each["name"], "required": each.get("required") is True} for each in named[:MAX_ARGUMENTS]
        ]
    return about


def _schema(schema: object) -> dict[str, Any]:
    given = schema if isinstance(schema, dict) else {}
    made = {key: value for key, value in given.items() if key not in ("$schema", "properties", "required")}
    made["type"] = "object"
    if isinstance(given.get("properties"), dict):
        made["properties"] = {name: each for name, each in given["properties"].items() if isinstance(each, dict | bool)}
    if isinstance(given.get("required"), list):
        made["required"] = [name for name in given["required"] if isinstance(name, str)]
    return made


SEPARATOR = "__"
_DIGEST = 8
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def offered_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """The name that models see by the server's name of each tool. Names that every provider takes stay as they are."""
    wanted = {tool: _cleaned(server, tool) for tool in tools}
    counts = Counter(wanted.values())
    return {
        tool: name if counts[name] == 1 or name == f"{server}{SEPARATOR}{tool}" else _with_digest(server, tool)
        for tool, name in wanted.items()
    }


def _cleaned(server: str, tool: str) -> str:
    plain = _NOT_IN_NAME.sub("_", tool).strip("_") if _NOT_IN_NAME.search(tool) else tool
    name = f"{server}{SEPARATOR}{plain}"
    return name if plain and len(name) <= MAX_NAME else _with_digest(server, tool)


def _with_digest(server: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    room = MAX_NAME - len(server) - len(SEPARATOR) - _DIGEST - 1
    plain = _NOT_IN_NAME.sub("_", tool).strip("_")[:room] or "tool"
    return f"{server}{SEPARATOR}{plain}_{digest}"


MAX_CHARS = 6_000
"""As JSON. A longer schema loses its inner descriptions, then what is below its parameters."""
MAX_DEPTH = 8
MAX_NODES = 400
MAX_PROPERTIES = 60
MAX_ENUM = 60
MAX_PARAMETER_DESCRIPTION = 300
MAX_TEXT = 120

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_KINDS = {"integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9_.-]+")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems")
OPEN: Mapping[str, Any] = {"type": "object", "properties": {}}


@attrs.frozen(kw_only=True)
class Parameters:
    """A tool's parameters as models see them; ``original`` has the server's names, where these differ."""

    schema: Mapping[str, Any]
    original: Mapping[str, str] = attrs.Factory(dict)

    def bind(self, arguments: Arguments) -> Arguments:
        """The arguments for the server, which checks them itself. Raises BadValue: a required parameter is missing."""
        properties: Mapping[str, Any] = self.schema.get("properties", {})
        required = self.schema.get("required", ())
        if missing := [Problem(name, "is required") for name in required if name not in arguments]:
            raise BadValue(missing)
        bound = {}
        for name, value in arguments.items():
            kind = properties.get(name, {}).get("type")
            if value is None and name in properties and name not in required and kind not in (None, "null"):
                continue  # small models write null for what they leave out
            quotable = isinstance(kind, str) and kind in _KINDS  # the model may write the JSON of it as a text
            bound[self.original.get(name, name)] = unquoted(value, _KINDS[kind]) if quotable else value
        return bound


def parameters_of(schema: object) -> Parameters:
    """Make a harmless schema out of anything."""
    for describe, depth in ((True, MAX_DEPTH), (False, MAX_DEPTH), (False, 1)):
        found = _SchemaReader(schema, describe=describe, depth=depth).parameters()
        if len(json.dumps(found.schema, ensure_ascii=False)) <= MAX_CHARS:
            return found
    return Parameters(schema=OPEN)


class _SchemaReader:
    def __init__(self, root: object, *, describe: bool, depth: int) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._describe = describe
        self._depth = depth
        self._left = MAX_NODES

    def parameters(self) -> Parameters:
        # No anyOf at the top: providers want the parameters named.
        root = self._resolved(self._root, ())[0]
        given = root.get("properties")
        named: dict[str, Any] = {}
        original: dict[str, str] = {}
        for name, value in list(given.items())[:MAX_PROPERTIES] if isinstance(given, dict) else ():
            shown = _shown_key(str(name), named)
            if shown != name:
                original[shown] = str(name)
            named[shown] = self._schema(value, 1, ())
        schema: dict[str, Any] = {"type": "object", "properties": named}
        back = {**{name: name for name in named}, **{name: shown for shown, name in original.items()}}
        required = [back[name] for name in _texts(root.get("required")) if name in back]
        if required:
            schema["required"] = required
        return Parameters(schema=schema, original=original)

    def _schema(self, value: object, depth: int, seen: tuple[str, ...]) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(value, dict) or self._left < 0:
            return {}
        value, seen = self._resolved(value, seen)
        given = value.get("type")
        kinds = [kind for kind in _texts(given if isinstance(given, list) else [given]) if kind in _TYPES]
        made: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
        made |= self._description(value) | _scalars_of(value)
        if depth < self._depth:
            made |= self._inner(value, kinds, depth, seen)
        if "array" in kinds:
            made.setdefault("items", {})
        return made

    def _inner(self, value: dict[str, Any], kinds: list[str], depth: int, seen: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        given = value.get("properties")
        if isinstance(given, dict) and "object" in kinds:
            # A name that providers refuse cannot be renamed down here; the object is left open then.
            if all(_KEY.fullmatch(str(name)) for name in given):
                few = list(given.items())[:MAX_PROPERTIES]
                made["properties"] = {name: self._schema(inner, depth + 1, seen) for name, inner in few}
                if required := [name for name in _texts(value.get("required")) if name in made["properties"]]:
                    made["required"] = required
            if isinstance(value.get("additionalProperties"), dict):
                made["additionalProperties"] = self._schema(value["additionalProperties"], depth + 1, seen)
        if isinstance(value.get("items"), dict):
            made["items"] = self._schema(value["items"], depth + 1, seen)
        for several in ("anyOf", "oneOf", "allOf"):
            options = value.get(several)
            if isinstance(options, list) and options:
                made["anyOf" if several == "oneOf" else several] = [
                    self._schema(option, depth + 1, seen) for option in options[:MAX_ENUM]
                ]
        return made

    def _description(self, value: dict[str, Any]) -> dict[str, str]:
        told = [value["description"]] if isinstance(value.get("description"), str) else []
        if isinstance(value.get("pattern"), str):  # servers write patterns that no provider's engine knows
            told.append(f"(pattern: {value['pattern'][:MAX_TEXT]})")
        text = clean_output(" ".join(told)).strip()
        return {"description": cut(text, MAX_PARAMETER_DESCRIPTION)} if text and self._describe else {}

    def _resolved(self, value: dict[str, Any], seen: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Follow ``$ref`` within the schema. One that leads out, nowhere or back to itself is anything."""
        while "$ref" in value:
            target = value["$ref"]
            if not isinstance(target, str) or target in seen or len(seen) >= MAX_DEPTH:
                return {}, seen
            seen = (*seen, target)
            found = self._target(target)
            value = {**found, **{key: inner for key, inner in value.items() if key != "$ref"}}
        return value, seen

    def _target(self, reference: str) -> dict[str, Any]:
        if not reference.startswith("#/"):
            return {}
        here: Any = self._root
        for step in reference[2:].split("/")[:MAX_DEPTH]:
            here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
        return here if isinstance(here, dict) else {}


def _scalars_of(value: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    enum = [value["const"]] if "const" in value else value.get("enum")
    if isinstance(enum, list) and 0 < len(enum) <= MAX_ENUM and all(map(_is_scalar, enum)):
        made["enum"] = [_plain(option) for option in enum]
    if value.get("default") is not None and _is_scalar(value["default"]):
        made["default"] = _plain(value["default"])
    for name in _LIMITS:
        if type(value.get(name)) in (int, float) and _is_scalar(value[name]):
            made[name] = value[name]
    for name in _SIZES:
        if type(value.get(name)) is int and 0 <= value[name] < 1_000_000_000:
            made[name] = value[name]
    return made


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 53)


def _plain(value: Any) -> Any:
    return clean_output(value) if isinstance(value, str) else value


def _texts(value: object) -> list[str]:
    return list(dict.fromkeys(item for item in value if isinstance(item, str))) if isinstance(value, list) else []


def _shown_key(name: str, taken: Mapping[str, Any]) -> str:
    shown = name if _KEY.fullmatch(name) else _NOT_IN_KEY.sub("_", name).strip("_")[:50] or "parameter"
    number = 1
    while shown in taken:
        number += 1
        shown = f"{shown[:50]}_{number}"
    return shown
