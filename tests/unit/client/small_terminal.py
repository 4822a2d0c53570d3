"""A terminal small enough to check pictures: text, line ends, wrapping, and the movements that ``Screen`` uses."""

import re

from klaw.client.cells import width_of

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class SmallTerminal:
    """Keeps every row ever shown; writes like a text file."""

    def __init__(self, columns: int = 40, height: int = 10) -> None:
        self.columns, self.height = columns, height
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.wrap_pending = False

    @property
    def picture(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]

    def size(self) -> tuple[int, int]:
        return self.columns, self.height

    def flush(self) -> None:
        pass

    def write(self, text: str) -> int:
        at = 0
        while at < len(text):
            found = _SEQUENCE.match(text, at)
            if found:
                self._sequence(found)
                at = found.end()
                continue
            self._character(text[at])
            at += 1
        return len(text)

    def _character(self, character: str) -> None:
        assert character != "\x1b", "an unknown escape sequence"
        if character == "\r":
            self.column, self.wrap_pending = 0, False
        elif character == "\n":
            self._down()
            self.column = 0
        else:
            if self.column + width_of(character) > self.columns:
                self._down()
                self.column = 0
            line = self.lines[self.row]
            line.extend(" " * (self.column + 1 - len(line)))
            line[self.column] = character
            if width_of(character) == 2:
                line[self.column + 1 : self.column + 2] = [""]
            self.column += width_of(character)

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _sequence(self, found: re.Match[str]) -> None:
        private, number, letter = found.groups()
        count = int(number or 1) if ";" not in number else 1
        if letter == "A":
            assert self.row >= count, "moved above the top"
            assert count < self.height, "moved above the screen"
            self.row -= count
        elif letter == "C":
            self.column += count
        elif letter == "J":
            del self.lines[self.row + 1 :]
            del self.lines[self.row][self.column :]
        else:
            assert letter == "m" or private, found.group()
