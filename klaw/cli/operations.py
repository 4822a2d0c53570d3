"""Commands made of operations: parsers, asking the server, and printing what it answers."""

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.arguments import add_home
from klaw.cli.fields import add_argument, again, fields, given_to, named
from klaw.cli.output import ProgressLine, say, warn, write_document, written
from klaw.config.paths import Paths
from klaw.config.run_as import enter
from klaw.operations.handler import OPERATOR
from klaw.operations.lines import ShownLines, with_commands
from klaw.operations.operation import Noun, Operation, OperationError, told
from klaw.operations.perform import Call, operations, perform, plain, read
from klaw.operations.uploads import PIECE_BYTES

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.registry import Registry
    from klaw.memory.embed.embedder import Embedder
    from klaw.memory.recall.recall import Recall
    from klaw.memory.search.search import MemorySearch
    from klaw.settings import ChangeResult
    from klaw.store.engine.database import Readers

A = TypeVar("A")
R = TypeVar("R")

_WRONG_USAGE = frozenset({"bad_args", "bad_task", "bad_fact", "bad_person"})
EX_DEGRADED = 3
REFRESH_S = 2.0
_CLEAR = "\x1b[H\x1b[J"


@attrs.frozen(kw_only=True)
class Here:
    """What a command that needs no server is given: the installation, and the terminal."""

    paths: Paths
    home: str | None
    progress: ProgressLine
    quiet: bool
    """Standard output belongs to the result."""
    say: Callable[..., None]
    """Prints lines, unless ``quiet``."""


def command(
    noun: Noun, name: str, arguments: type[A], **how: Any
) -> Callable[[Callable[[A, Here], R]], Callable[[A, Here], R]]:
    """Declare a function as an operation that needs no server; ``how``: see ``Operation``."""

    def declare(handler: Callable[[A, Here], R]) -> Callable[[A, Here], R]:
        noun.add(name, arguments, handler, **how)
        return handler

    return declare


def add(commands: Any, noun: Noun) -> Any:
    """Make a noun's command, with one for each of its operations. Returns the group of these, if any."""
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
    for field, _ in fields(operation.arguments):
        add_argument(parser, field)
    command = tuple(parser.prog.split())
    if operation.watch:
        parser.add_argument("--watch", action="store_true", help=f"refresh every {REFRESH_S:g} seconds, until Ctrl-C")
    if operation.document:
        parser.add_argument("--to", metavar="FILE", help="write it into this new file (default: standard output)")
    if operation.confirm is not None:
        parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=partial(run, operation), run_by_systemd=False, command=command)


def run(operation: Operation, arguments: argparse.Namespace) -> int:
    """Ask, and print the answer: as JSON with ``--json``, else as the operation shows it; with ``--watch`` repeatedly.
    Returns the exit code: 0 done, 1 failed, 2 wrong usage, 3 done and something is degraded."""
    paths = Paths.resolve(arguments.home)
    several = list(_each(operation, arguments))  # before root becomes who may not read them
    if not operation.noun.of_machine:
        enter(paths)
    if not getattr(arguments, "watch", False):
        return max(_run(operation, each, paths) for each in several)
    code = 0
    with suppress(KeyboardInterrupt):
        while not (code := _run(operation, arguments, paths, _CLEAR if sys.stdout.isatty() else "")):
            sys.stdout.flush()
            time.sleep(REFRESH_S)
    return code


def _run(operation: Operation, arguments: argparse.Namespace, paths: Paths, before: str = "") -> int:
    try:
        given = given_to(operation, arguments)
        if getattr(arguments, "file", None) is not None:
            sent = _upload(paths, arguments.file, given.get("user"))
            given = {"name": arguments.file_name, **given, "upload": sent}
        asked = read(operation, given)
        if operation.document:
            write_document(_texts(operation, arguments, paths, given), arguments.to)
            return 0
        if operation.noun.local:
            answer = _here(paths, asked, arguments.home, quiet=getattr(arguments, "json", False))
        else:
            answer = ask(paths, asked, given)
        done = operation.confirm is None or "dry_run" in given
        if not done and (arguments.yes or _agreed(operation, answer)):
            answer, done = ask(paths, asked, {**given, "dry_run": False}), True
    except (OperationError, RefusedByServer) as error:
        for problem in named(operation, error.problems) or [str(error)]:
            warn(problem)
        return 2 if error.code in _WRONG_USAGE else 1
    shown = operation.show(answer)
    shown = shown if isinstance(shown, ShownLines) else ShownLines(shown)
    lines, notes = with_commands(shown, partial(again, operation, arguments))
    if getattr(arguments, "json", False):
        print(json.dumps(answer, ensure_ascii=False, indent=2))
    elif done:
        for note in notes:
            warn(note)
        print(before, end="")
        say(*lines)
    if not (done and shown.found):
        return 1
    return EX_DEGRADED if shown.degraded else 0


def _here(paths: Paths, asked: Call, home: str | None, *, quiet: bool) -> Any:
    progress = ProgressLine(sys.stderr if quiet else sys.stdout)
    tell = (lambda *_lines: None) if quiet else say
    try:
        here = Here(paths=paths, home=home, progress=progress, quiet=quiet, say=tell)
        return plain(asked.operation.handler(asked.asked, here))
    finally:
        progress.finish()


def ask(paths: Paths, asked: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the server answers, or without one its database. Raises OperationError, RefusedByServer, NoServer."""
    operation = asked.operation
    if operation.alone:
        if not paths.database.is_file():
            raise OperationError("no_database", f"there is no database in {paths.data_dir}")
        return _over_database(paths, asked)
    try:
        return call(paths, operation.name, timeout_s=operation.deadline_s + 5, **given)
    except NoServer as error:
        if not (operation.bare and error.absent) and not (operation.offline and paths.database.is_file()):
            raise
    return _over_database(paths, asked)


def ask_for(paths: Paths, name: str, **given: Any) -> dict[str, Any]:
    """``ask`` for an operation by its name."""
    return ask(paths, read(operations()[name], {key: each for key, each in given.items() if each is not None}), given)


def _texts(operation: Operation, arguments: argparse.Namespace, paths: Paths, given: dict[str, Any]) -> Iterator[str]:
    asked = {**given, "format": "json"} if getattr(arguments, "json", False) else given
    while True:
        answer = ask(paths, read(operation, asked), asked)
        yield answer["text"]
        if answer["next"] is None:
            return
        asked = {**asked, "after": answer["next"]}


def _agreed(operation: Operation, answer: dict[str, Any]) -> bool:
    if not sys.stdin.isatty():
        print("klaw: nothing was changed: add --yes to do it, or --dry-run to see what would happen", file=sys.stderr)
        return False
    lines, _ = with_commands(operation.show(answer), lambda **_changed: "")
    print("\n".join(written(lines)), file=sys.stderr)
    print(f"{operation.confirm} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "да")


def _each(operation: Operation, arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The command once for each file that it names, opened (``file``) with the rights of the user who gave the command.
    Raises OperationError."""
    field = next((each.name for each in attrs.fields(operation.arguments) if told(each).upload), None)
    values = getattr(arguments, f"asked_{field}", None)
    if not values:
        yield arguments
    for value in values or ():
        yield argparse.Namespace(**{**vars(arguments), **_named_file(f"asked_{field}", value)})


def _named_file(name: str, value: str) -> dict[str, object]:
    path = Path(value)
    if "://" in value or not os.path.lexists(path):
        return {name: value}
    if path.is_dir():
        return {name: str(path.resolve())}
    try:
        return {name: None, "file": path.open("rb"), "file_name": path.name}
    except OSError as error:
        why = f"{value} cannot be read: {error.strerror or type(error).__name__}"
        raise OperationError("bad_args", why) from None


def _upload(paths: Paths, file: BinaryIO, user: str | None) -> str:
    """Upload a file that the server may not be able to read; returns the upload's id. Raises NoServer, OSError."""
    upload, size = None, 0
    with file:
        while (piece := file.read(PIECE_BYTES)) or upload is None:
            data = base64.b64encode(piece).decode("ascii")
            answer = call(paths, "kb_upload", upload=upload, offset=size, data=data, user=user)
            upload, size = str(answer["upload"]), int(answer["size"])
    return upload


def _over_database(paths: Paths, asked: Call) -> dict[str, Any]:
    import trio

    from klaw.actor import log
    from klaw.store.store import offline_readers

    async def over_the_database() -> dict[str, Any]:
        if asked.operation.bare:
            return await perform(asked, OPERATOR, OfflineParts(None, paths))
        async with offline_readers(paths.database) as readers:
            return await perform(asked, OPERATOR, OfflineParts(readers, paths))

    log.configure("error", "auto")
    return trio.run(over_the_database)


class OfflineParts:
    """``DatabaseParts``, each made when an operation takes it. They raise ConfigError."""

    budget = None

    def __init__(self, readers: "Readers | None", paths: Paths) -> None:
        """``readers`` None: for a ``bare`` operation."""
        from klaw.actor.clock import SystemClock

        self.readers, self.paths, self.clock = cast("Readers", readers), paths, SystemClock()
        self.environ: Mapping[str, str] = {}

    @cached_property
    def config(self) -> "EngineConfig":
        from klaw.config.load import load

        return load(self.paths.config_file)[0]

    async def registry(self) -> "Registry":
        from klaw.llm.registry import Registry
        from klaw.store.engine import meta

        registry = Registry(self.config, self.clock)
        if self.readers is not None:
            await registry.restore(await self.readers.run(meta.with_prefix, meta.MODELS))
        return registry

    async def change(self, changes: Mapping[str, Any]) -> "ChangeResult":
        from klaw.config.edit import change_file
        from klaw.settings import ChangeResult

        draft = change_file(self.paths.config_file, changes)
        changed = tuple(changes) if draft.raw != draft.file.raw else ()
        file, warnings = str(draft.file.path), tuple(draft.warnings)
        return ChangeResult(file=file, changed=changed, restart=(), warnings=warnings, in_effect=False)

    @cached_property
    def embedder(self) -> "Embedder":
        from klaw.memory.embed.embedder import OfflineEmbedder

        paths, settings, remote = self.paths, self.config.embedding, None
        if settings.provider is not None:
            from klaw.llm.client import without_server
            from klaw.memory.embed.remote import remote_of

            remote = remote_of(self.config, without_server(self.config, self.clock), paths.models_dir, self.clock)
        folder = settings.path or paths.models_dir / settings.model
        return OfflineEmbedder(self.readers, self.config, folder, self.clock, remote)

    @cached_property
    def recall(self) -> "Recall":
        from klaw.memory.recall.recall import Recall

        return Recall(self.readers, self.embedder, self.config.auto_rag, self.clock)

    @cached_property
    def search(self) -> "MemorySearch":
        from klaw.actor.metrics import Metrics
        from klaw.memory.search.search import MemorySearch
        from klaw.memory.topics.search import TopicMetrics, TopicSearch

        topics = TopicSearch(self.readers, self.embedder, self.clock, TopicMetrics(Metrics()))
        return MemorySearch(self.readers, self.embedder, self.clock, topics)
