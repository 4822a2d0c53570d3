"""What ``klaw schedule``, ``klaw runs`` and ``klaw facts`` share: asking the server, and saying what was wrong."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from klaw.cli import admin_call
from klaw.cli.admin_call import NoServer, Refused, call, fail, line, print_json
from klaw.config.paths import Paths
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES

FIELDS = {
    "cron": "cron",
    "zone": "zone",
    "every": "every",
    "at": "at",
    "model": "model",
    "inject_into": "injectInto",
    "timeout": "timeout",
    "max_tokens": "maxTokens",
    "daily_tokens": "dailyTokens",
}
"""Options by their names in Python, and the fields of a task that they give."""

_TYPED = {field: f"--{option.replace('_', '-')}" for option, field in FIELDS.items()}
_TYPED |= {"message": "--message", "aliases": "--alias", "add_aliases": "--alias", "remove_aliases": "--no-alias"}
_WRONG_USAGE = frozenset({"bad_args", "bad_task", "bad_fact", "bad_person", "line_too_long"})


def ask(
    args: argparse.Namespace, command: str, wanted: dict[str, Any], show: Callable[[dict[str, Any]], list[str]]
) -> int:
    """Ask the server and print its answer: as it is with ``--json``, else in the lines that ``show`` makes of it.

    Returns the exit code: 0 done, 1 failed, 2 wrong usage.
    """
    try:
        answer = call(Paths.resolve(args.home), command, **{"user": args.user, **wanted})
    except NoServer as error:
        return fail(error)
    except Refused as error:
        wrong(_said(error))
        return 2 if error.code in _WRONG_USAGE else 1
    if args.json:
        print_json(answer)
    else:
        print("\n".join(show(answer)))
    return 0


def wrong(problems: list[str]) -> int:
    """Say what is wrong, a line each; returns the exit code for wrong usage."""
    for problem in problems:
        print(f"klaw: {line(problem)}", file=sys.stderr)
    return 2


def option_of(field: str) -> str:
    """How the command line names a field."""
    return _TYPED.get(field) or admin_call.option_of(field)


def _said(error: Refused) -> list[str]:
    if error.code == "line_too_long":
        return [f"--message: must have at most {MAX_TASK_MESSAGE_BYTES} bytes in UTF-8"]
    if error.problems:
        return [f"{option_of(problem.path)}: {problem.message}" for problem in error.problems]
    return [str(error)]
