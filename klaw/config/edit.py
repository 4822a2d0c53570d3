"""Changing keys of a configuration file, YAML or JSON. Only the lines of these keys change, so comments, order and
layout stay, and so do references such as ``${NAME}``. ``edited`` is pure and knows nothing of the keys' meaning; a
``Draft`` checks and writes the file."""

import enum
import fcntl
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, Final, Self

import attrs
import yaml

from klaw import atomic_file
from klaw.config.describe import secrets_in
from klaw.config.document import compose, join_path, kind_of, plain_scalar, read_written, split_path
from klaw.config.load import MAX_FILE_BYTES, ConfigText
from klaw.config.paths import ensure_private_dir
from klaw.config.schema import RENAMED, EngineConfig
from klaw.errors import ConfigError, Problem


class _Unset(enum.Enum):
    UNSET = enum.auto()


UNSET: Final = _Unset.UNSET
"""In place of a value: the key is taken out of the file."""

_MISSING = object()
_END_MARKER = re.compile(r"^\.\.\.", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9/~]([A-Za-z0-9_./+@~-]|:(?=[A-Za-z0-9_/]))*")
_INDENT = 2


def edited(text: str, changes: Mapping[str, Any]) -> str:
    """The text with keys set or taken out. ``changes``: key path (``join_path``) to a JSON value, whose texts mean what
    they would mean in the file, or ``UNSET``; an object replaces what is there, key by key. Raises ConfigError: a path
    is malformed, leads through something that is no section, or the text is not YAML or cannot be changed so."""
    for path, value in changes.items():
        text = _changed(text, split_path(path), value)
    return text


def value_at(text: str, path: str) -> Any:
    """What the file says of a key, with references as they are written; ``UNSET`` if nothing. Raises ConfigError."""
    found = _found(read_written(text), split_path(path))
    return UNSET if found is _MISSING else found


def _found(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return _MISSING
        tree = tree[name]
    return tree


def _changed(text: str, path: tuple[str, ...], value: Any) -> str:
    tree = read_written(text)
    there = _found(tree, path)
    if value is UNSET:
        if there is _MISSING:
            return text
        if len(path) == 2 and len(tree[path[0]]) == 1:
            path = path[:1]
    elif isinstance(value, Mapping) and value and isinstance(there, dict) and there:
        for name in [*(each for each in there if each not in value), *value]:
            text = _changed(text, (*path, name), value.get(name, UNSET))
        return text
    elif there is not _MISSING and _same(there, value):
        return text
    for depth in range(1, len(path)):
        above = _found(tree, path[:depth])
        if not isinstance(above, dict) and above not in (_MISSING, None):
            raise ConfigError.of(f"is {kind_of(above)} in the file, not a section", _joined(path[:depth]))
    new = _without(text, path) if value is UNSET else _with(text, path, value)
    with suppress(ConfigError):
        if _same(read_written(new), _expected(tree, path, value)):
            return new
    raise ConfigError.of("stands in the file in a form that can only be changed by hand", _joined(path))


def _joined(path: Sequence[str]) -> str:
    return reduce(join_path, path, "")


def _expected(tree: Any, path: Sequence[str], value: Any) -> Any:
    name, *below = path
    tree = dict(tree or {})
    tree[name] = _expected(tree.get(name), below, value) if below else value
    return {key: each for key, each in tree.items() if each is not UNSET}


def _same(one: Any, other: Any) -> bool:
    """Whether two trees mean the same: a section without keys may also be empty."""
    return json.dumps(_filled(one)) == json.dumps(_filled(other))


def _filled(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {name: _filled(each) for name, each in tree.items()} or None
    return list(map(_filled, tree)) if isinstance(tree, list | tuple) else tree


# -- the places of keys in the text -----------------------------------------------------------------------------------


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next((entry for entry in node.value if entry[0].value == name), None)


def _is_block(node: yaml.Node) -> bool:
    """Whether its extent follows from its lines' indentation, not from brackets or quotes."""
    if isinstance(node, yaml.ScalarNode):
        return getattr(node, "style", None) in ("|", ">")
    return not node.flow_style  # type: ignore[attr-defined]  # both kinds of collections have it


def _end(text: str, node: yaml.Node) -> int:
    """Where its last character ends: a block's own mark stands behind the comments and empty lines after it."""
    end: int = node.end_mark.index
    if not _is_block(node):
        return end
    if isinstance(node, yaml.ScalarNode):
        return len(text[:end].rstrip())
    last = node.value[-1]
    return _end(text, last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, at: int) -> int:
    return text.find("\n", at) + 1 or len(text)


def _with(text: str, path: Sequence[str], value: Any) -> str:
    node = root = compose(text)
    in_flow = False
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            break
        in_flow = in_flow or not _is_block(node)
        entry = _entry(node, name)
        new = reduce(lambda inner, key: {key: inner}, reversed(path[depth + 1 :]), value)
        if entry is None and in_flow:
            return _in_flow(text, node, name, new)
        if entry is None:
            at = None if node is root else _line_end(text, _end(text, node))
            return _put(text, at, _block({name: new}, node.value[0][0].start_mark.column))
        key, node = entry
        if depth + 1 == len(path) or not isinstance(node, yaml.MappingNode) or not node.value:
            return _replaced(text, key, node, new, in_flow=in_flow)
    return _put(text, None, _block(reduce(lambda inner, key: {key: inner}, reversed(path), value), 0))


def _replaced(text: str, key: yaml.Node, node: yaml.Node, value: Any, *, in_flow: bool) -> str:
    colon = text.index(":", key.end_mark.index) + 1
    end = max(colon, _end(text, node))
    if isinstance(value, Mapping) and value and not in_flow:
        lines = _block(value, key.start_mark.column + _INDENT)
        return text[:colon] + _newline(text) + _newline(text).join(lines) + text[end:]
    start = colon if _is_block(node) else max(colon, node.start_mark.index)
    space = " " if start == colon and not (in_flow and end > colon) else ""
    return text[:start] + space + (_json(value) if in_flow else _flow(value)) + text[end:]


def _in_flow(text: str, node: yaml.MappingNode, name: str, value: Any) -> str:
    new = f"{_json(name)}: {_json(value)}"
    if not node.value:
        at = node.start_mark.index + 1
        return f"{text[:at]}{new}{text[at:]}"
    key, last = node.value[-1]
    at, column = _end(text, last), key.start_mark.column
    alone = not text[key.start_mark.index - column : key.start_mark.index].strip()
    return text[:at] + ("," + _newline(text) + " " * column if alone else ", ") + new + text[at:]


def _put(text: str, at: int | None, lines: Iterator[str]) -> str:
    """Insert lines; ``at`` None: at the end of the document."""
    marker, newline = _END_MARKER.search(text), _newline(text)
    if at is None:
        at = marker.start() if marker else len(text)
    before = newline if at and text[at - 1] != "\n" else ""
    return text[:at] + before + "".join(line + newline for line in lines) + text[at:]


def _without(text: str, path: Sequence[str]) -> str:
    node, in_flow = compose(text), False
    for name in path:
        assert isinstance(node, yaml.MappingNode)
        above, in_flow = node, in_flow or not _is_block(node)
        entry = _entry(node, name)
        assert entry is not None
        key, node = entry
    assert node is not None
    start, end = key.start_mark.index, _end(text, node)
    if not in_flow:
        return text[: start - key.start_mark.column] + text[_line_end(text, end) :]
    comma = re.compile(r"\s*,[ \t]*").match(text, end)
    if comma is None or above.value[-1] is entry:
        head = text[:start].rstrip()
        return (head.removesuffix(",") if len(above.value) > 1 else head) + text[end:]
    following = above.value[above.value.index(entry) + 1][0].start_mark.index
    return text[:start] + text[following:]


# -- values as text ---------------------------------------------------------------------------------------------------


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _block(tree: Mapping[str, Any], indent: int) -> Iterator[str]:
    for name, value in tree.items():
        key = " " * indent + _text(name)
        if isinstance(value, Mapping) and value:
            yield f"{key}:"
            yield from _block(value, indent + _INDENT)
        else:
            yield f"{key}: {_flow(value)}"


def _flow(value: Any, *, inside: bool = False) -> str:
    """A value on one line, ``inside`` of brackets."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(name)}: {_flow(each, inside=True)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(each, inside=True) for each in value) + "]"
    return _text(value) if isinstance(value, str) and not (inside and ":" in value) else _json(value)


def _text(value: str) -> str:
    """Without quotes, where nothing else can be meant."""
    with suppress(ValueError):
        if _PLAIN.fullmatch(value) and plain_scalar(value) == value:
            return value
    return _json(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


# -- the file ---------------------------------------------------------------------------------------------------------

LAST_GOOD = ".last"
"""Behind the file's name: what it held before the last change, if that was right."""


@attrs.frozen(kw_only=True)
class Draft:
    """A change that was checked as a whole and is not written yet. All of it blocks."""

    file: ConfigText
    """As it was read."""
    raw: bytes
    """What it will hold."""
    config: EngineConfig
    warnings: Sequence[Problem]
    before: Mapping[str, Any]
    """What the file said of the changed keys: changes that take this one back."""

    @classmethod
    def of(cls, path: Path, changes: Mapping[str, Any], *, undo: bool = False) -> Self:
        """Read the file as it is now and apply the changes (see ``edited``). Raises ConfigError: it cannot be read or
        changed, or would break rules then (all of them named), or, but for an ``undo``, would hold a new key or
        password in plain text."""
        file = ConfigText.read(path)
        text = file.text
        for (section, old), new in RENAMED.items():
            if f"{section}.{new}" in changes and value_at(text, f"{section}.{old}") is not UNSET:
                changes = {f"{section}.{old}": UNSET, **changes}
        before = dict(_before(read_written(text), split_path(key)) for key in changes)
        mark = BOM_UTF8 if (file.raw or b"").startswith(BOM_UTF8) else b""
        raw = mark + edited(text, changes).encode()
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError.of(f"the file would be larger than {MAX_FILE_BYTES} bytes")
        config, warnings = attrs.evolve(file, raw=raw).understood()
        plain = _plain_secrets(config) - _plain_secrets(_understood(file))
        if plain and not undo:
            told = "must be a reference such as ${NAME} or ${file:/path}: keys and passwords do not stand in the file"
            raise ConfigError([Problem(key, told) for key, _ in sorted(plain)])
        return cls(file=file, raw=raw, config=config, warnings=warnings, before=before)

    def write(self) -> bool:
        """Replace the file, with its mode and owner, and keep the old one beside it. False: it was changed since it was
        read, and nothing is written. Raises ConfigError: it cannot be written."""
        path = self.file.path
        target = Path(os.path.realpath(path))  # a link stays one
        if not target.parent.exists():
            ensure_private_dir(target.parent)
        try:
            with _alone(target.parent):
                now = ConfigText.read(path)
                if now.raw != self.file.raw:
                    return False
                if self.raw == now.raw:
                    return True
                owner = (target.stat().st_uid, target.stat().st_gid) if now.raw is not None else None
                if now.raw is not None and _understood(now) is not None:
                    atomic_file.replace(path.with_name(path.name + LAST_GOOD), now.raw, mode=now.mode, owner=owner)
                atomic_file.replace(target, self.raw, mode=now.mode, owner=owner)
        except OSError as error:
            raise ConfigError.of(f"cannot write {path}: {error.strerror or type(error).__name__}") from error
        return True


def change_file(path: Path, changes: Mapping[str, Any]) -> Draft:
    """Change a configuration that no server runs with. Returns what was written. Blocks. Raises ConfigError: nothing
    was changed."""
    for _ in range(TRIES):
        draft = Draft.of(path, changes)
        if draft.write():
            return draft
    raise ConfigError.of(f"{path} is changed by another program all the time")


TRIES = 5


def _before(tree: Mapping[str, Any], path: Sequence[str]) -> tuple[str, Any]:
    """The change that takes back one of this key: an entry that is made for it goes, too."""
    for depth in range(1, len(path) + 1):
        if _found(tree, path[:depth]) is _MISSING:
            return _joined(path[:depth]), UNSET
    return _joined(path), _found(tree, path)


def _plain_secrets(config: EngineConfig | None) -> set[tuple[str, str]]:
    """Those that stand in the file itself, with their key paths."""
    return {(path, secret.literal) for path, secret in secrets_in(config) if secret.literal}


def _understood(file: ConfigText) -> EngineConfig | None:
    """None: it is wrong."""
    with suppress(ConfigError):
        return file.understood()[0]
    return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold off other Klaw processes; they never hold this for long."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
