"""``klaw schedule``: a user's tasks, made, changed and listed by the running server."""

import argparse
import sys
from pathlib import Path
from typing import Any

from klaw.cli.admin_call import line
from klaw.cli.runs import list_runs
from klaw.cli.task_ask import FIELDS, ask, option_of, wrong
from klaw.cli.task_text import run_table, task_lines, task_table
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES

_CLEARED = {option.replace("_", "-"): field for option, field in FIELDS.items()}


class _WrongOption(Exception):
    """An option cannot be sent; the text names it."""


def list_command(args: argparse.Namespace) -> int:
    """Prints the tasks. 0 also when there are none; 1 when no server runs."""
    return ask(args, "schedule_list", {}, lambda answer: task_table(answer["tasks"]))


def add_command(args: argparse.Namespace) -> int:
    """Makes a task. 0 made, 1 failed, 2 wrong fields."""
    try:
        fields = {"name": args.name, **_fields(args)}
    except _WrongOption as error:
        return wrong([str(error)])
    if args.disabled:
        fields["enabled"] = False
    return ask(args, "schedule_add", {"fields": fields}, _task)


def edit_command(args: argparse.Namespace) -> int:
    """Changes what is given. 0 done, 1 failed, 2 wrong fields."""
    try:
        fields = _fields(args)
    except _WrongOption as error:
        return wrong([str(error)])
    if args.clear:
        fields["clear"] = [_CLEARED.get(name, name) for name in args.clear]
    if not fields:
        return wrong(["give what is to be changed, for instance --message or --cron"])
    return ask(args, "schedule_edit", {"name": args.name, "fields": fields}, _task)


def remove_command(args: argparse.Namespace) -> int:
    """Removes a task. 0 removed, 1 failed."""
    return ask(args, "schedule_remove", {"name": args.name}, lambda _: [f"removed {line(args.name)}; its runs stay"])


def enable_command(args: argparse.Namespace) -> int:
    """Switches a task on. 0 done, 1 failed, 2 when its time is over."""
    return ask(args, "schedule_enable", {"name": args.name, "enabled": True, "now": args.now}, _task)


def disable_command(args: argparse.Namespace) -> int:
    """Switches a task off. 0 done, 1 failed."""
    return ask(args, "schedule_enable", {"name": args.name, "enabled": False}, _task)


def run_command(args: argparse.Namespace) -> int:
    """Starts a run now, and does not wait for its end. 0 started, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        run = answer["run"]
        return [*run_table([run]), "", f"its result: klaw runs show {run['id']}"]

    return ask(args, "schedule_run", {"name": args.name}, show)


def runs_command(args: argparse.Namespace) -> int:
    """Lists the runs of one task, the newest first. 0 also when there are none."""
    return list_runs(args, args.name, "schedule runs", [args.name])


def _task(answer: dict[str, Any]) -> list[str]:
    return task_lines(answer["task"])


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that the options give. Raises _WrongOption."""
    fields = {field: value for option, field in FIELDS.items() if (value := getattr(args, option)) is not None}
    # To the server an empty text is a field that is not given, because models fill what they do not use with it.
    for field, value in fields.items():
        if not value.strip():
            raise _WrongOption(f"{option_of(field)}: must not be empty")
    if args.message is not None:
        fields["message"] = read_message(args.message)
    if args.now:
        fields["now"] = True
    return fields


def read_message(given: str) -> str:
    """The text of ``--message``: itself, that of standard input for ``-``, or that of a file for ``@FILE``.

    Raises:
        _WrongOption: it cannot be read, is empty, or too long.
    """
    if given == "-":
        raw = sys.stdin.buffer.read(MAX_TASK_MESSAGE_BYTES + 1)
    elif given.startswith("@"):
        raw = _of_file(Path(given[1:]))
    else:
        raw = given.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_TASK_MESSAGE_BYTES:
        raise _WrongOption(f"--message: must have at most {MAX_TASK_MESSAGE_BYTES} bytes in UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _WrongOption("--message: must be valid UTF-8") from None
    if not text.strip():
        raise _WrongOption("--message: must say what is to be done, and not be empty")
    return text


def _of_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TASK_MESSAGE_BYTES + 1)
    except OSError as error:
        raise _WrongOption(f"--message: {path} cannot be read: {error.strerror or type(error).__name__}") from None
