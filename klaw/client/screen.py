"""The terminal's picture: text that only grows, with the input line kept below it.

Text may end in the middle of a line (an answer that is being streamed) while the person types: then the input line is
taken away, the unfinished line is written again with what was added, and the input line comes back under it. Nothing
here reads or waits; the output is given as one string for each change, so that nothing flickers.
"""

import enum
from collections.abc import Callable
from typing import TextIO

from klaw.client.cells import harmless, rows, width
from klaw.client.editor import View

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
        """The unfinished last line of the text."""
        self._prompt = ""
        self._view = View("", 0)
        self._drawn = False

    def write(self, text: str) -> None:
        """Add foreign text, which may begin and end inside a line."""
        self._change(harmless(text))

    def line(self, text: str, style: Style = Style.PLAIN) -> None:
        """Add whole lines, after ending an unfinished one."""
        begin = "\n" if self._tail else ""
        clean = harmless(text)
        if self._colours and style is not Style.PLAIN:
            clean = "\n".join(f"{style.value}{each}{_RESET}" for each in clean.split("\n"))
        self._change(f"{begin}{clean}\n")

    def end_line(self) -> None:
        """End an unfinished line."""
        if self._tail:
            self._change("\n")

    def show_input(self, prompt: str, view: View) -> None:
        """Show the input line, or show it changed."""
        if self._drawn and (prompt, view) == (self._prompt, self._view):
            return
        erase = self._erase()
        self._prompt, self._view = prompt, view
        self._emit(erase + ("" if erase == "" else self._tail) + self._draw())

    def hide_input(self) -> None:
        """Take the input line away; text goes on where it was."""
        if self._drawn:
            self._emit(self._erase() + self._tail)

    def clear(self) -> None:
        """Begin at the top of an empty screen."""
        self._drawn = False
        self._emit(_CLEAR_ALL + self._tail)

    def begin_anew(self) -> None:
        """Something else wrote on the terminal: go on below it, whatever stood there."""
        self._drawn, self._tail = False, ""

    @property
    def input_columns(self) -> int:
        """Cells for the input line after a prompt."""
        return max(self._size()[0] - width(self._prompt), 2)

    def _change(self, text: str) -> None:
        shown = self._drawn
        out = self._erase()
        if shown:
            out += self._tail
        out += text
        self._tail = (self._tail + text).rsplit("\n", 1)[-1]
        self._emit(out + (self._draw() if shown else ""))

    def _erase(self) -> str:
        """Remove the input line and the unfinished line above it, where the cursor then is."""
        if not self._drawn:
            return ""
        self._drawn = False
        up = rows(self._tail, self._size()[0])
        return "\r" + (f"\x1b[{up}A" if up else "") + _CLEAR_BELOW

    def _draw(self) -> str:
        columns, height = self._size()
        out = "\n" if self._tail else ""
        if rows(self._tail, columns) > height - 2:
            # It could not be taken back: let it stand.
            self._tail = ""
        self._drawn = True
        at = width(self._prompt) + self._view.column
        return f"{out}{self._prompt}{self._view.text}\r" + (f"\x1b[{at}C" if at else "")

    def _emit(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
