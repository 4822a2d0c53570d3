"""Commands made of operations: their options, asking the server, and printing what it answers.

What can be read without a server is carried out here, over the database.
"""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import attrs

from klaw.cli import document, upload
from klaw.cli.admin_call import NoServer, Refused, call
from klaw.cli.arguments import Words, add_home
from klaw.cli.output import ProgressLine, say, warn, written
from klaw.config.owner import enter
from klaw.config.paths import Paths
from klaw.convert import wire_name
from klaw.errors import Problem
from klaw.operations.operation import Noun, Operation, OperationError, Shown, supplied, told, without_none
from klaw.operations.perform import OPERATOR, Call, perform, plain, read

if TYPE_CHECKING:
    from klaw.actor.clock import Clock
    from klaw.config.schema import EngineConfig
    from klaw.memory.embed.embedder import Embedder

_WRONG_USAGE = frozenset({"bad_args", "bad_task", "bad_fact", "bad_person", "line_too_long"})
EX_DEGRADED = 3
REFRESH_S = 2.0
_CLEAR = "\x1b[H\x1b[J"


def add(commands: Any, noun: Noun) -> Any:
    """Make the command of a noun with one for each of its operations. Returns the group of these, if there is one."""
    made = [each for each in noun.operations if each.cli is not None]
    own = next((each for each in made if not each.cli), None)
    if not made:
        return None
    if noun.word in commands.choices:  # of another module, with words of its own
        return _add_words(commands.choices[noun.word].group, made)
    parser = commands.add_parser(noun.word, help=noun.help, description=own.help if own else noun.help)
    if own is not None:
        _fill(parser, own)
    else:
        add_home(parser)
        parser.set_defaults(run=lambda _arguments: parser.print_help() or 2)
    return _add_words(parser.new_group(), made, own) if own is None or len(made) > 1 else None


def _add_words(group: Any, made: Sequence[Operation], own: Operation | None = None) -> Any:
    for each in made:
        if each.cli:
            first = each.help.partition(". ")[0].rstrip(".")
            text = f"{first[0].lower()}{first[1:]}"
            inherited = {"argument_default": argparse.SUPPRESS} if own else {}
            _fill(group.add_parser(each.cli, help=text, description=each.help, **inherited), each)
    return group


def _fill(parser: argparse.ArgumentParser, operation: Operation) -> None:
    add_home(parser)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    for field, _ in _fields(operation.arguments):
        _add_argument(parser, field)
    command = tuple(parser.prog.split())
    if operation.watch:
        parser.add_argument("--watch", action="store_true", help=f"refresh every {REFRESH_S:g} seconds, until Ctrl-C")
    if operation.document:
        parser.add_argument("--to", metavar="FILE", help="write it into this new file (default: standard output)")
    if operation.confirm is not None:
        parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=partial(run, operation), run_by_systemd=False, command=command)


def _fields(cls: type[Any], path: str = "") -> Iterator[tuple["attrs.Attribute[Any]", str]]:
    """The fields of a class of arguments with their paths; those of a class within it stand beside them."""
    for field in attrs.fields(cls):
        inner = without_none(field.type)
        if attrs.has(inner):
            yield from _fields(inner, f"{path}{wire_name(field)}.")
        elif not told(field).hidden:
            yield field, f"{path}{wire_name(field)}"


def _add_argument(parser: argparse.ArgumentParser, field: "attrs.Attribute[Any]") -> None:
    about, kind = told(field), without_none(field.type)
    sources = [
        *(["- reads it from standard input"] if about.stdin else []),
        *(["@FILE from a file"] if about.file else []),
    ]
    how: dict[str, Any] = {"help": "; ".join([about.help, *([", ".join(sources)] if sources else [])])}
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
        return
    if about.upload:
        how |= {"nargs": "+"}
    elif about.words:
        how |= {"nargs": "+", "action": Words}
    elif field.default is not attrs.NOTHING and "nargs" not in how:
        how |= {"nargs": "?", "default": argparse.SUPPRESS}
    parser.add_argument(_dest(field), **how)


def _dest(field: "attrs.Attribute[Any]") -> str:
    """Where argparse keeps it: apart from what every command has, such as what carries it out."""
    return f"asked_{field.name}"


def typed(field: "attrs.Attribute[Any]") -> str:
    """How the command line names an argument."""
    about = told(field)
    if about.positional:
        return about.metavar or field.name.upper()
    return about.option or f"--{field.name.replace('_', '-')}"


# -- one command ------------------------------------------------------------------------------------------------------


def run(operation: Operation, arguments: argparse.Namespace) -> int:
    """Ask, and print the answer: as it is with ``--json``, else as the operation shows it. With ``--watch`` again and
    again, until Ctrl-C or an error.

    Returns the exit code: 0 done, 1 failed, 2 wrong usage, 3 done and something is degraded.
    """
    paths = Paths.resolve(arguments.home)
    several = list(upload.each(operation, arguments))  # before root becomes who may not read them
    if not operation.noun.of_machine:
        enter(paths)
    if not getattr(arguments, "watch", False):
        return max(_run(operation, each, paths) for each in several)
    try:
        while not (code := _run(operation, arguments, paths, _CLEAR if sys.stdout.isatty() else "")):
            sys.stdout.flush()
            time.sleep(REFRESH_S)
    except KeyboardInterrupt:
        return 0
    return code


def _run(operation: Operation, arguments: argparse.Namespace, paths: Paths, before: str = "") -> int:
    try:
        given = _given(operation, arguments)
        if getattr(arguments, "file", None) is not None:
            sent = upload.send(paths, arguments.file, given.get("user"))
            given = {"name": arguments.file_name, **given, "upload": sent}
        asked = read(operation, given)
        if operation.document:
            document.write(_texts(operation, arguments, paths, given), arguments.to)
            return 0
        if operation.noun.local:
            answer = _here(paths, asked, arguments.home, quiet=getattr(arguments, "json", False))
        else:
            answer = ask(paths, asked, given)
        done = operation.confirm is None or "dry_run" in given
        if not done and (arguments.yes or _agreed(operation, answer)):
            answer, done = ask(paths, asked, {**given, "dry_run": False}), True
    except (OperationError, Refused) as error:
        for problem in _said(operation, error):
            warn(problem)
        return 2 if error.code in _WRONG_USAGE else 1
    known = {"answer": answer, "again": partial(again, operation, arguments)}
    shown = operation.show(**supplied(operation.show, known))
    shown = shown if isinstance(shown, Shown) else Shown(shown)
    if getattr(arguments, "json", False):
        print(json.dumps(answer, ensure_ascii=False, indent=2))
    elif done:
        for note in shown.notes:
            warn(note)
        print(before, end="")
        say(*shown.lines)
    if not (done and shown.found):
        return 1
    return EX_DEGRADED if shown.degraded else 0


def _here(paths: Paths, asked: Call, home: str | None, *, quiet: bool) -> Any:
    """Carry out what needs no server. ``quiet``: standard output belongs to the result."""
    progress, handler = ProgressLine(sys.stderr if quiet else sys.stdout), asked.operation.handler
    tell = (lambda *_lines: None) if quiet else say
    known = {"asked": asked.asked, "paths": paths, "home": home, "quiet": quiet}
    available = {**known, "progress": progress, "say": tell, "warn": warn}
    try:
        return plain(handler(**supplied(handler, available)))
    finally:
        progress.finish()


def ask(paths: Paths, asked: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a server answers; without one what its database says. Raises OperationError, Refused, NoServer."""
    operation = asked.operation
    if operation.alone:
        if not paths.database.is_file():
            raise OperationError("no_database", f"there is no database in {paths.data_dir}")
        return _alone(paths, asked)
    try:
        return call(paths, operation.name, timeout_s=operation.deadline_s + 5, **given)
    except NoServer:
        if not operation.offline or not paths.database.is_file():
            raise
    return _alone(paths, asked)


def _texts(operation: Operation, arguments: argparse.Namespace, paths: Paths, given: dict[str, Any]) -> Iterator[str]:
    """The parts of a document. Raises OperationError, Refused, NoServer."""
    asked = {**given, "format": "json"} if getattr(arguments, "json", False) else given
    while True:
        answer = ask(paths, read(operation, asked), asked)
        yield answer["text"]
        if answer["next"] is None:
            return
        asked = {**asked, "after": answer["next"]}


def _agreed(operation: Operation, answer: dict[str, Any]) -> bool:
    """Whether the person agrees to what would be done."""
    if not sys.stdin.isatty():
        print("klaw: nothing was changed; say --yes to do it, or --dry-run to see what would happen", file=sys.stderr)
        return False
    print("\n".join(written(operation.show(answer=answer))), file=sys.stderr)  # type: ignore[arg-type]  # no Shown
    print(f"{operation.confirm} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "да")


def again(operation: Operation, arguments: argparse.Namespace, **changed: Any) -> str:
    """The command as it was given, but for some arguments."""
    words, texts = [], []
    values = {**vars(arguments), **{f"asked_{name}": value for name, value in changed.items()}}
    for field, _ in _fields(operation.arguments):
        value = values.get(_dest(field))
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


def _given(operation: Operation, arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments as the server gets them. Raises OperationError."""
    given: dict[str, Any] = {
        field.name: {} for field in attrs.fields(operation.arguments) if attrs.has(without_none(field.type))
    }
    for field, path in _fields(operation.arguments):
        value = getattr(arguments, _dest(field), None)
        if value is None:
            continue
        outer, dot, name = path.rpartition(".")
        target = given[outer] if dot else given
        target[name] = [_value(field, each) for each in value] if isinstance(value, list) else _value(field, value)
    return given


def _value(field: "attrs.Attribute[Any]", value: Any) -> Any:
    """A number, or a text in UTF-8, read from standard input or a file if that is meant. Raises OperationError."""
    if not isinstance(value, str):
        return value
    kind, about = without_none(field.type), told(field)
    if int in (kind, *map(without_none, get_args(kind))) and get_origin(kind) is not Literal:
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


def _said(operation: Operation, error: OperationError | Refused) -> list[str]:
    """What is wrong, with the arguments named as the command line names them."""
    return [_problem(operation, each) for each in error.problems] or [str(error)]


def _problem(operation: Operation, problem: Problem) -> str:
    names = {
        name: typed(field)
        for field, path in _fields(operation.arguments)
        for name in (path, path.rpartition(".")[2], field.name)
    }
    if problem.path == "fields":
        changeable = [typed(field) for field, path in _fields(operation.arguments) if path.startswith("fields.")]
        return f"give at least one of {', '.join(changeable)}"
    field, bracket, rest = problem.path.partition("[")
    return f"{names.get(field, field)}{bracket}{rest}: {problem.message}" if field else problem.message


def _alone(paths: Paths, asked: Call) -> dict[str, Any]:
    """What the server would answer. Raises OperationError, StorageError, ConfigError."""
    import trio

    from klaw.actor import log
    from klaw.store.store import offline_readers

    async def over_the_database() -> dict[str, Any]:
        async with offline_readers(paths.database) as readers:
            return await perform(asked, OPERATOR, _Parts(readers=readers, paths=paths, budget=None))

    log.configure("error", "auto")
    return trio.run(over_the_database)


class _Parts(dict[str, Any]):
    """Of no server, made when an operation asks for them. Raises ConfigError."""

    def __missing__(self, name: str) -> Any:
        made = self[name] = self._make(name)
        return made

    def _make(self, name: str) -> Any:
        from klaw.actor.clock import SystemClock
        from klaw.actor.metrics import Metrics
        from klaw.config.load import load
        from klaw.memory.recall.recall import Recall
        from klaw.memory.search.search import MemorySearch
        from klaw.memory.topics.search import TopicMetrics, TopicSearch

        readers, paths = self["readers"], self["paths"]
        match name:
            case "clock":
                return SystemClock()
            case "config":
                return load(paths.config_file)[0]
            case "embedder":
                return self._embedder(self["config"], self["clock"])
            case "recall":
                return Recall(readers, self["embedder"], self["config"].auto_rag, self["clock"])
            case "search":
                topics = TopicSearch(readers, self["embedder"], self["clock"], TopicMetrics(Metrics()))
                return MemorySearch(readers, self["embedder"], self["clock"], topics)
        raise KeyError(name)

    def _embedder(self, config: "EngineConfig", clock: "Clock") -> "Embedder":
        from klaw.memory.embed.offline import OfflineEmbedder

        paths, settings, remote = self["paths"], config.embedding, None
        if settings.provider is not None:
            from klaw.llm.client import without_server
            from klaw.memory.embed.remote import remote_of

            remote = remote_of(config, without_server(config, clock), paths.models_dir, clock)
        folder = settings.path or paths.models_dir / settings.model
        return OfflineEmbedder(self["readers"], config, folder, clock, remote)
