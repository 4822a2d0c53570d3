"""Make the workspace and the configuration. What exists is kept, and reported as kept. Blocks."""

import json
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from string import Template

import yaml

from klaw.config import safe_open
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.load import MAX_FILE_BYTES, load, parse
from klaw.config.paths import USERS_FOLDER, Paths, ensure_private_dir
from klaw.config.schema import EngineConfig
from klaw.config.services import OTHER, SERVICES
from klaw.domain.names import LOCAL_USER
from klaw.domain.prompt_files import prompt_files, prompt_folders
from klaw.errors import ConfigError, NotThere, ToolRefused
from klaw.setup.answers import ChosenModel, Language, Names, SetupRefused, SetupStep
from klaw.toolbox.files import access
from klaw.toolbox.files.access import FolderEntry
from klaw.toolbox.files.beneath import MAX_DEPTH, Root, is_private

FILES = prompt_files(LOCAL_USER)
FOLDERS = prompt_folders(LOCAL_USER)

_UNNAMED = {"en": "(not told yet)", "ru": "(пока неизвестно)"}
_HEAD = """\
# Klaw's configuration, made by `klaw init`. It is YAML, and JSON is YAML too. Whatever is not here has its default:
# `klaw config show` prints all keys, `klaw config check` names mistakes.
"""


def make_workspace(workspace: Path, names: Names, *, dry_run: bool) -> list[SetupStep]:
    """Write the prompt files, and make the folders. Raises ToolRefused: files before it are there."""
    return [
        *(_make_file(workspace, file, template(names.language, file, names), dry_run=dry_run) for file in FILES),
        *make_folders(workspace, dry_run=dry_run),
    ]


def make_folders(workspace: Path, *, dry_run: bool) -> list[SetupStep]:
    steps: list[SetupStep] = []
    for name in FOLDERS:
        if os.path.lexists(workspace / name):
            steps.append(SetupStep(path=f"{name}/", outcome="kept"))
            continue
        if not dry_run:
            # As the tools would: private, and never through a link.
            with Root(folder=workspace).resolve(f"{name}/x", make=True):
                pass
        steps.append(SetupStep(path=f"{name}/", outcome="made"))
    return steps


def template(language: Language, file: str, names: Names) -> str:
    text = (resources.files(__package__) / "templates" / language / file).read_text(encoding="utf-8")
    return Template(text).substitute(agent=names.agent, user=names.user or _UNNAMED[language])


def _make_file(workspace: Path, name: str, text: str, *, dry_run: bool) -> SetupStep:
    if os.path.lexists(workspace / name):
        return SetupStep(path=name, outcome="kept", why="it was there before")
    if not dry_run:
        access.write(Root(folder=workspace), name, text.encode("utf-8"), "create")
    return SetupStep(path=name, outcome="made")


SMALL: dict[str, object] = {"embedding": {"threads": 1, "batchTokens": 64}, "store": {"readers": 1}}
NOT_SET = "it already exists: the model was NOT set"


def make_config(paths: Paths, model: ChosenModel | None, *, small: bool = False, dry_run: bool) -> SetupStep:
    """Write engine.yaml, unless one exists that is not as this function made it; without ``model`` the existing one is
    right. ``small``: for a board with little memory. Raises ConfigError: the configuration is not valid, or the folder
    cannot be made private."""
    name, text = paths.config_file.name, config_text(model or ChosenModel(), small=small)
    parse(text, {model.key_env: "x"} if model is not None and model.key_env else {})
    if os.path.lexists(paths.config_file):
        old = existing(paths)
        if model is None or old == text or (not small and configured(paths) == wanted(model)):
            return SetupStep(path=name, outcome="kept", why="it was there before")
        if not _is_as_made(old):
            return SetupStep(path=name, outcome="kept", why=NOT_SET)
    if not dry_run:
        ensure_private_dir(paths.config_dir)
        safe_open.replace(paths.config_dir, name, text.encode("utf-8"))
    return SetupStep(path=name, outcome="made")


def existing(paths: Paths) -> str:
    """Returns an empty text if it cannot be read."""
    try:
        return (safe_open.read(paths.config_dir, paths.config_file.name, MAX_FILE_BYTES) or b"").decode()
    except (OSError, ValueError):
        return ""


def configured(paths: Paths) -> str:
    """PROVIDER/MODEL; empty if the configuration cannot be read."""
    try:
        return load(paths.config_file)[0].routing.default
    except ConfigError:
        return ""


def wanted(model: ChosenModel) -> str:
    return f"{model.provider}/{model.model}" if model.provider != LOCAL_PROVIDER else EngineConfig().routing.default


def _is_as_made(text: str) -> bool:
    """Whether ``klaw init`` made it, and nobody changed it since."""
    if not text.startswith(_HEAD):
        return False
    try:
        tree = yaml.safe_load(text)
        provider, _, model = tree["routing"]["default"].replace("$$", "$").partition("/")
        own = tree.get("providers", {}).get(provider, {})
        url, key = own.get("baseUrl", "").replace("$$", "$"), own.get("apiKey", "")[2:-1]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    local = provider == LOCAL_PROVIDER
    made = ChosenModel() if local else ChosenModel(provider=provider, model=model, base_url=url, key_env=key)
    return text in (config_text(made), config_text(made, small=True))


def config_lines(model: ChosenModel, *, small: bool, like: str) -> list[str]:
    """For a person to add to an existing configuration, in its form."""
    if like.lstrip().startswith("{"):
        return json.dumps(_tree(model, small=small), indent=2, ensure_ascii=False).splitlines()[1:-1]
    return config_text(model, small=small).removeprefix(_HEAD).splitlines()


def config_text(model: ChosenModel, *, small: bool = False) -> str:
    """YAML, with the name of the key's variable in place of the key."""
    return _HEAD + yaml.safe_dump(_tree(model, small=small), sort_keys=False, allow_unicode=True)


def _tree(model: ChosenModel, *, small: bool) -> dict[str, object]:
    if model.provider == LOCAL_PROVIDER:
        tree: dict[str, object] = {"routing": {"default": EngineConfig().routing.default}}
    else:
        service, provider = SERVICES.get(model.provider, SERVICES[OTHER]), dict[str, object]()
        if service.type != "openai":
            provider["type"] = service.type
        if service.type == "openai" or model.base_url not in ("", service.base_url):
            provider["baseUrl"] = model.base_url.replace("$", "$$")
        if model.key_env:
            provider["apiKey"] = f"${{{model.key_env}}}"
        tree = {
            "routing": {"default": f"{model.provider}/{model.model}".replace("$", "$$")},
            "providers": {model.provider: provider},
        }
    return tree | (SMALL if small else {})


MAX_FILES = 10_000
MAX_TOTAL_BYTES = 200_000_000

_MARKS = (*FILES, "BOOTSTRAP.md")
"""A folder with one of these is a workspace."""
_NOT_TAKEN = {
    "BOOTSTRAP.md": "the first-run questions of another agent; klaw init asks its own",
    "BOOT.md": "start-up instructions of another agent, which Klaw does not use",
}
_MADE_BY_PROGRAMS = frozenset({"node_modules", "__pycache__", "venv", "dist", "build"})


def find_workspace(folder: Path) -> Path:
    """The folder itself, or ``workspace`` in it. Raises SetupRefused."""
    if not folder.is_dir():
        raise SetupRefused("--from: is not a folder that can be read")
    for candidate in (folder, folder / "workspace"):
        if any((candidate / mark).is_file() for mark in _MARKS):
            return candidate
    raise SetupRefused(f"--from: holds no workspace: none of {', '.join(_MARKS)} is in it or in its workspace/")


def take_over(source: Path, workspace: Path, *, dry_run: bool) -> list[SetupStep]:
    """Copy a workspace. Raises SetupRefused: one of the folders lies in the other; ToolRefused: Klaw's workspace cannot
    be written, and earlier files are there."""
    theirs, ours = (Path(os.path.realpath(path)) for path in (source, workspace))
    if theirs == ours or theirs in ours.parents or ours in theirs.parents:
        raise SetupRefused("--from: is Klaw's own workspace, or one of the two lies in the other")
    return sorted(_copied(source, workspace, dry_run=dry_run), key=lambda step: step.path)


def _copied(source: Path, workspace: Path, *, dry_run: bool) -> Iterator[SetupStep]:
    # Everything is looked at, so that it can be reported, but read under the rules of the file tools.
    seeing, reader = Root(folder=source, show_private=True), Root(folder=source)
    waiting, files, size = [("", 0)], 0, 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            found = access.list_folder(seeing, folder, access.MAX_LOOKED_AT)
        except ToolRefused as refused:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why=_reason(refused, folder))
            continue
        if found.hidden:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why=f"{found.hidden} names are not readable text")
        if found.incomplete:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why="it holds too many files to look at all of them")
        for entry in found.entries:
            why = _unwanted(entry)
            if why is None and entry.kind == "folder" and depth < MAX_DEPTH - 1:
                waiting.append((entry.path, depth + 1))
                continue
            if why is None and (files >= MAX_FILES or size >= MAX_TOTAL_BYTES):
                why = f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES // 1_000_000} MB"
            if why is not None:
                slash = "/" if entry.kind == "folder" else ""
                yield SetupStep(path=entry.path + slash, outcome="skipped", why=why)
                continue
            step = _copy(reader, entry.path, Root(folder=workspace), dry_run=dry_run)
            files, size = files + (step.outcome == "taken"), size + entry.size
            yield step


def _unwanted(entry: FolderEntry) -> str | None:
    name = entry.path.rpartition("/")[2]
    if is_private(name):
        return "hidden files and files that look like secrets are never copied"
    if entry.path in _NOT_TAKEN:
        return _NOT_TAKEN[entry.path]
    if entry.path.casefold() == USERS_FOLDER:
        return "Klaw keeps the files of its other users under this name"
    if entry.kind == "folder" and name in _MADE_BY_PROGRAMS:
        return "made by programs"
    if entry.kind == "other":
        return "is a pipe, device or socket"
    return None


def _copy(reader: Root, path: str, target: Root, *, dry_run: bool) -> SetupStep:
    try:
        with reader.resolve(path) as place:
            data, info = access.read_place(place, access.MAX_FILE_BYTES)
    except ToolRefused as refused:
        return SetupStep(path=path, outcome="skipped", why=_reason(refused, path))
    if b"\0" in data:
        return SetupStep(path=path, outcome="skipped", why="is binary")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return SetupStep(path=path, outcome="skipped", why="is not UTF-8 text")
    there = _there(target, path, data)
    if there is not None:
        return there
    if not dry_run:
        with target.resolve(path, make=True) as place:
            # Scripts of skills stay executable, for their owner only.
            access.put(place, data, access.NEW_FILE_MODE | (info.st_mode & 0o100))
    return SetupStep(path=path, outcome="taken")


def _there(target: Root, path: str, data: bytes) -> SetupStep | None:
    """What becomes of a file that exists in Klaw's workspace; None: there is none."""
    try:
        same = access.read_bytes(target, path) == data
    except NotThere:
        return None
    except ToolRefused as refused:
        return SetupStep(path=path, outcome="kept", why=f"what Klaw has there {_reason(refused, path)}")
    if same:
        return SetupStep(path=path, outcome="same")
    return SetupStep(path=path, outcome="kept", why="Klaw's own is different")


def _reason(refused: ToolRefused, path: str) -> str:
    return str(refused).removeprefix(f"{path}: ")
