"""Slides of PowerPoint; texts, sheets and slides of OpenDocument, as LibreOffice writes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.tables import TableRows, table_lines
from klaw.knowledge.reading.formats.word import PAGE_NUMBER, written_number
from klaw.knowledge.reading.output import BlockKind, Output, UnreadableError

MAX_REPEATED = 1000
"""Equal rows or cells in a row; more of them are empty in real sheets."""
_O = "{urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TEXT, _TABLE = f"{_O}office:1.0}}", f"{_O}text:1.0}}", f"{_O}table:1.0}}"
_STYLE, _DRAW = f"{_O}style:1.0}}", f"{_O}drawing:1.0}}"
_UNSEEN = (f"{_TEXT}tracked-changes", f"{_TEXT}hidden-text", f"{_TEXT}note-citation")
_SIGNS = {f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}
_FORMS = {
    "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman",
    "а, б, .., аа, аб, ...": "russianLower", "А, Б, .., Аа, Аб, ...": "russianUpper",
}  # fmt: skip
"""Of numbers, with their names in Word."""


def read_open_document(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Paragraphs and tables, sheets and slides as pages; with notes, comments and the numbers of lists."""
    with Archive(file, request["unpacked_bytes"]) as archive:
        archive.check_xml()
        if "META-INF/manifest.xml" in archive.names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise UnreadableError("encrypted", "is protected by a password: save it without one")
        if "meta.xml" in archive.names:
            output.title(archive.xml("meta.xml").findtext(".//{*}title"))
        parts = [archive.xml(name) for name in ("styles.xml", "content.xml") if name in archive.names]
        _OpenDocument(archive, parts, output).read()


class _OpenDocument:
    def __init__(self, archive: Archive, parts: Sequence[Any], output: Output) -> None:
        self._archive = archive
        self._parts = parts
        self._output = output
        self._page: int | None = None
        self._path: list[tuple[int, str]] = []
        self._later: list[str] = []
        """Notes and comments, which follow the text in which they stand."""
        kinds = (f"{_TEXT}list-style", f"{_TEXT}outline-style")
        self._lists = {
            each.get(f"{_STYLE}name") if each.tag == kinds[0] else "": {_whole(level, "level"): level for level in each}
            for part in parts
            for each in part.iter(*kinds)
        }
        """Levels of each kind of list; of headings: ``""``."""
        self._counts: dict[str, dict[int, int]] = {}

    def read(self) -> None:
        for part in self._parts[-1].iterfind(f"{_OFFICE}body/*"):
            if part.tag == f"{_OFFICE}spreadsheet":
                self._pages(part.iterfind(f"{_TABLE}table"), self._sheet)
            elif part.tag == f"{_OFFICE}presentation":
                self._pages(part.iterfind(f"{_DRAW}page"), self._blocks)
            else:
                self._blocks(part)
        masters = self._parts[0].iterfind(f".//{_STYLE}master-page/*")
        for text in dict.fromkeys(self._text(each).strip() for each in masters):
            if any(map(str.isalpha, text)) and not PAGE_NUMBER.fullmatch(text):  # headers and footers
                self._output.block(text)

    def _pages(self, pages: Iterable[Any], read: Callable[[Any], None]) -> None:
        for number, page in enumerate(pages, 1):
            self._page, self._path = number, []
            self._output.page(number)
            read(page)

    def _sheet(self, sheet: Any) -> None:
        self._path = [(1, sheet.get(f"{_TABLE}name", ""))]
        self._block(self._path[0][1])
        rows = TableRows(self._output, self._page, (self._path[0][1],))
        for row in self._rows(sheet):
            rows.add(row)
        rows.flush()
        self._block("")

    def _blocks(self, parent: Any, level: int = 0, style: str = "none", number: str = "") -> None:
        """``level`` and ``style`` of the list in which the parent is, ``number`` what stands before its first text."""
        for each in parent:
            if each.tag == f"{_TEXT}h":
                self._heading(each)
            elif each.tag == f"{_TEXT}p":
                self._block(number + self._text(each))
            elif each.tag == f"{_TABLE}table":
                self._block(table_lines([text for _, text in row] for row in self._rows(each)), kind="table")
            elif each.tag == f"{_TEXT}list":
                named = each.get(f"{_TEXT}style-name") or style
                if (
                    level == 0
                    and f"{_TEXT}continue-list" not in each.attrib
                    and f"{_TEXT}continue-numbering" not in each.attrib
                ):
                    self._counts.pop(named, None)
                self._blocks(each, level + 1, named)
            elif each.tag == f"{_TEXT}list-item":
                self._blocks(each, level, style, self._number(style, level))
            elif isinstance(each.tag, str) and each.tag not in _UNSEEN:
                self._blocks(each, level, style)
            number = ""

    def _heading(self, element: Any) -> None:
        level = _whole(element, "outline-level")
        text = self._number("", level) + self._text(element).strip()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text))
        self._block(text)

    def _number(self, kind: str, level: int) -> str:
        """What is shown before an item of a list, which is counted."""
        levels = self._lists.get(kind, {})
        if level not in levels:
            return ""
        shape, counts = levels[level], self._counts.setdefault(kind, {})
        counts[level] = counts.get(level, _whole(shape, "start-value") - 1) + 1
        for deeper in [each for each in counts if each > level]:
            del counts[deeper]
        if shape.tag == f"{_TEXT}list-level-style-bullet":
            return "• "
        forms = (
            (at, levels[at].get(f"{_STYLE}num-format"))
            for at in range(level - _whole(shape, "display-levels") + 1, level + 1)
            if at in levels
        )
        text = ".".join(written_number(counts.get(at, 1), _FORMS.get(form, "decimal")) for at, form in forms if form)
        return f"{shape.get(f'{_STYLE}num-prefix', '')}{text}{shape.get(f'{_STYLE}num-suffix', '')} " if text else ""

    def _block(self, text: str, kind: BlockKind = "text") -> None:
        headings = tuple(title for _, title in self._path)
        self._output.block(text, page=self._page, headings=headings, kind=kind)
        for note in self._later:
            self._output.block(note, page=self._page, headings=headings)
        self._later.clear()

    def _rows(self, table: Any) -> Iterator[list[tuple[int, str]]]:
        """Cells as they are shown, each with its column; one that is merged with those above has their text."""
        above: dict[int, tuple[int, str]] = {}
        for row in table.iter(f"{_TABLE}table-row"):
            if next(row.iterancestors(f"{_TABLE}table")) is not table:
                continue
            cells, column = [], 0
            for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                text, (left, merged) = self._text(cell).strip(), above.get(column, (0, ""))
                if left and cell.tag == f"{_TABLE}covered-table-cell":
                    text = merged
                else:
                    left = _whole(cell, "number-rows-spanned", _TABLE)
                above[column] = left - 1, text
                times = _whole(cell, "number-columns-repeated", _TABLE)
                cells += [(column + at, text) for at in range(min(times, MAX_REPEATED) if text else 1)]
                column += times
            times = _whole(row, "number-rows-repeated", _TABLE)
            yield from [cells] * min(times, MAX_REPEATED if any(text for _, text in cells) else 1)

    def _text(self, element: Any) -> str:
        parts: list[str] = []
        self._take(element, parts)
        return "".join(parts)

    def _paragraphs(self, element: Any) -> str:
        return "\n".join(self._text(each) for each in element.iterfind(f"{_TEXT}p"))

    def _take(self, element: Any, parts: list[str]) -> None:
        if element.tag in _UNSEEN or not isinstance(element.tag, str):
            return
        if element.tag == f"{_OFFICE}annotation":
            self._later.append(f"Comment ({element.findtext('{*}creator') or ''}): {self._paragraphs(element)}")
        elif element.tag == f"{_TEXT}note-body":
            self._later.append(self._paragraphs(element))
        elif element.tag == f"{_DRAW}object":
            name = element.get("{http://www.w3.org/1999/xlink}href", "").removeprefix("./") + "/content.xml"
            if name in self._archive.names:  # a formula, as it was typed
                parts.append(
                    self._archive.xml(name).findtext(".//{http://www.w3.org/1998/Math/MathML}annotation") or ""
                )
        else:
            parts.append("\n" if element.tag in (f"{_TEXT}p", f"{_TEXT}h") and parts else "")
            parts.append(" " * min(100, _whole(element, "c")) if element.tag == f"{_TEXT}s" else "")
            parts.append(_SIGNS.get(element.tag, "") or element.text or "")
            for each in element:
                self._take(each, parts)
                parts.append(each.tail or "")


def _whole(element: Any, name: str, space: str = _TEXT) -> int:
    return int(element.get(f"{space}{name}", 1))


# -- PowerPoint --------------------------------------------------------------------------------------------------------


def read_pptx(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Slides as pages, each under its title, with its notes."""
    from pptx import Presentation

    with Archive(file, request["unpacked_bytes"]) as archive:
        presentation = Presentation(archive.slim())
    output.title(presentation.core_properties.title)
    known = set()
    for number, slide in enumerate(presentation.slides, 1):
        if slide.part in known:
            continue
        known.add(slide.part)
        output.page(number)
        try:
            _read_slide(slide, number, output)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 - the other slides are read
            output.problem("page_broken", f"is damaged ({type(error).__name__})", page=number)


def _read_slide(slide: Any, number: int, output: Output) -> None:
    title = slide.shapes.title
    heading = _lines(title.text_frame.text).strip() if title is not None else ""
    headings = (heading,) if heading else ()
    output.block(heading, page=number, headings=headings)
    for shape in _shapes(slide.shapes):
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if shape.has_text_frame:
            output.block(_lines(shape.text_frame.text), page=number, headings=headings)
        elif getattr(shape, "has_table", False):
            # Its collections make a list of all rows for each row.
            rows = ([cell.text for cell in row.tc_lst] for row in shape.table._tbl.tr_lst)
            output.block(table_lines(rows), page=number, headings=headings, kind="table")
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        output.block(_lines(notes.text), page=number, headings=headings)


def _lines(text: str) -> str:
    return text.replace("\v", "\n")


def _shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape
