"""Titles of chats: what may stand in one."""

import re

import pytest

from klaw.domain.message import MAX_TITLE, chat_title
from klaw.domain.names import NEW_CHAT, chat_name, new_chat_name
from klaw.domain.text import in_brief
from klaw.errors import InvalidValue


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  Garden\tplans \n 2026 ", "Garden plans 2026"),
        ("Огород, «план» №2", "Огород, «план» №2"),
        ("Й" * MAX_TITLE, "Й" * MAX_TITLE),
        ("И\u0306жик", "Йжик"),
        ("👩‍🌾 garden", "👩‍🌾 garden"),
        ("می‌خواهم", "می‌خواهم"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_a_title_is_one_line_of_any_script(given: str, kept: str) -> None:
    assert chat_title(given) == kept
    assert chat_title(kept) == kept


@pytest.mark.parametrize(
    "given",
    [
        "x" * (MAX_TITLE + 1),
        "я" * 10_000,
        "a\x1b[31mb",
        "a\0b",
        "\u202egnp.exe",
        "a\u200bb",
        "\ud800",
        "\u200d",
        "\u0301",
    ],
)
def test_what_hides_something_is_refused(given: str) -> None:
    with pytest.raises(InvalidValue):
        chat_title(given)


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("", ""),
        ("a short one", "a short one"),
        ("one two three four", "one two…"),
        ("Неочевидностьюблизко", "Неочевидност…"),
        ("**bold** 2 * 3, snake_case", "bold 2 * 3…"),
        ("> - x\n\n```py\ncode```", "- x code"),
        ("[text](http://x.org) !", "text !"),
        ("a\u202eb\x00c", "abc"),
    ],
)
def test_how_a_text_begins(text: str, brief: str) -> None:
    assert in_brief(text, 13) == brief
    assert len(brief) <= 13


def test_names_that_klaw_makes_are_chat_names() -> None:
    for _ in range(100):
        name = new_chat_name()
        assert chat_name(name) == name
        assert re.fullmatch(NEW_CHAT, name)
    assert not re.fullmatch(NEW_CHAT, "chat-saturday")
