"""Operations as tools that other programs call for their models (MCP), and what these read. Without any SDK."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs

from klaw.convert import wire_name
from klaw.json_schema import schema_of
from klaw.operations.operation import Operation, OperationError, told, without_none
from klaw.operations.perform import operations


@cache
def tools() -> Mapping[str, Operation]:
    """The operations that are tools, by the names that models know."""
    return {each.mcp: each for each in operations().values() if each.mcp is not None}


def schema_of_tool(tool: Operation) -> dict[str, Any]:
    """The JSON schema of its arguments. There is no user among them: it is the user of the token."""
    fields = {wire_name(each): each for each, _ in _fields(tool.arguments)}
    required = [name for name, each in fields.items() if each.default is attrs.NOTHING]
    return {
        "type": "object",
        "properties": {name: {**_described(each), **_default(each)} for name, each in fields.items()},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def read_tool_call(name: str, given: Mapping[str, Any]) -> tuple[Operation, dict[str, Any]]:
    """A tool with the operation's arguments. Raises OperationError: one is not known, such as a user."""
    tool = tools()[name]
    known = {wire_name(field): outer for field, outer in _fields(tool.arguments)}
    made: dict[str, Any] = {outer: {} for outer in known.values() if outer is not None}
    for argument, value in given.items():
        if argument not in known:
            raise OperationError("bad_args", f"is not known; known are {', '.join(known)}", field=argument)
        outer = known[argument]
        (made if outer is None else made[outer])[argument] = value
    return tool, made


def _described(field: "attrs.Attribute[Any]") -> dict[str, Any]:
    help_text = told(field).help if "argument" in field.metadata else ""
    return {**schema_of(field.type), **({"description": help_text} if help_text else {})}


def _default(field: "attrs.Attribute[Any]") -> dict[str, Any]:
    return {"default": field.default} if isinstance(field.default, str | int) else {}


def _fields(cls: type[Any]) -> Iterator[tuple["attrs.Attribute[Any]", str | None]]:
    """The arguments, each with the one that it stands in, if it stands in one."""
    for field in attrs.fields(attrs.resolve_types(cls, include_extras=True)):
        inner = without_none(field.type)
        if attrs.has(inner):
            yield from ((each, field.name) for each, _ in _fields(inner))
        elif field.name != "user":
            yield field, None
