"""Which paths a model may name, and how one is resolved inside a folder, so that nothing outside of it is ever opened.

Where links and ``..`` lead is looked up first: a link that stays inside works, one that leads out is refused. What is
found is then opened name by name and never through a link (``klaw.config.safe_open``), so what is exchanged meanwhile
is refused and not followed. Opening blocks; do it in a thread.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import attrs

from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, encode_name
from klaw.config.safe_open import FOLDER, NotPlain
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import NotThere, ToolRefused

MAX_PATH_CHARS = 1024
MAX_NAME_BYTES = 255
MAX_DEPTH = 32

_SECRET = re.compile(
    r"\..*"  # hidden: .env, .git, .ssh, .netrc
    r"|.*\.(?:env|pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg|asc)"
    r"|(?:id_(?:rsa|dsa|ecdsa|ed25519)|known_hosts|authorized_keys)(?:\..*)?"
    r"|(?:credentials?|secrets?|tokens?|auth(?:-profiles)?|oauth|passwords?)(?:\.(?:json5?|ya?ml|toml|ini|cfg|conf|txt))?",
    re.IGNORECASE | re.DOTALL,
)


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a relative path, in order, with ``..`` and without ``.`` and empty ones. Raises ToolRefused: it is
    absolute, too long or too deep, or holds what no file name should."""
    if len(path) > MAX_PATH_CHARS:
        raise ToolRefused(f"path: {len(path)} characters long, the limit is {MAX_PATH_CHARS}")
    if "\0" in path:
        raise ToolRefused("path: must not hold a NUL character")
    if path.startswith(("/", "~")):
        raise ToolRefused("path: must be relative to the workspace, for instance notes/plan.md")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    for part in parts:
        _check_name(part)
    if len(parts) > MAX_DEPTH:
        raise ToolRefused(f"path: {len(parts)} folders deep, the limit is {MAX_DEPTH}")
    return parts


def _check_name(name: str) -> None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolRefused("path: is not valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise ToolRefused(f"path: a name in it has {size} bytes, the limit is {MAX_NAME_BYTES}")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise ToolRefused("path: must not hold control characters or line ends")


def is_private(name: str) -> bool:
    """Whether a file is closed to the model by its name: it is hidden, or usual for keys and passwords."""
    return _SECRET.fullmatch(name) is not None


def is_text_name(name: str) -> bool:
    """Whether a model could name a file of this name: valid UTF-8, no control characters."""
    try:
        _check_name(name)
    except ToolRefused:
        return False
    return True


_REASONS = {
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EISDIR: "is a folder",
    errno.EACCES: "the system does not permit it",
    errno.EPERM: "the system does not permit it",
    errno.EEXIST: "exists already",
    errno.ELOOP: "was replaced by a link meanwhile",
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "no space is left on the disk",
    errno.EROFS: "the disk is read-only",
    errno.ENAMETOOLONG: "a name is too long",
}


def refuse(path: str, error: OSError) -> NoReturn:
    """Raise what a system error means, for the model to read."""
    otherwise = f"cannot be used ({errno.errorcode.get(error.errno or 0, 'OSError')})"
    reason = str(error) if isinstance(error, NotPlain) else _REASONS.get(error.errno or 0, otherwise)
    kind = NotThere if error.errno == errno.ENOENT else ToolRefused
    raise kind(f"{path or '.'}: {reason}") from error


@attrs.frozen(kw_only=True)
class FilePlace:
    """Where a path leads: an open folder and a name in it, which was no link a moment ago. For use in its ``with``."""

    folder: int
    name: str
    """Empty when the path is the folder itself."""
    path: str
    """Without links and ``..``, relative to the root."""


@attrs.frozen(kw_only=True)
class Root:
    """A folder that tools may use."""

    folder: Path
    """Chosen by a person; links on the way to it are their choice too."""
    below: tuple[str, ...] = ()
    """Names from ``folder`` down to the root; links are not followed here."""
    closed: frozenset[str] = frozenset()
    """Names (case-folded) right beneath the root that do not exist for the model."""
    kept: Callable[[str], bool] = lambda _path: False
    """Whether a path beneath the root, without links, must not be changed."""
    show_private: bool = False
    """Let hidden files and those that look like secrets be opened; for Klaw's own copying."""

    @contextmanager
    def resolve(self, path: str, *, make: bool = False) -> Iterator[FilePlace]:
        """Open the folder that a path, relative to the root, leads to. ``make``: make missing folders on the way (mode
        0700). Raises NotThere: one is missing; ToolRefused: the path leads out, or through something private."""
        names = self._names(path)
        with ExitStack() as stack:
            try:
                below = "/".join((*self.below, *names[:-1]))
                folder = stack.enter_context(safe_open.opened_folder(self.folder, below, make=make))
            except OSError as error:
                refuse(path, error)
            yield FilePlace(folder=folder, name=names[-1] if names else "", path="/".join(names))

    def _names(self, path: str) -> tuple[str, ...]:
        """The names on the way from the root to a path, with links and ``..`` followed."""
        given = parts_of(path)
        own = os.path.realpath(self.folder.joinpath(*self.below))
        try:
            real = os.path.realpath("/".join((own, *given)))
        except OSError as error:  # a link was exchanged for something else meanwhile
            refuse(path, error)
        lexical = os.path.normpath("/".join(given))
        if lexical.split("/")[0] == ".." or (real != own and not real.startswith(own.rstrip("/") + "/")):
            raise ToolRefused(f"{path}: leads out of the workspace")
        names = parts_of(real[len(own) :].strip("/"))
        for name in (*given, *names):
            if name != ".." and is_private(name) and not self.show_private:
                raise ToolRefused(f"{name}: hidden files and files that look like secrets are closed to tools")
        if names and self.is_closed(names[0], top=True):
            raise NotThere(f"{names[0]}: no such file or folder")
        return names

    def is_closed(self, name: str, *, top: bool) -> bool:
        """Whether a name is kept from the model; ``top``: right beneath the root."""
        return (top and name.casefold() in self.closed) or (is_private(name) and not self.show_private)

    def check_changeable(self, path: str) -> None:
        """Raises ToolRefused for the path of a resolved place that must not be changed."""
        if self.kept(path):
            why = "stands in later prompts; after reading from outside it is changed only when the user says yes"
            raise ToolRefused(f"{path}: {why}")

    def where(self, path: str) -> str:
        """The path without links and ``..``, also of what does not exist yet. Raises as ``resolve``."""
        return "/".join(self._names(path))


@contextmanager
def opened_folder(place: FilePlace) -> Iterator[int]:
    """The folder that a path names, open. Raises ToolRefused."""
    try:
        fd = os.open(place.name or ".", FOLDER, dir_fd=place.folder)
    except OSError as error:
        refuse(place.path, error)
    try:
        yield fd
    finally:
        os.close(fd)


def root_of(workspace: Path, user: UserId) -> Root:
    if user == LOCAL_USER:
        return Root(folder=workspace, closed=frozenset({USERS_FOLDER}))
    return Root(folder=workspace, below=(USERS_FOLDER, encode_name(user)))
