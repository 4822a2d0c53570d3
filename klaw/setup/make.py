"""Make the workspace and the configuration. What exists is kept as it is and said to be kept. Blocks."""

import os
from importlib import resources
from pathlib import Path
from string import Template

import yaml

from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.load import parse
from klaw.config.paths import Paths, ensure_private_dir
from klaw.config.schema import EngineConfig
from klaw.domain.names import LOCAL_USER
from klaw.domain.prompt_files import prompt_files, prompt_folders
from klaw.setup.answers import PRESETS, Language, Model, Names, Step
from klaw.toolbox.files import writing
from klaw.toolbox.files.beneath import Root

FILES = prompt_files(LOCAL_USER)
FOLDERS = prompt_folders(LOCAL_USER)

_UNNAMED = {"en": "(not told yet)", "ru": "(пока неизвестно)"}
_HEAD = """\
# Klaw's configuration, made by `klaw init`. It is YAML, and JSON is YAML too. Whatever is not here has its default:
# `klaw config show` prints all keys, `klaw config check` names mistakes.
"""


def make_workspace(workspace: Path, names: Names, *, dry_run: bool) -> list[Step]:
    """Write the prompt files from their templates, and make the folders.

    Raises:
        ToolRefused: a file cannot be written; those before it are there.
    """
    return [
        *(_make_file(workspace, file, template(names.language, file, names), dry_run=dry_run) for file in FILES),
        *make_folders(workspace, dry_run=dry_run),
    ]


def make_folders(workspace: Path, *, dry_run: bool) -> list[Step]:
    steps: list[Step] = []
    for name in FOLDERS:
        if os.path.lexists(workspace / name):
            steps.append(Step(path=f"{name}/", outcome="kept"))
            continue
        if not dry_run:
            # As the tools would: private, and never through a link.
            with Root(folder=workspace).resolve(f"{name}/x", make=True):
                pass
        steps.append(Step(path=f"{name}/", outcome="made"))
    return steps


def template(language: Language, file: str, names: Names) -> str:
    """The text of a prompt file."""
    text = (resources.files(__package__) / "templates" / language / file).read_text(encoding="utf-8")
    return Template(text).substitute(agent=names.agent, user=names.user or _UNNAMED[language])


def _make_file(workspace: Path, name: str, text: str, *, dry_run: bool) -> Step:
    if os.path.lexists(workspace / name):
        return Step(path=name, outcome="kept", why="it was there before")
    if not dry_run:
        writing.write(Root(folder=workspace), name, text.encode("utf-8"), "create")
    return Step(path=name, outcome="made")


SMALL: dict[str, object] = {"embedding": {"threads": 1, "batchTokens": 64}, "store": {"readers": 1}}
"""What keeps the server small: one run of the embedding model at a time, on little text."""


def make_config(paths: Paths, model: Model, *, small: bool = False, dry_run: bool) -> Step:
    """Write engine.json; ``small``: for a board with little memory.

    Raises:
        ConfigError: the answers do not make a valid configuration, or the folder cannot be made private.
    """
    name = paths.config_file.name
    if os.path.lexists(paths.config_file):
        return Step(path=name, outcome="kept", why="it was there before")
    text = config_text(model, small=small)
    parse(text, {model.key_env: "x"} if model.key_env else {})
    if not dry_run:
        ensure_private_dir(paths.config_dir)
        writing.write(Root(folder=paths.config_dir), name, text.encode("utf-8"), "create")
    return Step(path=name, outcome="made")


def config_text(model: Model, *, small: bool = False) -> str:
    """The configuration for a model, in YAML. The key itself never stands in it."""
    if model.provider == LOCAL_PROVIDER:
        tree: dict[str, object] = {"routing": {"default": EngineConfig().routing.default}}
    else:
        preset = PRESETS.get(model.provider)
        provider: dict[str, object] = {"baseUrl": model.base_url.replace("$", "$$")}
        if preset is not None and preset.type != "openai":
            provider = {"type": preset.type, **provider}
        if model.key_env:
            provider["apiKey"] = f"${{{model.key_env}}}"
        if preset is not None and preset.tools:
            provider["models"] = {model.model.replace("$", "$$"): {"tools": True}}
        tree = {
            "routing": {"default": f"{model.provider}/{model.model}".replace("$", "$$")},
            "providers": {model.provider: provider},
            "topics": {"enabled": True},  # written out: it costs calls, and the built-in model is too weak for it
        }
    return _HEAD + yaml.safe_dump(tree | (SMALL if small else {}), sort_keys=False, allow_unicode=True)
