"""Foreign text cannot command the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.client.cells import harmless, rows, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Привет, мир\nи снова", "Привет, мир\nи снова"),
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("\x9b31mred", "\ufffd31mred"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("a\tb", "a    b"),
        ("\x7f\x00", "␡␀"),
        ("evil\u202etxt.exe", "evil\ufffdtxt.exe"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("one\u2028two", "one\ntwo"),
        ("e\u0301 👍🏽 日本", "e\u0301 👍🏽 日本"),
    ],
)
def test_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(st.characters()))
def test_no_control_character_is_left(text: str) -> None:
    for character in harmless(text):
        assert character == "\n" or (ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0)


def test_widths_and_rows() -> None:
    assert width("Жёлудь") == 6
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert [rows("", 10), rows("x" * 10, 10), rows("x" * 11, 10), rows("日" * 5 + "x", 10)] == [0, 1, 2, 2]
    assert rows("x日", 2) == 2
