"""``klaw config check|show|schema``: print what the configuration file means. Needs no running server."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from klaw.config.paths import Paths
from klaw.errors import ConfigError, Problem


def check_command(args: argparse.Namespace) -> int:
    """Check the configuration file: every problem and warning on a line of its own; 1 when there is a problem."""
    from klaw.config.load import ConfigWarning, load
    from klaw.config.unresolved import unresolved_secrets

    file: Path | None = None
    problems: tuple[Problem, ...] = ()
    warnings: list[ConfigWarning] = []
    try:
        file = Paths.resolve(args.home).config_file
        config, warnings = load(file)
        # Not wrong: the service may have what this shell has not.
        warnings += [
            ConfigWarning(path=missing.path, message=f"{missing.message} (the server needs it, this command does not)")
            for missing in unresolved_secrets(config)
        ]
    except ConfigError as exc:
        problems = exc.problems
    exists = file is not None and file.exists()
    if args.json:
        _print_json(
            {
                "ok": not problems,
                "file": str(file) if file else None,
                "exists": exists,
                "problems": [{"path": problem.path, "message": problem.message} for problem in problems],
                "warnings": [{"path": warning.path, "message": warning.message} for warning in warnings],
            }
        )
    else:
        for problem in problems:
            print(f"error: {problem}")
        for warning in warnings:
            print(f"warning: {warning}")
        if not problems:
            print(f"ok: {file}" + ("" if exists else " (no such file; the defaults apply)"))
    return 1 if problems else 0


def show_command(args: argparse.Namespace) -> int:
    """Print the effective configuration, secrets hidden; the file's problems go to standard error."""
    from klaw.config.describe import show
    from klaw.config.load import load

    try:
        config, warnings = load(Paths.resolve(args.home).config_file)
    except ConfigError as exc:
        for problem in exc.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 1
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.json:
        _print_json(show(config))
    else:
        import yaml

        print(yaml.safe_dump(show(config), sort_keys=False, allow_unicode=True), end="")
    return 0


def schema_command(args: argparse.Namespace) -> int:  # noqa: ARG001  commands share one signature; it is JSON anyway
    """Print the JSON schema of the configuration file."""
    from klaw.config.describe import json_schema

    _print_json(json_schema())
    return 0


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
