"""Names from outside, token estimates, text checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.config.paths import encode_name
from klaw.domain import names, tokens
from klaw.domain.names import UserId
from klaw.domain.text import clean, has_forbidden
from klaw.errors import InvalidName


@pytest.mark.parametrize("name", ["main", "Дача 2026", "a.b-c_d", "東京", "x" * 64, "e\u0301t"])
def test_good_chat_names(name: str) -> None:
    assert names.chat_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/b", "a..b", ".hidden", "-x", " x", "x ", "a  b", "a\nb", "a\0b", "x" * 65, "a:b", "\ud800", "👍"],
)
def test_bad_chat_names(name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        names.chat_name(name)
    assert name == "" or name not in str(caught.value)


def test_composed_and_decomposed_names_are_one_chat() -> None:
    assert names.chat_id(UserId("u"), "e\u0301") == names.chat_id(UserId("u"), "é")


@given(st.text(max_size=80))
def test_chat_folders_are_safe(text: str) -> None:
    """Property: any accepted name becomes one plain folder name."""
    try:
        chat = names.chat_id(UserId("u"), text)
    except InvalidName:
        return
    folder = encode_name(chat)
    assert "/" not in folder
    assert folder not in {".", ".."}
    assert folder.isascii()
    assert names.name_of(chat) == names.chat_name(text)


@pytest.mark.parametrize("name", ["", "A", "_x", "a b", "a" * 33, "админ", "a:b"])
def test_bad_user_names(name: str) -> None:
    with pytest.raises(InvalidName):
        names.user_id(name)


def test_token_estimates() -> None:
    assert tokens.estimate("") == 0
    assert tokens.estimate("a") == 1
    assert tokens.estimate("a" * 35) == 10
    assert tokens.estimate("я" * 20) == 10
    assert tokens.estimate("é" * 35) == 10


def test_forbidden_text_is_found_and_replaced() -> None:
    assert has_forbidden("a\0")
    assert has_forbidden("\ud800")
    assert not has_forbidden("ок 👍")
    assert clean("a\0b\ud800") == "a\ufffdb\ufffd"
