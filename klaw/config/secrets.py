"""``secrets.env`` beside the configuration: keys that Klaw was given, as lines ``NAME=value``, only for its owner.
References such as ``${NAME}`` find them where the environment has no such variable. Blocks."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from klaw.config import safe_open
from klaw.config.paths import ensure_private_dir
from klaw.errors import ConfigError

FILE = "secrets.env"
MAX_FILE_BYTES = 65_536
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_KEY = re.compile(r"[\x21-\x7e]+")


def with_secrets(folder: Path, environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment, and behind it what ``secrets.env`` of a configuration folder holds. Raises ConfigError: it
    cannot be read, or a line of it has another form."""
    return {**{name: value for name, value in map(_pair, _lines(folder)) if name}, **environ}


def store(folder: Path, name: str, key: str | None) -> str | None:
    """Write a key in the place of one with that name, None removes it; other lines stay. Returns what was there.
    Raises ConfigError, which never quotes the key."""
    if key is not None and not _KEY.fullmatch(key):
        raise ConfigError.of("a key is printable ASCII text without spaces, and not empty")
    lines = _lines(folder)
    before = dict(map(_pair, lines)).get(name)
    kept = [line for line in lines if _pair(line)[0] != name]
    data = "\n".join([*kept, *([f"{name}={key}"] if key is not None else []), ""]).encode()
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError.of(f"{folder / FILE} has no room for another key: at most {MAX_FILE_BYTES} bytes")
    ensure_private_dir(folder)
    try:
        safe_open.replace(folder, FILE, data)
    except OSError as error:
        raise ConfigError.of(f"cannot write {folder / FILE}: {error.strerror or error}") from error
    return before


def open_to_others(folder: Path) -> bool:
    path = folder / FILE
    return path.is_file() and bool(path.stat().st_mode & 0o077)


def _lines(folder: Path) -> list[str]:
    path = folder / FILE
    try:
        lines = (safe_open.read(folder, FILE, MAX_FILE_BYTES) or b"").decode("utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError.of(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError.of(f"{path} is not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#") and not _pair(line)[0]:
            raise ConfigError.of(f"{path}: line {number} does not have the form NAME=value")
    return lines


def _pair(line: str) -> tuple[str, str]:
    """Name and value; both empty for a comment."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        return "", ""
    value = found[2].strip()
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return found[1], value[1:-1] if quoted else value
