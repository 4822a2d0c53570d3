"""The arguments of an operation on the command line: as options, as what was given, as an error names them."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs

from klaw.convert import wire_name
from klaw.errors import Problem
from klaw.operations.operation import Operation, OperationError, told, without_none


def fields(cls: type[Any], path: str = "") -> Iterator[tuple["attrs.Attribute[Any]", str]]:
    """The fields of a class of arguments with their paths; those of a class within it stand beside them."""
    for field in attrs.fields(cls):
        inner = without_none(field.type)
        if attrs.has(inner):
            yield from fields(inner, f"{path}{wire_name(field)}.")
        elif not told(field).hidden:
            yield field, f"{path}{wire_name(field)}"


def add_argument(parser: argparse.ArgumentParser, field: "attrs.Attribute[Any]") -> None:
    about, kind = told(field), without_none(field.type)
    sources = ["- reads it from standard input"] if about.stdin else []
    sources += ["@FILE from a file"] if about.file else []
    how: dict[str, Any] = {"help": "; ".join(filter(None, [about.help, ", ".join(sources)]))}
    if kind is bool:
        how["action"] = "store_false" if field.default is True and about.option else "store_true"
        parser.add_argument(typed(field), dest=_dest(field), default=argparse.SUPPRESS, **how)
        return
    if get_origin(kind) is Literal and not about.positional:  # argparse would check the default of a positional, too
        how["choices"] = get_args(kind)
    else:
        how["metavar"] = about.metavar or field.name.upper()
    if get_origin(kind) is tuple:
        many = {"nargs": "+"} if field.default is attrs.NOTHING else {"nargs": "*", "default": argparse.SUPPRESS}
        several = {"nargs": "+", "action": "extend"} if about.words else {"action": "append"}
        how |= many if about.positional else several
    if not about.positional:
        parser.add_argument(typed(field), dest=_dest(field), default=argparse.SUPPRESS, **how)
        if about.old_option is not None:
            hidden = {**how, "help": argparse.SUPPRESS}
            parser.add_argument(about.old_option, dest=_dest(field), default=argparse.SUPPRESS, **hidden)
        return
    if about.upload or about.words:
        how |= {"nargs": "+"}
    elif field.default is not attrs.NOTHING and "nargs" not in how:
        how |= {"nargs": "?", "default": argparse.SUPPRESS}
    parser.add_argument(_dest(field), **how)


def _dest(field: "attrs.Attribute[Any]") -> str:
    """Where argparse keeps it, apart from what every command has."""
    return f"asked_{field.name}"


def typed(field: "attrs.Attribute[Any]") -> str:
    about = told(field)
    if about.positional:
        return about.metavar or field.name.upper()
    return about.option or f"--{field.name.replace('_', '-')}"


def again(operation: Operation, arguments: argparse.Namespace, **changed: Any) -> str:
    """The command as it was given, but for some arguments."""
    words, texts = [], []
    values = {**vars(arguments), **{f"asked_{name}": value for name, value in changed.items()}}
    for field, _ in fields(operation.arguments):
        value = _joined(field, values.get(_dest(field)))
        if value is None or value is False:
            continue
        if told(field).positional:
            texts.append(str(value))
        elif value is True:
            words.append(typed(field))
        else:
            words += [f"{typed(field)}={each}" for each in (value if isinstance(value, list) else [value])]
    home = [f"--home={arguments.home}"] if arguments.home is not None else []
    guard = ["--"] if any(each.startswith("-") for each in texts) else []
    return shlex.join([*values["command"], *home, *words, *guard, *texts])


def given_to(operation: Operation, arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments as the server gets them. Raises OperationError."""
    given: dict[str, Any] = {
        field.name: {} for field in attrs.fields(operation.arguments) if attrs.has(without_none(field.type))
    }
    for field, path in fields(operation.arguments):
        value = _joined(field, getattr(arguments, _dest(field), None))
        if value is None:
            continue
        outer, dot, name = path.rpartition(".")
        target = given[outer] if dot else given
        target[name] = [_value(field, each) for each in value] if isinstance(value, list) else _value(field, value)
    return given


def _joined(field: "attrs.Attribute[Any]", value: Any) -> Any:
    """Several words are one text, so that nobody has to quote it."""
    is_text = told(field).words and without_none(field.type) is str
    return " ".join(value) if is_text and isinstance(value, list) else value


def _value(field: "attrs.Attribute[Any]", value: Any) -> Any:
    """A number, or a text in UTF-8, read from standard input or a file if that is meant. Raises OperationError."""
    if not isinstance(value, str):
        return value
    kind, about = without_none(field.type), told(field)
    if value and int in (kind, *map(without_none, get_args(kind))) and get_origin(kind) is not Literal:
        if not re.fullmatch(r"-?[0-9]{1,15}", value):
            raise OperationError("bad_args", "must be a whole number", field=field.name)
        return int(value)
    raw = value.encode("utf-8", "surrogateescape")
    if about.stdin and value == "-":
        raw = sys.stdin.buffer.read(about.most_bytes + 1)
    elif about.file and value.startswith("@"):
        raw = _of_file(field, value[1:])
    if len(raw) > about.most_bytes:
        raise OperationError("bad_args", f"must have at most {about.most_bytes} bytes in UTF-8", field=field.name)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OperationError("bad_args", "must be valid UTF-8", field=field.name) from None


def _of_file(field: "attrs.Attribute[Any]", path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(told(field).most_bytes + 1)
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror or type(error).__name__}"
        raise OperationError("bad_args", why, field=field.name) from None


def named(operation: Operation, problems: Sequence[Problem]) -> list[str]:
    """What is wrong, with the arguments named as the command line names them."""
    known = [(typed(field), field.name, path) for field, path in fields(operation.arguments)]
    names = {name: option for option, own, path in known for name in (path, path.rpartition(".")[2], own)}
    told = []
    for problem in problems:
        field, bracket, rest = problem.path.partition("[")
        if problem.path == "fields":
            changeable = [option for option, _, path in known if path.startswith("fields.")]
            told.append(f"give at least one of {', '.join(changeable)}")
        elif field:
            told.append(f"{names.get(field, field)}{bracket}{rest}: {problem.message}")
        else:
            told.append(problem.message)
    return told
