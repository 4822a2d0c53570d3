"""CSV and sheets: each row as a line, each value behind the name of its column."""

import csv
import datetime as dt
import io
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.text import MAX_PARAGRAPH, open_text
from klaw.knowledge.reading.output import Output, UnreadableError, one_line

SAMPLE_CHARS = 8192
MAX_ROW_CHARS = 1_000_000
DELIMITERS = ",;\t|"
ROWS_AT_ONCE = 10_000
"""After so many rows the parent learns that there is progress, even if all were empty."""
MAX_CELLS = 10_000_000
"""Cells of all sheets, also those without a value."""
MAX_CELL_CHARS = 32_767
"""No more can be in one; a text that is kept once may stand in a million of them, and is cleaned once."""
MAX_NAME_CHARS = 200
"""Length of a column's title, which is repeated in each row."""
_FORMULA = re.compile(
    rb"""<c\s(?![^<>]*\bt="str")[^<>]*>\s*<f(?:\s[^<>]*)?(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"""
)
"""In a cell without a value: programs that write sheets do not calculate. An empty text is a value."""
_NUMBER = re.compile(r"[-+(]?[\d\s.,%$€₽]+\)?")


class TableRows:
    """Sends rows as lines, several at once; the first row of names is the header."""

    def __init__(self, output: Output, page: int | None = None, headings: tuple[str, ...] = ()) -> None:
        self._output = output
        self._page = page
        self._headings = headings
        self._header: Mapping[int, str] = {}
        self._lines: list[str] = []
        self._size = 0

    def add(self, cells: Iterable[tuple[int, str]]) -> None:
        """Add a row, given as pairs of a column's number and its text."""
        row = {column: text for column, cell in cells if (text := one_line(cell))}
        if not self._header and _are_names(row.values()):
            self._header = row
        names = {} if row == self._header else self._header
        line = "; ".join(f"{names[column]}: {text}" if column in names else text for column, text in row.items())
        if line:
            self._lines.append(line)
            self._size += len(line)
        if self._size > MAX_PARAGRAPH:
            self.flush()

    def flush(self) -> None:
        self._output.block("\n".join(self._lines), page=self._page, headings=self._headings, kind="table")
        self._lines, self._size = [], 0


def _are_names(cells: Collection[str]) -> bool:
    return (
        1 < len(cells) == len(set(cells))
        and max(map(len, cells)) <= MAX_NAME_CHARS
        and not any(map(_NUMBER.fullmatch, cells))
    )


def read_csv(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Whatever stands between the values: comma, semicolon, tab or bar."""
    text = open_text(file)
    sample = text.read(SAMPLE_CHARS)
    text.seek(0)
    try:
        delimiter = csv.Sniffer().sniff(sample, DELIMITERS).delimiter
    except csv.Error:
        delimiter = max(DELIMITERS, key=sample.count)
    rows, number = TableRows(output), 0
    try:
        for number, row in enumerate(csv.reader(_lines(text), delimiter=delimiter), 1):  # noqa: B007 - reported below
            rows.add(enumerate(row))
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
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    ReadOnlyWorksheet._get_size = lambda _sheet: None  # of a sheet that names none it reads all, each time
    book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
    output.title(book.properties.title)
    known: set[str] = set()
    strings: list[str] = []
    cells = 0
    for number, sheet in enumerate(book.worksheets, 1):
        if sheet._worksheet_path in known:
            continue
        known.add(sheet._worksheet_path)
        output.page(number)
        headings = (sheet.title,)
        output.block(sheet.title, page=number, headings=headings)
        rows = TableRows(output, number, headings)
        try:
            strings = strings or [one_line(str(each)[:MAX_CELL_CHARS]) for each in sheet._shared_strings]
            for count, row in enumerate(_rows(book, sheet, strings), 1):
                rows.add((cell["column"], _written(cell["value"])) for cell in row if cell["value"] is not None)
                cells = _counted(cells + len(row))
                if count % ROWS_AT_ONCE == 0:
                    output.page(number)
        except (MemoryError, UnreadableError):
            raise
        except Exception as error:  # noqa: BLE001 - the other sheets are read
            output.problem("page_broken", f"is damaged ({type(error).__name__})", page=number)
        rows.flush()


def _rows(book: Any, sheet: Any, strings: Sequence[str]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The cells that a sheet has. What openpyxl gives to everybody is filled with empty ones, up to the last column and
    row that the sheet names: a million rows with one cell in the last column take an hour."""
    from openpyxl.worksheet._reader import WorkSheetParser

    with sheet._get_source() as source:
        parser = WorkSheetParser(
            source,
            strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )
        for _, row in parser.parse():
            yield row


def _counted(cells: int) -> int:
    if cells > MAX_CELLS:
        raise UnreadableError("too_much_text", f"has more than {MAX_CELLS:,} cells")
    return cells


def _written(value: object) -> str:
    match value:
        case float():
            return f"{value:.15g}"
        case dt.datetime():
            return value.isoformat(" ", "minutes").removesuffix(" 00:00")
        case _:
            return str(value)


def table_lines(rows: Iterable[Sequence[str]]) -> str:
    """A table inside of a document: its cells with bars between them."""
    return "\n".join(" | ".join(map(one_line, row)) for row in rows if any(cell.strip() for cell in row))
