"""Documents and slides of Word and PowerPoint, in their new formats."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.tables import table_lines
from klaw.knowledge.reading.output import Output

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_STYLE = re.compile(r"(?:heading|заголовок) (\d)$", re.IGNORECASE)
MAX_BASES = 20
"""A style may stand on another; they may also stand on each other in a circle."""


def read_docx(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Paragraphs and tables, with inserted text and without deleted; then the notes. Pages depend on who prints it."""
    from docx import Document
    from docx.oxml import parse_xml

    with Archive(file, request["unpacked_bytes"]) as archive:
        document = Document(archive.slim())
    output.title(document.core_properties.title)
    styles = {style.get(f"{_W}styleId"): style for style in document.styles.element.iterchildren(f"{_W}style")}
    levels: dict[str | None, int | None] = {}
    path: list[tuple[int, str]] = []
    for element in _content(document.element.body):
        headings = tuple(text for _, text in path)
        if element.tag == f"{_W}tbl":
            rows = ([_text(cell) for cell in _own(row, "tc")] for row in _own(element, "tr"))
            output.block(table_lines(rows), headings=headings, kind="table")
            continue
        text = _text(element).strip()
        style = element.find(f"{_W}pPr/{_W}pStyle")
        named = style.get(f"{_W}val") if style is not None else None
        level = levels[named] = levels[named] if named in levels else _level(named, styles)
        if level is not None and text:
            if level == 0:
                output.title(text)
            while path and path[-1][0] >= level:
                path.pop()
            path.append((level, text))
            headings = tuple(text for _, text in path)
        output.block(text, headings=headings)
    notes = {
        relation.target_part
        for relation in document.part.rels.values()
        if not relation.is_external and relation.reltype.endswith(("/footnotes", "/endnotes"))
    }
    for part in sorted(notes, key=lambda each: each.partname):
        for note in parse_xml(part.blob):
            output.block(_text(note))


def _level(named: str | None, styles: Mapping[str, Any]) -> int | None:
    """Level of a heading; 0 for a title, None for anything else."""
    for _ in range(MAX_BASES):
        style = styles.get(named or "")
        if style is None:
            break
        name = _value(style, "name") or ""
        if name == "Title":
            return 0
        if found := _STYLE.match(name):
            return int(found[1])
        if (outline := _value(style, "pPr", "outlineLvl")) and outline in "012345678":
            return int(outline) + 1
        named = _value(style, "basedOn")
    return None


def _value(element: Any, *path: str) -> str | None:
    found = element.find("/".join(f"{_W}{part}" for part in path))
    value: str | None = found.get(f"{_W}val") if found is not None else None
    return value


def _content(body: Any) -> Iterator[Any]:
    """Paragraphs and tables, also those in content controls and the like."""
    for element in body.iterchildren():
        if element.tag in (f"{_W}p", f"{_W}tbl"):
            yield element
        elif isinstance(element.tag, str) and element.tag != f"{_W}sectPr":
            yield from _content(element)


def _own(element: Any, part: str) -> Iterator[Any]:
    """The rows of a table, or the cells of a row, without those of tables in it; whatever wraps them."""
    for each in element.iter(f"{_W}{part}"):
        if next(each.iterancestors(element.tag)) is element:
            yield each


def _text(element: Any) -> str:
    """The text of an element without what was deleted (``w:delText``)."""
    parts: list[str] = []
    for each in element.iter():
        if each.tag == f"{_W}t":
            if not any(parent.tag == f"{_MC}Fallback" for parent in each.iterancestors()):
                parts.append(each.text or "")
        elif each.tag == f"{_W}p":
            parts.append("\n" if parts else "")
        else:
            parts.append(_BREAKS.get(each.tag, "") if isinstance(each.tag, str) else "")
    return "".join(parts)


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
