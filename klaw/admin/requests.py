"""What the admin socket understands: one attrs class for each command, structured strictly. Pure.

A request that exists is valid. Errors name the field and never quote its value.
"""

import difflib
import json
import operator
from functools import cache, partial
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias, TypeVar, get_args

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from klaw.domain.text import has_forbidden
from klaw.operations.operation import OperationError
from klaw.operations.perform import Call, read
from klaw.operations.table import operations

MAX_LINE_BYTES = 65_536
"""Longest request, without its line end."""
MAX_NAME = 128
"""Longest text in a request: a chat id has at most 97 characters."""

ReindexAction = Literal["start", "status", "cancel"]


@attrs.frozen(kw_only=True)
class Reindex:
    """Make the database anew while the server runs: start it, ask how far it is, or stop it."""

    command: ClassVar[str] = "reindex"
    deadline_s: ClassVar[float] = 10.0
    action: ReindexAction = "status"
    accept_differences: bool = False
    """With ``start``: swap although the new database differs."""
    embed_again: bool = False
    """With ``start``: take over no vector."""


Request: TypeAlias = Reindex

COMMANDS: dict[str, type[Request]] = {Reindex.command: Reindex}


BadRequest = OperationError


def parse(line: bytes) -> Request | Call:
    """Read one request: ``{"command": NAME, "args": {...}}``.

    Raises:
        OperationError: ``bad_json``, ``bad_request``, ``unknown_command``, ``bad_args``, or what is wrong with fields.
    """
    tree = _tree(line)
    unknown = sorted(set(tree) - {"command", "args"})
    if unknown:
        raise BadRequest("bad_request", f"a request has the fields command and args only, and this has {len(tree)}")
    name, args = tree.get("command"), tree.get("args", {})
    if not isinstance(name, str):
        raise BadRequest("bad_request", "command: must be a text" if "command" in tree else "command: is required")
    known = {name: each for name, each in operations().items() if not each.alone}
    if name not in COMMANDS and name not in known:
        listed = ", ".join([*COMMANDS, *known])
        raise BadRequest("unknown_command", f"command: there is no such command; known are {listed}")
    if not isinstance(args, dict):
        raise BadRequest("bad_request", "args: must be an object")
    if name in known:
        return read(known[name], args)
    return parse_args(COMMANDS[name], args)


R = TypeVar("R", bound=Request)


def parse_args(kind: type[R], args: dict[str, Any]) -> R:
    """Read a request's arguments. Raises BadRequest (``bad_args``)."""
    try:
        return _converter().structure(args, kind)
    except ClassValidationError as error:
        raise BadRequest("bad_args", _first_problem(error, kind)) from None


def _tree(line: bytes) -> dict[str, Any]:
    try:
        tree = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        # From None: the error's text quotes the line.
        raise BadRequest("bad_json", "a request is one JSON object in one line of UTF-8") from None
    if not isinstance(tree, dict):
        raise BadRequest("bad_request", "a request is a JSON object")
    return tree


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _WrongValue(Exception):
    """What a field must be."""


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(str, _read_name)
    converter.register_structure_hook(bool, _read_bool)
    for words in (ReindexAction,):
        converter.register_structure_hook_func(partial(operator.eq, words), partial(_read_word, get_args(words)))
    converter.register_structure_hook_factory(
        attrs.has, lambda cls: make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)
    )
    return converter


def _read_name(value: object, _: object) -> str:
    if not isinstance(value, str):
        raise _WrongValue("must be a text")
    if not 1 <= len(value) <= MAX_NAME:
        raise _WrongValue(f"must have 1 to {MAX_NAME} characters")
    if has_forbidden(value):
        raise _WrongValue("must not hold NUL or lone surrogates")
    return value


def _read_word(words: tuple[str, ...], value: object, _: object) -> str:
    if not isinstance(value, str) or value not in words:
        raise _WrongValue(f"must be one of {', '.join(words)}")
    return value


def _read_bool(value: object, _: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue("must be true or false")
    return value


def _first_problem(error: ClassValidationError, cls: type[Any]) -> str:
    inside, about_itself = error.group_exceptions()
    for problem, note in inside:
        if isinstance(problem, _WrongValue):
            return f"args.{note.name}: {problem}"
        if isinstance(problem, KeyError):
            return f"args.{note.name}: is required"
    for problem in about_itself:
        if isinstance(problem, ForbiddenExtraKeysError):
            return _unknown_field(problem, cls)
    raise error


def _unknown_field(problem: ForbiddenExtraKeysError, cls: type[Any]) -> str:
    known = [field.name for field in attrs.fields(cls)]
    close = [name for given in sorted(problem.extra_fields) for name in difflib.get_close_matches(given, known, n=1)]
    accepts = f"takes {', '.join(known)}" if known else "takes none"
    return f"args: unknown field; this command {accepts}" + (f"; did you mean {close[0]}?" if close else "")
