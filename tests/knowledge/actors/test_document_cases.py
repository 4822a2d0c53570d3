"""Documents that were read wrongly once, and others of their kinds: what comes out is what their readers see."""

import shutil
import zipfile
from pathlib import Path

import pypdfium2
import pytest

from tests.support.documents import Pdf, Text, codes, pdf, read, write
from tests.support.repository import REPOSITORY

CASES = REPOSITORY / "tests" / "data" / "cases" / "documents"
KEY = "The key is under the pot."
APPLES = ["One", "Plant apple trees in April."]


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("charset_read_as_russian/gbk.txt", ["租金是每月七百欧元。通知期为六周。花园大门的密码是4711。"]),
        ("charset_read_as_russian/big5.txt", ["租金是每月七百歐元。通知期為六週。"]),
        ("charset_read_as_russian/euckr.txt", ["월세는 칠백 유로입니다. 해지 통지 기간은 육 주입니다."]),
        ("charset_read_as_russian/cp1250.txt", ["Příliš žluťoučký kůň úpěl ďábelské ódy. Nájem je sedm set eur."]),
        ("charset_read_as_russian/cp1253.txt", ["Το ενοίκιο είναι επτακόσια ευρώ. Η προθεσμία είναι έξι εβδομάδες."]),
        ("charset_read_as_russian/cp1256.txt", ["الإيجار سبعمائة يورو. مدة الإشعار ستة أسابيع."]),
        ("charset_read_as_russian/gbk.csv", ["城市; 国家\n里加; 拉脱维亚\n奥斯陆; 挪威"]),
        (
            "docx_moved.docx",
            ["The rent is due on the first day.", "Keys are handed over on Monday.", "The deposit is 900 euros."],
        ),
        (
            "docx_numbered.docx",
            [
                "1. Rent",
                "1.1 The rent is 700 euros.",
                "1.2 It is due on the first day.",
                "2. Notice",
                "2.1 Notice is given in writing.",
                "2.2 The period is six weeks, see clause 1.2.",
            ],
        ),
        ("docx_math.docx", ["Area: a=πr."]),
        ("docx_comments.docx", ["The rent is 700 euros.", "Contract number 4711", "Comment (A): Cora wants 650."]),
        (
            "eml_text_lost_silently/fwd.eml",
            [
                "From: Anna <anna@mail.example>\nDate: Mon, 2 Mar 2026 10:00:00 +0100\nSubject: Fwd",
                "See below.",
                "From: Cora <cora@mail.example>\nSubject: Key",
                KEY,
            ],
        ),
        (
            "eml_text_lost_silently/nobound.eml",
            [
                (
                    "From: Cora Doe <cora@mail.example>\nTo: Anna <anna@mail.example>\nDate: Mon, 2 Mar 2026 "
                    "10:00:00 +0100\n"
                    "Subject: Key"
                ),
                KEY,
            ],
        ),
        (
            "eml_text_lost_silently/plainhtml.eml",
            ["From: Cora Doe <cora@mail.example>\nDate: Mon, 2 Mar 2026 10:00:00 +0100\nSubject: Schlüssel", KEY],
        ),
        (
            "eml_text_lost_silently/twoparts.eml",
            [
                (
                    "From: Cora Doe <cora@mail.example>\nDate: Mon, 2 Mar 2026 10:00:00 +0100\nSubject: "
                    "Parts\nAttachment: a.png"
                ),
                "Before the picture.",
                "After it: the key is under the pot.",
            ],
        ),
        ("epub_called_drm/empty_enc.epub", APPLES),
        ("epub_called_drm/fonts_adobe_upper.epub", APPLES),
        ("epub_called_drm/fonts_idpf_upper.epub", APPLES),
        ("epub_xml_declaration_as_text.epub", APPLES),
        ("xhtml_xml_declaration_as_text.xhtml", APPLES),
        ("html_utf8_with_wrong_meta.html", ["Ключ лежит под горшком."]),
        (
            "pdf_form_values_lost.pdf",
            ["Registration form\nSurname: Sorensen\nCity: Bergen\nMarried: ☒ Yes\nTyped note: call Cora"],
        ),
        ("table_wrong_column_names/csv_no_header.csv", ["Riga; Latvia\nOslo; Norway"]),
        ("table_wrong_column_names/csv_preamble.csv", ["Account; DE00\nDate; Amount\n28.02.26; -700,00"]),
        ("table_wrong_column_names/csv_same_names.csv", ["Name; Tel; Tel\nAnna; home; mobile\nBoris; 11; 12"]),
        ("table_wrong_column_names/csv_year_names.csv", ["Region; 2022\nTotal; none\nSouth; 14"]),
        (
            "xlsx_merged_percent_zeros_years.xlsx",
            [
                "Plan",
                (
                    "Group; Task; Done; Cost; Due; Start; Length\n"
                    "Group: House; Task: Paint wall; Done: 25%; Cost: 1200.50 €; Due: 2026-03-01; Start: 09:30; "
                    "Length: 26:30\n"
                    "Group: House; Task: Fix roof; Done: 50%; Cost: 300.00 €; Due: 2026-04-01; Start: 10:00; "
                    "Length: 0:45\n"
                    "Group: Garden; Task: Cut hedge; Done: 100%; Cost: 0.00 €; Due: 2026-05-01"
                ),
                "Secret (hidden)",
                "Code; Place\nCode: 0007; Place: Shed",
                "Years",
                (
                    "Region; 2022; 2023\nRegion: North; 2022: 10; 2023: 12\nRegion: Total; 2022: not known; 2023: "
                    "none\n"
                    "Region: South; 2022: 14; 2023: 15"
                ),
            ],
        ),
        (
            "xlsx_second_table_comment_zeros.xlsx",
            [
                "Club",
                (
                    "Members 2026\nName; ZIP; Paid\nName: Anna; ZIP: 01067; Paid: True\nName: Boris; ZIP: 04109; "
                    "Paid: False"
                ),
                "Comment on C5 (Anna): promised for May",
                "Two",
                "Item; Price; Place; Code\nItem: Apple; Price: 1.2; Place: Shed; Code: 4711\nStreet; House\nBarona; 31",
            ],
        ),
    ],
)
async def test_cases(case: str, texts: list[str]) -> None:
    blocks, report = await read(CASES / case)
    assert [block.text for block in blocks] == texts
    told = ["attachments"] if case.endswith("twoparts.eml") else []
    assert (report.failed, codes(report)) == (False, told)
    assert report.title != "Word Document"


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def word(path: Path, body: str, **parts: str) -> Path:
    """A document of Word with this body, and other parts by their kind."""
    spaces = f'xmlns:w="{W}" xmlns:m="{M}" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("word/document.xml", f"<w:document {spaces}><w:body>{body}</w:body></w:document>")
        relations = "".join(f'<Relationship Id="{kind}" Type="x/{kind}" Target="{kind}.xml"/>' for kind in parts)
        made.writestr("word/_rels/document.xml.rels", f"<Relationships>{relations}</Relationships>")
        for kind, text in parts.items():
            made.writestr(f"word/{kind}.xml", f"<w:{kind} {spaces}>{text}</w:{kind}>")
    return path


def run(text: str, about: str = "") -> str:
    return f"<w:r><w:rPr>{about}</w:rPr><w:t>{text}</w:t></w:r>"


def item(text: str, number: int, level: int = 0) -> str:
    numbered = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{numbered}</w:pPr>{run(text)}</w:p>"


def numbering(*kinds: list[tuple[str, str]]) -> str:
    """Kinds of lists, each with the format and the text of its levels; the number of a list is that of its kind."""
    abstract = "".join(
        f'<w:abstractNum w:abstractNumId="{kind}">'
        + "".join(
            f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'
            for at, (form, text) in enumerate(levels)
        )
        + "</w:abstractNum>"
        for kind, levels in enumerate(kinds, 1)
    )
    lists = "".join(
        f'<w:num w:numId="{kind}"><w:abstractNumId w:val="{kind}"/></w:num>' for kind, _ in enumerate(kinds, 1)
    )
    again = '<w:num w:numId="9"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/>'
    return f"{abstract}{lists}{again}</w:lvlOverride></w:num>"


async def test_word_counts_paragraphs_in_all_its_ways(tmp_path: Path) -> None:
    kinds = numbering(
        [("decimal", "%1."), ("lowerLetter", "%2)"), ("upperRoman", "%1.%2.%3")],
        [("russianLower", "%1)"), ("bullet", "o")],
        [("decimalZero", "§ %1")],
    )
    body = (
        item("one", 1) + item("sub", 1, 1) + item("sub", 1, 1) + item("deep", 1, 2) + item("two", 1) + item("sub", 1, 1)
        + item("first", 2) + item("second", 2) + item("third", 2) + item("dot", 2, 1) + item("again", 9) + item("on", 9)
        + item("rule", 3)
    )  # fmt: skip
    blocks, _ = await read(word(tmp_path / "a.docx", body, numbering=kinds))
    assert [block.text for block in blocks] == [
        "1. one", "a) sub", "b) sub", "1.b.I deep", "2. two", "a) sub", "а) first", "б) second", "в) third", "• dot",
        "1. again", "2. on", "§ 01 rule",
    ]  # fmt: skip


def fraction(above: str, below: str) -> str:
    parts = (f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>" for name, text in (("num", above), ("den", below)))
    return f"<m:f>{''.join(parts)}</m:f>"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (f"<w:p>{run('kept')}<w:del>{run('gone')}</w:del><w:ins>{run(' new')}</w:ins></w:p>", ["kept new"]),
        (f"<w:p><w:r><w:sym w:font='Wingdings' w:char='F0FE'/></w:r>{run(' agreed')}</w:p>", ["☒ agreed"]),
        (f"<w:p>{run('seen')}{run('hidden', '<w:vanish/>')}</w:p>", ["seen"]),
        (
            f"<w:p>{run('see ')}<w:r><w:fldChar/><w:instrText>REF _Ref1</w:instrText></w:r>{run('1.2')}</w:p>",
            ["see 1.2"],
        ),
        (f"<w:sdt><w:sdtContent><w:p>{run('typed')}</w:p></w:sdtContent></w:sdt>", ["typed"]),
        (
            "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p>" + run("box") + "</w:p></w:txbxContent>"
            "</mc:Choice><mc:Fallback><w:txbxContent><w:p>" + run("box") + "</w:p></w:txbxContent></mc:Fallback>"
            "</mc:AlternateContent></w:r></w:p>",
            ["box"],
        ),
        (
            "<w:tbl><w:tr><w:tc><w:tcPr><w:vMerge w:val='restart'/></w:tcPr><w:p>"
            + run("House")
            + "</w:p></w:tc><w:tc>"
            "<w:p>"
            + run("Paint")
            + "</w:p></w:tc></w:tr><w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc><w:tc><w:p>"
            + run("Roof")
            + "</w:p></w:tc></w:tr></w:tbl>",
            ["House | Paint\nHouse | Roof"],
        ),
        (f"<w:p><m:oMath>{fraction('a+b', '2')}</m:oMath></w:p>", ["(a+b)/2"]),
        (
            (
                "<w:p><m:oMath><m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub><m:r><m:t>i=1</m:t></m:r>"
                "</m:sub><m:sup>"
                "<m:r><m:t>n</m:t></m:r></m:sup><m:e><m:sSup><m:e><m:r><m:t>i</m:t></m:r></m:e><m:sup><m:r><m:t>"
                "2</m:t></m:r>"
                "</m:sup></m:sSup></m:e></m:nary></m:oMath></w:p>"
            ),
            ["∑_(i=1)^n i^2"],
        ),
        ("<w:p><m:oMath><m:rad><m:deg/><m:e><m:r><m:t>x+1</m:t></m:r></m:e></m:rad></m:oMath></w:p>", ["√(x+1)"]),
        (
            (
                "<w:p><m:oMath><m:d><m:e><m:sSub><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sub><m:r><m:t>0</m:t>"
                "</m:r></m:sub>"
                "</m:sSub></m:e></m:d></m:oMath></w:p>"
            ),
            ["(x_0)"],
        ),
    ],
)
async def test_word_as_its_reader_sees_it(tmp_path: Path, body: str, texts: list[str]) -> None:
    blocks, report = await read(word(tmp_path / "a.docx", body))
    assert [block.text for block in blocks] == texts
    assert not report.problems


async def test_same_header_of_word_is_read_once_and_a_page_number_never(tmp_path: Path) -> None:
    made = word(
        tmp_path / "a.dotx", f"<w:p>{run('Text')}</w:p>",
        header=f"<w:p>{run('Contract 4711')}</w:p>", footer=f"<w:p>{run('Страница 2 из 5')}</w:p>",
    )  # fmt: skip
    blocks, _ = await read(made)
    assert [block.text for block in blocks] == ["Text", "Contract 4711"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a,b,c\n1,2,3\n4,5,6\n", "a; b; c\na: 1; b: 2; c: 3\na: 4; b: 5; c: 6"),
        ("sep=;\nName;Sum;Who\nTea;1,5;Anna\n", "Name; Sum; Who\nName: Tea; Sum: 1,5; Who: Anna"),
        (
            "Name;Price;\nApple;1,50;x\nPear;2,30;\nFig;3,00;\n",
            ("Name; Price\nName: Apple; Price: 1,50; x\nName: Pear; Price: 2,30\nName: Fig; Price: 3,00"),
        ),
        (
            "Report;January\nBalance;1000\n\nDate;Sum;Who\n01.02.2026;5,00;Anna\n",
            ("Report; January\nBalance; 1000\nDate; Sum; Who\nDate: 01.02.2026; Sum: 5,00; Who: Anna"),
        ),
        ("Owner;Anna\nBalance;1000\n", "Owner; Anna\nBalance; 1000"),
        ("Item,Qty,Item,Qty\nTea,5,Pie,6\n", "Item; Qty; Item; Qty\nTea; 5; Pie; 6"),
        ("2026-01-01,Rent,700\n2026-02-01,Rent,700\n", "2026-01-01; Rent; 700\n2026-02-01; Rent; 700"),
        ("Region,2023,2024\nNorth,1,2\n", "Region; 2023; 2024\nRegion: North; 2023: 1; 2024: 2"),
        ("Дата|Сумма|Кто\n01.02.2026|-700,00|ООО\n", "Дата; Сумма; Кто\nДата: 01.02.2026; Сумма: -700,00; Кто: ООО"),
        ("Who,Sum,On\nAnna,5,1.2.26\nA,B,C\nX,Y,Z\n", "Who; Sum; On\nAnna; 5; 1.2.26\nA; B; C\nX; Y; Z"),
    ],
)
async def test_columns_have_names_where_it_is_sure(tmp_path: Path, text: str, shown: str) -> None:
    blocks, _ = await read(write(tmp_path / "a.csv", text))
    assert [block.text for block in blocks] == [shown]


def book(path: Path, encrypted: str, chapters: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("META-INF/container.xml", "<container><rootfile full-path='o/b.opf'/></container>")
        made.writestr("META-INF/encryption.xml", f"<encryption><CipherReference URI='{encrypted}'/></encryption>")
        items = "".join(f"<item id='{name}' href='{name}' media-type='text/html'/>" for name in chapters)
        spine = "".join(f"<itemref idref='{name}'/>" for name in [*chapters, "gone"])
        made.writestr("o/b.opf", f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>")
        for name in chapters:
            made.writestr(f"o/{name}", f"<p>Chapter {name}</p>")
    return path


@pytest.mark.parametrize(
    ("encrypted", "chapters", "texts", "told"),
    [
        ("o/font.OTF", ["a"], ["Chapter a"], ["part_broken"]),
        ("o/a", ["a"], [], ["part_broken", "encrypted"]),
        ("o/a", ["a", "b"], ["Chapter b"], ["part_broken", "encrypted"]),
    ],
)
async def test_book_is_protected_where_its_chapters_are(
    tmp_path: Path, encrypted: str, chapters: list[str], texts: list[str], told: list[str]
) -> None:
    blocks, report = await read(book(tmp_path / "a.epub", encrypted, chapters))
    assert ([block.text for block in blocks], codes(report), report.failed) == (texts, told, not texts)


HEAD = "From: Anna <a@mail.example>\nSubject: Key\nMIME-Version: 1.0\n"


@pytest.mark.parametrize(
    ("mail", "texts"),
    [
        (f"{HEAD}Content-Type: text/plain\n\n{KEY}".encode(), [KEY]),
        (f"{HEAD}\nКлюч лежит под горшком.".encode("cp1251"), ["Ключ лежит под горшком."]),
        (
            f"{HEAD}Content-Type: text/plain; charset=iso-8859-1\n\nКлюч лежит под горшком.".encode("koi8-r"),
            ["Ключ лежит под горшком."],
        ),
        (
            f"{HEAD}Content-Type: multipart/alternative; boundary=x\n\n--x\n\nUse an HTML reader.\n--x\n"
            f"Content-Type: text/html\n\n<p>{KEY} {'It is red. ' * 9}</p>\n--x--".encode(),
            [f"{KEY} {'It is red. ' * 9}".strip()],
        ),
        (
            f"{HEAD}Content-Type: multipart/mixed; boundary=x\n\n--x\n\nSee:\n--x\nContent-Type: text/csv\n"
            "Content-Disposition: attachment; filename=a.csv\n\na,b\n--x--".encode(),
            ["See:", "a; b"],
        ),
        (
            f"{HEAD}Content-Type: "
            f"text/calendar\n\nBEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Tea\nDTSTART:20260302T100000Z\n"
            "END:VEVENT\nEND:VCALENDAR\n".encode(),
            ["Tea\nWhen: Mon 2026-03-02 10:00 UTC"],
        ),
    ],
)
async def test_mail_is_read_whole(tmp_path: Path, mail: bytes, texts: list[str]) -> None:
    blocks, _ = await read(write(tmp_path / "a.eml", mail))
    assert [block.text for block in blocks[1:]] == texts


MBOX = (
    "From a@b Mon Mar  2 10:00:00 2026\nFrom: Anna\nSubject: One\n\nThe key.\n>From here on\n\n"
    "From c@d Mon Mar  2 11:00:00 2026\nFrom: Cora\nSubject: =?koi8-r?B?8NLJ18XU?=\n\nПод горшком.\n"
)
CALENDAR = (
    "BEGIN:VCALENDAR\nX-WR-CALNAME:Дом\nBEGIN:VEVENT\nSUMMARY:Dentist\\, "
    "Riga\nDTSTART;TZID=Europe/Riga:20260302T100000\n"
    "DTEND;TZID=Europe/Riga:20260302T110000\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=5\nLOCATION:Main St\n"
    "ATTENDEE;CN=Anna:mailto:a@mail.example\nEND:VEVENT\nBEGIN:VEVENT\nSUMMARY:Отпуск\nDTSTART;VALUE=DATE:20260401\n"
    "DTEND;VALUE=DATE:20260403\nRRULE:FREQ=YEARLY;BYMONTH=4\nEND:VEVENT\nEND:VCALENDAR\n"
)
CONTACTS = (
    "BEGIN:VCARD\nVERSION:3.0\nFN:Анна Петрова\nTEL;TYPE=CELL:+7 916\nitem1.EMAIL;TYPE=INTERNET:a@mail.example\n"
    "item1.X-ABLabel:Дача\nBDAY:1990-05-01\nADR;TYPE=HOME:;;Main "
    "5;Riga;;LV-1001;Latvia\nPHOTO;ENCODING=b:AAAA\nEND:VCARD\n"
    ""
    "BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=D0=9E=D0=B2;=D0=98=\n=D0=BB\nTEL;WORK:1\nEND:VCARD\n"
)
RTF = (
    rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0\fcharset204 Arial;}}{\info{\title \'ca\'eb\'fe\'f7}}\f0 \'ca\'eb\'fe\'f7 "
    rb"{\b here}\par Second{\footnote note}\par}"
)


@pytest.mark.parametrize(
    ("name", "data", "texts", "title"),
    [
        (
            "a.mbox",
            MBOX,
            ["From: Anna\nSubject: One", "The key.\nFrom here on", "From: Cora\nSubject: Привет", "Под горшком."],
            "",
        ),
        (
            "a.ics",
            CALENDAR,
            [
                (
                    "Dentist, Riga\nWhen: Mon 2026-03-02 10:00 to 11:00 (Europe/Riga)\nRepeats: freq weekly, "
                    "interval 2, byday mo,we, count 5\n"
                    "Where: Main St\nWith: Anna (a@mail.example)"
                ),
                "Отпуск\nWhen: Wed 2026-04-01 to Thu 2026-04-02\nRepeats: freq yearly, bymonth 4",
            ],
            "Дом",
        ),
        (
            "a.vcf",
            CONTACTS,
            [
                (
                    "Анна Петрова\nPhone (cell): +7 916\nMail (Дача): a@mail.example\nAddress (home): Main 5, Riga, "
                    "LV-1001, Latvia\n"
                    "Birthday: 1990-05-01"
                ),
                "Ил Ов\nPhone (work): 1",
            ],
            "",
        ),
        ("a.rtf", RTF, ["Ключ here", "Second", "note"], "Ключ"),
        (
            "a.srt",
            (
                "1\n00:00:01,000 --> 00:00:03,000\n<i>Hello</i>\nthere\n\n2\n00:00:04,000 --> "
                "00:00:05,000\nПривет\n\n3\n"
                "01:01:14,000 --> 01:01:15,000\nLater\n"
            ),
            ["[0:00:01]\nHello\nthere\nПривет", "[1:01:14]\nLater"],
            "",
        ),
        (
            "a.vtt",
            "WEBVTT\n\n00:01.000 --> 00:03.000\n<v Anna>Hello\n\n00:04.000 --> 00:05.000\nHello\nmore\n",
            ["[0:00:01]\nAnna: Hello\nHello\nmore"],
            "",
        ),
    ],
)
async def test_formats_of_mail_calendars_contacts_and_subtitles(
    tmp_path: Path, name: str, data: str | bytes, texts: list[str], title: str
) -> None:
    blocks, report = await read(write(tmp_path / name, data))
    assert ([block.text for block in blocks], report.title, report.problems) == (texts, title, ())
    blocks, report = await read(write(tmp_path / "unnamed", data))
    assert ([block.text for block in blocks], report.format) == (texts, {"vtt": "srt"}.get(name[2:], name[2:]))


OPEN_DOCUMENT = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for name, space in [
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("style", "style"),
        ("draw", "drawing"),
    ]
)


@pytest.mark.parametrize(
    ("kind", "body", "texts"),
    [
        (
            "text",
            (
                "<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:h>Срок</text:h>"
                "<text:p>Rent<text:s text:c='2'/>700<text:note><text:note-citation>1</text:note-citation>"
                "<text:note-body><text:p>"
                "Сноска</text:p></text:note-body></text:note> euros</text:p><text:list text:style-name='L'>"
                "<text:list-item><text:p>"
                "one</text:p><text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list>"
                "</text:list-item>"
                "<text:list-item><text:p>two</text:p></text:list-item></text:list></office:text>"
            ),
            ["Срок", "Rent 700 euros", "Сноска", "1. one", "1.a deep", "2. two"],
        ),
        (
            "spreadsheet",
            (
                "<office:spreadsheet><table:table table:name='Plan'><table:table-row><table:table-cell><text:p>Name"
                "</text:p></table:table-cell><table:table-cell><text:p>Done</text:p></table:table-cell>"
                "<table:table-cell><text:p>On"
                "</text:p></table:table-cell></table:table-row><table:table-row table:number-rows-repeated='2'>"
                "<table:table-cell>"
                "<text:p>Anna</text:p></table:table-cell><table:table-cell table:number-columns-repeated='2'>"
                "<text:p>25%</text:p>"
                "</table:table-cell></table:table-row></table:table></office:spreadsheet>"
            ),
            ["Plan", "Name; Done; On\nName: Anna; Done: 25%; On: 25%\nName: Anna; Done: 25%; On: 25%"],
        ),
        (
            "presentation",
            (
                "<office:presentation><draw:page><draw:frame><draw:text-box><text:p>Итоги</text:p></draw:text-box>"
                "</draw:frame></draw:page></office:presentation>"
            ),
            ["Итоги"],
        ),
    ],
)
async def test_open_documents(tmp_path: Path, kind: str, body: str, texts: list[str]) -> None:
    style = (
        "<text:list-style style:name='L'><text:list-level-style-number text:level='1' style:num-format='1' "
        "style:num-suffix='.'/><text:list-level-style-number text:level='2' style:num-format='a' "
        "text:display-levels='2'/>"
        "</text:list-style>"
    )
    with zipfile.ZipFile(tmp_path / "a", "w") as made:
        made.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}")
        made.writestr(
            "content.xml",
            f"<office:document-content {OPEN_DOCUMENT}>{style}<office:body>{body}</office:body>"
            f"</office:document-content>",
        )
    blocks, report = await read(tmp_path / "a")
    assert ([block.text for block in blocks], report.problems) == (texts, ())


def scan(text: str) -> bytes:
    """A PDF with one page, which is a picture of a text."""
    source = pypdfium2.PdfDocument(pdf([[Text(text, size=20)]]))
    bitmap = source[0].render(scale=200 / 72, grayscale=True)
    rows = bytes(bitmap.buffer)
    picture = b"".join(rows[at * bitmap.stride :][: bitmap.width] for at in range(bitmap.height))
    made = Pdf()
    made.add("<< /Type /Catalog /Pages 2 0 R >>")
    made.add("<< /Type /Pages /Count 1 /Kids [3 0 R] >>")
    made.add(
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /XObject << /I 4 0 R >> >> "
        "/Contents 5 0 R >>"
    )
    size = f"/Width {bitmap.width} /Height {bitmap.height} /ColorSpace /DeviceGray /BitsPerComponent 8 "
    made.stream(picture, f"/Type /XObject /Subtype /Image {size}")
    made.stream(b"595 0 0 842 0 0 cm /I Do")
    return made.bytes(1)


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed: apt install tesseract-ocr")
async def test_scan_is_read_where_tesseract_is_installed(tmp_path: Path) -> None:
    blocks, report = await read(write(tmp_path / "scan.pdf", scan(KEY)))
    assert [(block.page, block.text) for block in blocks] == [(1, KEY)]
    assert (codes(report), report.failed) == (["scan"], False)


SHEETS = (
    "<office:spreadsheet><table:table><table:table-row table:number-rows-repeated='1000000000'><table:table-cell "
    "table:number-columns-repeated='1000000000'><text:p>x</text:p></table:table-cell></table:table-row></table:table>"
    "</office:spreadsheet>"
)
FRAMES = "<text:p><draw:frame><draw:text-box>{}</draw:text-box></draw:frame></text:p>"


def nested(pattern: str, depth: int) -> str:
    text = "<text:p>deep</text:p>"
    for _ in range(depth):
        text = pattern.format(text)
    return text


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.rtf", "{\\rtf1" + "{" * 100_000 + "x", []),
        ("a.rtf", "{\\rtf1 " + "{\\v " * 50_000 + "x", []),
        ("a.ics", "BEGIN:VCALENDAR\n" + "BEGIN:VEVENT\n" * 10_000, ["broken"]),
        ("a.ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261345\nDTEND:20261346\nEND:VEVENT\nEND:VCALENDAR\n", []),
        ("a.vcf", "no card\n", ["no_text"]),
        ("a.csv", ("1" * 30_000 + "x," + "1 " * 15_000 + "y\n") * 9, []),
        ("a.mbox", "From a@b Mon Mar  2 10:00:00 2026\nFrom: x\n\n", []),
        ("a.odt", "PK\3\4 and no more", ["broken"]),
        ("a.ods", SHEETS, []),
        ("a.odt", f"<office:text>{nested(FRAMES, 60)}</office:text>", []),
        ("a.odt", f"<office:text>{nested(FRAMES, 400)}</office:text>", ["broken"]),
    ],
)
async def test_hostile_and_damaged_ones_end(tmp_path: Path, name: str, data: str, told: list[str]) -> None:
    path = tmp_path / name
    if data.startswith("<office"):
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("mimetype", "application/vnd.oasis.opendocument.text")
            made.writestr("content.xml", f"<office:d {OPEN_DOCUMENT}><office:body>{data}</office:body></office:d>")
    else:
        write(path, data)
    _, report = await read(path)
    assert codes(report) == told + ["renamed"] * (name == "a.ods")
