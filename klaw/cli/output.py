"""What commands print, harmless to the terminal: results, notes, progress, errors."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TextIO, TypeAlias

from klaw.config.run_as import belongs_to, name_of
from klaw.domain.text import span
from klaw.domain.text_width import harmless, width
from klaw.errors import ConfigError, KlawError, SchemaTooNew, StoreDamaged
from klaw.operations.lines import MarkedLine, PlainLine, Table
from klaw.operations.operation import OperationError

EX_CONFIG = 78
"""Exit code (sysexits.h) of a server that another start does not help; conf/klaw.service makes none after it."""
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"


def say(*lines: PlainLine) -> None:
    print("".join(f"{each}\n" for each in written(lines)), end="", flush=True)


def warn(text: str) -> None:
    print(f"klaw: {line(text)}", file=sys.stderr)


def written(lines: Sequence[PlainLine], *, bold: bool | None = None) -> list[str]:
    """Lines of an operation, harmless to the terminal. ``bold``: set marks in bold; None: if the output is one."""
    if bold is None:
        bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    out = []
    for each in lines:
        if isinstance(each, Table):
            out += table([[line(cell) for cell in row] for row in each.rows], right=each.right)
        elif isinstance(each, MarkedLine):
            out.append(_marked(each) if bold else line(each.text))
        else:
            out.append(line(each))
    return out


def _marked(marked: MarkedLine) -> str:
    """Each piece is made harmless by itself: that changes lengths."""
    out, done = [], 0
    for begin, end in marked.marks:
        out += [line(marked.text[done:begin]), _BOLD, line(marked.text[begin:end]), _PLAIN]
        done = end
    return "".join([*out, line(marked.text[done:])])


def program() -> str:
    called = Path(sys.argv[0])
    found = shutil.which("klaw")
    if called.name != "klaw" or (found and Path(found).resolve() == called.resolve()):
        return "klaw"
    return shlex.quote(os.path.relpath(called))


def line(text: str) -> str:
    """One harmless line of foreign text: line ends become spaces."""
    return " ".join(harmless(text).split("\n"))


def table(rows: list[list[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with aligned columns, those in ``right`` flush right. The last column is not padded."""
    if not rows:
        return []
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            padding = " " * (widths[column] - width(cell))
            cells.append(padding + cell if column in right else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines


Amount: TypeAlias = Callable[[int], str]
BAR_CELLS = 24
REDRAW_S = 0.1


class ProgressLine:
    """Draws on a stream, with rate and time left; on a terminal at most every ``REDRAW_S`` within a phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._phase = ""
        self._drawn_at = self._since = 0.0
        self._first = 0
        self._open = False

    def show(
        self, label: str, done: int = 0, total: int = 0, amount: Amount = "{:,}".format, *, last: bool = False
    ) -> None:
        """Show how far something is; a new ``label`` at once.

        Args:
            done, total: 0 where nobody knows.
            amount: how these are written.
            last: nothing follows in this line.
        """
        new = label != self._phase
        if not self._terminal:
            if new:
                print(f"{label} ({amount(total)})" if total else label, file=self._stream, flush=True)
            self._phase = label
            return
        now = time.monotonic()
        if new:
            self._phase, self._since, self._first = label, now, done
        elif not last and now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at, self._open = now, not last
        self._stream.write(f"\r\x1b[K{self._drawn(label, done, total, amount, now)}" + ("\n" if last else ""))
        self._stream.flush()

    def _drawn(self, label: str, done: int, total: int, amount: Amount, now: float) -> str:
        if not total:
            return f"{label:<24} {amount(done) if done else ''}".rstrip()
        filled = min(BAR_CELLS, BAR_CELLS * done // total)
        text = f"{label:<24} [{'#' * filled}{'.' * (BAR_CELLS - filled)}] {amount(done)} / {amount(total)}"
        rate = (done - self._first) / (now - self._since) if now - self._since > 1 else 0
        return f"{text}  {amount(int(rate))}/s, {span((total - done) / rate)} left" if rate > 0 else text

    def finish(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False


def complain(error: BaseException) -> bool:
    """Print a known error, and whose file it was if that is the reason. False: it is not known."""
    from klaw.actor.log import priority

    refused = next(_refused(error), None)
    if isinstance(error, ConfigError):
        texts = [str(problem) for problem in error.problems]
    elif isinstance(error, KlawError):
        texts = [str(error)]
    elif refused is not None:
        texts = [f"{refused}: permission denied"]
    else:
        return False
    texts += [_whose(refused)] if refused is not None else []
    for text in texts:
        print(f"{priority('error')}klaw: {line(text)}", file=sys.stderr)
    return True


def is_permanent(error: BaseException) -> bool:
    """Whether trying again is of no use before somebody changes the configuration, the program, or file owners."""
    return isinstance(error, (ConfigError, SchemaTooNew, StoreDamaged)) or any(True for _path in _refused(error))


def _refused(error: BaseException | None) -> Iterator[Path]:
    """The files that the system did not let us use, by the error and its causes."""
    while error is not None:
        if isinstance(error, PermissionError) and isinstance(error.filename, str):
            yield Path(error.filename)
        error = error.__cause__


def _whose(path: Path) -> str:
    me = name_of(os.geteuid())
    for each in (path, *path.parents):
        try:
            owner = each.stat().st_uid
        except OSError:
            continue
        if owner == os.geteuid():
            return f"{each} is yours; look at its permissions (ls -l)"
        if each == path:
            return belongs_to(each, owner)
        whose = f"{each} belongs to {name_of(owner)}"
        if not os.access(each, os.X_OK):
            return f"{whose} and is closed to {me}, the user that this runs as"
        own = shlex.quote(str(each / "klaw"))
        return f"{whose}: as root, make a folder for {me} in it (install -d -m 700 -o {me} {own}) and name that"
    return "look at its permissions (ls -l)"


def new_folder(given: str, option: str) -> Path:
    """A folder without anything in it. Raises OperationError, about the argument ``option``."""
    folder = Path(given).expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OperationError("bad_args", "is not empty: name another folder", field=option)
    except OSError as error:
        raise OperationError("bad_args", f"{folder} cannot be made: {error.strerror}", field=option) from None
    return folder


def write_document(texts: Iterator[str], path: str | None) -> None:
    """Write all parts, harmless where they go to a terminal. The first one is asked for before a file is made, and an
    error removes that. Raises OperationError: the file cannot be made or written; what ``texts`` raises."""
    texts = chain([next(texts)], texts)
    if path is None:
        for text in texts:
            if sys.stdout.isatty():
                sys.stdout.write(harmless(text))
            else:
                sys.stdout.buffer.write(text.encode())  # in UTF-8, whatever the terminal's language is
        sys.stdout.flush()
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            try:
                file.writelines(texts)
                file.flush()
            except BaseException:
                Path(path).unlink()
                raise
    except OSError as error:
        why = f"--to {path}: cannot be written: {error.strerror or type(error).__name__}"
        raise OperationError("bad_args", why) from None
