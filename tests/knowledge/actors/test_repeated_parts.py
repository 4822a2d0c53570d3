"""26.A6: small documents that repeat themselves, or that are nearly empty and as large as can be. What a reader does is
in proportion to the file: each of these took until its time was over, or gave its text as often as it is named."""

import re
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.opc.constants import CONTENT_TYPE as CT
from docx.opc.constants import RELATIONSHIP_TYPE as RT
from docx.opc.packuri import PackURI
from docx.opc.part import Part

from klaw.knowledge.reading.formats.mail import MAX_HEADER_CHARS
from klaw.knowledge.reading.reader import CHARS_FOR_BYTE, LEAST_CHARS, ReadingLimits
from tests.support.documents import codes, read, write

TIMES = 3_000


def changed(document: Any, changes: Mapping[str, Callable[[str], str]]) -> bytes:
    """A document as its library saves it, with some parts changed."""
    saved, out = BytesIO(), BytesIO()
    document.save(saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name in old.namelist():
            data = old.read(name)
            made.writestr(name, changes[name](data.decode()) if name in changes else data)
    return out.getvalue()


def repeated(element: str, times: int = TIMES, *, numbered: str = "") -> Callable[[str], str]:
    """Repeat the first element of a name; ``numbered`` is an attribute that must differ."""

    def change(xml: str) -> str:
        found = re.search(rf"<{element}\b.*?(?:/>|</{element}>)", xml, re.DOTALL)
        assert found is not None
        copies = (re.sub(rf'( {numbered}=")[^"]*', rf"\g<1>{1000 + each}", found[0]) for each in range(times))
        return xml[: found.start()] + "".join(copies if numbered else [found[0]] * times) + xml[found.end() :]

    return change


def sheet_of(rows: str) -> bytes:
    change = {"xl/worksheets/sheet1.xml": lambda xml: xml.replace("</sheetData>", f"{rows}</sheetData>")}
    return changed(openpyxl.Workbook(), change)


def texts_of(times: int, text: str) -> bytes:
    """A sheet that says a text so often, which is kept once."""
    book, made = BytesIO(sheet_of("".join('<row><c t="s"><v>0</v></c></row>' for _ in range(times)))), BytesIO()
    with zipfile.ZipFile(book) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        kind = CT.SML_SHARED_STRINGS
        for name in old.namelist():
            types = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
            new.writestr(name, old.read(name).decode().replace("</Types>", types))
        space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        new.writestr("xl/sharedStrings.xml", f'<sst xmlns="{space}"><si><t>{text}</t></si></sst>')
    return made.getvalue()


def far_cells() -> bytes:
    """A million rows to be filled up to the last column, and a row a billion rows below."""
    rows = "".join(f'<row r="{each}"><c r="XFD{each}"><v>7</v></c></row>' for each in range(1, 200_000))
    return sheet_of(f'{rows}<row r="1048576000"><c r="A1048576000"><v>8</v></c></row>')


def sheets() -> bytes:
    book = openpyxl.Workbook()
    book.active["A1"] = "Once"
    return changed(book, {"xl/workbook.xml": repeated("sheet", numbered="name")})


def sheets_without_size() -> bytes:
    rows = "".join('<row><c t="inlineStr"><is><t></t></is></c></row>' for _ in range(10_000))
    once = '<sheetData><row><c t="inlineStr"><is><t>Once</t></is></c></row>'
    changes = {
        "xl/workbook.xml": repeated("sheet", numbered="name"),
        "xl/worksheets/sheet1.xml": lambda xml: re.sub("<dimension[^>]*>", "", xml).replace(
            "<sheetData></sheetData>", f"{once}{rows}</sheetData>"
        ),
    }
    return changed(openpyxl.Workbook(), changes)


def slides() -> bytes:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[5]).shapes.title.text = "Once"
    return changed(presentation, {"ppt/presentation.xml": repeated("p:sldId", numbered="id")})


def notes() -> bytes:
    document = docx.Document()
    xml = '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:p><w:r><w:t>Once'
    xml += "</w:t></w:r></w:p></w:footnotes>"
    part = Part(PackURI("/word/footnotes.xml"), CT.WML_FOOTNOTES, xml.encode(), document.part.package)
    document.part.rels.get_or_add(RT.FOOTNOTES, part)

    def again(xml: str) -> str:
        [one] = re.findall(r"<Relationship [^>]*footnotes[^>]*>", xml)
        return xml.replace(one, "".join(re.sub('Id="[^"]*', f'Id="rIdF{each}', one) for each in range(TIMES)))

    return changed(document, {"word/_rels/document.xml.rels": again})


def book() -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("mimetype", "application/epub+zip")
        made.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="a.opf"/></rootfiles></container>',
        )
        items = "".join(f'<item id="{each}" href="a.html" media-type="text/html"/>' for each in range(TIMES))
        spine = "".join(f'<itemref idref="{each}"/>' for each in range(TIMES)) * 2
        package = f"<manifest>{items}</manifest><spine>{spine}</spine>"
        made.writestr("a.opf", f'<package xmlns="http://www.idpf.org/2007/opf">{package}</package>')
        made.writestr("a.html", "<p>Once</p>")
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.xlsx", sheets), ("a.xlsx", sheets_without_size), ("a.pptx", slides), ("a.docx", notes), ("a.epub", book)],
    ids=["sheets", "sheets without a size", "slides", "notes", "chapters"],
)
async def test_a_part_that_is_named_often_is_read_once(tmp_path: Path, name: str, make: Callable[[], bytes]) -> None:
    data = make()
    blocks, report = await read(write(tmp_path / name, data), limits=ReadingLimits().of(len(data)))
    assert [block.text for block in blocks].count("Once") == 1, report.problems
    assert not report.failed


async def test_cells_that_a_sheet_does_not_have_cost_nothing(tmp_path: Path) -> None:
    blocks, report = await read(write(tmp_path / "a.xlsx", far_cells()))
    assert not report.failed, report.problems
    lines = [line for block in blocks[1:] for line in block.text.split()]
    assert (lines[0], lines[-1], len(lines)) == ("7", "8", 200_000)


async def test_many_styles_that_stand_on_each_other(tmp_path: Path) -> None:
    style = '<w:style w:type="paragraph" w:styleId="s{}"><w:name w:val="a"/><w:basedOn w:val="s{}"/></w:style>'
    styles = "".join(style.format(each, each * 7) for each in range(30_000))
    document = docx.Document()
    document.add_heading("Срок", 1)
    data = changed(document, {"word/styles.xml": lambda xml: xml.replace("</w:styles>", f"{styles}</w:styles>")})
    blocks, _ = await read(write(tmp_path / "a.docx", data))
    assert [(block.headings, block.text) for block in blocks] == [(("Срок",), "Срок")]


async def test_a_text_that_is_kept_once_is_cleaned_once(tmp_path: Path) -> None:
    blocks, report = await read(write(tmp_path / "a.xlsx", texts_of(200_000, " " * 32_000 + "x")))
    assert not report.failed, report.problems
    assert sum(block.text.count("x") for block in blocks) == 200_000


async def test_a_small_document_has_no_endless_text(tmp_path: Path) -> None:
    data = texts_of(50_000, "word " * 6_000)
    blocks, report = await read(write(tmp_path / "a.xlsx", data), limits=ReadingLimits().of(len(data)))
    assert codes(report) == ["too_much_text"]
    assert sum(len(block.text) for block in blocks) < LEAST_CHARS + CHARS_FOR_BYTE * len(data)


async def test_long_names_of_columns_are_no_names(tmp_path: Path) -> None:
    """They would be repeated in each row."""
    names = ",".join(f"{'n' * 5_000}{each}" for each in range(20))
    text = f"{names}\n" + ",".join(["x"] * 20) + "\n"
    blocks, _ = await read(write(tmp_path / "a.csv", text))
    assert blocks[-1].text.splitlines()[-1] == "; ".join(["x"] * 20)


@pytest.mark.parametrize(
    ("name", "text", "last"),
    [
        ("a.html", "<!---->" * 585 + "<p>Text</p>", "Text"),
        ("a.md", "# a" + "#" * 8_000 + "x\n" + ("|" + "-" * 8_000 + "x\n") * 500 + "\nText", "Text"),
        ("a.md", "# Heading ##  \n\nText", "Text"),
    ],
)
async def test_patterns_that_take_longer_than_the_text_is(tmp_path: Path, name: str, text: str, last: str) -> None:
    blocks, report = await read(write(tmp_path / name, text))
    assert not report.failed, report.problems
    assert blocks[-1].text == last


async def test_a_header_without_an_end(tmp_path: Path) -> None:
    headers = "From: anna@example.org\nSubject: Rent\nCc: " + "a@example.org, " * 50_000
    blocks, report = await read(write(tmp_path / "a.eml", f"{headers}\n\nThe text."))
    assert codes(report) == ["header_cut"]
    assert len(blocks[0].text) < 2 * MAX_HEADER_CHARS
    assert blocks[-1].text == "The text."
