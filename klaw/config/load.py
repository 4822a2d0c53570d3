"""The configuration file -> ``EngineConfig`` and warnings. Every mistake is reported with the path of its key. Values
are read strictly: ``"3"`` is no number and ``yes`` is no boolean. No message quotes a text that could hold a secret,
nor anything that came from the environment."""

import difflib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin

import attrs

from klaw.config import secrets
from klaw.config.describe import secrets_in
from klaw.config.document import INVALID, join_path, kind_of, plain_scalar, read_document
from klaw.config.environment import Reference, Secret
from klaw.config.keys import HasRules, Rule, file_key, rule_of
from klaw.config.llm import LOCAL_PROVIDER, LocalModelConfig, RoutingConfig
from klaw.config.paths import CONFIG_NAMES
from klaw.config.schema import RENAMED, RETIRED, EngineConfig
from klaw.errors import ConfigError, Problem

MAX_FILE_BYTES = 1_048_576


def load(path: Path, environ: Mapping[str, str] = os.environ) -> tuple[EngineConfig, list[Problem]]:
    """Read the configuration file; one that does not exist gives the defaults. References find what is in ``environ``,
    and in ``secrets.env`` beside the file. Also returns warnings: what works, but should be changed. Raises
    ConfigError: a file cannot be read, or breaks rules (all of them named)."""
    file = ConfigText.read(path)
    return (EngineConfig(), []) if file.raw is None else file.understood(environ)


@attrs.frozen(kw_only=True)
class ConfigText:
    """A configuration file as it is on the disk."""

    path: Path
    raw: bytes | None
    """None: there is none."""
    mode: int = 0o600

    @classmethod
    def read(cls, path: Path) -> Self:
        """Blocks. Raises ConfigError."""
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except FileNotFoundError:
            return cls(path=path, raw=None)
        except OSError as exc:
            raise ConfigError.of(f"cannot read {path}: {exc.strerror or type(exc).__name__}") from exc
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError.of(f"{path} is larger than {MAX_FILE_BYTES} bytes; that is too large for a configuration")
        return cls(path=path, raw=raw, mode=mode)

    @property
    def text(self) -> str:
        """Raises ConfigError: it is not UTF-8."""
        try:
            return (self.raw or b"").decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise ConfigError.of(f"{self.path} is not UTF-8 text (byte {exc.start})") from exc

    def understood(self, environ: Mapping[str, str] = os.environ) -> tuple[EngineConfig, list[Problem]]:
        """What it means, and warnings. Blocks. Raises ConfigError: it breaks rules (all of them named)."""
        tree, problems = read_document(self.text, secrets.with_secrets(self.path.parent, environ))
        config, warnings = _build(tree, problems)
        warnings += _unread(self.path)
        if secrets.open_to_others(self.path.parent):
            warnings.append(Problem(secrets.FILE, "may be read by others: take their access away (chmod 600)"))
        if self.mode & 0o077:
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


def unresolved_secrets(value: object) -> Iterator[Problem]:
    """The secrets of a configuration, or of a part, that cannot be looked up; reads the files that are referred to. MCP
    servers that are off do not count."""
    for path, secret in secrets_in(value, off=False):
        try:
            secret.reveal(path)
        except ConfigError as error:
            yield from error.problems


_QUOTED_MAX = 40
"""Longest text or number that a message repeats."""
_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def read_settings(tree: dict[str, Any], known: Sequence[Problem] = ()) -> EngineConfig:
    """Read the tree of ``read_document``. Raises ConfigError: with the ``known`` problems, and every mistake in the
    tree."""
    reader = _SettingsReader([*known])
    sections = reader.fields(tree, EngineConfig, "")
    reader.problems.extend(_between_sections(sections, tree))
    if reader.problems:
        raise ConfigError(reader.problems)
    return EngineConfig(**sections)


@attrs.frozen
class _SettingsReader:
    """Reads values by type and rule. What is wrong goes to ``problems``, and ``INVALID`` takes the value's place."""

    problems: list[Problem]

    def _wrong(self, path: str, message: str) -> Any:
        self.problems.append(Problem(path, message))
        return INVALID

    def fields(self, tree: Mapping[str, Any], cls: Any, path: str) -> dict[str, Any]:
        """The given fields of a class by their attribute names."""
        fields = {file_key(field.name): field for field in attrs.fields(cls)}
        made = {}
        for name, field in fields.items():
            if name in tree:
                made[field.name] = self.value(tree[name], field.type, rule_of(field), join_path(path, name))
            elif field.default is attrs.NOTHING:
                made[field.name] = self._wrong(join_path(path, name), "is required")
        for name in tree:
            if name not in fields:
                self._wrong(join_path(path, name), f"unknown key{_suggestion(name, fields)}")
        return made

    def value(self, value: Any, cls: Any, rule: Rule, path: str) -> Any:
        origin, arguments = get_origin(cls), get_args(cls)
        if value is INVALID:
            return INVALID
        if origin in (UnionType, Union):  # the second is made of Literal
            return None if value is None else self.value(value, arguments[0], rule, path)
        if origin is Mapping or attrs.has(cls):
            value = {} if value is None else value
            if not isinstance(value, dict):
                return self._wrong(path, f"must be a section, got {kind_of(value)}")
            return self._map(value, arguments[1], rule, path) if arguments else self._section(value, cls, path)
        if origin is tuple:
            value = [value] if rule.one_or_more and isinstance(value, str | Reference) else value
            if not isinstance(value, list):
                return self._wrong(path, f"must be a list, got {kind_of(value)}")
            items = [self.value(each, arguments[0], rule, f"{path}[{at}]") for at, each in enumerate(value)]
            return INVALID if any(each is INVALID for each in items) else tuple(items)
        try:
            made = _scalar(value, cls)
        except ValueError as error:
            return self._wrong(path, str(error))
        if broken := rule.broken_by(made):
            return self._wrong(path, f"{broken}, got {_shown(value, made, secret=True)}")
        return made.under(rule.broken_by) if isinstance(made, Secret) else made

    def _section(self, tree: dict[str, Any], cls: Any, path: str) -> Any:
        before = len(self.problems)
        fields = self.fields(tree, cls, path)
        if len(self.problems) > before or INVALID in fields.values():
            return INVALID
        made = cls(**fields)
        if isinstance(made, HasRules):
            for name, message in made.mistakes():
                self._wrong(join_path(path, name) if name else path, message)
        return made

    def _map(self, tree: dict[str, Any], cls: Any, rule: Rule, path: str) -> Any:
        made = {}
        for name, each in tree.items():
            here = join_path(path, name)
            if bad_name := rule.name_broken_by(name):
                self._wrong(here, bad_name)
            made[name] = self.value(each, cls, rule, here)
        return INVALID if any(each is INVALID for each in made.values()) else made


def _scalar(value: Any, cls: Any) -> Any:
    """A value of the tree as its type says. Raises ValueError with the problem's message."""
    if cls is Any:
        return _json(value)
    if cls is Secret:
        if not isinstance(value, str | Reference):
            raise ValueError(f"must be a text, got {kind_of(value)} (put the value in quotes)")
        return Secret(value)
    found = _looked_up(value, plain=cls in (bool, int, float))
    if cls is Path and isinstance(found, str):
        return _path(found)
    if get_origin(cls) is Literal:
        if found in get_args(cls) and isinstance(found, str):
            return found
        raise ValueError(f"must be one of {', '.join(get_args(cls))}, got {_shown(value, found)}")
    if cls is float and type(found) is int:
        return float(found)
    if type(found) is not cls:
        raise ValueError(f"must be {_EXPECTED.get(cls, 'a text')}, got {_shown(value, found)}")
    return found


def _looked_up(value: Any, *, plain: bool) -> Any:
    """The value, or what a reference stands for, which may be a number or a boolean (``plain``) if it is wholly
    ``${NAME}``. Raises ValueError: the reference leads nowhere."""
    if not isinstance(value, Reference):
        return value
    try:
        text = value.text()
    except ValueError as error:
        raise ValueError(f"{error} (line {value.line})") from None
    try:
        return plain_scalar(text) if plain and value.whole else text
    except ValueError:
        return text


def _path(text: str) -> Path:
    if "\0" in text or not text.startswith(("/", "~/")):
        raise ValueError("must be an absolute path, or start with ~/")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("starts with ~/ and no home folder is known") from None


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return _looked_up(value, plain=True)


def _shown(value: object, made: object = None, *, secret: bool = False) -> str:
    """A number or a text of the tree; only the type of what may be ``secret``, of what is long, and of a reference,
    which stands for ``made``."""
    if isinstance(value, Reference):
        return f"{kind_of(made)} (from a reference)"
    text = json.dumps(value) if isinstance(value, bool) else repr(value)
    if not isinstance(value, int | float if secret else int | float | str) or len(text) > _QUOTED_MAX:
        return kind_of(value)
    return f"the text {text}" if isinstance(value, str) else text


def _suggestion(name: str, known: Mapping[str, object]) -> str:
    keys = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower().replace("_", ""), keys, n=1)
    return f"; did you mean {keys[close[0]]}?" if close else ""


def _between_sections(sections: Mapping[str, Any], tree: Mapping[str, Any]) -> Iterator[Problem]:
    """Check what one section says of another: names of providers, and the model beside them."""
    given = tree.get("providers") or {}
    if not isinstance(given, dict):
        return
    known = f"a name in providers (there: {', '.join(map(repr, sorted(given))) or 'none'})"
    routing, local = sections.get("routing", RoutingConfig()), sections.get("local_model", LocalModelConfig())
    for path, name in routing.places() if routing is not INVALID else ():
        provider, _, model = name.partition("/")
        if provider not in {LOCAL_PROVIDER, *given}:
            yield Problem(path, f"the provider must be {LOCAL_PROVIDER!r} or {known}, got {_shown(name)}")
        elif provider == LOCAL_PROVIDER and local is not INVALID and model != local.model:
            yield Problem(path, f"the local model must be localModel.model ({local.model!r}), got {_shown(name)}")
    providers: Any = sections.get("providers", {})
    for path, name, missing in _asked_beside_chats(sections, tree):
        if name not in given:
            yield Problem(path, f"must be {known}, got {_shown(name)}")
        elif providers is not INVALID and providers[name].type != "openai":
            yield Problem(path, "must name a provider of type 'openai'")
        if missing:
            yield Problem(missing, "is required beside provider")


def _asked_beside_chats(sections: Mapping[str, Any], tree: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The providers of models that do not chat: key, name, and the key of the model if that is missing."""
    found: list[Any] = [sections.get(name) or INVALID for name in ("embedding", "auto_rag", "voice")]
    embedding, recall, voice = found
    if embedding is not INVALID and embedding.provider is not None:
        has_model = (tree["embedding"] or {}).get("model") is not None
        yield "embedding.provider", embedding.provider, "" if has_model else "embedding.model"
    if recall is not INVALID and recall.rerank.provider is not None:
        yield "autoRag.rerank.provider", recall.rerank.provider, "" if recall.rerank.model else "autoRag.rerank.model"
    for name in ("transcribe", "speak") if voice is not INVALID else ():
        if (model := getattr(voice, name)) is not None:
            yield f"voice.{name}", model.partition("/")[0], ""
