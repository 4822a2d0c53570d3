"""CSV and sheets: each row as a line, each value behind the name of its column."""

import csv
import datetime as dt
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, BinaryIO

from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.text import MAX_PARAGRAPH, open_text
from klaw.knowledge.reading.output import Output, UnreadableError, one_line

SAMPLE_CHARS = 8192
MAX_ROW_CHARS = 1_000_000
DELIMITERS = ",;\t|"
ROWS_AT_ONCE = 10_000
"""After so many rows the parent is told that there is progress, even if all were empty."""
_FORMULA = re.compile(
    rb"""<c\s(?![^<>]*\bt="str")[^<>]*>\s*<f(?:\s[^<>]*)?(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"""
)
"""In a cell without a value: programs that write sheets do not calculate. An empty text is a value."""
_NUMBER = re.compile(r"[-+(]?[\d\s.,%$€₽]+\)?")


class Rows:
    """Sends rows as lines, several at once. The first row of names is the header.

    Args:
        output: for the text.
        page: number of the sheet.
        headings: the sheet's name.
    """

    def __init__(self, output: Output, page: int | None = None, headings: tuple[str, ...] = ()) -> None:
        self._output = output
        self._page = page
        self._headings = headings
        self._header: Sequence[str] = ()
        self._lines: list[str] = []
        self._size = 0

    def add(self, cells: Sequence[str]) -> None:
        """A row; an empty one is nothing."""
        cells = [one_line(cell) for cell in cells]
        if not self._header and _are_names(cells):
            self._header = cells
        line = "; ".join(self._named(cells))
        if line:
            self._lines.append(line)
            self._size += len(line)
        if self._size > MAX_PARAGRAPH:
            self.flush()

    def flush(self) -> None:
        self._output.block("\n".join(self._lines), page=self._page, headings=self._headings, kind="table")
        self._lines, self._size = [], 0

    def _named(self, cells: Sequence[str]) -> Iterator[str]:
        if cells == self._header:
            return iter(filter(None, cells))
        names = self._header[: len(cells)]
        pairs = zip_longest(names, cells, fillvalue="")
        return (f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _are_names(cells: Sequence[str]) -> bool:
    named = [cell for cell in cells if cell]
    return len(named) > 1 and len(set(named)) == len(named) and not any(map(_NUMBER.fullmatch, named))


def read_csv(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Whatever stands between the values: comma, semicolon, tab or bar."""
    text = open_text(file)
    sample = text.read(SAMPLE_CHARS)
    text.seek(0)
    try:
        delimiter = csv.Sniffer().sniff(sample, DELIMITERS).delimiter
    except csv.Error:
        delimiter = max(DELIMITERS, key=sample.count)
    rows, number = Rows(output), 0
    try:
        for number, row in enumerate(csv.reader(_lines(text), delimiter=delimiter), 1):  # noqa: B007 - told below
            rows.add(row)
    except csv.Error:
        output.problem("part_broken", f"is damaged from row {number + 1:,} on: is a quotation mark not closed?")
    rows.flush()


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_ROW_CHARS):
        if len(line) == MAX_ROW_CHARS:
            raise UnreadableError("too_much_text", f"has a row of more than {MAX_ROW_CHARS:,} characters")
        yield line


def read_xlsx(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Sheets as pages; of formulas the values that they had when the file was saved."""
    with Archive(file, request["unpacked_bytes"]) as archive:
        if archive.check_xml(_FORMULA):
            text = "has formulas without values, which are left out: save it with a program that calculates"
            output.problem("no_values", text)
    file.seek(0)
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]  # it would be imported for nothing: 20 MB, 0.2 s
    from openpyxl import load_workbook

    book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
    output.title(book.properties.title)
    for number, sheet in enumerate(book.worksheets, 1):
        output.page(number)
        headings = (sheet.title,)
        output.block(sheet.title, page=number, headings=headings)
        rows = Rows(output, number, headings)
        try:
            sheet.reset_dimensions()  # what the sheet says of its size need not be true
            for count, row in enumerate(sheet.iter_rows(values_only=True), 1):
                rows.add([_written(cell) for cell in row])
                if count % ROWS_AT_ONCE == 0:
                    output.page(number)
        except (MemoryError, UnreadableError):
            raise
        except Exception as error:  # noqa: BLE001 - the other sheets are read
            output.problem("page_broken", f"is damaged ({type(error).__name__})", page=number)
        rows.flush()


def _written(value: object) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.15g}"
        case dt.datetime():
            return value.isoformat(" ", "minutes").removesuffix(" 00:00")
        case _:
            return str(value)


def table_lines(rows: Iterable[Sequence[str]]) -> str:
    """A table inside of a document: its cells with bars between them."""
    return "\n".join(" | ".join(map(one_line, row)) for row in rows if any(cell.strip() for cell in row))
