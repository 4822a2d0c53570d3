"""Documents are read by a real child process: what is said of them, page by page, in Russian and English."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from klaw.domain.knowledge import Block
from tests.support.documents import Pdf, Text, codes, cut, pdf, read, write
from tests.support.repository import REPOSITORY


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1251"])
async def test_plain_text_in_any_charset(tmp_path: Path, encoding: str) -> None:
    text = "Договор аренды помещения заключён в Москве.\r\n\r\nThe tenant pays on the 5th.\x00\x1b[31m Красный конец."
    blocks, report = await read(write(tmp_path / "договор.txt", text.encode(encoding)))
    assert [block.text for block in blocks] == [
        "Договор аренды помещения заключён в Москве.",
        "The tenant pays on the 5th.\ufffd Красный конец.",
    ]
    assert (report.format, report.language, report.pages, report.failed) == ("txt", "ru", 0, False)


async def test_markdown_has_headings_tables_and_code(tmp_path: Path) -> None:
    text = (
        "# Насос\n\nОбщее описание.\n\nTechnical data\n---\n\n| Name | Wert |\n|---|---|\n| Power | 5 kW |\n\n"
        "```sh\nrun  --now\n\n# not a heading\n```\n### Детали ###\nВал."
    )
    blocks, report = await read(write(tmp_path / "a.md", text))
    assert [(block.headings, block.kind, block.text) for block in blocks] == [
        (("Насос",), "text", "Насос"),
        (("Насос",), "text", "Общее описание."),
        (("Насос", "Technical data"), "text", "Technical data"),
        (("Насос", "Technical data"), "table", "| Name | Wert |\n| Power | 5 kW |"),
        (("Насос", "Technical data"), "code", "run  --now\n\n# not a heading"),
        (("Насос", "Technical data", "Детали"), "text", "Детали"),
        (("Насос", "Technical data", "Детали"), "text", "Вал."),
    ]
    assert (report.format, report.title) == ("md", "Насос")


async def test_html_is_read_as_its_reader_sees_it(tmp_path: Path) -> None:
    html = (
        "<!doctype html><meta charset=windows-1251><title>Кофе &amp; чай</title><script>x()</script><style>p{}</style>"
        "<h1>Меню</h1><p>Чёрный <b>чай</b> <a href='/x'>с лимоном</a> snake_case</p><p hidden>secret</p>"
        "<table><tr><th>Имя</th><th>Цена</th></tr><tr><td>Латте</td><td>200</td></tr></table>"
    )
    blocks, report = await read(write(tmp_path / "page.txt", html.encode("cp1251")))
    assert [(block.headings, block.text) for block in blocks] == [
        (("Меню",), "Меню"),
        (("Меню",), "Чёрный чай с лимоном snake_case"),
        (("Меню",), "| Имя | Цена |\n| Латте | 200 |"),
    ]
    assert (report.format, report.title, codes(report)) == ("html", "Кофе & чай", ["renamed"])
    assert report.problems[0].text == "page.txt: is HTML by its content, and was read as that"


def epub() -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        )
        book.writestr(
            "OEBPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
            "<dc:title>Война и мир</dc:title></metadata><manifest>"
            '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="a" href="text/one%201.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="c" href="gone.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="c"/><itemref idref="b"/></spine></package>',
        )
        book.writestr("OEBPS/text/one 1.xhtml", "<html><body><h1>Глава I</h1><p>Ну, князь.</p></body></html>")
        book.writestr("OEBPS/two.xhtml", "<html><body><h2>Chapter II</h2><p>In July.</p></body></html>")
    return made.getvalue()


async def test_book_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    blocks, report = await read(write(tmp_path / "book.epub", epub()))
    assert [(block.headings, block.text) for block in blocks] == [
        (("Глава I",), "Глава I"),
        (("Глава I",), "Ну, князь."),
        (("Chapter II",), "Chapter II"),
        (("Chapter II",), "In July."),
    ]
    assert (report.format, report.title, codes(report)) == ("epub", "Война и мир", ["part_broken"])


async def test_pdf_page_by_page_under_its_outline(tmp_path: Path) -> None:
    pages = [
        ["Введение", "Первая страница о насосах и трубах.", "Ещё одна строка."],
        ["1. Pumps", "The pump has 5 kW.", Text("New paragraph.", y=600)],
        ["и продолжение текста."],
    ]
    made = pdf(pages, title="Руководство", outline=[(1, "Введение"), (2, "Pumps")])
    blocks, report = await read(write(tmp_path / "Руководство.pdf", made))
    assert [(block.page, block.headings, block.text) for block in blocks] == [
        (1, ("Введение",), "Введение"),
        (1, ("Введение",), "Первая страница о насосах и трубах.\nЕщё одна строка."),
        (2, ("1. Pumps",), "1. Pumps"),
        (2, ("1. Pumps",), "The pump has 5 kW.\n\nNew paragraph."),
        (3, ("1. Pumps",), "и продолжение текста."),
    ]
    assert (report.format, report.title, report.pages, report.language) == ("pdf", "Руководство", 3, "ru")


async def test_pdf_without_outline_has_its_headings_in_large_letters(tmp_path: Path) -> None:
    body = [Text(f"Обычная строка номер {n} с текстом.", y=600 - 14 * n) for n in range(12)]
    pages = [[Text("Большой", size=20, y=700), Text("заголовок", size=20, y=676), *body], body, body]
    blocks, _ = await read(write(tmp_path / "a.pdf", pdf(pages)))
    assert blocks[0] == Block(text="Большой заголовок", page=1, headings=("Большой заголовок",))
    assert {block.headings for block in blocks} == {("Большой заголовок",)}
    assert len(blocks[1].text.split("\n")) == 12


async def test_running_titles_and_page_numbers_are_left_out(tmp_path: Path) -> None:
    pages = [
        [Text("ООО «Ромашка»", y=800), Text(f"Содержание страницы {word}.", y=500), Text(f"{number}", y=30)]
        for number, word in enumerate(["один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь"], 1)
    ]
    blocks, _ = await read(write(tmp_path / "a.pdf", pdf(pages)))
    assert "Ромашка" in blocks[0].text  # once it is kept
    assert [block.text for block in blocks[1:3]] == ["Содержание страницы два.", "Содержание страницы три."]


async def test_pages_that_cannot_be_read_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    picture = b"100 0 0 100 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \xff EI"
    pages = [["One."], ["gone"], picture, picture, b"", ["Шесть."]]
    blocks, report = await read(write(tmp_path / "скан.pdf", pdf(pages, broken=[2])))
    assert [(block.page, block.text) for block in blocks] == [(1, "One."), (6, "Шесть.")]
    assert [(problem.code, problem.page) for problem in report.problems] == [("page_broken", 2), ("no_text", 3)]
    assert report.problems[1].text.startswith("скан.pdf, pages 3 to 4: has pictures and no text: ")
    assert not report.failed


def locked() -> bytes:
    """A PDF that no empty password opens."""
    made = Pdf()
    made.add("<< /Type /Catalog /Pages 2 0 R >>")
    made.add("<< /Type /Pages /Count 1 /Kids [3 0 R] >>")
    made.add("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>")
    lock = made.add(f"<< /Filter /Standard /V 1 /R 2 /P -4 /O <{'4f' * 32}> /U <{'55' * 32}> >>")
    return made.bytes(1, entries=f" /Encrypt {lock} 0 R /ID [<{'49' * 16}> <{'49' * 16}>]")


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("empty.pdf", b"", "empty"),
        ("locked.pdf", locked(), "encrypted"),
        ("half.pdf", pdf([["text"]])[:200], "broken"),
        ("a.pdf", b"just a text", "broken"),
        ("scan.pdf", pdf([b"BI /W 1 /H 1 /CS /G /BPC 8 ID \xff EI"]), "no_text"),
        ("photo.jpg", b"\xff\xd8\xff\xe0" + bytes(range(256)) * 9, "unknown_format"),
        ("a.zip", b"PK\x03\x04 and no more", "broken"),
        ("a.bin", bytes(range(256)) * 99, "unknown_format"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(9000), "unknown_format"),
        ("secret.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
    ],
)
async def test_what_cannot_be_read_says_why(tmp_path: Path, name: str, data: bytes, code: str) -> None:
    blocks, report = await read(write(tmp_path / name, data))
    assert (blocks, report.failed, codes(report)[-1]) == ([], True, code)
    assert report.problems[-1].text.startswith(f"{name}")


async def test_many_problems_are_cut_but_the_last_says_why(tmp_path: Path) -> None:
    picture = b"BI /W 1 /H 1 /CS /G /BPC 8 ID \xff EI"
    pages = [picture if number % 2 else [""] for number in range(300)]
    blocks, report = await read(write(tmp_path / "a.pdf", pdf(pages)))
    assert (blocks, report.failed, len(report.problems)) == ([], True, 101)
    assert report.problems[-1].text == "a.pdf: has no readable text"


REAL = REPOSITORY.parent / "shared" / "data" / "kb" / "documents"


@pytest.mark.skipif(not REAL.is_dir(), reason="the documents are not there")
@pytest.mark.parametrize(
    ("name", "pages", "heading", "page", "quoted"),
    [
        ("2312.10997v5.pdf", 21, "I. INTRODUCTION", 1, "Large language models (LLMs) have achieved remarkable success"),
        (
            "ADOBE_2015_10K.pdf",
            116,
            "PART I > ITEM 1. BUSINESS > PRODUCT DEVELOPMENT",
            15,
            "rapid technological change",
        ),
    ],
)
async def test_real_documents(name: str, pages: int, heading: str, page: int, quoted: str) -> None:
    blocks, report = await read(REAL / name)
    assert (report.pages, report.language, report.failed) == (pages, "en", False)
    found = [each for each in cut(blocks) if quoted.lower() in " ".join(each.text.split()).lower()]
    assert [(each.heading, each.first_page) for each in found] == [(heading, page)]
