"""``klaw init``: make a workspace and a configuration, or take a workspace over. Needs no running server."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from klaw.cli.output import program

if TYPE_CHECKING:
    from klaw.config.paths import Paths
    from klaw.setup.answers import Model, Names, Step


FEW = 3
"""So many choices stand in one line."""


def init_command(args: argparse.Namespace) -> int:
    """Ask, then write. Nothing is written before the last answer, and nothing that exists is ever changed."""
    from klaw.config.paths import Paths
    from klaw.setup.answers import SetupRefused
    from klaw.setup.make import make_config, make_folders, make_workspace
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
        from klaw.cli.models import offer_test
        from klaw.cli.output import say

        offer_test(paths, model, lambda question, default: _answer(args, None, question, default, str), say)
    return 0


def _names(args: argparse.Namespace) -> "Names":
    from klaw.setup import answers

    def name_of(option: str) -> Callable[[str], str]:
        return lambda text: answers.name(text, option)

    language = _answer(
        args,
        args.language,
        "Language of the prompt files",
        answers.language_of(os.environ),
        answers.language,
        choices=answers.LANGUAGES,
    )
    agent = _answer(args, args.name, "Name of the assistant", answers.DEFAULT_NAME, name_of("--name"))
    user = _answer(args, args.user, "Your name (may be empty)", "", name_of("--user"))
    return answers.Names(language=language, agent=agent or answers.DEFAULT_NAME, user=user)


def _model(args: argparse.Namespace, paths: "Paths") -> "Model":
    from klaw.config.llm import LOCAL_PROVIDER
    from klaw.setup import answers

    if os.path.lexists(paths.config_file):
        if args.provider or args.model or args.base_url or args.key_env:
            print(f"klaw: {paths.config_file} is there and stays as it is; change the model in it", file=sys.stderr)
        return answers.Model()
    provider = _answer(
        args, args.provider or None, "Model provider", LOCAL_PROVIDER, answers.known_provider, choices=answers.PROVIDERS
    )
    preset = answers.PRESETS.get(provider)
    model, base_url, key_env = args.model or "", args.base_url or "", args.key_env
    if provider != LOCAL_PROVIDER:
        if preset is None:
            base_url = _answer(args, base_url or None, "Address of its API, up to /v1", "", answers.address)
        question = f"Model, for instance {preset.example}" if preset else "Model, as the server calls it"
        model = _answer(args, model or None, question, "", lambda text: answers.model_name(text, provider))
        question = "Environment variable with the key (its name, not the key; - for none)"
        key_env = _answer(args, key_env, question, preset.key_env if preset else "-", answers.key_variable)
    return answers.model(provider=provider, model=model, base_url=base_url, key_env=key_env)


T = TypeVar("T")


def _answer(
    args: argparse.Namespace,
    given: str | None,
    question: str,
    default: str,
    read: Callable[[str], T],
    *,
    choices: Sequence[str] = (),
) -> T:
    """An answer: of the option, else of the person, who is asked again after one that cannot be.

    Args:
        args: with ``--yes`` nobody is asked.
        given: by the option; None: it was not given.
        question: for the person.
        default: of an empty answer.
        read: the answer's value; raises SetupRefused.
        choices: to choose from, by number too.
    """
    from klaw.setup.answers import SetupRefused

    if given is not None or args.yes:
        return read(given if given is not None else default)
    # On standard error, so that --json leaves standard output to the report.
    if len(choices) > FEW:
        print(f"{question}:", *(f"{at:>3}  {each}" for at, each in enumerate(choices, 1)), sep="\n", file=sys.stderr)
        question = "Its number or name"
    elif choices:
        question += f" ({' or '.join(choices)})"
    while True:
        print(f"{question} [{default}]: " if default else f"{question}: ", end="", file=sys.stderr, flush=True)
        text = input().strip() or default
        if choices and text.isdecimal() and 1 <= int(text[:4]) <= len(choices):
            text = choices[int(text[:4]) - 1]
        try:
            return read(text)
        except SetupRefused as error:
            print(f"  {str(error).partition(': ')[2] or error}", file=sys.stderr)


def _report(args: argparse.Namespace, paths: "Paths", steps: "list[Step]", config: "Step", model: "Model") -> None:
    from klaw.setup.answers import count

    following = _next(args, config, model)
    if args.json:
        report = {
            "dry_run": args.dry_run,
            "workspace": str(paths.workspace),
            "config": {"file": str(paths.config_file), "outcome": config.outcome},
            "files": [{"path": step.path, "outcome": step.outcome, "why": step.why} for step in steps],
            "prompt_tokens": _prompt_tokens(paths),
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
        key = model.key_env if config.outcome == "made" and model.key_env not in os.environ else ""
        if key:
            print("Put your key into the environment of the server, in the place of YOUR-KEY:")
            print(f"  export {key}=YOUR-KEY")
        print("Next:", *following, sep="\n  ")
        print(f"And in another terminal:\n  {program()} chat{_home(args)}")


def _prompt_tokens(paths: "Paths") -> int:
    from klaw.agent.workspace import Workspace
    from klaw.domain.names import LOCAL_USER
    from klaw.domain.tokens import estimate

    return estimate(Workspace(paths.workspace, paths.data_dir).read(LOCAL_USER).system_prompt)


def _next(args: argparse.Namespace, config: "Step", model: "Model") -> list[str]:
    """The commands that lead from here to a running server; they can be pasted as they are."""
    from klaw.config.llm import LOCAL_PROVIDER

    klaw, home = program(), _home(args)
    built_in = config.outcome == "kept" or model.provider == LOCAL_PROVIDER
    pull = f"{klaw} models pull{home}{'' if built_in else ' multilingual-e5-small'}"
    return [pull, f"{klaw} models test{home}", f"{klaw} serve{home}"]


def _home(args: argparse.Namespace) -> str:
    return f" --home {shlex.quote(args.home)}" if args.home else ""
