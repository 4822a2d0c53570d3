"""The terminal's picture: text that only grows, with a foot kept below it: what is being done, and the input line.

Rows end between words, so each is written with its own line end, and only the last one can still change: a word that
grows out of it moves to the next. To change anything, the foot and that row are taken away, and written again with what
was added. Nothing here reads or waits; the output is one string for each change, so that nothing flickers.
"""

import enum
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import TextIO

import attrs

from klaw.client.editor import View
from klaw.client.text_width import harmless, height, least_width, shown, width, width_of, wrap

_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[H\x1b[2J"
_RESET = "\x1b[0m"
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Bracketed paste: pasted line ends do not submit."""


class Style(enum.Enum):
    """How a line stands out."""

    PLAIN = ""
    FAINT = "\x1b[2m"
    BOLD = "\x1b[1m"
    ALARM = "\x1b[31m"


_MIN_COLUMNS = 2
"""A sign of a script without spaces takes two."""


@attrs.frozen(kw_only=True)
class Foot:
    """What stands below the text."""

    prompt: str
    view: View
    """The part of the typed line that is shown."""
    status: str = ""
    """What is being done, in a row of its own; empty for none."""


class Screen:
    """Writes to one terminal.

    Args:
        out: the terminal.
        size: its columns and rows now.
        colours: whether styles are shown.
    """

    def __init__(self, out: TextIO, size: Callable[[], tuple[int, int]], *, colours: bool) -> None:
        self._out = out
        self._size = size
        self._colours = colours
        self._tail = ""
        """The unfinished last row of the text."""
        self._foot: Foot | None = None
        """What stands below the text now."""
        self._above: list[str] = []
        """The rows that were written above the cursor's and may be written again."""
        self._before = ""
        """What stands before the cursor in its row."""
        self._resized = False

    def write(self, text: str) -> None:
        """Add foreign text, which may begin and end inside a line."""
        self._change(harmless(text))

    def line(self, text: str, style: Style = Style.PLAIN) -> None:
        """Add whole lines, after ending an unfinished one."""
        self.end_line()
        self._change(f"{harmless(text)}\n", style)

    def end_line(self) -> None:
        """End an unfinished line."""
        if self._tail:
            self._change("\n")

    def show(self, foot: Foot | None) -> None:
        """Show what stands below the text, or show it changed; None takes it away: text goes on where it was."""
        if foot != self._foot or self._resized:
            self._resized = False
            self._emit(self._erase() + self._draw(foot))

    def resized(self) -> None:
        """The terminal has another size: ``show`` writes again what can still change. What was said stays as it is."""
        self._resized = True

    def clear(self) -> None:
        """Begin at the top of an empty screen."""
        self._above, self._before = [], ""
        self._emit(_CLEAR_ALL + self._draw(self._foot))

    def begin_anew(self) -> None:
        """Something else wrote on the terminal: go on below it, whatever stood there."""
        self._tail, self._foot, self._above, self._before = "", None, [], ""

    @property
    def columns(self) -> int:
        """Cells of a row."""
        return max(self._size()[0], _MIN_COLUMNS)

    def _change(self, text: str, style: Style = Style.PLAIN) -> None:
        columns = self.columns
        before = shown(self._tail, columns)
        rows: list[str] = []
        *lines, last = (self._tail + text).split("\n")
        for each in lines:
            rows += [row.rstrip(" ") for row in wrap(each, columns)]
        *more, self._tail = wrap(last, columns)
        rows += more
        done, tail = "".join(f"{self._styled(row, style)}\n" for row in rows), shown(self._tail, columns)
        still = not self._resized and self._foot is None and not self._above
        if still and (rows or [tail])[0].startswith(before):
            # The usual case of a streamed answer: nothing that stands there has to move.
            self._before = tail
            self._emit((done + tail).removeprefix(before))
            return
        self._emit(self._erase() + done + self._draw(self._foot))

    def _styled(self, row: str, style: Style) -> str:
        return f"{style.value}{row}{_RESET}" if self._colours and row and style is not Style.PLAIN else row

    def _erase(self) -> str:
        """Go back to where the unfinished row begins, and clear all from there on.

        On a terminal that has become narrower, rows that were written whole now take several: terminals keep the text
        and move it, and the cursor with it. Where terminals differ, rather too few rows are counted: one too many
        would clear text that stays.
        """
        columns, lines = self._size()
        columns = max(columns, 1)
        up = min(sum(height(row, columns) for row in [*self._above, self._before]) - 1, lines - 1)
        self._above, self._before = [], ""
        return "\r" + (f"\x1b[{up}A" if up else "") + _CLEAR_BELOW

    def _draw(self, foot: Foot | None) -> str:
        """Write the unfinished row and what stands below it; leaves the cursor where it belongs."""
        columns = self.columns
        *early, last = wrap(self._tail, columns)
        tail = [*early, shown(last, columns)] if self._tail else []
        self._foot = foot
        if foot is None:
            self._above, self._before = tail[:-1], "".join(tail[-1:])
            return "\n".join(tail)
        rows = list(tail)
        if foot.status:
            rows.append(_cut_short(foot.status, columns - 1))
        self._above = list(rows)
        if foot.status:
            rows[-1] = self._styled(rows[-1], Style.FAINT)
        column = width(foot.prompt) + foot.view.column
        self._before = foot.prompt + _before(foot.view)
        self._before += " " * (column - least_width(self._before))
        at = f"\x1b[{column}C" if column else ""
        return "\n".join([*rows, f"{foot.prompt}{foot.view.text}\r{at}"])

    def _emit(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


def _before(view: View) -> str:
    """What is shown of the typed line before its cursor."""
    return view.text[: bisect_right(list(accumulate(map(width_of, view.text))), view.column)]


def _cut_short(text: str, columns: int) -> str:
    """As much of one line as fits."""
    return text if width(text) <= columns else shown(wrap(text, columns)[0], columns)
