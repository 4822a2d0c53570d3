"""``klaw config``: what the configuration file means, and changing it, through the server if one runs."""

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import attrs

from klaw.cli.arguments import there
from klaw.cli.operations import Here, ask_for, command
from klaw.cli.output import warn
from klaw.config.paths import Paths
from klaw.convert import Check
from klaw.errors import ConfigError, KlawError, Problem
from klaw.operations.lines import ShownLines
from klaw.operations.operation import Nothing, Noun, argument, required

NOUN = Noun("config", "check, show, describe or change the configuration (docs/configuration.md)", local=True)
NEXT_START = "no server is running: it is in effect at the next start"


@attrs.frozen(kw_only=True)
class ConfigFile:
    config: Annotated[str, Check(there)] | None = argument(
        "the configuration file (default: engine.yaml of the home)", metavar="FILE"
    )

    def file(self, paths: Paths) -> Path:
        return Path(self.config) if self.config else paths.config_file


@attrs.frozen(kw_only=True)
class ConfigKey:
    key: str | None = argument("this key, or a section with all in it (default: all)", positional=True)


@attrs.frozen(kw_only=True)
class ConfigValue:
    key: str = required("the key, such as autoRag.topK")
    value: tuple[str, ...] = required("its value; of a list, all values", metavar="VALUE")


@attrs.frozen(kw_only=True)
class NamedKeys:
    key: tuple[str, ...] = required("the keys", metavar="KEY")


def _checked(answer: dict[str, Any]) -> ShownLines:
    lines = [f"error: {Problem(**each)}" for each in answer["problems"]]
    lines += [f"warning: {Problem(**each)}" for each in answer["warnings"]]
    if answer["ok"]:
        lines.append(f"ok: {answer['file']}" + ("" if answer["exists"] else " (no such file; the defaults apply)"))
    return ShownLines(lines, found=answer["ok"])


@command(NOUN, "config_check", ConfigFile, cli="check", show=_checked)
def check(asked: ConfigFile, here: Here) -> dict[str, Any]:
    """Check the configuration and name every problem. The exit code is 1 if there is one."""
    from klaw.config.load import load, unresolved_secrets

    file: Path | None = None
    problems: tuple[Problem, ...] = ()
    warnings: list[Problem] = []
    try:
        file = asked.file(here.paths)
        config, warnings = load(file)
        # Not wrong: the service may have what this shell has not.
        also = "(the server needs it, this command does not)"
        warnings += [Problem(each.path, f"{each.message} {also}") for each in unresolved_secrets(config)]
    except ConfigError as error:
        problems = error.problems
    about = {"file": str(file) if file else None, "exists": file is not None and file.exists()}
    return {"ok": not problems, **about, "problems": problems, "warnings": warnings}


def _yaml(answer: dict[str, Any]) -> list[str]:
    import yaml

    from klaw.config.describe import described

    restart = {each.path for each in described() if each.restart}
    path: list[str] = []
    lines = []
    for line in yaml.safe_dump(answer, sort_keys=False, allow_unicode=True).splitlines():
        text = line.lstrip()
        path[(len(line) - len(text)) // 2 :] = [text.partition(":")[0]]
        told = ".".join(path) in restart and ".".join(path[:-1]) not in restart
        lines.append(f"{line}  # a change needs a restart" if told else line)
    return lines


@command(NOUN, "config_show", ConfigFile, cli="show", show=_yaml)
def show(asked: ConfigFile, here: Here) -> dict[str, Any]:
    """Show the configuration as it takes effect, without secrets."""
    from klaw.config.describe import show
    from klaw.config.load import load

    config, warnings = load(asked.file(here.paths))
    for warning in warnings:
        warn(f"warning: {warning}")
    return show(config)


def _described(answer: list[dict[str, Any]]) -> list[str]:
    lines = []
    for each in answer:
        default = f", default {json.dumps(each['default'], ensure_ascii=False)}" if each["has_default"] else ""
        restart = "; a change needs a restart" if each["restart"] else ""
        lines.append(f"{each['path']}: {each['type']}{default}{restart}")
        lines += textwrap.wrap(each["meaning"], 100, initial_indent="    ", subsequent_indent="    ")
    return lines


@command(NOUN, "config_describe", ConfigKey, cli="describe", show=_described)
def describe(asked: ConfigKey, _here: Here) -> list[Any]:
    """Tell of each key its type, its default and its meaning."""
    from difflib import get_close_matches

    from klaw.config.describe import described

    keys, wanted = described(), asked.key
    chosen = [each for each in keys if wanted in (None, each.path) or each.path.startswith(f"{wanted}.")]
    if not chosen:
        close = get_close_matches((wanted or "")[:100], [each.path for each in keys], n=3)
        raise KlawError(f"there is no key {wanted}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
    return chosen


@command(NOUN, "config_schema", Nothing, cli="schema", show=lambda answer: json.dumps(answer, indent=2).splitlines())
def schema(_asked: Nothing, _here: Here) -> dict[str, Any]:
    """Print the JSON schema of the configuration."""
    from klaw.config.describe import json_schema

    return json_schema()


def _changed(answer: dict[str, Any]) -> ShownLines:
    lines = [f"{key}: {'needs a restart' if key in answer['restart'] else 'changed'}" for key in answer["changed"]]
    earlier = [key for key in answer["restart"] if key not in answer["changed"]]
    lines += [f"{key}: waits for a restart" for key in earlier]
    if not lines:
        lines = ["nothing has changed"]
    lines += [f"warning: {Problem(**each)}" for each in answer["warnings"]]
    return ShownLines(lines + [NEXT_START] * (not answer["in_effect"]))


@command(NOUN, "config_set", ConfigValue, cli="set", show=_changed)
def set_value(asked: ConfigValue, here: Here) -> dict[str, Any]:
    """Set a key in the configuration file. The change is checked as a whole first; a running server takes it up at
    once, but for what needs a restart (`klaw config describe` says which)."""
    from klaw.config.describe import value_of

    return ask_for(here.paths, "config_set", values={asked.key: value_of(asked.key, asked.value)})


@command(NOUN, "config_unset", NamedKeys, cli="unset", show=_changed)
def unset(asked: NamedKeys, here: Here) -> dict[str, Any]:
    """Take keys, or whole sections, out of the configuration file, so that they have their defaults."""
    return ask_for(here.paths, "config_unset", keys=list(asked.key))


@command(NOUN, "config_reload", Nothing, cli="reload", show=_changed)
def reload(_asked: Nothing, here: Here) -> dict[str, Any]:
    """Let the running server read the configuration file again. If it is wrong, nothing changes, and the exit code is
    1."""
    return ask_for(here.paths, "config_reload")
