"""The line editor: bytes in, lines out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.client.editor import EditorKey, LineEditor
from klaw.domain.text_width import width

UP, DOWN, LEFT, RIGHT, HOME, END, DELETE = b"\x1b[A", b"\x1b[B", b"\x1b[D", b"\x1b[C", b"\x1b[H", b"\x1b[F", b"\x1b[3~"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (b"hello", "hello"),
        ("Привет".encode(), "Привет"),
        (b"helo" + LEFT + b"l", "hello"),
        (b"world" + HOME + b"hello " + END + b"!", "hello world!"),
        (b"abc\x7f\x7fx", "ax"),
        (b"abc" + LEFT + LEFT + DELETE, "ac"),
        (b"one two  \x17three", "one three"),
        (b"one two\x1bb\x1bd2", "one 2"),
        (b"abc\x15def", "def"),
        (b"abc\x01\x0b", ""),
        (b"ab\x02\x14", "ba"),
        (b"\x1b[200~two\rlines\x1b[201~!", "two\nlines!"),
        (b"a\x1b\rb", "a\nb"),
        (b"a\x1b[1;5Db" + RIGHT + RIGHT + b"c", "bac"),
        (b"a\x1b[99;99Xb\x1bZc\x1b[12~", "abc"),
        (b"\x7f\x04\x1b[D\x1b[C"[:1] + b"ok", "ok"),
        (b"a\tb", "a b"),
    ],
)
def test_editing(typed: bytes, line: str) -> None:
    editor = LineEditor()
    for byte in typed:  # one byte at a time: everything may be split
        assert list(editor.feed(bytes([byte]))) == []
    assert editor.text == line


def test_enter_submits_and_up_brings_back() -> None:
    editor = LineEditor(["earlier"])
    assert list(editor.feed(b"first\rsecond\n")) == ["first", "second"]
    list(editor.feed(b"draft" + UP + UP))
    assert editor.text == "first"
    list(editor.feed(UP + UP))
    assert editor.text == "earlier"
    list(editor.feed(DOWN + DOWN + DOWN + DOWN))
    assert editor.text == "draft"


def test_control_d_ends_only_an_empty_line() -> None:
    editor = LineEditor()
    assert list(editor.feed(b"ab\x01\x04\x04\x04\x0c\x03")) == [EditorKey.END, EditorKey.REDRAW, EditorKey.INTERRUPT]


def test_the_view_follows_the_cursor() -> None:
    editor = LineEditor()
    list(editor.feed(b"0123456789"))
    assert editor.view(6).text == "56789"
    assert editor.view(6).column == 5
    list(editor.feed(HOME))
    assert (editor.view(6).text, editor.view(6).column) == ("01234", 0)
    list(editor.feed(b"\x15" + "日本\x1b\r".encode()))
    assert editor.view(20).text.startswith("日本⏎")


@given(st.binary(max_size=200), st.integers(2, 80))
def test_any_bytes_leave_a_line_that_fits(data: bytes, columns: int) -> None:
    editor = LineEditor()
    list(editor.feed(data))
    view = editor.view(columns)
    assert 0 <= view.column < columns
    assert width(view.text) < columns
