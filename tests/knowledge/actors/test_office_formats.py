"""Word, PowerPoint, Excel, CSV, messages and JSON, as their own libraries write them, in Russian and English."""

import datetime as dt
import re
import zipfile
from email.message import EmailMessage
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.opc.constants import CONTENT_TYPE as CT
from docx.opc.constants import RELATIONSHIP_TYPE as RT
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import OxmlElement
from pptx.util import Inches

from tests.support.documents import codes, read, write


async def test_word_in_its_order_with_headings_and_tables(tmp_path: Path) -> None:
    document = docx.Document()
    document.core_properties.title = "Договор"
    document.add_heading("Договор аренды", 0)
    document.add_heading("1. Срок", 1)
    document.add_paragraph("Срок — один год.").add_run(" One year.")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ["Имя", "Сумма", "Анна", "100"], strict=True):
        cell.text = text
    table.cell(1, 1).add_table(1, 1).cell(0, 0).text = "внутри"
    document.add_heading("1.1. Deposit", 2)
    paragraph = document.add_paragraph("Paid")
    inserted = OxmlElement("w:ins")
    inserted.append(document.add_paragraph("")._p.add_r())
    inserted[0].text = " in advance"
    paragraph._p.append(inserted)
    deleted = OxmlElement("w:del")
    run = OxmlElement("w:r")
    text = OxmlElement("w:delText")
    text.text = " never"
    run.append(text)
    deleted.append(run)
    paragraph._p.append(deleted)
    notes = (
        '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:footnote w:id="1"><w:p>'
        "<w:r><w:t>Сноска: see § 5.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    part = Part(PackURI("/word/footnotes.xml"), CT.WML_FOOTNOTES, notes.encode(), document.part.package)
    document.part.relate_to(part, RT.FOOTNOTES)
    document.save(str(tmp_path / "a.docx"))
    blocks, report = await read(tmp_path / "a.docx")
    assert [(block.headings, block.kind, block.text) for block in blocks] == [
        (("Договор аренды",), "text", "Договор аренды"),
        (("Договор аренды", "1. Срок"), "text", "1. Срок"),
        (("Договор аренды", "1. Срок"), "text", "Срок — один год. One year."),
        (("Договор аренды", "1. Срок"), "table", "Имя | Сумма\nАнна | 100 внутри"),
        (("Договор аренды", "1. Срок", "1.1. Deposit"), "text", "1.1. Deposit"),
        (("Договор аренды", "1. Срок", "1.1. Deposit"), "text", "Paid in advance"),
        ((), "text", "Сноска: see § 5."),
    ]
    assert (report.format, report.title, report.language, report.pages) == ("docx", "Договор", "ru", 0)


async def test_slides_are_pages_with_their_notes(tmp_path: Path) -> None:
    show = pptx.Presentation()
    for title, text in (("Итоги года", "Выручка выросла"), ("Plans", "Hire two people")):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
        slide.notes_slide.notes_text_frame.text = f"Заметка: {title}"
    table = show.slides[1].shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for at, value in enumerate(["Role", "Оклад", "Cook", "500"]):
        table.cell(at // 2, at % 2).text = value
    show.save(str(tmp_path / "a.pptx"))
    blocks, report = await read(tmp_path / "a.pptx")
    assert [(block.page, block.headings, block.kind, block.text) for block in blocks] == [
        (1, ("Итоги года",), "text", "Итоги года"),
        (1, ("Итоги года",), "text", "Выручка выросла"),
        (1, ("Итоги года",), "text", "Заметка: Итоги года"),
        (2, ("Plans",), "text", "Plans"),
        (2, ("Plans",), "text", "Hire two people"),
        (2, ("Plans",), "table", "Role | Оклад\nCook | 500"),
        (2, ("Plans",), "text", "Заметка: Plans"),
    ]
    assert (report.format, report.pages, report.failed) == ("pptx", 2, False)


async def test_sheets_are_pages_of_named_values(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Продажи"
    sheet["A1"] = "Отчёт за год"
    for row in (["Город", "Date", "Sum"], ["Тверь", dt.date(2024, 3, 5), 1000.5], ["Псков", None, True]):
        sheet.append(row)
    book.create_sheet("Empty")
    book.create_sheet("Plain").append([1, 2, 3])
    book.save(tmp_path / "a.xlsx")
    blocks, report = await read(tmp_path / "a.xlsx")
    assert [(block.page, block.headings, block.text) for block in blocks] == [
        (1, ("Продажи",), "Продажи"),
        (
            1,
            ("Продажи",),
            "Отчёт за год\nГород; Date; Sum\nГород: Тверь; Date: 2024-03-05; Sum: 1000.5\nГород: Псков; Sum: True",
        ),
        (2, ("Empty",), "Empty"),
        (3, ("Plain",), "Plain"),
        (3, ("Plain",), "1; 2; 3"),
    ]
    assert (report.format, report.pages) == ("xlsx", 3)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ('<c r="A1"><f>B1*2</f><v></v></c>', ["no_values"]),
        ('<c r="A1" s="1"><f t="shared" si="0"/></c>', ["no_values"]),
        ('<c r="A1"><f>B1*2</f><v>4</v></c>', []),
        ('<c r="A1" t="str"><f>IF(B1,"")</f><v></v></c>', []),
        ('<c r="A1"/><c r="B1"><v>2</v></c>', []),
    ],
)
async def test_formulas_without_values_are_told(tmp_path: Path, cell: str, told: list[str]) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "CELL"
    book.save(tmp_path / "made.xlsx")
    with zipfile.ZipFile(tmp_path / "made.xlsx") as made, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as changed:
        for name in made.namelist():
            data = made.read(name)
            if name.endswith("sheet1.xml"):
                data = re.sub(
                    rb"<sheetData>.*</sheetData>", f'<sheetData><row r="1">{cell}</row></sheetData>'.encode(), data
                )
            changed.writestr(name, data)
    _, report = await read(tmp_path / "a.xlsx")
    assert (report.failed, codes(report)) == (False, told)


@pytest.mark.parametrize(("delimiter", "encoding"), [(",", "utf-8"), (";", "cp1251"), ("\t", "utf-16"), ("|", "utf-8")])
async def test_csv_whatever_it_is_delimited_by(tmp_path: Path, delimiter: str, encoding: str) -> None:
    rows = [["Имя", "Город", "Sum"], ["Анна", "Тверь", "10"], ["Иван", "", "20"], ['"в, ы;\tх|о\nд"', "Псков", "30"]]
    text = "".join(delimiter.join(row) + "\r\n" for row in rows)
    blocks, report = await read(write(tmp_path / "a.csv", text.encode(encoding)))
    assert [block.text for block in blocks] == [
        "Имя; Город; Sum\nИмя: Анна; Город: Тверь; Sum: 10\nИмя: Иван; Sum: 20\nИмя: в, ы; х|о д; Город: Псков; Sum: 30"
    ]
    assert (report.format, report.problems) == ("csv", ())


def letter(subtype: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = "Счёт за март"
    message["From"] = "Анна Петрова <anna@example.org>"
    message["To"] = "bob@example.org"
    message.set_content(text, subtype=subtype, charset="koi8-r")
    message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="счёт.pdf")
    return message


@pytest.mark.parametrize("subtype", ["plain", "html"])
async def test_message_with_an_attachment(tmp_path: Path, subtype: str) -> None:
    text = "Добрый день!\n\nSee the bill." if subtype == "plain" else "<p>Добрый день!</p><p>See the <b>bill</b>.</p>"
    blocks, report = await read(write(tmp_path / "a.eml", letter(subtype, text).as_bytes()))
    assert [(block.headings, block.text) for block in blocks] == [
        (
            ("Счёт за март",),
            "From: Анна Петрова <anna@example.org>\nTo: bob@example.org\nSubject: Счёт за март\nAttachment: счёт.pdf",
        ),
        (("Счёт за март",), "Добрый день!"),
        (("Счёт за март",), "See the bill."),
    ]
    assert (report.format, report.title, codes(report)) == ("eml", "Счёт за март", ["attachments"])


async def test_json_as_paths_and_values(tmp_path: Path) -> None:
    text = (
        '{"name": "Насос", "parts": [{"id": 1, "size": 2.5}, {"id": 2, "ok": true, "none": null}], "tags": ["a", "б"]}'
    )
    blocks, report = await read(write(tmp_path / "a.json", text))
    assert [block.text for block in blocks] == [
        "name: Насос\nparts[0].id: 1\nparts[0].size: 2.5",
        "parts[1].id: 2\nparts[1].ok: true",
        "tags[0]: a\ntags[1]: б",
    ]
    assert (report.format, report.failed) == ("json", False)
    blocks, report = await read(write(tmp_path / "c.jsonl", '{"a": "первое"}\n{"a": "второе"}\n'))
    assert [(block.text, report.format) for block in blocks] == [("a: первое", "json"), ("a: второе", "json")]
    _, report = await read(write(tmp_path / "d.ndjson", '{"a": [1]}\n2\n{"a": "второ'))
    assert (report.failed, codes(report), "behind 2 values" in report.problems[0].text) == (
        False,
        ["part_broken"],
        True,
    )
    blocks, report = await read(write(tmp_path / "b.json", '{"a": "первое", "b": {'))
    assert ([block.text for block in blocks], report.failed, codes(report)) == (["a: первое"], True, ["broken"])
