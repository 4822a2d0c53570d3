"""``klaw config check|show|describe|schema``: print what the configuration file means. Needs no running server."""

import argparse
import json
import sys
import textwrap
from pathlib import Path

import attrs

from klaw.cli.admin_call import line
from klaw.config.paths import Paths
from klaw.errors import ConfigError, Problem


def check_command(args: argparse.Namespace) -> int:
    """Check the configuration file: every problem and warning on a line of its own; 1 when there is a problem."""
    from klaw.config.load import ConfigWarning, load, unresolved_secrets

    file: Path | None = None
    problems: tuple[Problem, ...] = ()
    warnings: list[ConfigWarning] = []
    try:
        file = _file(args)
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
        config, warnings = load(_file(args))
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


def describe_command(args: argparse.Namespace) -> int:
    """Print each key with its type, its default and its meaning. 1 when there is no such key."""
    from difflib import get_close_matches

    from klaw.config.describe import described

    keys = described()
    chosen = [each for each in keys if args.key in (None, each.path) or each.path.startswith(f"{args.key}.")]
    if not chosen:
        close = get_close_matches(args.key[:100], [each.path for each in keys], n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        print(f"klaw: there is no key {line(args.key)}{hint}", file=sys.stderr)
        return 1
    if args.json:
        _print_json([attrs.asdict(each) for each in chosen])
        return 0
    for each in chosen:
        default = f", default {json.dumps(each.default, ensure_ascii=False)}" if each.has_default else ""
        print(f"{each.path}: {each.type}{default}")
        print(textwrap.fill(each.meaning, 100, initial_indent="    ", subsequent_indent="    "))
    return 0


def schema_command(args: argparse.Namespace) -> int:  # noqa: ARG001  commands share one signature; it is JSON anyway
    """Print the JSON schema of the configuration file."""
    from klaw.config.describe import json_schema

    _print_json(json_schema())
    return 0


def _file(args: argparse.Namespace) -> Path:
    return Path(args.config) if args.config else Paths.resolve(args.home).config_file


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
