"""The configuration file -> ``EngineConfig`` and warnings."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from klaw.config.document import join_path, plain_scalar, read_document
from klaw.config.environment import Reference, Secret
from klaw.config.keys import file_key
from klaw.config.paths import CONFIG_NAMES
from klaw.config.read_settings import read_settings
from klaw.config.schema import RENAMED, RETIRED, EngineConfig
from klaw.config.tools import McpServerConfig
from klaw.errors import ConfigError, Problem

MAX_FILE_BYTES = 1_048_576


def load(path: Path, environ: Mapping[str, str] = os.environ) -> tuple[EngineConfig, list[Problem]]:
    """Read the configuration file; one that does not exist gives the defaults. Also returns warnings: what works, but
    should be changed. Raises ConfigError: the file cannot be read, or breaks rules (all of them named)."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
            open_to_others = bool(os.fstat(file.fileno()).st_mode & 0o077)
    except FileNotFoundError:
        return EngineConfig(), []
    except OSError as exc:
        raise ConfigError.of(f"cannot read {path}: {exc.strerror or type(exc).__name__}") from exc
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError.of(f"{path} is larger than {MAX_FILE_BYTES} bytes; that is too large for a configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError.of(f"{path} is not UTF-8 text (byte {exc.start})") from exc
    tree, problems = read_document(text, environ)
    config, warnings = _build(tree, problems)
    warnings += _unread(path)
    if open_to_others:
        warnings += _exposed_secrets(tree)
    return config, warnings


def parse(text: str, environ: Mapping[str, str] = os.environ) -> tuple[EngineConfig, list[Problem]]:
    """Read a configuration text. Raises ConfigError: the text is not YAML, or breaks rules (all of them named)."""
    return _build(*read_document(text, environ))


def _build(tree: dict[str, Any], problems: list[Problem]) -> tuple[EngineConfig, list[Problem]]:
    warnings = [*_renamed(tree, problems), *_tools_by_schema(tree), *_retired(tree)]
    old = {f"{section}.{new}": f"{section}.{name}" for (section, name), new in RENAMED.items()}
    old = {path: name for path, name in old.items() if any(warning.path == name for warning in warnings)}
    try:
        return read_settings(tree, problems), warnings
    except ConfigError as error:  # a renamed key is named as it stands in the file
        raise ConfigError([attrs.evolve(each, path=old.get(each.path, each.path)) for each in error.problems]) from None


def _renamed(tree: dict[str, Any], problems: list[Problem]) -> Iterator[Problem]:
    """Give old keys their new names. That both are given is a problem."""
    for (section, old), new in RENAMED.items():
        values = tree.get(section)
        if isinstance(values, dict) and old in values:
            old_path, new_path, value = f"{section}.{old}", f"{section}.{new}", values.pop(old)
            if new in values:
                problems.append(Problem(old_path, f"is the old name of {new_path}; give only one of them"))
            else:
                values[new] = value
                yield Problem(old_path, f"is deprecated; call it {new_path}")


def _retired(tree: dict[str, Any]) -> Iterator[Problem]:
    """Take out keys without effect."""
    if "facts" in tree and tree["facts"] is None:
        tree["facts"] = {"daily": None}
    for (*sections, name), instead in RETIRED.items():
        values: Any = tree
        for section in sections:
            values = values.get(section) if isinstance(values, dict) else None
        if isinstance(values, dict) and name in values:
            del values[name]
            yield Problem(".".join((*sections, name)), f"no longer has an effect: {instead}; remove it")
    if tree.get("facts") == {}:  # no other key was ever in it
        del tree["facts"]


def _tools_by_schema(tree: dict[str, Any]) -> Iterator[Problem]:
    """Read ``tools: schema``, which earlier versions knew, as false."""
    models = {"localModel": tree.get("localModel")}
    providers = tree.get("providers")
    for provider, settings in providers.items() if isinstance(providers, dict) else ():
        own = settings.get("models") if isinstance(settings, dict) else None
        path = f"{join_path('providers', provider)}.models"
        models |= {join_path(path, name): model for name, model in own.items()} if isinstance(own, dict) else {}
    for path, model in models.items():
        if isinstance(model, dict) and _text(model.get("tools")) == "schema":
            model["tools"] = False
            gone = "schema is no longer supported, and the model gets no tools: write true if it can call tools itself"
            yield Problem(f"{path}.tools", f"{gone}, else false")


def _text(value: object) -> object:
    with suppress(ValueError):
        return value.text() if isinstance(value, Reference) else value
    return None


def _unread(path: Path) -> Iterator[Problem]:
    """Name configurations beside this one, which do not count."""
    for name in CONFIG_NAMES if path.name in CONFIG_NAMES else ():
        if name != path.name and os.path.lexists(path.with_name(name)):
            yield Problem(name, f"is not read: {path.name} is there too; keep one of them")


def _exposed_secrets(tree: Mapping[str, Any]) -> Iterator[Problem]:
    """Find keys that are written out in a file that others may read."""
    for name, provider in (tree.get("providers") or {}).items():
        if isinstance(provider.get("apiKey"), str):
            todo = "use ${NAME} or ${file:/path}, or take their access away (chmod 600)"
            path = join_path(join_path("providers", name), "apiKey")
            yield Problem(path, f"stands in a file that others may read: {todo}")


def override_section(config: EngineConfig, section: str, given: Sequence[str]) -> EngineConfig:
    """The configuration with some keys of one section changed, each given as ``autoRag.topK=5``. Raises ConfigError:
    every one that has another form, is given twice, is unknown or breaks its rule."""
    problems: list[Problem] = []
    values: dict[str, dict[str, Any]] = {}
    for each in given:
        path, equals, text = each.partition("=")
        name, dot, key = path.strip().partition(".")
        if not equals or not dot or not name or not key:
            problems.append(Problem("", f"must have the form {section}.KEY=VALUE, for instance {section}.topK=5"))
        elif key in values.get(name, {}):
            problems.append(Problem(f"{name}.{key}", "is given twice"))
        else:
            try:
                values.setdefault(name, {})[key] = plain_scalar(text.strip())
            except ValueError as error:
                problems.append(Problem(f"{name}.{key}", str(error)))
    changed = read_settings(values, problems)
    others = [f"{name}.{key}" for name, keys in values.items() if name != section for key in keys]
    if others:
        raise ConfigError([Problem(path, f"cannot be changed here, only keys of {section}") for path in others])
    attribute = next(field.name for field in attrs.fields(EngineConfig) if file_key(field.name) == section)
    wanted, now = getattr(changed, attribute), getattr(config, attribute)
    names = {file_key(field.name): field.name for field in attrs.fields(type(now))}
    new = {names[key]: getattr(wanted, names[key]) for key in values.get(section, {})}
    return attrs.evolve(config, **{attribute: attrs.evolve(now, **new)})


def unresolved_secrets(value: object, path: str = "") -> Iterator[Problem]:
    """The secrets of a configuration, or of a part, that cannot be looked up; reads the files that are referred to. MCP
    servers that are off do not count."""
    cls: Any = type(value)
    if isinstance(value, Secret):
        try:
            value.reveal(path)
        except ConfigError as error:
            yield from error.problems
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from unresolved_secrets(item, join_path(path, name))
    elif attrs.has(cls) and not (isinstance(value, McpServerConfig) and not value.enabled):
        for field in attrs.fields(cls):
            yield from unresolved_secrets(getattr(value, field.name), join_path(path, file_key(field.name)))
