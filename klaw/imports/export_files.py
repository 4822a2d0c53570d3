"""The files of an export: of a folder, of a ZIP, or one alone. They are read as streams and never unpacked to a disk.
What comes out of a ZIP is counted."""

import codecs
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import attrs

from klaw.domain.text import cut
from klaw.imports.events import Broken, Event, ExportedFile, ExportedMessage, ImportRefused, LeftOut, Unread

MAX_MEMBERS = 500_000
MAX_BYTES = 16 << 30
MAX_RATIO = 300
"""A file in a ZIP unpacks to at most this many times its size, and ``FREE_BYTES`` more. JSON comes to 10 or 20, DEFLATE
can do 1,000."""
FREE_BYTES = 64 << 20
BUFFER_BYTES = 1 << 16
MOST_NAMED, MOST_SHOWN = 5, 300
"""Files that nobody needed, and characters of their names."""
UNREADABLE = (Broken, OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Raised for damaged files and ZIPs, and unknown compression."""


class _CountedStream(io.RawIOBase):
    """Raises Broken where it has more than its limit."""

    def __init__(self, inner: IO[bytes], limit: int) -> None:
        self._inner, self._left = inner, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer is one
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise Broken("is far larger than its ZIP claims: the rest was not read")
        buffer[: len(data)] = data
        return len(data)


@attrs.frozen(eq=False)
class ExportEntry:
    name: str
    _of: "OpenedExport"
    _source: Path | zipfile.ZipInfo | None

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def size(self) -> int:
        """Raises OSError."""
        if isinstance(self._source, zipfile.ZipInfo):
            return self._source.file_size
        return self._source.stat().st_size if self._source is not None else 0

    def beside(self, name: str) -> ExportedFile | None:
        """A file that this one names by its place, such as ``photos/1.jpg``; None: not in the export."""
        place = PurePosixPath(self.name).parent / name.replace("\\", "/")
        found = self._of.find(place) if name and not {"..", "/"} & {*place.parts} else None
        return None if found is None else found.attached()

    def attached(self) -> ExportedFile:
        self._of.used.add(self.name)
        return ExportedFile(name=PurePosixPath(self.name).name, size=self.size, open=self._open_as_it_is)

    @contextmanager
    def as_export(self) -> Iterator["OpenedExport"]:
        """A part that is a ZIP. Raises as ``opened``."""
        self._of.used.add(self.name)
        if not isinstance(self._source, Path):
            raise ImportRefused("is a ZIP in a ZIP: unpack the outer one, and name the folder")
        with opened(str(self._source)) as inner:
            yield inner

    @contextmanager
    def _open_as_it_is(self) -> Iterator[IO[bytes]]:
        """Like ``open``, but for what is no text."""
        with self._of.opened(self._source) as stream:
            yield io.BufferedReader(_CountedStream(stream, self.size), BUFFER_BYTES)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Read it from its beginning. Raises OSError, ImportRefused."""
        self._of.used.add(self.name)
        with self._of.opened(self._source) as stream:
            limit = MAX_BYTES
            if isinstance(self._source, zipfile.ZipInfo):
                limit = min(limit, MAX_RATIO * self._source.compress_size + FREE_BYTES)
            buffered = io.BufferedReader(_CountedStream(stream, limit), BUFFER_BYTES)
            mark = buffered.peek(3)[:3]  # that Windows programs put there
            if mark == codecs.BOM_UTF8:
                buffered.read(3)
            elif mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise Broken("is UTF-16: save it as UTF-8")
            yield buffered

    def lines(self, most: int) -> Iterator[bytes]:
        """Its lines; one of more than ``most`` bytes comes as several. Raises as ``open``."""
        with self.open() as stream:
            while line := stream.readline(most):
                yield line


class OpenedExport:
    """What the user named. ``stream``: unless it is a folder."""

    def __init__(self, path: Path, stream: IO[bytes] | None) -> None:
        self.path = path
        self.used: set[str] = set()
        """Names of the files that were read, or belong to a message."""
        self._stream = stream
        self._zip = zipfile.ZipFile(stream) if stream is not None and zipfile.is_zipfile(stream) else None
        if self._zip is not None and len(self._zip.infolist()) > MAX_MEMBERS:
            raise ImportRefused(f"{path}: has more than {MAX_MEMBERS:,} files: unpack it, and name the folder")

    @property
    def has_several(self) -> bool:
        return self._zip is not None or self._stream is None

    def files(self, wanted: str, called: str = "") -> list[ExportEntry]:
        """The files whose names, with their folders, end as a regular expression says, sorted; a single file whatever
        its name. Raises ImportRefused: there is none, and it has a name for people (``called``)."""
        there: dict[str, Path | zipfile.ZipInfo]
        if self._zip is not None:
            there = {each.filename: each for each in self._zip.infolist() if not each.is_dir()}
        elif self._stream is not None:
            return [ExportEntry(self.path.name, self, None)]
        else:
            files = (each for each in self.path.rglob("*") if each.is_file() and not each.is_symlink())
            there = {each.relative_to(self.path).as_posix(): each for each in files}
        found = [ExportEntry(name, self, there[name]) for name in sorted(there) if _ends(wanted, name)]
        if called and not found:
            raise ImportRefused(f"{self.path}: there is no {called} in it")
        return found

    def others(self) -> Iterator[LeftOut]:
        """The files that nobody needed."""
        names = [each.name for each in self.files(".+") if each.name not in self.used] if self.has_several else []
        shown = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
        yield from (LeftOut(f"other files of the export: {cut(shown, MOST_SHOWN)}") for _ in names)

    def find(self, place: PurePosixPath) -> ExportEntry | None:
        """The ordinary file at a place of the export, or in a folder beside a single file. A bare name, which somebody
        else wrote, could mean an unrelated file there."""
        if self._zip is not None:
            try:
                found: Path | zipfile.ZipInfo = self._zip.getinfo(str(place))
            except KeyError:
                return None
        else:
            root = self.path if self._stream is None else self.path.parent
            found = root / place
            alone = self._stream is not None and (len(place.parts) < 2 or self.path.name == "-")
            try:
                if alone or not found.is_file() or not found.resolve().is_relative_to(root.resolve()):
                    return None
            except OSError:  # a name that no file can have
                return None
        return ExportEntry(str(place), self, found)

    @contextmanager
    def opened(self, source: Path | zipfile.ZipInfo | None) -> Iterator[IO[bytes]]:
        if isinstance(source, zipfile.ZipInfo):
            assert self._zip is not None
            if source.flag_bits & 1:
                raise ImportRefused(f"{source.filename}: is encrypted: unpack the ZIP, and name the folder")
            with self._zip.open(source) as stream:
                yield stream
        elif source is not None:
            with source.open("rb") as stream:
                yield stream
        else:
            assert self._stream is not None
            self._stream.seek(0)
            yield self._stream


_NAMED = (
    (r"conversations(?:[-_ ]?\d+)?\.json", ""),
    (r"chats/[^/]+\.json", "klaw"),
    (r"result\.json", "telegram"),
    (r"(?:memories|projects)\.json", "claude"),
    (r"(?:manifest[-_][^/]+|projects/[^/]+)\.json", ""),
    (r"(?:conversations|memories|projects)-\d{1,6}\.zip", "claude"),
    (r"[^/]*(?:chat|whatsapp|чат)[^/]*\.txt", "whatsapp"),
    (r"myactivity\.(?:json|html?)", ""),
    (r"[^/]*(?:gemini|bard)[^/]*/(?:[^/]+/)*[^/]+\.(?:json|html?)", ""),
    (r"[^/]+\.jsonl", ""),
    (r"[^/]+\.jsonl", "openclaw"),
    (r"(?:facts|people)\.json", "klaw"),
    (r"[^/]+\.txt", ""),
)
_MARKS = (
    (rb'^\s*\{\s*"type"\s*:\s*"session"', "openclaw"),
    (rb'(?s)^\s*<.*mdl-|"header"\s*:\s*"[^"]*(?:Gemini|Bard)', "gemini"),
    (rb"^\s*(?:[^\s\[{<]|\[[^\s\[{\"\]])", "whatsapp"),
    (rb'"chat_messages"|"conversations_memory"|"project_memories"|"prompt_template"|"data_files"', "claude"),
    (rb'"mapping"', "chatgpt"),
    (rb'"from_id"|"date_unixtime"|"personal_information"', "telegram"),
)
HEAD_BYTES, MOST_LOOKED = 1 << 18, 5


def source_of(export: OpenedExport) -> str:
    """The program that made an export, by the names of its files, or by how the file begins. Raises ImportRefused."""
    try:
        for file, source in [
            (file, source) for wanted, source in _NAMED for file in export.files(wanted)[:MOST_LOOKED]
        ]:
            if source and export.has_several:
                return source
            with file.open() as stream:
                head = stream.read(HEAD_BYTES)
            if (marked := next((source for mark, source in _MARKS if re.search(mark, head)), None)) is not None:
                return marked
    except UNREADABLE as error:
        raise ImportRefused(f"{export.path}: cannot be read: {error}") from error
    raise ImportRefused(f"{export.path}: is no export of ChatGPT, Claude, Gemini, Telegram, WhatsApp, OpenClaw or Klaw")


def each_file(files: Iterable[ExportEntry], read: Callable[[ExportEntry], Iterator[Event]]) -> Iterator[Event]:
    """What is read of files. One that cannot be read to its end is reported, and does not stop the rest."""
    for file in files:
        messages = 0
        try:
            for event in read(file):
                yield event
                messages += isinstance(event, ExportedMessage)
        except UNREADABLE as error:
            place = f"{file.name}, after message {messages}" if messages else file.name
            yield Unread(place, str(error) or type(error).__name__)


def _ends(wanted: str, name: str) -> bool:
    if "/._" in f"/{name}":  # what macOS keeps beside a file, under its name
        return False
    return re.search(rf"(?:^|/)(?:{wanted})$", name, re.IGNORECASE) is not None


@contextmanager
def opened(given: str) -> Iterator[OpenedExport]:
    """Open a file, a folder, or ``-`` for standard input, which must be a file then. Raises ImportRefused."""
    with ExitStack() as stack:
        try:
            export = _opened(given, stack)
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = f"; as root: klaw import … - < {given}" if isinstance(error, PermissionError) else ""
            raise ImportRefused(f"{given}: cannot be read: {reason}{hint}") from error
        yield export


def _opened(given: str, stack: ExitStack) -> OpenedExport:
    path = Path(given).expanduser()
    if given != "-" and path.is_dir():
        return OpenedExport(path, None)
    # A pipe would be waited for, where nobody has it open.
    number = os.dup(0) if given == "-" else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = stack.enter_context(os.fdopen(number, "rb"))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise ImportRefused(f"{given}: is not a file: save the export first, or redirect it: - < FILE")
    return OpenedExport(path, stream)
