"""A terminal small enough to check pictures: text, line ends, wrapping, and the movements that ``Screen`` uses."""

import re

from klaw.domain.text_width import width_of

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class SmallTerminal:
    """Keeps every row ever shown; writes like a text file."""

    def __init__(self, columns: int = 40, height: int = 10) -> None:
        self.columns, self.height = columns, height
        self.lines: list[list[str]] = [[]]
        self.wrapped = [False]
        """Whether a row goes on with what did not fit the one before."""
        self.row = self.column = 0
        self.wrap_pending = False

    @property
    def picture(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]

    def size(self) -> tuple[int, int]:
        return self.columns, self.height

    def flush(self) -> None:
        pass

    def resize(self, columns: int) -> None:
        """As terminals do that keep the text: rows that the program ended stay apart, wrapped ones are wrapped again,
        and the cursor stays at its character."""
        lines: list[list[str]] = []
        wrapped, at = [False, *self.wrapped[1:]], 0
        for number, line in enumerate(self.lines):
            begins = 0
            if wrapped[number]:
                begins = len(lines[-1])
                lines[-1] += line
            else:
                lines.append(list(line))
            if number == self.row:
                at, column = len(lines) - 1, begins + self.column
        self.lines, self.wrapped, self.columns = [], [], columns
        for number, line in enumerate(lines):
            first = len(self.lines)
            cells = [*line]
            rows: list[list[str]] = [[]]
            went: list[tuple[int, int]] = []
            """Row and column where each cell went: a wide character that does not fit leaves a cell empty."""
            for place, cell in enumerate(cells):
                wide = place + 1 < len(cells) and cells[place + 1] == "" and cell != ""
                if len(rows[-1]) + 1 + wide > columns:
                    rows.append([])
                went.append((len(rows) - 1, len(rows[-1])))
                rows[-1].append(cell)
            self.lines += rows
            self.wrapped += [False, *[True] * (len(rows) - 1)]
            if number == at:
                below, self.column = (
                    went[column]
                    if column < len(cells)
                    else (len(rows) - 1, len(rows[-1]) + column - len(cells))  # behind the text
                )
                self.row = first + below
                while self.column > columns:
                    self.row += 1
                    self.column -= columns
                    while self.row >= len(self.lines):
                        self.lines.append([])
                        self.wrapped.append(True)

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
                self._down(wrapped=True)
                self.column = 0
            line = self.lines[self.row]
            line.extend(" " * (self.column + 1 - len(line)))
            line[self.column] = character
            if width_of(character) == 2:
                line[self.column + 1 : self.column + 2] = [""]
            self.column += width_of(character)

    def _down(self, *, wrapped: bool = False) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])
            self.wrapped.append(wrapped)

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
            del self.wrapped[self.row + 1 :]
            del self.lines[self.row][self.column :]
        else:
            assert letter == "m" or private, found.group()
