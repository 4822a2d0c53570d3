"""Which paths a model may name: pure rules on text, before anything on the disk is looked at.

What the disk adds (links, pipes, folders that change meanwhile) is ``beneath``'s work.
"""

import re
import unicodedata

from klaw.errors import KlawError

MAX_PATH_CHARS = 1024
MAX_NAME_BYTES = 255
"""What file systems take for one name."""
MAX_DEPTH = 32
"""Folders inside each other."""

_SECRET = re.compile(
    r"\..*"  # hidden: .env, .git, .ssh, .netrc
    r"|.*\.(?:env|pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg|asc)"
    r"|(?:id_(?:rsa|dsa|ecdsa|ed25519)|known_hosts|authorized_keys)(?:\..*)?"
    r"|(?:credentials?|secrets?|tokens?|auth(?:-profiles)?|oauth|passwords?)(?:\.(?:json5?|ya?ml|toml|ini|cfg|conf|txt))?",
    re.IGNORECASE | re.DOTALL,
)


class FileRefused(KlawError):
    """A file operation was refused or impossible; the workspace is as it was. The text is made for the model and may
    hold the path, so it never goes into a log."""


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a relative path, in order; ``..`` is one of them, ``.`` and empty ones are dropped.

    Raises:
        FileRefused: the path is absolute, too long or too deep, or holds what no file name should.
    """
    if len(path) > MAX_PATH_CHARS:
        raise FileRefused(f"path: {len(path)} characters long, the limit is {MAX_PATH_CHARS}")
    if "\0" in path:
        raise FileRefused("path: must not hold a NUL character")
    if path.startswith(("/", "~")):
        raise FileRefused("path: must be relative to the workspace, for instance notes/plan.md")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    for part in parts:
        _check_name(part)
    if len(parts) > MAX_DEPTH:
        raise FileRefused(f"path: {len(parts)} folders deep, the limit is {MAX_DEPTH}")
    return parts


def _check_name(name: str) -> None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise FileRefused("path: is not valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise FileRefused(f"path: a name in it has {size} bytes, the limit is {MAX_NAME_BYTES}")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise FileRefused("path: must not hold control characters or line ends")


def is_private(name: str) -> bool:
    """Whether a file or folder of this name is kept from the model: hidden ones, and names that keys and passwords
    usually have."""
    return _SECRET.fullmatch(name) is not None


def is_text_name(name: str) -> bool:
    """Whether a name found on the disk could be named by a model: valid UTF-8, no control characters."""
    try:
        _check_name(name)
    except FileRefused:
        return False
    return True
