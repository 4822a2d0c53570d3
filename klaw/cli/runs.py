"""``klaw runs``: what tasks and subagents did, listed, shown and cancelled by the running server."""

import argparse
import shlex
from typing import Any

from klaw.cli.admin_call import line
from klaw.cli.task_ask import ask
from klaw.cli.task_text import run_lines, run_table


def list_command(args: argparse.Namespace) -> int:
    """Lists runs, the newest first. 0 also when there are none; 1 failed, 2 wrong usage."""
    return list_runs(args, args.task, "runs", [f"--task={args.task}"] if args.task is not None else [])


def show_command(args: argparse.Namespace) -> int:
    """Prints one run. 0 done, 1 failed."""
    return ask(args, "run_show", {"run": args.id}, lambda answer: run_lines(answer["run"]))


def cancel_command(args: argparse.Namespace) -> int:
    """Ends a run that goes on or waits. 0 done, 1 failed."""
    return ask(args, "run_cancel", {"run": args.id}, lambda _: [f"{line(args.id)} is being ended"])


def list_runs(args: argparse.Namespace, task: str | None, command: str, given: list[str]) -> int:
    """List runs, and tell how to see more.

    Args:
        args: ``status``, ``limit``, ``before`` and what every command has.
        task: only this one's.
        command: as it is typed after ``klaw``.
        given: its arguments that name the task.
    """
    wanted = {"task": task, "status": args.status, "limit": args.limit, "before": args.before}

    def show(answer: dict[str, Any]) -> list[str]:
        if answer["next"] is None:
            return run_table(answer["runs"])
        options = {"home": args.home, "user": args.user, **wanted, "task": None, "before": answer["next"]}
        shown = [f"--{name}={value}" for name, value in options.items() if value is not None]
        more = shlex.join(["klaw", *command.split(), *given, *shown])
        return [*run_table(answer["runs"]), "", f"more: {line(more)}"]

    return ask(args, "runs", wanted, show)
