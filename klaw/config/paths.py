"""Where Klaw keeps its files, and how names from outside become folder names. Nothing else in Klaw joins a path from an
environment variable or from a name that a client sent."""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import ConfigError

SOCKET_PATH_MAX_BYTES = 107
"""What ``sun_path`` of a unix socket holds on Linux, without the closing NUL."""
CONFIG_NAMES = ("engine.yaml", "engine.yml", "engine.json")
"""All are read as YAML, of which JSON is a part. The first that exists counts; ``engine.json`` is the old name."""
NAME_MAX_BYTES = 120
"""Of ``encode_name``; leaves room for suffixes under the usual limit of 255."""
_DIGEST_HEX = 16
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


@attrs.frozen(kw_only=True)
class Paths:
    """All places of one Klaw installation, absolute; they may not exist yet."""

    config_dir: Path
    data_dir: Path
    """What must never be lost: the conversation logs and the database."""
    state_dir: Path
    """What may be lost: logs and, without a runtime folder of the system, the socket."""
    models_dir: Path
    runtime_dir: Path
    workspace: Path
    """The prompt files (SOUL.md, ...) that a person edits."""
    backups_dir: Path
    named_config: Path | None = None
    """The configuration, where ``--config`` names it."""

    @property
    def config_file(self) -> Path:
        """The first of its names that exists, else the place where it belongs."""
        if self.named_config is not None:
            return self.named_config
        files = [self.config_dir / name for name in CONFIG_NAMES]
        return next((file for file in files if os.path.lexists(file)), files[0])

    @property
    def database(self) -> Path:
        return self.data_dir / "klaw.db"

    @property
    def conversations(self) -> Path:
        return self.data_dir / "conversations"

    @property
    def admin_socket(self) -> Path:
        return self.runtime_dir / "admin.sock"

    @classmethod
    def resolve(cls, home: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Self:
        """Find the places: all under ``home`` (``--home``), whatever the environment says, so that a scratch copy never
        touches the real workspace; else under ``KLAW_HOME``, but for ``KLAW_WORKSPACE``; else by the XDG variables, of
        which relative ones are ignored, as that standard asks. Raises ConfigError: there is no home folder, or the
        admin socket's path is too long."""
        workspace = _folder(environ.get("KLAW_WORKSPACE"), environ) if home is None else None
        root = _folder(home, environ) or _folder(environ.get("KLAW_HOME"), environ)
        paths = cls._under(root, workspace) if root else cls._by_xdg(environ, workspace)
        _check_socket(paths.admin_socket)
        return paths

    @classmethod
    def _under(cls, root: Path, workspace: Path | None) -> Self:
        return cls(
            config_dir=root / "config",
            data_dir=root / "data",
            state_dir=root / "state",
            models_dir=root / "models",
            runtime_dir=root / "run",
            workspace=workspace or root / "workspace",
            backups_dir=root / "backups",
        )

    @classmethod
    def _by_xdg(cls, environ: Mapping[str, str], workspace: Path | None) -> Self:
        data_dir = _xdg(environ, "XDG_DATA_HOME", ".local/share")
        state_dir = _xdg(environ, "XDG_STATE_HOME", ".local/state")
        runtime = environ.get("XDG_RUNTIME_DIR", "")
        return cls(
            config_dir=_xdg(environ, "XDG_CONFIG_HOME", ".config"),
            data_dir=data_dir,
            state_dir=state_dir,
            models_dir=_xdg(environ, "XDG_CACHE_HOME", ".cache") / "models",
            runtime_dir=Path(runtime) / "klaw" if runtime.startswith("/") else state_dir / "run",
            workspace=workspace or data_dir / "workspace",
            backups_dir=data_dir.with_name("klaw-backups"),
        )


USERS_FOLDER = "users"
"""Below the workspace and below the data folder: one folder for each user but ``local``, whose files stand above it."""


def below_of_user(user: UserId, name: str) -> str:
    """The path of a user's own file, relative to the workspace or the data folder; for ``config.safe_open``."""
    return name if user == LOCAL_USER else f"{USERS_FOLDER}/{encode_name(user)}/{name}".rstrip("/")


def encode_name(name: str) -> str:
    """Turn any text into one safe folder or file name; different texts give different names. ASCII letters, digits,
    ``_`` and ``-`` stay; every other byte of the UTF-8 form becomes ``%XX``, the dot too, so that no name is ``..`` or
    hidden. A name over ``NAME_MAX_BYTES`` is cut and ends with ``~`` and 16 hex digits of its SHA-256."""
    raw = name.encode("utf-8", "surrogatepass")
    parts = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw]
    encoded = "".join(parts) or "%"
    if len(encoded) <= NAME_MAX_BYTES:
        return encoded
    room = NAME_MAX_BYTES - _DIGEST_HEX - 1
    head = ""
    for part in parts:
        if len(head) + len(part) > room:
            break
        head += part
    return f"{head}~{hashlib.sha256(raw).hexdigest()[:_DIGEST_HEX]}"


def ensure_private_dir(path: Path) -> Path:
    """Make ``path`` (and missing parents) with mode 0700, and take a looser mode away from an existing one. Raises
    ConfigError: it cannot be made, is not a folder, or is open to others and not ours to close."""
    try:
        for folder in reversed((path, *path.parents)):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(20, os.strerror(20))
        if stat.S_IMODE(mode) & 0o077:
            path.chmod(0o700)
    except OSError as exc:
        raise ConfigError.of(f"cannot make {path} a private folder (mode 0700): {exc.strerror or exc}") from exc
    return path


def open_private(path: Path, flags: int) -> int:
    """Open a file that only its owner may read, make it if it is missing, and take a looser mode away. Raises
    OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _folder(value: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """A folder that a person named, absolute."""
    text = "" if value is None else str(value)
    if not text:
        return None
    if "\0" in text:
        raise ConfigError.of("a folder name must not hold a NUL character")
    if text == "~" or text.startswith("~/"):
        text = str(_user_home(environ)) + text[1:]
    return Path(os.path.abspath(text))  # noqa: PTH100  resolve() would follow links that the person chose to have


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    value = environ.get(variable, "")
    base = Path(value) if value.startswith("/") else _user_home(environ) / default
    return base / "klaw"


def _user_home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError as exc:
        raise ConfigError.of("no home folder is known: set HOME, or give --home DIR") from exc


def _check_socket(socket: Path) -> None:
    size = len(os.fsencode(socket))
    if size > SOCKET_PATH_MAX_BYTES:
        raise ConfigError.of(
            f"the path of the admin socket is {size} bytes long and the system allows {SOCKET_PATH_MAX_BYTES}: "
            f"{socket}; choose a shorter --home, KLAW_HOME or XDG_RUNTIME_DIR"
        )
