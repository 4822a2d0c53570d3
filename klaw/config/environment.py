"""References such as ``${NAME}`` in the texts of the configuration file, and secrets, which are never printed. A
reference is looked up when it is needed: a command that calls no provider must not fail because a key is only in the
environment of the service."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, final

import attrs

from klaw.errors import ConfigError

CREDENTIALS_DIRECTORY = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what a unit names with ``LoadCredential=``."""
MAX_FILE_BYTES = 65_536

_REFERENCE = re.compile(r"\$\$|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_FORMS = {
    "variable": re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(:-(?P<default>.*))?", re.DOTALL),
    "file": re.compile(r"file:(?P<name>(/|~/)[^\0]+)"),
    "credential": re.compile(r"credential:(?P<name>[A-Za-z0-9_][A-Za-z0-9_.@-]*)"),
}


@attrs.frozen
class _Source:
    """One ``${...}``; ``kind`` is a key of ``_FORMS``."""

    kind: str
    name: str
    default: str | None = attrs.field(default=None, repr=False)

    def value(self, environ: Mapping[str, str]) -> str:
        """Raises ValueError: it is missing, or holds no text."""
        if self.kind == "file":
            return _contents(Path(self.name).expanduser())
        if self.kind == "credential":
            folder = environ.get(CREDENTIALS_DIRECTORY)
            if not folder:
                raise ValueError(f"there is no credential {self.name}: a unit names it with LoadCredential=")
            return _contents(Path(folder) / self.name)
        found = environ.get(self.name)
        if self.default is not None and not found:
            found = self.default
        if found is None:
            raise ValueError(f"the environment variable {self.name} is not set")
        try:
            check_text(found)
        except ValueError:
            raise ValueError(f"the environment variable {self.name} does not hold UTF-8 text") from None
        return found


Piece: TypeAlias = str | _Source


@attrs.frozen(kw_only=True)
class Reference:
    """A text of the file with at least one reference in it. Its value is never quoted in a message."""

    pieces: tuple[Piece, ...] = attrs.field(repr=False)
    line: int = attrs.field(eq=False)
    environ: Mapping[str, str] = attrs.field(repr=False, eq=False)

    @property
    def whole(self) -> bool:
        """Whether it is one ``${...}`` and nothing else, so that it may stand for a number or a bool."""
        return len(self.pieces) == 1

    def text(self) -> str:
        """Look up what it stands for now; may read files. Raises ValueError, which names what is missing or no text."""
        return "".join(piece if isinstance(piece, str) else piece.value(self.environ) for piece in self.pieces)


def read_references(text: str, line: int, environ: Mapping[str, str]) -> str | Reference:
    """Find ``${NAME}``, ``${NAME:-default}``, ``${file:/path}`` and ``${credential:NAME}``; ``$$`` is a ``$``. Returns
    plain text when there is no reference in it. Raises ValueError: one is malformed."""
    pieces: list[Piece] = []
    position = 0
    for match in _REFERENCE.finditer(text):
        pieces += [text[position : match.start()], "$" if match[0] == "$$" else _source(match)]
        position = match.end()
    pieces = [piece for piece in (*pieces, text[position:]) if piece]
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(map(str, pieces))
    return Reference(pieces=tuple(pieces), line=line, environ=environ)


def _source(match: re.Match[str]) -> _Source:
    inside = match["inside"] if match["end"] else ""
    for kind, form in _FORMS.items():
        if found := form.fullmatch(inside):
            return _Source(kind, found["name"], found.groupdict().get("default"))
    raise ValueError(
        "a reference must have the form ${NAME}, ${NAME:-default}, ${file:/path} or ${credential:NAME}; "
        "write $$ for a dollar sign"
    )


def _contents(path: Path) -> str:
    """The text of a small regular file, without line ends behind it."""
    try:
        # Without O_NONBLOCK a pipe would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        return raw.decode("utf-8").rstrip("\r\n")
    except OSError as exc:
        raise ValueError(f"cannot read {path}: {exc.strerror or type(exc).__name__}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} does not hold UTF-8 text") from None


def check_text(text: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot write."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("half of a surrogate pair is not text")


@final
class Secret:
    """A key or a header value, or the reference to one; every way of printing it shows ``***``. ``broken_by`` tells
    which rule a text breaks, when a reference is looked up. Not an attrs class on purpose: ``attrs.asdict`` would open
    it."""

    __slots__ = ("_broken_by", "_source")

    def __init__(self, source: str | Reference, broken_by: Callable[[str], str | None] | None = None) -> None:
        self._source = source
        self._broken_by = broken_by

    @property
    def literal(self) -> str | None:
        """The text if the file itself holds it."""
        return self._source if isinstance(self._source, str) else None

    def under(self, broken_by: Callable[[str], str | None]) -> "Secret":
        return Secret(self._source, broken_by)

    def reveal(self, key: str) -> str:
        """Give the text itself, to be handed to the network library and to nothing else. May read a file. Raises
        ConfigError, which names ``key``, its key path: what it refers to is not there, or breaks its rule."""
        if isinstance(self._source, str):
            return self._source
        try:
            text = self._source.text()
        except ValueError as exc:
            raise ConfigError.of(str(exc), key) from None
        broken = self._broken_by(text) if self._broken_by is not None else None
        if broken is not None:
            raise ConfigError.of(f"{broken}, and what it refers to is not", key)
        return text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._source == self._source

    def __hash__(self) -> int:
        return hash((Secret, self._source if isinstance(self._source, str) else self._source.pieces))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written to a file or sent to another process")
