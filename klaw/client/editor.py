"""Editing one line of input: bytes of a terminal in, finished lines out. Pure; drawing is ``screen``'s job.

Not the readline library: messages that arrive while a person types have to move the half typed line, and a thread that
is blocked in readline can neither be cancelled nor leave the terminal sane.
"""

import codecs
import enum
from collections.abc import Callable, Iterator, Sequence

import attrs

from klaw.domain.text_width import width_of

MAX_CHARACTERS = 100_000
"""More than a frame carries; what is typed beyond is ignored."""
MAX_HISTORY = 200
COMPLETED = "/model "

_LINE_END = "\u23ce"
_ESCAPE = "\x1b"
_PASTE_BEGIN, _PASTE_END = "[200~", "[201~"
_MAX_SEQUENCE = 16


class EditorKey(enum.Enum):
    """Keys that the editor leaves to its owner."""

    END = "end"
    """Ctrl-D on an empty line."""
    INTERRUPT = "interrupt"
    """Ctrl-C, where the terminal does not make a signal of it."""
    REDRAW = "redraw"
    """Ctrl-L."""
    COMPLETE = "complete"
    """Tab behind ``COMPLETED``."""


@attrs.frozen
class View:
    text: str
    column: int
    """Cells before the text cursor."""


class LineEditor:
    """The line, its cursor and the lines before it (Up and Down)."""

    def __init__(self, history: Sequence[str] = ()) -> None:
        self._line: list[str] = []
        self._at = 0
        self._history = list(history)[-MAX_HISTORY:]
        self._shown = len(self._history)
        self._draft: list[str] = []
        self._pasting = False
        self._sequence = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def text(self) -> str:
        return "".join(self._line)

    def clear(self) -> None:
        self._line, self._at, self._shown = [], 0, len(self._history)

    def put(self, text: str) -> None:
        """Make a text the line."""
        self._line = list(text)
        self._at = len(self._line)

    def remember(self, text: str) -> None:
        """Add a line to the history, unless it repeats the last one."""
        if text.strip() and self._history[-1:] != [text]:
            self._history = [*self._history, text][-MAX_HISTORY:]
        self._shown = len(self._history)

    def feed(self, data: bytes) -> Iterator[str | EditorKey]:
        """Take what the terminal sent, where characters may be split over calls; yields submitted lines and keys."""
        for character in self._decoder.decode(data):
            if (happened := self._take(character)) is not None:
                yield happened

    def view(self, columns: int) -> View:
        """The part of the line around the cursor that fits ``columns`` cells."""
        shown = [_LINE_END if each == "\n" else each for each in self._line]
        start, used = self._at, 0
        while start > 0 and used + width_of(shown[start - 1]) <= columns - 1:
            start -= 1
            used += width_of(shown[start])
        column, end = used, self._at
        while end < len(shown) and used + width_of(shown[end]) <= columns - 1:
            used += width_of(shown[end])
            end += 1
        return View("".join(shown[start:end]), column)

    def _take(self, character: str) -> str | EditorKey | None:
        if self._sequence:
            self._sequence += character
            self._escape()
            return None
        if character == _ESCAPE:
            self._sequence = character
            return None
        if self._pasting:
            self._insert("\n" if character == "\r" else character)
            return None
        if character in "\r\n":
            return self._submit()
        if character == "\t" and self.text.startswith(COMPLETED):
            return EditorKey.COMPLETE
        if character in _OWNER_KEYS:
            return _OWNER_KEYS[character]
        if character == "\x04":
            if not self._line:
                return EditorKey.END
            self._delete(self._at, self._at + 1)
        elif character in _KEYS:
            _KEYS[character](self)
        else:
            self._insert(character)
        return None

    def _escape(self) -> None:
        """Act on an escape sequence once it is complete; unknown ones are swallowed."""
        sequence, body = self._sequence, self._sequence[1:]
        if body in ("[", "O"):
            return
        if body[0] in "[O" and not "@" <= body[-1] <= "~" and len(body) < _MAX_SEQUENCE:
            return
        self._sequence = ""
        if body == _PASTE_BEGIN:
            self._pasting = True
        elif body == _PASTE_END:
            self._pasting = False
        elif not self._pasting and sequence in _KEYS:
            _KEYS[sequence](self)

    def _submit(self) -> str:
        text = self.text
        self.clear()
        self.remember(text)
        return text

    def _insert(self, character: str) -> None:
        character = " " if character == "\t" else character
        printable = character == "\n" or character.isprintable() or width_of(character) == 0
        if printable and len(self._line) < MAX_CHARACTERS:
            self._line.insert(self._at, character)
            self._at += 1

    def _delete(self, start: int, end: int) -> None:
        del self._line[max(start, 0) : end]
        self._at = max(start, 0)

    def _word_start(self) -> int:
        at = self._at
        while at > 0 and not self._line[at - 1].isalnum():
            at -= 1
        while at > 0 and self._line[at - 1].isalnum():
            at -= 1
        return at

    def _word_end(self) -> int:
        at = self._at
        while at < len(self._line) and not self._line[at].isalnum():
            at += 1
        while at < len(self._line) and self._line[at].isalnum():
            at += 1
        return at

    def _move(self, at: int) -> None:
        self._at = min(max(at, 0), len(self._line))

    def _swap(self) -> None:
        if 0 < self._at < len(self._line):
            before, here = self._line[self._at - 1 : self._at + 1]
            self._line[self._at - 1 : self._at + 1] = [here, before]
            self._at += 1

    def _browse(self, step: int) -> None:
        chosen = self._shown + step
        if not 0 <= chosen <= len(self._history):
            return
        if self._shown == len(self._history):
            self._draft = self._line
        self._shown = chosen
        self._line = list(self._history[chosen]) if chosen < len(self._history) else self._draft
        self._at = len(self._line)


_OWNER_KEYS = {"\x03": EditorKey.INTERRUPT, "\x0c": EditorKey.REDRAW}
_ACTIONS: dict[tuple[str, ...], Callable[[LineEditor], None]] = {
    ("\x01", "\x1b[H", "\x1bOH", "\x1b[1~"): lambda line: line._move(0),
    ("\x05", "\x1b[F", "\x1bOF", "\x1b[4~"): lambda line: line._move(len(line._line)),
    ("\x02", "\x1b[D", "\x1bOD"): lambda line: line._move(line._at - 1),
    ("\x06", "\x1b[C", "\x1bOC"): lambda line: line._move(line._at + 1),
    ("\x1b[1;5D", "\x1bb"): lambda line: line._move(line._word_start()),
    ("\x1b[1;5C", "\x1bf"): lambda line: line._move(line._word_end()),
    ("\x10", "\x1b[A", "\x1bOA"): lambda line: line._browse(-1),
    ("\x0e", "\x1b[B", "\x1bOB"): lambda line: line._browse(1),
    ("\x08", "\x7f"): lambda line: line._delete(line._at - 1, line._at),
    ("\x1b[3~",): lambda line: line._delete(line._at, line._at + 1),
    ("\x0b",): lambda line: line._delete(line._at, len(line._line)),
    ("\x15",): lambda line: line._delete(0, line._at),
    ("\x17", "\x1b\x7f"): lambda line: line._delete(line._word_start(), line._at),
    ("\x1bd",): lambda line: line._delete(line._at, line._word_end()),
    ("\x14",): lambda line: line._swap(),
    ("\x1b\r", "\x1b\n"): lambda line: line._insert("\n"),
}
_KEYS = {key: action for keys, action in _ACTIONS.items() for key in keys}


SHOWN_NAMES = 12


def completed(begun: str, names: Sequence[str]) -> tuple[str, str]:
    """What a name that was begun grows to, and a line with those that it may become if there are several. If none
    begins so, those count that have it inside."""
    word = begun.strip().lower()
    found = [name for name in names if name.lower().startswith(word)]
    found = found or [name for name in names if word in name.lower()]
    if not found:
        return begun, "no model has this in its name"
    differs = (place for place, letters in enumerate(zip(*found, strict=False)) if len(set(letters)) > 1)
    common = found[0][: next(differs, min(map(len, found)))]
    grown = common if common.lower().startswith(word) else begun.strip()
    more = f" … and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
    return (found[0], "") if len(found) == 1 else (grown, ", ".join(found[:SHOWN_NAMES]) + more)
