"""PDF, page by page, in the order of its content. Headings are those of the outline; without one, lines in larger
letters. Lines at the same place of many pages (running titles, page numbers) are left out, but for one of each."""

import bisect
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple

from klaw.knowledge.reading.formats.pdf_lines import Layout, PdfLine, layout, lines
from klaw.knowledge.reading.ocr import INSTALL, Ocr, picture_of
from klaw.knowledge.reading.ocr import MAX_PAGES as MAX_SCANS
from klaw.knowledge.reading.output import Output, UnreadableError, one_line

MAX_OUTLINE = 20_000
PAGES_AT_ONCE = 250
"""Then the document is opened again: PDFium keeps fonts and objects of all pages that it has seen."""
MAX_HEADING = 150
LARGER, LARGER_NUMBERED = 1.2, 1.06
"""Letters of a heading, a numbered one, against those of the body."""
MAX_NUMBERED = 80
MAX_HEADINGS_OF_PAGE = 12
"""More are a poster or a form."""
LASTS_PAGES = 5
"""For which a heading without an outline goes on; the title of a page is no heading of a book."""
SAME_SIZE, OTHER_SIZE = 0.05, 0.12
PARAGRAPH_GAP = 1.35
"""From one line to the next, against what is usual in the section; farther is another paragraph."""
WIDEST = 2.5
"""Usual distance of lines, in heights of a letter."""
DROP_CAP = 1.5
"""A single letter that is so much larger than the line behind it belongs to its first word."""
MAX_OUTLINE_OF_PAGE = 200
MAX_HEADING_LINES = 4
ENOUGH_DRAWN = 30
"""Lines and curves on a page without text: its letters are drawn, or it is a picture."""

_NUMBERED = re.compile(
    r"(?:\d{1,2}(?:\.\d{1,3}){0,4}\.?|[IVX]{1,5}\.|[A-ZА-Я]\.|(?:глава|chapter|приложение)\s\S+)\s+\S", re.IGNORECASE
)
_NUMBER_KEY = re.compile(
    r"(?:chapter|part|section|item|appendix|глава|раздел|часть|приложение)?(?:[\divxlc]*|[a-zа-я]\d*)"
)
"""Before a heading, without dots and blanks."""
_SENTENCE = re.compile(r"[^\W\d]{2}[.;] |\.{4}|(?:\. ){4}")
"""In no heading: more than a sentence, or a line of a table of contents."""
_LETTERS = re.compile(r"[^\W\d_]{2}")
_FILE_NAME = re.compile(r"\.(?:docx?|pdf|indd|tex|xlsx?|pptx?|qxd)$|^untitled", re.IGNORECASE)
_PASSWORD = 4
"""PDFium's error."""


class OutlineEntry(NamedTuple):
    page: int
    level: int
    title: str


def read(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Read from the page that the request names; ``skipped`` are pages that ended another reader."""
    first = int(request["first_page"]) - 1
    skipped = {page - 1 for page in request["skipped"]}
    pdf = _open(file)
    count = len(pdf)
    if count > request["pages"]:
        raise UnreadableError("too_many_pages", f"has {count:,} pages; {request['pages']:,} are the limit")
    output.pages(count)
    output.title(_title(pdf))
    readable = [index for index in range(count) if index not in skipped]
    reading = _PdfReading(output, _outline(pdf), layout(pdf, readable, output), request.get("ocr"))
    for index in range(count):
        if index and index % PAGES_AT_ONCE == 0:
            pdf.close()
            pdf = _open(file)
        if index in skipped:
            reading.leave_out(index)
            continue
        if index < first:
            output.look(index + 1)
            reading.pass_over(pdf, index)
            continue
        output.page(index + 1)
        try:
            reading.page(pdf, index)
        except UnreadableError as error:
            output.problem(error.code, str(error), page=index + 1)
        except MemoryError:
            output.problem("too_much_memory", "needs more memory than a document may have", page=index + 1)
        except Exception as error:  # noqa: BLE001 - the other pages are read
            output.problem("page_broken", f"is damaged ({type(error).__name__})", page=index + 1)
    pdf.close()


def _open(file: BinaryIO) -> Any:
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        pdf = PdfDocument(Path(f"/proc/self/fd/{file.fileno()}"))
        pdf.init_forms()
    except PdfiumError as error:
        if error.err_code == _PASSWORD:
            raise UnreadableError("encrypted", "is protected by a password: save it without one") from None
        raise UnreadableError("broken", "is a damaged PDF, or only a part of one") from None
    return pdf


def _title(pdf: Any) -> str:
    title = one_line(pdf.get_metadata_dict().get("Title") or "")
    return title if _LETTERS.search(title) and not _FILE_NAME.search(title) else ""


def _outline(pdf: Any) -> list[OutlineEntry]:
    found: list[OutlineEntry] = []
    for bookmark in pdf.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target is not None else None
        title = one_line(bookmark.get_title())
        if page is not None and title:
            found.append(OutlineEntry(page, bookmark.level, title))
        if len(found) >= MAX_OUTLINE:
            break
    return sorted(found, key=lambda entry: entry.page)


class _OutlineMark(NamedTuple):
    """The lines of a page that are a heading; none when it was not found."""

    begin: int
    end: int
    level: float
    title: str


class _PdfReading:
    """What goes on from page to page: the headings."""

    def __init__(self, output: Output, outline: Sequence[OutlineEntry], layout: Layout, ocr: Ocr | None) -> None:
        self._output = output
        self._ocr = ocr
        self._outline = outline
        self._layout = layout
        self._path: list[tuple[float, str]] = []
        """Headings with their levels: of the outline, else the size of the letters, negative."""
        self._last = 0

    def page(self, pdf: Any, index: int) -> None:
        lines, marks = self._look(pdf, index)
        if not any(_LETTERS.search(line.text) for line in lines) and _has_pictures(pdf, index):
            self._scan(pdf, index)
            return
        number, at = index + 1, 0
        for mark in marks:
            self._send(lines[at : mark.begin], number)
            self._enter(mark)
            if mark.end > mark.begin:
                self._output.block(mark.title, page=number, headings=self._headings)
            at = mark.end
        self._send(lines[at:], number)

    def pass_over(self, pdf: Any, index: int) -> None:
        """Take the headings of a page that another reader has read."""
        with suppress(Exception):  # it was reported before
            for mark in self._look(pdf, index)[1]:
                self._enter(mark)

    def leave_out(self, index: int) -> None:
        """Take the outline's headings of a page that cannot be read."""
        for entry in self._entries(index):
            self._enter(_OutlineMark(0, 0, entry.level, entry.title))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _scan(self, pdf: Any, index: int) -> None:
        if self._ocr is None:
            hint = f"it may be a scan, which is read if tesseract is installed ({INSTALL})"
            raise UnreadableError("no_text", f"has pictures and no text: {hint}")
        if self._ocr.pages == MAX_SCANS:
            raise UnreadableError("no_text", f"is a scan; {MAX_SCANS} pages of a document are read")
        begun, page = time.monotonic(), pdf[index]
        try:
            text = self._ocr.read(picture_of(page)) if _is_covered(page) else ""
        finally:
            page.close()
        self._output.waited(time.monotonic() - begun)
        if not _LETTERS.search(text or ""):
            why = "took too long to be read" if text is None else "none was found in them"
            raise UnreadableError("no_text", f"has pictures and no text: {why}")
        self._output.problem("scan", "was read from a picture: letters and numbers may be wrong", page=index + 1)
        for paragraph in (text or "").split("\n\n"):
            self._output.block(paragraph, page=index + 1, headings=self._headings)

    def _look(self, pdf: Any, index: int) -> tuple[list[PdfLine], list[_OutlineMark]]:
        found, height = lines(pdf, index)
        kept = [line for line in found if not self._layout.leaves_out(line, height, index)]
        marks = self._by_outline(kept, index) if self._outline else self._by_size(kept)
        if marks:
            self._last = index
        elif not self._outline and index - self._last > LASTS_PAGES:
            self._path = []
        return kept, marks

    @property
    def _headings(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._path)

    def _enter(self, mark: _OutlineMark) -> None:
        level = mark.level * (1 + SAME_SIZE) if mark.level < 0 else mark.level
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((mark.level, mark.title))

    def _entries(self, index: int) -> Sequence[OutlineEntry]:
        begin, end = (
            bisect.bisect_left(self._outline, page, key=lambda entry: entry.page) for page in (index, index + 1)
        )
        return self._outline[begin:end]

    def _by_outline(self, lines: Sequence[PdfLine], index: int) -> list[_OutlineMark]:
        marks, at = [], 0
        keys = [_key(line.text) for line in lines]
        for entry in self._entries(index)[:MAX_OUTLINE_OF_PAGE]:
            begin, end = _find(keys, _key(entry.title), at)
            title = " ".join(line.text for line in lines[begin:end]) or entry.title
            marks.append(_OutlineMark(begin, end, entry.level, title))
            at = end
        return marks

    def _by_size(self, lines: Sequence[PdfLine]) -> list[_OutlineMark]:
        marks: list[_OutlineMark] = []
        for at, line in enumerate(lines):
            if (marks and at < marks[-1].end) or not self._is_heading(line, LARGER_NUMBERED):
                continue
            end = at + 1
            if not _NUMBERED.match(line.text) or len(line.text) > MAX_NUMBERED:
                if not self._is_heading(line, LARGER):
                    continue
                while end < len(lines) and abs(lines[end].height / line.height - 1) < SAME_SIZE:
                    end += 1
            title = " ".join(each.text for each in lines[at:end])
            if len(title) <= MAX_HEADING:
                marks.append(_OutlineMark(at, end, -line.height, title))
        return marks if len(marks) <= MAX_HEADINGS_OF_PAGE else []

    def _is_heading(self, line: PdfLine, larger: float) -> bool:
        body = self._layout.body
        return (
            0 < body * larger <= line.height
            and len(line.text) <= MAX_HEADING
            and _LETTERS.search(line.text) is not None
            and not line.text.endswith((".", ",", ";", ":"))
            and not _SENTENCE.search(line.text)
        )

    def _send(self, lines: Sequence[PdfLine], page: int) -> None:
        """Lines as paragraphs: they end where the next line is farther away than usual, or has other letters."""
        gaps = [one.last - other.bottom for one, other in pairwise(lines) if one.height and other.height]
        usual = median([gap for gap in gaps if gap > 0] or [0])
        text = [lines[0].text] if lines else []
        for before, line in pairwise(lines):
            gap, higher = before.last - line.bottom, max(before.height, line.height)
            apart = gap > PARAGRAPH_GAP * max(min(usual, WIDEST * before.height), before.height)
            other = abs(gap) > higher / 2 and abs(before.height - line.height) > higher * OTHER_SIZE
            goes_on = before.text[-1:].isalnum() and line.text[:1].islower()
            jump = gap < -higher and not goes_on  # to another column
            if not (before.height and line.height):
                text.append("\n")
            elif len(before.text) == 1 and before.text.isupper() and before.height > DROP_CAP * line.height:
                text.append("")
            else:
                text.append("\n\n" if apart or other or jump else " " if abs(gap) < higher / 2 else "\n")
            text.append(line.text)
        self._output.block("".join(text), page=page, headings=self._headings)


def _key(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _find(keys: Sequence[str], title: str, begin: int) -> tuple[int, int]:
    """Which lines are a title of the outline, from ``begin`` on; the number before it may be missing in one of them."""
    for at in range(begin, len(keys) if title else 0):
        joined = ""
        for end in range(at + 1, min(at + MAX_HEADING_LINES, len(keys)) + 1 if keys[at] else at):
            joined += keys[end - 1]
            longer, shorter = (joined, title) if len(joined) >= len(title) else (title, joined)
            if longer.endswith(shorter) and _NUMBER_KEY.fullmatch(longer[: len(longer) - len(shorter)]):
                return at, end
    return begin, begin


def _has_pictures(pdf: Any, index: int) -> bool:
    from pypdfium2 import raw

    page = pdf[index]
    try:
        drawn = 0
        for each in page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH), max_depth=3):
            drawn += ENOUGH_DRAWN if each.type == raw.FPDF_PAGEOBJ_IMAGE else 1
            if drawn >= ENOUGH_DRAWN:
                return True
        return False
    finally:
        page.close()


def _is_covered(page: Any) -> bool:
    """Whether what is on a page is large enough to hold text; tesseract takes as long for a dot as for a letter."""
    width, height = page.get_size()
    if not (boxes := [each.get_bounds() for each in page.get_objects(max_depth=3)]):
        return True
    left, bottom, right, top = (
        pick(sides) for pick, sides in zip((min, min, max, max), zip(*boxes, strict=True), strict=True)
    )
    return bool(right - left > width / 10 and top - bottom > height / 10)
