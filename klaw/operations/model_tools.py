"""Operations as tools that other programs call for their models (MCP), and what these read. Without any SDK."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs

from klaw.convert import wire_name
from klaw.json_schema import schema_of
from klaw.operations.operation import Operation, OperationError, told, without_none
from klaw.operations.perform import operations


@attrs.frozen(kw_only=True)
class ModelTool:
    operation: Operation
    name: str

    @property
    def help(self) -> str:
        return inspect.getdoc(self.operation.handler) or ""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments. There is no user among them: it is the user of the token."""
        fields = {wire_name(each): each for each, _ in _fields(self.operation.arguments)}
        properties = {name: {**_described(each), **_default(each)} for name, each in fields.items()}
        required = [name for name, each in fields.items() if each.default is attrs.NOTHING]
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **({"required": required} if required else {}),
        }

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The operation's arguments. Raises OperationError: one is not known, such as a user."""
        known = {wire_name(field): outer for field, outer in _fields(self.operation.arguments)}
        made: dict[str, Any] = {outer: {} for outer in known.values() if outer is not None}
        for name, value in given.items():
            if name not in known:
                raise OperationError("bad_args", f"is not known; known are {', '.join(known)}", field=name)
            outer = known[name]
            (made if outer is None else made[outer])[name] = value
        return made


@cache
def tools() -> Mapping[str, ModelTool]:
    marked = (each for each in operations().values() if each.mcp is not None)
    return {each.mcp: ModelTool(operation=each, name=each.mcp) for each in marked if each.mcp is not None}


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
