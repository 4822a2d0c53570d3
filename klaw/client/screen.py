"""The terminal's picture: text that only grows, with a foot below it: what is being done, and the input line.

An answer is rendered block by block; the one that still grows stands there as it was written. Of the rows that can
change, those from the first one that differs are written again. Each change is one string of output, so that nothing
flickers.
"""

import enum
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import TextIO

import attrs

from klaw.client.editor import View
from klaw.client.markdown import plain, render
from klaw.domain.text_width import harmless, height, least_width, shown, width, width_of, wrap
from klaw.web.markdown_rules import whole_blocks

_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[H\x1b[2J"
_RESET = "\x1b[0m"
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Bracketed paste: pasted line ends do not submit."""


_MIN_COLUMNS = 2
"""A sign of a script without spaces takes two."""


class Style(enum.Enum):
    PLAIN = ""
    FAINT = "\x1b[2m"
    BOLD = "\x1b[1m"
    ALARM = "\x1b[31m"


@attrs.frozen(kw_only=True)
class Foot:
    prompt: str
    view: View
    status: str = ""
    """Shown in a row of its own, if it is not empty."""


class Screen:
    """Writes to one terminal.

    Args:
        size: its columns and rows now.
        colours: whether styles are shown, and answers are rendered as Markdown.
    """

    def __init__(self, out: TextIO, size: Callable[[], tuple[int, int]], *, colours: bool) -> None:
        self._out, self._size, self._colours = out, size, colours
        self._growing = ""
        """The end of the answer, which more text can change."""
        self._grown = [""]
        self._parted = False
        """What grows is not the answer's first block: an empty row stands above it."""
        self._foot: Foot | None = None
        self._rows = [""]
        """The rows on the screen that may be written again; the cursor is in the last one."""
        self._before = ""
        """What stands before the cursor in its row."""
        self._columns = self.columns

    def write(self, text: str) -> None:
        text = harmless(text)
        text = text.lstrip("\n") if self._colours and not self._growing else text
        self._growing += text
        self._grow(text)
        whole = whole_blocks(self._growing) if self._colours and "\n" in text else 0
        if not self._colours:
            done, self._grown = self._grown[:-1], self._grown[-1:]
            self._growing = self._grown[0]
        else:
            done = self._taken(whole) if whole else []
        self._paint(done)

    def correct(self, shown: str, text: str) -> None:
        """Show an answer as it is in the end, of which ``shown`` was written. Complete blocks stay; where they differ
        from it, it follows as a whole."""
        shown, text = harmless(shown), harmless(text)
        stays = shown[: len(shown) - len(self._growing)]
        if text.startswith(stays):
            self._growing, self._grown = "", [""]
            self._paint()
            self.write(text[len(stays) :])
        else:
            self.write(f"\n{text}")

    def end(self) -> None:
        if self._growing:
            self._paint(self._taken(len(self._growing)))
        self._parted = False

    def line(self, text: str, style: Style = Style.PLAIN) -> None:
        self.end()
        self._paint([self._styled(row, style) for row in self._wrapped(harmless(text).split("\n"))])

    def show(self, foot: Foot | None) -> None:
        """Show or change what stands below the text; None takes it away: text goes on where it was."""
        self._foot = foot
        self._paint()

    def resized(self) -> None:
        """The terminal has another size: what can still change is written again; the rest stays as it is."""
        self._columns = 0

    def clear(self) -> None:
        self._emit(_CLEAR_ALL)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Go on below what something else wrote on the terminal."""
        self._rows, self._before = [""], ""
        self._paint()

    @property
    def columns(self) -> int:
        return max(self._size()[0], _MIN_COLUMNS)

    def _taken(self, whole: int) -> list[str]:
        """The rows of whole blocks, which no longer grow."""
        text, self._growing, self._grown = self._growing[:whole], self._growing[whole:], [""]
        self._grow(self._growing)
        if not self._colours:
            return self._wrapped([text])
        rows = render(text, self.columns)
        parted, self._parted = self._parted and bool(rows), self._parted or bool(rows)
        return [*[""] * parted, *rows]

    def _grow(self, text: str) -> None:
        *lines, last = (self._grown.pop() + text).split("\n")
        self._grown += [*self._wrapped(lines), *wrap(last, self.columns)]

    def _wrapped(self, lines: Sequence[str]) -> list[str]:
        return [row.rstrip(" ") for line in lines for row in wrap(line, self.columns)]

    def _styled(self, row: str, style: Style) -> str:
        return f"{style.value}{row}{_RESET}" if self._colours and row and style is not Style.PLAIN else row

    def _paint(self, done: Sequence[str] = ()) -> None:
        """Write rows that stay, and below them what can still change; rows that stand there already are left alone.

        On a terminal that has become narrower, written rows take several. Where terminals differ, rather too few are
        counted: one too many would clear text that stays.
        """
        if self._columns != self.columns:
            self._grown = [""]
            self._grow(self._growing)
        foot, grown = self._foot_rows(), self._grown
        while len(grown) > 1 and not grown[-1]:
            grown = grown[:-1]
        grown = [*[""] * self._parted, *grown[:-1], shown(grown[-1], self.columns)] if grown[-1] else []
        # What is higher than the screen shows its end.
        rows = [*done, *grown[-max(self._size()[1] - 1 - len(foot), 1) :], *(foot or ([] if grown else [""]))]
        before, at = rows[-1], ""
        if self._foot is not None:
            column = width(self._foot.prompt) + self._foot.view.column
            before = self._foot.prompt + _before(self._foot.view)
            before += " " * (column - least_width(before))
            at = "\r" + (f"\x1b[{column}C" if column else "")
        self._replace(rows, before, at)
        self._rows = rows[len(done) :]

    def _replace(self, rows: list[str], before: str, at: str) -> None:
        """Bring the screen to other rows, with the cursor where ``at`` takes it."""
        old, stood, known = self._rows, self._before, self._columns == self.columns
        self._before, self._columns = before, self.columns
        if known and (rows, before) == (old, stood):
            return
        pairs = zip(old[:-1], rows[:-1], strict=False) if known else ()
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        text = "\n".join(rows[same:]) + at
        if known and not at and same == len(old) - 1 and stood == old[-1] and rows[same].startswith(stood):
            self._emit(text.removeprefix(stood))  # the usual case of an answer that grows: nothing has to move
            return
        columns, lines = max(self._size()[0], 1), self._size()[1]
        heights = [height(plain(row), columns) for row in (*old[same:-1], stood)]
        up = min(sum(heights) - 1, lines - 1)
        self._emit("\r" + (f"\x1b[{up}A" if up else "") + _CLEAR_BELOW + text)

    def _foot_rows(self) -> list[str]:
        if self._foot is None:
            return []
        status, columns = self._foot.status, self.columns - 1
        if width(status) > columns:
            status = shown(wrap(status, columns)[0], columns)
        return [*filter(None, [self._styled(status, Style.FAINT)]), f"{self._foot.prompt}{self._foot.view.text}"]

    def _emit(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _before(view: View) -> str:
    return view.text[: bisect_right(list(accumulate(map(width_of, view.text))), view.column)]
