"""Files of messages: names as data, what a file is by its bytes, what of a text belongs to a message."""

import pytest

from klaw.domain import tokens
from klaw.domain.attachment import (
    DOCUMENT_TOKENS,
    FILES,
    HEAD_BYTES,
    Attachment,
    NamedFile,
    beginning,
    clean_name,
    files_of,
    names_of,
    sniff,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("отпуск в Крыму.jpg", "отпуск в Крыму.jpg"),
        ("holiday.png", "holiday.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\Анна\\фото.jpg", "фото.jpg"),
        ("a\nb\tc\x00\x1b[31m.txt", "a b c [31m.txt"),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("\u0438\u0306.txt", "й.txt"),
        ("..", "file"),
        ("a/", "file"),
        ("", "file"),
        (" \u200b ", "file"),
    ],
)
def test_a_name_is_data(given: str, kept: str) -> None:
    assert clean_name(given) == kept
    assert NamedFile(sha256="0" * 64, name=given).name == kept


def test_a_long_name_keeps_its_end() -> None:
    kept = clean_name("я" * 500 + ".отчёт.pdf")
    assert len(kept) == 120
    assert kept.endswith("я.отчёт.pdf")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\x24\0\0\0AVI LIST", "application/octet-stream"),
        (b"OggS\0\2" + bytes(20) + b"\x01\x13OpusHead", "audio/ogg"),
        (b"OggS\0\2" + bytes(20) + b"\x01\x2a\x80theora", "application/octet-stream"),
        (b"ID3\4\0", "audio/mpeg"),
        (b"ID3 tags are described here", "text/plain"),
        (b"\xff\xfb\x90\x44\0\0", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        ("яяя".encode("cp1251"), "text/plain"),
        ("ята".encode("cp1251"), "text/plain"),
        (b"fLaC\0\0", "audio/flac"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "audio/mp4"),
        (b"\0\0\0\x20ftypiso5" + bytes(40) + b"hdlr" + bytes(8) + b"soun", "audio/mp4"),
        (b"\0\0\0\x20ftypisom" + bytes(40) + b"vide" + bytes(8) + b"soun", "application/octet-stream"),
        (b"\x1a\x45\xdf\xa3webm" + bytes(20) + b"A_OPUS", "audio/webm"),
        (b"\x1a\x45\xdf\xa3webm" + bytes(20) + b"V_VP9" + bytes(9) + b"A_OPUS", "application/octet-stream"),
        (b"%PDF-1.7\n", "application/pdf"),
        ("Договор аренды".encode(), "text/plain"),
        ("\ufeffwith a mark".encode(), "text/plain"),
        (b"<html><script>alert(1)</script>", "text/plain"),
        ("Договор аренды".encode("cp1251"), "text/plain"),
        ("Договор".encode("utf-16"), "text/plain"),
        ("Договор".encode("utf-16-le"), "application/octet-stream"),  # without its mark
        (b"\xff\xfe\0\0\1\0", "application/octet-stream"),
        (bytes(range(128, 256)), "application/octet-stream"),
        (b"text\0binary", "application/octet-stream"),
        (b"PK\3\4", "application/octet-stream"),
        ("я".encode() * 10 + "я".encode()[:1], "text/plain"),  # cut inside a character
    ],
)
def test_the_type_is_told_by_the_content(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Договор аренды № 7: цена — 40 000 рублей. Ёлка, ёж.", "cp1251"),
        ("def f(): return 1  # считает сумму", "cp1251"),
        ("№;кг;шт;м;Цена", "cp1251"),
        ("Größe, façade, naïve, señor — “déjà vu” für 5 €", "cp1252"),
        ("Ça coûte 5 € ——— déjà vu", "cp1252"),
        ("«Été…» — «Où…»", "cp1252"),
        ("ÄÖÜ sind Umlaute: Grüße, Größe, hören", "cp1252"),
        ("One café!", "cp1252"),
        ("Договор, Größe 🙂", "utf-16-le"),
        ("Договор, Größe 🙂", "utf-16-be"),
        ("Договор, Größe 🙂", "utf-8"),
    ],
)
def test_old_encodings_are_read(text: str, encoding: str) -> None:
    head = ("\ufeff" if encoding.startswith("utf") else "").encode(encoding) + text.encode(encoding)
    assert beginning(head, len(head), 100) == (text, False)


@pytest.mark.parametrize("words", ["Анна приедет в четверг. ", "Anna comes on Thursday. "])
def test_of_a_long_text_the_beginning_is_taken_and_the_cut_told(words: str) -> None:
    whole = (words * 3).encode()
    assert beginning(whole, len(whole), DOCUMENT_TOKENS) == ((words * 3).strip(), False)
    long = (words * 10_000).encode()
    text, cut = beginning(long[:HEAD_BYTES], len(long), DOCUMENT_TOKENS)
    assert cut
    assert DOCUMENT_TOKENS * 0.8 < tokens.estimate(text) <= DOCUMENT_TOKENS
    assert beginning(long[:HEAD_BYTES], len(long), 0) == ("", True)


def test_a_head_of_nothing_but_marks_is_bounded() -> None:
    head = ("\u0301" * (HEAD_BYTES // 2)).encode()
    text, cut = beginning(head, len(head), 100)
    assert cut
    assert tokens.estimate(text) <= 100


def test_what_is_no_file_in_the_metadata_is_left_out() -> None:
    good = {"sha256": "0" * 64, "name": "фото.jpg", "type": "image/jpeg", "bytes": 5}
    metadata = {FILES: [good, {"sha256": "no"}, 5, None]}
    assert files_of(metadata) == (Attachment(sha256="0" * 64, name="фото.jpg", type="image/jpeg", bytes=5),)
    assert names_of(metadata) == ["[picture фото.jpg]"]
    assert files_of({FILES: "x"}) == ()
    assert files_of({}) == ()
