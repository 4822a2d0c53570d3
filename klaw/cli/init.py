"""``klaw init``: make a workspace and a configuration, or take over a workspace."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from klaw.cli.connect_model import ask_for_model, finish
from klaw.cli.operations import Here, command
from klaw.cli.output import program, warn
from klaw.cli.questions import answer
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.paths import Paths
from klaw.operations.lines import ShownLines
from klaw.operations.operation import Noun, argument

if TYPE_CHECKING:
    from klaw.setup.answers import ChosenModel, Names, SetupStep

NOUN = Noun("init", "make a workspace and a configuration", local=True)


@attrs.frozen(kw_only=True)
class Init:
    yes: bool = argument("ask nothing: use defaults for options that are not given", default=False)
    source: str | None = argument("take over the workspace of OpenClaw or one like it", metavar="DIR", option="--from")
    dry_run: bool = argument("only show what would be done", default=False)
    language: str | None = argument("of the prompt files: en or ru (default: the terminal's)", metavar="LANG")
    name: str | None = argument("of the assistant (default: Klaw)")
    user: str | None = argument("your name", metavar="NAME")
    provider: str | None = argument("service of the model (default: local, the built-in one)", metavar="NAME")
    model: str | None = argument("as the provider calls it", metavar="NAME")
    base_url: str | None = argument("address of the provider's API", metavar="URL")
    key_env: str | None = argument("environment variable that holds the provider's key", metavar="VARIABLE")
    small: bool = argument("for boards with 2 GB or less: no built-in model, less memory for embeddings", default=False)


# What was done was said meanwhile.
@command(NOUN, "init", Init, cli="", show=lambda answer: ShownLines((), found=answer["config"]["model"] != "not set"))
def init(asked: Init, here: Here) -> dict[str, Any]:
    """Make a workspace and a configuration. Nothing is written before the last answer. What exists is kept, unless it
    is a configuration that is still as this command made it. The exit code is 1 if a model was chosen and could not be
    set, because the configuration is another one; the lines for it are printed."""
    from klaw.errors import ToolRefused
    from klaw.setup.answers import SetupRefused
    from klaw.setup.make import find_workspace, make_config, make_folders, make_workspace, take_over

    if not asked.yes and not sys.stdin.isatty():
        raise SetupRefused("there is no terminal to ask on: give --yes, and the answers as options")
    source = find_workspace(Path(asked.source).expanduser()) if asked.source is not None else None
    try:
        names = _names(asked) if source is None else None
        model, plan = _model(asked, here.paths)
    except (EOFError, KeyboardInterrupt):
        print(file=sys.stderr)
        warn("nothing was written")
        raise KeyboardInterrupt from None
    try:
        if source is not None:
            steps = take_over(source, here.paths.workspace, dry_run=asked.dry_run)
            folders = make_folders(here.paths.workspace, dry_run=asked.dry_run)
            steps += [step for step in folders if step.outcome == "made"]
        else:
            assert names is not None
            steps = make_workspace(here.paths.workspace, names, dry_run=asked.dry_run)
    except ToolRefused as error:
        raise SetupRefused(f"{here.paths.workspace}: {error}; the same command goes on when that is mended") from error
    config = make_config(here.paths, model, small=asked.small, dry_run=asked.dry_run)
    if plan is not None and not asked.dry_run:
        finish(here.paths, plan, here.say)
    return _report(asked, here, steps, config, model, connected=plan is not None)


def _names(asked: Init) -> "Names":
    from klaw.setup import answers

    question, default = "Language of the prompt files", answers.language_of(os.environ)
    language = _answer(asked, asked.language, question, default, answers.language, choices=answers.LANGUAGES)
    agent = _answer(
        asked, asked.name, "Name of the assistant", answers.DEFAULT_NAME, partial(answers.name, option="--name")
    )
    user = _answer(asked, asked.user, "Your name (may be empty)", "", partial(answers.name, option="--user"))
    return answers.Names(language=language, agent=agent or answers.DEFAULT_NAME, user=user)


def _model(asked: Init, paths: Paths) -> "tuple[ChosenModel | None, dict[str, Any] | None]":
    """The model of a new configuration, None where there is one already; and what ``models connect`` does then."""
    from klaw.setup import answers
    from klaw.setup.make import configured, wanted

    options = {"service": asked.provider, "model": asked.model, "url": asked.base_url, "key_env": asked.key_env}
    given = any(options.values()) or asked.small
    there = os.path.lexists(paths.config_file)
    if there and not given and (asked.yes or configured(paths) != wanted(answers.ChosenModel())):
        return None, None
    if asked.yes:
        provider = answers.known_provider(asked.provider or ("" if asked.small else LOCAL_PROVIDER), small=asked.small)
        model, base_url = asked.model or "", asked.base_url or ""
        return answers.model(provider=provider, model=model, base_url=base_url, key_env=asked.key_env), None
    key = os.environ.get(asked.key_env or "")
    plan = ask_for_model(paths, {**options, "key": key, "use": None}, builtin=not asked.small)
    if plan is None and asked.small:
        raise KeyboardInterrupt  # there is no other model then
    return (None if there and plan is not None else answers.ChosenModel()), plan


T = TypeVar("T")


def _answer(
    asked: Init, given: str | None, question: str, default: str, read: Callable[[str], T], choices: Sequence[str] = ()
) -> T:
    """The answer ``given`` by the option, with ``--yes`` the default, else the person's."""
    if given is not None or asked.yes:
        return read(given if given is not None else default)
    return answer(question, default, read, choices)


def _report(
    asked: Init,
    here: Here,
    steps: "list[SetupStep]",
    config: "SetupStep",
    model: "ChosenModel | None",
    *,
    connected: bool,
) -> dict[str, Any]:
    """Print what was done, and the commands that lead to a running server, ready to be pasted."""
    from klaw.agent.workspace import Workspace
    from klaw.domain.names import LOCAL_USER
    from klaw.domain.tokens import estimate
    from klaw.setup.answers import count
    from klaw.setup.make import NOT_SET, config_lines, existing

    paths, say, home = here.paths, here.say, f" --home {shlex.quote(here.home)}" if here.home else ""
    klaw, tokens = program(), estimate(Workspace(paths.workspace, paths.data_dir).read(LOCAL_USER).system_prompt)
    not_set = config.why == NOT_SET
    built_in = not connected and (model is None or model.provider == LOCAL_PROVIDER)
    pull = f"{klaw} models pull{home}{'' if built_in else ' multilingual-e5-small'}"
    following = [pull, f"{klaw} models test{home}", f"{klaw} serve{home}"]
    say(f"Workspace {paths.workspace}" + ("  (dry run: nothing is written)" if asked.dry_run else ""))
    say(*map(_line, steps), f"Configuration {paths.config_file}", _line(config))
    if asked.source is not None:
        say(f"{count(steps, 'taken')} taken, {count(steps, 'same', 'kept')} kept, {count(steps, 'skipped')} skipped.")
    if not_set:
        assert model is not None
        say(f"{paths.config_file} already exists: the model was NOT set.")
        say("Write this into it, instead of its routing:")
        say(*(f"  {line}" for line in config_lines(model, small=asked.small, like=existing(paths))))
    if model is not None and model.provider == "ollama":
        say("Ollama cuts requests at 4096 tokens on most machines, and Klaw counts on 8192: start it with")
        say("  OLLAMA_CONTEXT_LENGTH=8192 ollama serve")
    if not asked.dry_run:
        say(f"The prompt files take about {tokens} tokens of every request.")
        if model is not None and model.key_env and model.key_env not in os.environ:
            say("Put your key into the environment of the server, in the place of YOUR-KEY:")
            say(f"  export {model.key_env}=YOUR-KEY")
        say("Next:", *(f"  {each}" for each in following))
        say("And in another terminal:", f"  {klaw} chat{home}")
    state = "not set" if not_set else "set" if model is not None else "not asked"
    made = {"file": str(paths.config_file), "outcome": config.outcome, "model": state}
    about = {"workspace": str(paths.workspace), "config": made, "files": steps}
    return {"dry_run": asked.dry_run, **about, "prompt_tokens": tokens, "next": following}


def _line(step: "SetupStep") -> str:
    return f"  {step.outcome:<8} {step.path}" + (f"  ({step.why})" if step.why else "")
