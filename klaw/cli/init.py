"""``klaw init``: make a workspace and a configuration, or take a workspace over. Needs no running server."""

import argparse
import json
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klaw.config.paths import Paths
    from klaw.setup.answers import Model, Names
    from klaw.setup.step import Step


def init_command(args: argparse.Namespace) -> int:
    """Ask, then write. Nothing is written before the last answer, and nothing that exists is ever changed."""
    from klaw.config.paths import Paths
    from klaw.setup.make import make_config, make_folders, make_workspace
    from klaw.setup.step import SetupRefused
    from klaw.setup.takeover import find_workspace, take_over

    if not args.yes and not sys.stdin.isatty():
        raise SetupRefused("there is no terminal to ask on: give --yes, and the answers as options")
    paths = Paths.resolve(args.home)
    source = find_workspace(Path(args.source).expanduser()) if args.source is not None else None
    try:
        names = _names(args) if source is None else None
        model = _model(args, paths)
    except (EOFError, KeyboardInterrupt):
        print("\nklaw: nothing was written", file=sys.stderr)
        return 130
    if source is not None:
        steps = take_over(source, paths.workspace, dry_run=args.dry_run)
        steps += [step for step in make_folders(paths.workspace, dry_run=args.dry_run) if step.outcome == "made"]
    else:
        assert names is not None
        steps = make_workspace(paths.workspace, names, dry_run=args.dry_run)
    config = make_config(paths, model, dry_run=args.dry_run)
    _report(args, paths, steps, config, model)
    if config.outcome == "made" and not (args.yes or args.json or args.dry_run):
        from klaw.cli.models_test import offer_test

        offer_test(args.home, model, partial(_ask, args))
    return 0


def _names(args: argparse.Namespace) -> "Names":
    from klaw.setup import answers

    language = answers.language(
        args.language
        if args.language is not None
        else _ask(args, "Language of the prompt files, en or ru", answers.language_of(os.environ))
    )
    agent = args.name if args.name is not None else _ask(args, "Name of the assistant", answers.DEFAULT_NAME)
    user = args.user if args.user is not None else _ask(args, "Your name (may be empty)", "")
    return answers.Names(
        language=language,
        agent=answers.name(agent, "--name") or answers.DEFAULT_NAME,
        user=answers.name(user, "--user"),
    )


def _model(args: argparse.Namespace, paths: "Paths") -> "Model":
    from klaw.config.schema import LOCAL_PROVIDER
    from klaw.setup import answers

    if os.path.lexists(paths.config_file):
        if args.provider or args.model or args.base_url or args.key_env:
            print(f"klaw: {paths.config_file} is there and stays as it is; change the model in it", file=sys.stderr)
        return answers.Model()
    provider = args.provider or _ask(args, f"Model provider ({', '.join(answers.PROVIDERS)})", LOCAL_PROVIDER)
    model, base_url, key_env = args.model or "", args.base_url or "", args.key_env
    preset = answers.PRESETS.get(provider)
    if provider != LOCAL_PROVIDER and provider in answers.PROVIDERS:
        if not base_url and preset is None:
            base_url = _ask(args, "Address of its API, up to /v1", "")
        model = model or _ask(args, f"Model, for instance {preset.example}" if preset else "Model", "")
        if key_env is None:
            question = "Environment variable with the key (its name, not the key; empty for none)"
            key_env = _ask(args, question, preset.key_env if preset else "")
    return answers.model(provider=provider, model=model, base_url=base_url, key_env=key_env)


def _ask(args: argparse.Namespace, question: str, default: str) -> str:
    if args.yes:
        return default
    # On standard error, so that --json leaves standard output to the report.
    print(f"{question} [{default}]: " if default else f"{question}: ", end="", file=sys.stderr, flush=True)
    return input().strip() or default


def _report(args: argparse.Namespace, paths: "Paths", steps: "list[Step]", config: "Step", model: "Model") -> None:
    from klaw.setup.step import count

    following = _next(args, config, model)
    if args.json:
        report = {
            "dryRun": args.dry_run,
            "workspace": str(paths.workspace),
            "config": {"file": str(paths.config_file), "outcome": config.outcome},
            "files": [{"path": step.path, "outcome": step.outcome, "why": step.why} for step in steps],
            "promptTokens": _prompt_tokens(paths),
            "next": following,
        }
        print(json.dumps(report, ensure_ascii=False, indent=2))
        return
    print(f"Workspace {paths.workspace}" + ("  (dry run: nothing is written)" if args.dry_run else ""))
    for step in steps:
        print(f"  {step.outcome:<8} {step.path}" + (f"  ({step.why})" if step.why else ""))
    print(f"Configuration {paths.config_file}")
    print(f"  {config.outcome:<8} {config.path}" + (f"  ({config.why})" if config.why else ""))
    if args.source is not None:
        print(f"{count(steps, 'taken')} taken, {count(steps, 'same', 'kept')} kept, {count(steps, 'skipped')} skipped.")
    if not args.dry_run:
        print(f"The prompt files take about {_prompt_tokens(paths)} tokens of every request.")
        print("Next:", *following, sep="\n  ")


def _prompt_tokens(paths: "Paths") -> int:
    from klaw.chats.workspace import Workspace
    from klaw.domain.names import LOCAL_USER
    from klaw.domain.tokens import estimate

    return estimate(Workspace(paths.workspace, paths.data_dir).read(LOCAL_USER).system_prompt)


def _next(args: argparse.Namespace, config: "Step", model: "Model") -> list[str]:
    """The commands that lead from here to a chat."""
    from klaw.config.schema import LOCAL_PROVIDER

    home = f" --home {shlex.quote(args.home)}" if args.home else ""
    lines = []
    if config.outcome == "made" and model.key_env and model.key_env not in os.environ:
        lines.append(f"export {model.key_env}=...")
    if config.outcome == "kept" or model.provider == LOCAL_PROVIDER:
        lines.append(f"klaw models pull{home}")
    else:
        lines.append(f"klaw models pull{home} multilingual-e5-small")
    lines += [f"klaw models test{home}", f"klaw serve{home}"]
    return lines
