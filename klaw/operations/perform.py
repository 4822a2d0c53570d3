"""Finding an operation, reading its arguments, checking who asks, and carrying it out, for every door."""

import difflib
import enum
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

import klaw.operations.memory
from klaw.convert import REQUESTS, Converter, wire_name
from klaw.domain.names import UserId
from klaw.errors import BadValue, InvalidValue, KlawError, Problem
from klaw.json_schema import schema_of
from klaw.operations import stored
from klaw.operations.handler import Caller, HasReaders
from klaw.operations.operation import Noun, Operation, OperationError, Scope, told, without_none

if TYPE_CHECKING:
    from klaw.store.engine.database import Readers


@attrs.frozen
class Call:
    operation: Operation
    asked: Any


def read(operation: Operation, given: Mapping[str, Any], converter: Converter = REQUESTS) -> Call:
    """Check arguments as JSON has them. Raises OperationError: ``bad_args``, or the noun's own code for its fields."""
    try:
        return Call(operation, converter.read(dict(given), operation.arguments))
    except BadValue as error:
        problems = error.problems
    if all(each.path.partition(".")[0] == "fields" for each in problems):
        inner = [Problem(each.path.removeprefix("fields").lstrip(".") or "fields", each.message) for each in problems]
        raise OperationError(operation.noun.invalid, problems=inner)
    raise OperationError("bad_args", problems=problems)


def read_call(name: str, given: Mapping[str, Any]) -> Call:
    """An operation that a running server is asked for by its name. Raises OperationError: ``unknown_operation``, or as
    ``read``."""
    operation = operations().get(name)
    if operation is None or operation.alone or operation.scope is Scope.CHAT:
        close = difflib.get_close_matches(name, operations(), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise OperationError("unknown_operation", f"there is no such operation{meant}", field="operation")
    return read(operation, given)


async def perform(call: Call, caller: Caller, parts: HasReaders) -> dict[str, Any]:
    """Carry out an operation; the result is as JSON has it. When cancelled, what changes something may or may not be
    done. Raises OperationError: the caller may not, or it cannot be done; KlawError, trio.TooSlowError: a part failed
    or did not answer."""
    operation = call.operation
    caller = _allowed(call, caller)
    asked = await lengthened(parts.readers, caller.user, call.asked, any_turn=caller.operator)
    try:
        result = await operation.handler(asked, caller, parts)
    except InvalidValue as error:
        field, _, text = str(error).partition(": ")
        raise OperationError(operation.noun.invalid, text, field=field) from None
    except KlawError as error:
        if isinstance(error, OperationError) or not error.code:
            raise
        problems = getattr(error, "problems", ())
        raise OperationError(error.code, str(error), field=error.argument, problems=problems) from None
    answer: dict[str, Any] = plain(result)
    return answer


def plain(value: Any) -> Any:
    """A value as JSON has it: attrs classes become objects, tuples lists, enums their values."""
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.value if isinstance(value, enum.Enum) else value


def _allowed(call: Call, caller: Caller) -> Caller:
    """The caller as the user whose data it is about. Raises OperationError (``forbidden``)."""
    if call.operation.scope is Scope.CHAT and caller.chat is None:
        raise OperationError("bad_request", "this is asked in a chat")
    named = getattr(call.asked, "user", None)
    if not caller.operator and (call.operation.scope is Scope.OPERATOR or named not in (None, caller.user)):
        raise OperationError("forbidden", "only the operator may ask this; users see their own data")
    return attrs.evolve(caller, user=UserId(named)) if named else caller


# -- ids may be shortened: a beginning that only one has stands for it ------------------------------------------------

SHORTEST = 4
"""Characters; a shorter text is a name, or a slip."""
MOST_TOLD = 10
ID = re.compile(rf"[0-9][0-9a-f]{{{SHORTEST - 1},63}}")
"""The form of Klaw's ids, which names and numbers do not have."""
DIGEST = re.compile(rf"[0-9a-f]{{{SHORTEST},64}}")
"""The form of ids that follow from what they name."""


async def lengthened(readers: "Readers", user: UserId, asked: Any, *, any_turn: bool) -> Any:
    """The arguments with every id of the user whole (``any_turn``: turns of any user's); what is no beginning of one
    stays as it is, for the handler to refuse. Raises OperationError: ``ambiguous_id``; StorageError."""
    changed: dict[str, Any] = {}
    for field in attrs.fields(type(asked)):
        kind: str | None = field.metadata["argument"].id_of
        given = getattr(asked, field.name)
        if kind is None or given is None:
            continue
        of, _, text = given.rpartition(":")  # ``klaw forget`` names facts and people by ``fact:ID``
        looks_so = DIGEST if kind == "kb_document" else ID
        if (of and not stored.records.has_history(of)) or not looks_so.fullmatch(text):
            continue
        if kind == "task" or (kind == "message" and text.isdecimal()):  # a name; a number of a chat
            continue
        whose = None if any_turn and kind == "turn" else user
        found = await readers.run(stored.records.beginning_with, of or kind, whose, text, MOST_TOLD + 1)
        if len(found) > 1:
            more = " …" if len(found) > MOST_TOLD else ""
            several = f"several ids begin so: {', '.join(found[:MOST_TOLD])}{more}"
            raise OperationError("ambiguous_id", several, field=field.name)
        if found:
            changed[field.name] = given.removesuffix(text) + found[0]
    return attrs.evolve(asked, **changed) if changed else asked


# -- all operations, by the modules of this package: a new one is found by being there --------------------------------


IN_MODULE: Mapping[str, str] = {
    "chats": "variants",
    "fetch": "search",
    "health": "server",
    "import": "imports",
    "log": "server",
    "memory": "facts",
    "recall-replay": "recall",
    "receipt": "why",
    "remind": "runs",
    "snooze": "runs",
    "zone": "runs",
}
"""Words of nouns of which another module has all words: the command line imports only that module."""


@cache
def modules() -> tuple[str, ...]:
    """The package's modules and those of ``memory``, ordered by their last parts."""
    folders = {"": klaw.operations.__path__, "memory.": klaw.operations.memory.__path__}
    found = [each.name for prefix, path in folders.items() for each in pkgutil.iter_modules(path, prefix)]
    return tuple(sorted(set(found) - {"answers", "memory"}, key=lambda name: name.rpartition(".")[2]))


def nouns_of(module: str) -> list[Noun]:
    return [each for each in vars(import_module(module)).values() if isinstance(each, Noun)]


@cache
def nouns() -> tuple[Noun, ...]:
    return tuple(dict.fromkeys(noun for module in modules() for noun in nouns_of(f"klaw.operations.{module}")))


@cache
def operations() -> Mapping[str, Operation]:
    return {each.name: each for noun in nouns() for each in noun.operations}


# -- as tools that other programs call for their models (MCP) ---------------------------------------------------------


@cache
def tools() -> Mapping[str, Operation]:
    """The operations that are tools, by the names that models know."""
    return {each.mcp: each for each in operations().values() if each.mcp is not None}


def schema_of_tool(tool: Operation) -> dict[str, Any]:
    """The JSON schema of its arguments. There is no user among them: it is the user of the token."""
    fields = {_named(each): each for each, _ in _fields(tool.arguments)}
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
    fields = list(_fields(tool.arguments))
    known = {name: (wire_name(each), outer) for each, outer in fields for name in (wire_name(each), _named(each))}
    made: dict[str, Any] = {outer: {} for _, outer in fields if outer is not None}
    for argument, value in given.items():
        if argument not in known:
            raise OperationError("bad_args", f"is not known; known are {', '.join(known)}", field=argument)
        name, outer = known[argument]
        (made if outer is None else made[outer])[name] = value
    return tool, made


def _named(field: "attrs.Attribute[Any]") -> str:
    return ("argument" in field.metadata and told(field).in_tools) or wire_name(field)


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
