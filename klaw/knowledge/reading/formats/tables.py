"""CSV and sheets: each row as a line, each value behind the name of its column."""

import csv
import datetime as dt
import io
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any, BinaryIO, NamedTuple

from klaw.knowledge.reading.archive import DRAWING, Archive
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
ROWS_TO_JUDGE = 50
"""Of a table, to find out whether its first row has the names of its columns."""
LEAST_PAIRS = 3
"""Rows below the head of a table of two columns; fewer may be a list of things with their values."""
_TYPED = re.compile(
    r"(?=.{1,40}$)(?:[-+(]?\W{0,2}[\d\s.,'%$€₽£:/-]+\W{0,2}(?:[a-zа-я]{1,3}\.?)?\)?|true|false)|\S+@\S+|https?://\S+",
    re.IGNORECASE,
)
"""Numbers, amounts, dates, addresses: what no column is called."""
_SEPARATOR = re.compile("\ufeff?sep=(.)\r?\n", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")


class TableRows:
    """Sends rows as lines, several at once. Values stand behind the names of their columns where it is sure that the
    first whole row of a table has names. An empty row ends a table."""

    def __init__(self, output: Output, page: int | None = None, headings: tuple[str, ...] = ()) -> None:
        self._output = output
        self._page = page
        self._headings = headings
        self._kept: list[Mapping[int, str]] | None = []
        """The first rows of a table, until it is known whether it has names."""
        self._names: Mapping[int, str] = {}
        self._typed: Collection[int] = ()
        self._lines: list[str] = []
        self._size = 0

    def add(self, cells: Iterable[tuple[int, str]]) -> None:
        """Add a row, given as pairs of a column's number and its text."""
        row = {column: text for column, cell in cells if (text := one_line(cell))}
        if not row:
            self._judge()
            self._kept = []
        elif self._kept is None:
            self._write(row)
        else:
            self._kept.append(row)
            if len(self._kept) == ROWS_TO_JUDGE:
                self._judge()

    def flush(self) -> None:
        self._judge()
        self._send()

    def _judge(self) -> None:
        rows, self._kept = self._kept or [], None
        width = max(map(len, rows), default=0)
        first = next((at for at, row in enumerate(rows) if len(row) > max(1, width - 2)), len(rows))
        names, self._typed = _names(rows[first:])
        self._names = {}
        for at, row in enumerate(rows):
            self._write(row)
            if at == first:
                self._names = names

    def _write(self, row: Mapping[int, str]) -> None:
        if self._typed and len(row) > 1 and not any(_is_typed(row, column) for column in self._typed):
            self._names = {}  # it may be the head of another table
        line = "; ".join(f"{self._names[at]}: {text}" if at in self._names else text for at, text in row.items())
        self._lines.append(line)
        self._size += len(line)
        if self._size > MAX_PARAGRAPH:
            self._send()

    def _send(self) -> None:
        self._output.block("\n".join(self._lines), page=self._page, headings=self._headings, kind="table")
        self._lines, self._size = [], 0


def _names(rows: Sequence[Mapping[int, str]]) -> tuple[Mapping[int, str], Collection[int]]:
    """The names in the first row, or none, and the columns by which that is known: below them no names stand."""
    head, below = (rows[0], rows[1:]) if rows else ({}, ())
    others = [text for text in head.values() if _TYPED.fullmatch(text)]
    years = [int(text) for text in others if _YEAR.fullmatch(text)]
    are_different = len(head) == len(set(head.values())) and max(map(len, head.values()), default=0) <= MAX_NAME_CHARS
    if not below or not are_different or len(years) < len(others) or len(others) == len(head):
        return {}, ()
    if years:
        in_a_row = len(years) > 1 and years == [*range(years[0], years[0] + len(years))]
        return (head, ()) if in_a_row else ({}, ())
    typed = [column for column in head if 2 * sum(_is_typed(row, column, "") for row in below) > len(below)]
    if not typed or (len(head) == 2 and typed == [max(head)] and len(below) < LEAST_PAIRS):
        return {}, ()
    inside = below if len(below) < LEAST_PAIRS else below[:-1]  # the last may be a total
    sure = all(_is_typed(below[0], column) for column in typed) and all(
        any(_is_typed(row, column) for column in typed) for row in inside
    )
    return (head, typed) if sure else ({}, ())


def _is_typed(row: Mapping[int, str], column: int, empty: str = "0") -> bool:
    return _TYPED.fullmatch(row.get(column, empty)) is not None


def read_csv(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Whatever stands between the values: comma, semicolon, tab or bar, or what a first line ``sep=`` says."""
    text = open_text(file, output)
    sample = text.read(SAMPLE_CHARS)
    text.seek(0)
    if told := _SEPARATOR.match(sample):
        delimiter = told[1]
        text.readline()
    else:
        delimiter = _delimiter(sample)
    rows, number = TableRows(output), 0
    try:
        for number, row in enumerate(csv.reader(_lines(text), delimiter=delimiter), 1):  # noqa: B007 - reported below
            rows.add(enumerate(row))
    except csv.Error:
        output.problem("part_broken", f"is damaged from row {number + 1:,} on: is a quotation mark not closed?")
    rows.flush()


def _delimiter(sample: str) -> str:
    """What stands equally often in the most rows; the sniffer takes letters and decimal commas for it."""
    counts = {}
    for each in DELIMITERS:
        rows = [len(row) for row in csv.reader(sample.splitlines(True)[:-1] or [sample], delimiter=each) if row]
        usual = max(set(rows), key=rows.count, default=1)
        counts[each] = (rows.count(usual) if usual > 1 else 0, usual)
    return max(counts, key=lambda each: counts[each])


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_ROW_CHARS):
        if len(line) == MAX_ROW_CHARS:
            raise UnreadableError("too_much_text", f"has a row of more than {MAX_ROW_CHARS:,} characters")
        yield line


def read_xlsx(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Sheets as pages; of formulas the values that they had when the file was saved."""
    archive = Archive(file, request["unpacked_bytes"])
    if archive.check_xml(_FORMULA):
        text = "has formulas without values, which are left out: save it with a program that calculates"
        output.problem("no_values", text)
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]  # it would be imported for nothing: 20 MB, 0.2 s
    from openpyxl import load_workbook
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    ReadOnlyWorksheet._get_size = lambda _sheet: None  # of a sheet that names none it reads all, each time
    file.seek(0)
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
        headings = (sheet.title if sheet.sheet_state == "visible" else f"{sheet.title} (hidden)",)
        output.block(headings[0], page=number, headings=headings)
        rows, done = TableRows(output, number, headings), 0
        try:
            strings = strings or [one_line(str(each)[:MAX_CELL_CHARS]) for each in sheet._shared_strings]
            for at, row, count in _rows(book, sheet, strings, _merged(archive, sheet._worksheet_path)):
                if at != done + 1:
                    rows.add(())
                rows.add(row)
                done = at
                cells = _counted(cells + count)
                if at % ROWS_AT_ONCE == 0:
                    output.page(number)
            rows.flush()
            _beside_cells(archive, sheet._worksheet_path, output, number, headings)
        except (MemoryError, UnreadableError):
            raise
        except Exception as error:  # noqa: BLE001 - the other sheets are read
            output.problem("page_broken", f"is damaged ({type(error).__name__})", page=number)
            rows.flush()


def _rows(
    book: Any, sheet: Any, strings: Sequence[str], merged: Mapping[tuple[int, int], int]
) -> Iterator[tuple[int, list[tuple[int, str]], int]]:
    """Each row that a sheet has: its number, its columns with their texts, and how many cells it has. What openpyxl
    gives to everybody is filled with empty ones, up to the last column and row that the sheet names: a million rows
    with one cell in the last column take an hour. Cells that are merged with one above have its text."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS
    from openpyxl.worksheet._reader import WorkSheetParser

    formats = dict(BUILTIN_FORMATS) | dict(enumerate(book._number_formats, 164))
    styles = [formats.get(style.numFmtId, "") for style in book._cell_styles]
    spread: dict[int, tuple[int, str]] = {}
    with sheet._get_source() as source:
        parser = WorkSheetParser(
            source,
            strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )
        for at, row in parser.parse():
            texts = {}
            for cell in row:
                if cell["value"] is not None:
                    column, style = cell["column"], cell["style_id"]
                    texts[column] = _shown(cell["value"], styles[style] if style < len(styles) else "")
                    if last := merged.get((at, column)):
                        spread[column] = last, texts[column]
            for column, (last, text) in [*spread.items()] if texts else ():
                if at > last:
                    del spread[column]
                else:
                    texts.setdefault(column, text)
            yield at, sorted(texts.items()), len(row)


_MERGED = re.compile(rb'mergeCell\s[^>]*?ref="([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})"')


def _merged(archive: Archive, sheet: str) -> Mapping[tuple[int, int], int]:
    """The first of cells that are merged over several rows, by row and column, each with the last row."""
    from openpyxl.utils import column_index_from_string

    found = _MERGED.findall(archive.behind(sheet, b"sheetData>"))
    return {
        (int(first), column_index_from_string(column.decode())): int(last)
        for column, first, last in found
        if first != last
    }


def _beside_cells(archive: Archive, sheet: str, output: Output, page: int, headings: tuple[str, ...]) -> None:
    """What people wrote at cells, and in boxes above them."""
    for part in archive.related(sheet, "comments"):
        root = archive.xml(part)
        authors = [author.text or "" for author in root.iter("{*}author")]
        for comment in root.iter("{*}comment"):
            author = authors[int(comment.get("authorId", 0))]
            text = "".join(each.text or "" for each in comment.iter("{*}t"))
            output.block(f"Comment on {comment.get('ref')} ({author}): {text}", page=page, headings=headings)
    for part in archive.related(sheet, "drawing"):
        for paragraph in archive.xml(part).iter(f"{DRAWING}p"):
            output.block("".join(paragraph.itertext()), page=page, headings=headings)


def _counted(cells: int) -> int:
    if cells > MAX_CELLS:
        raise UnreadableError("too_much_text", f"has more than {MAX_CELLS:,} cells")
    return cells


def _shown(value: object, pattern: str) -> str:
    """A value as its cell shows it, in a format of Excel; without separators of thousands, with a point."""
    match value:
        case bool() | str():
            return str(value)
        case int() | float():
            return _number(value, pattern)
        case dt.datetime():
            return value.isoformat(" ", "seconds").removesuffix(":00").removesuffix(" 00:00")
        case dt.time():
            return value.isoformat("seconds").removesuffix(":00")
        case dt.timedelta():
            minutes, seconds = divmod(round(abs(value).total_seconds()), 60)
            sign = "-" if value < dt.timedelta() else ""
            return f"{sign}{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")
        case _:
            return str(value)


MAX_EXACT = 1e15
_UNSEEN = re.compile(r"\[(?!\$)[^\]]*\]|\[\$([^\]-]*)[^\]]*\]|[_*].")
"""Colours, conditions, padding; of a currency its sign is seen."""
_LITERAL = re.compile(r'"([^"]*)"|\\(.)')
_DIGITS = re.compile(r"[#0?][#0?,.]*")


class _NumberShape(NamedTuple):
    """One of the sections of a format, for numbers above zero, below it, or zero."""

    shown: str
    """With the digits' places, and NUL for each literal."""
    literals: Sequence[str]
    places: Sequence[tuple[int, int]]
    whole: int
    """Least digits before the point."""
    decimals: int
    exponent: int
    """Of ten, of percents and thousands."""


@cache
def _shape(section: str) -> _NumberShape | None:
    """None: it is shown as it is."""
    shown = _UNSEEN.sub(lambda found: found[1] or "", section)
    literals = [found[1] or found[2] or "" for found in _LITERAL.finditer(shown)]
    shown = _LITERAL.sub("\0", shown)
    places = list(_DIGITS.finditer(shown))
    if not places or any(mark in shown for mark in "E/@"):
        return None
    digits = "".join(each[0] for each in places)
    whole, _, decimals = digits.replace(",", "").partition(".")
    exponent = 2 * ("%" in shown) - 3 * (len(digits) - len(digits.rstrip(",")))
    least = len(whole) if len(places) > 1 else whole.count("0")
    return _NumberShape(shown, literals, [each.span() for each in places], least, len(decimals), exponent)


def _number(value: float, pattern: str) -> str:
    sections = pattern.split(";")
    section = sections[1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0]
    if not section and len(sections) > 1:
        return ""  # it is hidden
    shape = _shape(section)
    if shape is None or abs(value) > MAX_EXACT:
        return f"{value:.15g}"
    exact = Decimal(repr(value)).scaleb(shape.exponent)
    exact = exact.quantize(Decimal(1).scaleb(-shape.decimals), ROUND_HALF_UP)
    digits = f"{abs(exact):0{shape.whole + shape.decimals + bool(shape.decimals)}f}"
    shown = shape.shown
    for begin, end in reversed(shape.places):  # several are a number of parts, such as 000-000
        cut = len(digits) - (end - begin) if begin != shape.places[0][0] else 0
        shown = shown[:begin] + digits[cut:] + shown[end:]
        digits = digits[:cut]
    for literal in shape.literals:
        shown = shown.replace("\0", literal, 1)
    return ("-" if value < 0 and len(sections) == 1 and exact else "") + shown.strip()


def table_lines(rows: Iterable[Sequence[str]]) -> str:
    """A table inside of a document: its cells with bars between them."""
    return "\n".join(" | ".join(map(one_line, row)) for row in rows if any(cell.strip() for cell in row))
