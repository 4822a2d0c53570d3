"""Documents made for tests. PDFs are written by hand, so that they can be wrong in every way."""

import os
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import attrs

from klaw.domain.knowledge import Block, Passage
from klaw.knowledge.reading.passages import SEPARATOR, Cutter
from klaw.knowledge.reading.reader import DocumentReading, ReadingLimits, ReadingReport


@attrs.frozen
class Text:
    """A line of a page."""

    text: str
    size: float = 11
    y: float | None = None
    """From the bottom of the page; 14 points below the one before if left out."""
    x: float = 72


Page = Sequence[Text | str]

_CMAP = (
    "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /A def /CMapType 2 def\n"
    "1 begincodespacerange <00> <FF> endcodespacerange\n{count} beginbfchar\n{pairs}\nendbfchar\nendcmap end end"
)


class Pdf:
    """Objects of a PDF, and their offsets."""

    def __init__(self) -> None:
        self.objects: list[bytes] = []

    def add(self, data: bytes | str) -> int:
        self.objects.append(data.encode("latin-1") if isinstance(data, str) else data)
        return len(self.objects)

    def stream(self, data: bytes, entries: str = "", *, packed: bool = True) -> int:
        body = zlib.compress(data) if packed else data
        flate = "/Filter /FlateDecode " if packed else ""
        return self.add(f"<< {entries}{flate}/Length {len(body)} >>\nstream\n".encode() + body + b"\nendstream")

    def bytes(self, root: int, info: int | None = None, entries: str = "") -> bytes:
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        offsets = []
        for number, data in enumerate(self.objects, 1):
            offsets.append(len(out))
            out += b"%d 0 obj\n" % number + data + b"\nendobj\n"
        begin = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
        for offset in offsets:
            out += b"%010d 00000 n \n" % offset
        about = (f" /Info {info} 0 R" if info else "").encode() + entries.encode()
        out += b"trailer << /Size %d /Root %d 0 R%s >>\nstartxref\n%d\n%%%%EOF\n" % (
            len(offsets) + 1,
            root,
            about,
            begin,
        )
        return bytes(out)


def _hex(text: str) -> str:
    return (b"\xfe\xff" + text.encode("utf-16-be")).hex()


def _content(page: Page) -> bytes:
    parts, y = [], 760.0
    for each in page:
        line = Text(each) if isinstance(each, str) else each
        y = y - 14 if line.y is None else line.y
        code = line.text.encode("cp1251").hex()
        parts.append(f"BT /F1 {line.size} Tf 1 0 0 1 {line.x} {y} Tm <{code}> Tj ET")
    return "\n".join(parts).encode()


def pdf(
    pages: Iterable[Page | bytes],
    *,
    title: str = "",
    outline: Sequence[tuple[int, str]] = (),
    broken: Sequence[int] = (),
) -> bytes:
    """A PDF with text in Latin and Russian letters.

    Args:
        pages: lines of each, or its content stream.
        title: of the document.
        outline: page (from 1) and title of each entry.
        broken: pages (from 1) whose objects are no pages.
    """
    made = Pdf()
    codes = [code for code in range(32, 256) if code != 0x98]
    pairs = "\n".join(f"<{code:02x}> <{ord(bytes([code]).decode('cp1251')):04x}>" for code in codes)
    cmap = made.stream(_CMAP.format(count=len(codes), pairs=pairs).encode())
    font = made.add(
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding /ToUnicode {cmap} 0 R >>"
    )
    tree = len(made.objects) + 1
    made.add("")
    kids = []
    for number, page in enumerate(pages, 1):
        content = made.stream(page if isinstance(page, bytes) else _content(page))
        kids.append(
            made.add(
                "<< /Type /Nonsense >>"
                if number in broken
                else f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R "
                f"/Resources << /Font << /F1 {font} 0 R >> >> >>"
            )
        )
    made.objects[tree - 1] = (
        f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>".encode()
    )
    marks = ""
    if outline:
        first = len(made.objects) + 2
        last = first + len(outline) - 1
        top = made.add(f"<< /Type /Outlines /First {first} 0 R /Last {last} 0 R /Count {len(outline)} >>")
        for number, (page_number, text) in enumerate(outline, first):
            following = f"/Next {number + 1} 0 R " if number < last else ""
            made.add(
                f"<< /Title <{_hex(text)}> /Parent {top} 0 R {following}/Dest [{kids[page_number - 1]} 0 R /Fit] >>"
            )
        marks = f"/Outlines {top} 0 R "
    root = made.add(f"<< /Type /Catalog {marks}/Pages {tree} 0 R >>")
    return made.bytes(root, made.add(f"<< /Title <{_hex(title)}> >>") if title else None)


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@asynccontextmanager
async def reading(path: Path, *, limits: ReadingLimits | None = None) -> AsyncIterator[DocumentReading]:
    file = os.open(path, os.O_RDONLY)
    try:
        async with DocumentReading(file, name=path.name, limits=limits) as begun:
            yield begun
    finally:
        os.close(file)


async def read(path: Path, *, limits: ReadingLimits | None = None) -> tuple[list[Block], ReadingReport]:
    async with reading(path, limits=limits) as begun:
        blocks = [block async for block in begun]
    return blocks, begun.report


def cut(blocks: Iterable[Block]) -> Iterator[Passage]:
    """The passages of a document."""
    cutter = Cutter()
    for block in blocks:
        yield from cutter.add(block)
    yield from cutter.finish()


def text_of(passages: Iterable[Passage]) -> str:
    """A document's text, which the ranges of its passages count in."""
    return SEPARATOR.join(passage.text for passage in passages)


def codes(report: ReadingReport) -> list[str]:
    return [problem.code for problem in report.problems]


def docx(document: str | Iterable[bytes], types: str = "") -> bytes:
    """A Word document with this XML in it.

    Args:
        document: the root element, or the bytes of the part.
        types: what stands before the root.
    """
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
            'wordprocessingml.document.main+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
            'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            if isinstance(document, str):
                space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
                body = f'{types}<w:document xmlns:w="{space}"><w:body>{document}</w:body></w:document>'
                part.write(body.encode())
            else:
                part.writelines(document)
    return made.getvalue()
