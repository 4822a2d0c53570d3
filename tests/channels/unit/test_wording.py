"""What Klaw says of its own accord, and when it keeps quiet."""

import datetime as dt
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import klaw.channels.wording
from klaw.channels.delivery import left_of
from klaw.channels.wording import escaped, language_of, say, translated
from klaw.domain.events import Outcome
from tests.support.repository import REPOSITORY

TEXTS = json.loads((REPOSITORY / "klaw" / "channels" / "wording.json").read_text())


@pytest.mark.parametrize("name", TEXTS)
def test_both_languages_say_the_same(name: str) -> None:
    english, russian = (TEXTS[name][language] for language in ("en", "ru"))
    assert set(re.findall(r"\{(\w+)\}", english)) == set(re.findall(r"\{(\w+)\}", russian))
    assert re.search("[а-яё]", russian.lower())


def test_every_text_is_said_somewhere() -> None:
    source = "".join(path.read_text() for path in (REPOSITORY / "klaw" / "channels").glob("*.py"))
    assert {name for name in TEXTS if f'"{name}"' not in source} <= set(Outcome)


def test_what_the_server_says_is_translated_line_by_line() -> None:
    told = translated("Commands:\n  /stop      stop the current answer\nsomething else", "ru").split("\n")
    assert told[1:] == ["  /stop      остановить ответ", "something else"]
    assert translated("Stopped.", "en") == "Stopped."
    assert "Anna" in translated("Remove Anna? Its conversations end; chats stay.", "ru")


@given(st.text())
def test_a_name_is_never_markup(name: str) -> None:
    tokens = MarkdownIt("commonmark").parseInline(escaped(name))[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert " ".join("".join(token.content for token in tokens).split()) == " ".join(
        name.replace("\x00", "\ufffd").split()
    )


@pytest.mark.parametrize(
    ("told", "texts", "language"),
    [("ru", (), "ru"), ("ru-RU", (), "ru"), ("en", ("Борис",), "ru"), ("", ("Борис",), "ru"), ("", ("Anna", ""), "en")],
)
def test_the_language_of_a_person(told: str, texts: tuple[str, ...], language: str) -> None:
    assert language_of(told, *texts) == language


@pytest.mark.parametrize(
    ("quiet", "now", "left_s"),
    [
        ("22:00-07:00", "21:59", 0),
        ("22:00-07:00", "22:00", 9 * 3600),
        ("22:00-07:00", "00:30", 6.5 * 3600),
        ("22:00-07:00", "07:00", 0),
        ("13:00-14:00", "13:15", 45 * 60),
        ("13:00-14:00", "12:59", 0),
    ],
)
def test_how_long_quiet_hours_still_last(quiet: str, now: str, left_s: float) -> None:
    moment = dt.datetime.fromisoformat(f"2026-11-26T{now}:00+03:00")
    assert left_of(quiet, moment) == left_s


def test_values_are_put_in_as_they_are() -> None:
    assert say("not_stored", "en", why="{code}") == "Your message was not stored: {code}"
    assert klaw.channels.wording.say("edited", "ru", text="да") == "(исправлено) да"
