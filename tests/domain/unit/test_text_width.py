"""Foreign text cannot command the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.text_width import harmless, width


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


def test_widths() -> None:
    assert width("Жёлудь") == 6
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert width("❤\ufe0f") == 2, "some terminals give it two cells, so nothing may stand there"
    assert width("한") == width("\u1112\u1161\u11ab") == 2
    assert width("\U0001fae8") == width("\U0001faea") == 2, "emoji that are younger than this Python, too"
