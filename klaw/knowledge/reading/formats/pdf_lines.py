"""The lines of a page of a PDF, with what was typed into its form; which of them are running titles."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from ctypes import c_ushort
from typing import Any, NamedTuple

from klaw.knowledge.reading.output import Output, UnreadableError, one_line, tidy

MAX_PAGE_CHARS = 2_000_000
SAMPLE_PAIRS = 8
"""Neighbouring pages that are compared to find sizes of letters and running lines."""
MARGIN = 0.12
"""Share of a page's height, at its top and its bottom, where running lines stand."""
MAX_RUNNING = 150

_DIVIDED = "\ufffe"
_HYPHEN = re.compile(rf"(\w?){_DIVIDED}(\w?)")
_NUMBER = re.compile(r"\d+")


class PdfLine(NamedTuple):
    """A line of a page; two that a hyphen joins are one."""

    text: str
    bottom: float
    height: float
    """Size of its first letter; 0 where the page's letters cannot be located."""
    last: float
    """Bottom of the last of those that are joined."""


class TypedText(NamedTuple):
    text: str
    left: float
    middle: float
    """Its middle, from the bottom of the page."""


class Layout(NamedTuple):
    body: float
    """Height of most letters; 0: not known."""
    running: Mapping[tuple[str, int], int]
    """Lines of many pages (``_place``), each with the index of a page on which it is kept."""

    def leaves_out(self, line: PdfLine, height: float, index: int) -> bool:
        return _in_margin(line, height) and self.running.get(_place(line), index) != index


def layout(pdf: Any, pages: Sequence[int], output: Output) -> Layout:
    """Judge by pages from all over the document, the same ones whenever it is read."""
    count = len(pages)
    pairs = min(SAMPLE_PAIRS, (count + 1) // 2)
    starts = {pair * max(1, count - 1) // pairs for pair in range(pairs)}
    sample = sorted({pages[at] for start in starts for at in (start, start + 1) if at < count})
    heights: Counter[float] = Counter()
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index in sample:
        output.look(index + 1)
        try:
            found, height = lines(pdf, index)
        except Exception:  # noqa: BLE001, S112 - it is reported when its turn comes
            continue
        for line in found:
            heights[round(line.height * 2) / 2] += len(line.text)
        for place in {_place(line) for line in found if _in_margin(line, height)}:
            places[place].append(index)
    heights.pop(0, None)
    enough = max(4, len(sample) // 3)
    running = {place: found[0] for place, found in places.items() if len(found) >= enough}
    return Layout(body=heights.most_common(1)[0][0] if heights else 0, running=running)


def _in_margin(line: PdfLine, height: float) -> bool:
    middle = line.bottom + line.height / 2
    return line.height > 0 and len(line.text) <= MAX_RUNNING and not MARGIN * height < middle < (1 - MARGIN) * height


def _place(line: PdfLine) -> tuple[str, int]:
    return _NUMBER.sub("#", one_line(line.text).casefold()), round(line.bottom / 3)


def lines(pdf: Any, index: int) -> tuple[list[PdfLine], float]:
    """The lines of a page that are not empty, and the page's height."""
    page = pdf[index]
    try:
        text_page = page.get_textpage()
        try:
            count = text_page.count_chars()
            if count > MAX_PAGE_CHARS:
                raise UnreadableError("too_much_text", f"has {count:,} characters; {MAX_PAGE_CHARS:,} are the limit")
            text = text_page.get_text_range() if count > 0 else ""
            located = len(text) == count
            typed = typed_in(pdf, page)
            found, at = [], 0
            for part in text.split("\r\n"):
                shown = _filled(part, at, text_page, typed) if typed and located else part
                if stripped := _dehyphenated(tidy(shown)).strip():
                    begin = at + len(part) - len(part.lstrip())
                    _, bottom, _, top = text_page.get_charbox(begin, loose=True) if located else (0, 0, 0, 0)
                    joined = at + part.rfind(_DIVIDED, 0, -1) + 1
                    last = text_page.get_charbox(joined, loose=True)[1] if located and joined > at else bottom
                    found.append(PdfLine(stripped, bottom, max(0.0, top - bottom), last))
                at += len(part) + 2
            for each in typed:  # beside no line: it stands below the nearest one above
                above = [number for number, line in enumerate(found, 1) if line.bottom > each.middle]
                at = min(above, key=lambda number: found[number - 1].bottom, default=len(found))
                found.insert(at, PdfLine(each.text, each.middle, 0, each.middle))
            return found, page.get_height()
        finally:
            text_page.close()
    finally:
        page.close()


def _filled(part: str, at: int, text_page: Any, typed: list[TypedText]) -> str:
    """A line of a page with what was typed into it, each behind what is left of it; ``at``: its first character."""
    boxes = [text_page.get_charbox(at + number) for number in range(len(part))]
    bottom, top = min((box[1] for box in boxes), default=0), max((box[3] for box in boxes), default=0)
    for each in sorted((each for each in typed if bottom - 2 <= each.middle <= top + 2), key=lambda each: -each.left):
        behind = next((number for number, box in enumerate(boxes) if box[0] > each.left), len(part))
        part = f"{part[:behind]} {each.text} {part[behind:]}"
        typed.remove(each)
    return part


def _dehyphenated(text: str) -> str:
    """PDFium joins a word that was divided at a line's end by U+FFFE; a hyphen that belongs to it has to stay."""

    def join(found: re.Match[str]) -> str:
        before, after = found[1], found[2]
        rest = text[found.end() :].partition(" ")[0]
        divided = before.islower() and after.islower() and "-" not in rest
        return before + ("" if divided else "-") + after

    return _HYPHEN.sub(join, text)


# -- what people typed -----------------------------------------------------------------------------------------------

MAX_ANNOTATIONS = 2000
"""Of a page."""
MAX_CHARS = 20_000


def typed_in(pdf: Any, page: Any) -> list[TypedText]:
    from pypdfium2 import raw

    found = []
    for number in range(min(MAX_ANNOTATIONS, raw.FPDFPage_GetAnnotCount(page))):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            hidden = raw.FPDFAnnot_GetFlags(annotation) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW)
            text = "" if hidden else _text(raw, pdf.formenv, annotation)
            box = raw.FS_RECTF()
            if text.strip() and raw.FPDFAnnot_GetRect(annotation, box):
                found.append(TypedText(text.strip(), box.left, (box.bottom + box.top) / 2))
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    return found


def _text(raw: Any, form: Any, annotation: Any) -> str:
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if kind in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
        return ""
    if kind != raw.FPDF_ANNOT_WIDGET:
        note = _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
        return note if kind == raw.FPDF_ANNOT_FREETEXT or not note else f"[Note: {note}]"
    field = raw.FPDFAnnot_GetFormFieldType(form, annotation) if form else raw.FPDF_FORMFIELD_UNKNOWN
    if field in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        state = _string(raw.FPDFAnnot_GetStringValue, annotation, b"AS")
        return f"☒ {state}" if state not in ("", "Off") else "☐"
    if field in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        options = range(min(MAX_ANNOTATIONS, raw.FPDFAnnot_GetOptionCount(form, annotation)))
        chosen = [at for at in options if raw.FPDFAnnot_IsOptionSelected(form, annotation, at)]
        if chosen:
            return ", ".join(_string(raw.FPDFAnnot_GetOptionLabel, form, annotation, at) for at in chosen)
    elif field != raw.FPDF_FORMFIELD_TEXTFIELD:
        return ""  # a button, or a signature
    return _string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)


def _string(ask: Any, *about: Any) -> str:
    """A text of PDFium, which says how many bytes of UTF-16 it has, and writes them where there is room."""
    size = min(ask(*about, None, 0), 2 * MAX_CHARS)
    room = (c_ushort * (size // 2 + 1))()
    ask(*about, room, size)
    return bytes(room)[: max(0, size - 2)].decode("utf-16-le", "replace")
