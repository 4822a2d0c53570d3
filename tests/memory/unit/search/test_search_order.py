"""The pure parts of a search: times, pages, words, snippets with their matches, the newer of two first."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.clock import from_iso, iso
from klaw.domain.days import read_since, read_until
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.errors import InvalidValue
from klaw.memory.recall.excerpt import snippet
from klaw.memory.recall.query import MAX_WORDS, read_search_words
from klaw.memory.recall.ranker import RankedEntry
from klaw.memory.search.search import MAX_PAGE, Cursor, matches_first, newer_first, read_cursor
from klaw.operations.lines import days, minute
from klaw.store.engine.tokenizer import stem
from klaw.store.search.ranked_lists import MessagePlace

NOW = from_iso("2026-05-17T06:40:00Z")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2024-05-01", "2024-05-01T00:00", "2024-05-02T00:00"),
        ("1.5.2024", "2024-05-01T00:00", "2024-05-02T00:00"),
        ("2024-02", "2024-02-01T00:00", "2024-03-01T00:00"),
        ("2024-12", "2024-12-01T00:00", "2025-01-01T00:00"),
        ("2024", "2024-01-01T00:00", "2025-01-01T00:00"),
        ("2024-05-01T18:30+03:00", "2024-05-01T15:30", "2024-05-01T15:30"),
        ("2024-05-01 18:30", "2024-05-01T18:30", "2024-05-01T18:30"),
        ("2024-05-01t18:30z", "2024-05-01T18:30", "2024-05-01T18:30"),
        ("7d", "2026-05-10T06:40", "2026-05-10T06:40"),
        ("2W", "2026-05-03T06:40", "2026-05-03T06:40"),
        ("12 ч", "2026-05-16T18:40", "2026-05-16T18:40"),
        ("today", "2026-05-17T00:00", "2026-05-18T00:00"),
        ("  Yesterday ", "2026-05-16T00:00", "2026-05-17T00:00"),
        ("ВЧЕРА", "2026-05-16T00:00", "2026-05-17T00:00"),
        ("позавчера", "2026-05-15T00:00", "2026-05-16T00:00"),
    ],
)
def test_a_time_is_read_as_a_beginning_and_as_an_end(text: str, since: str, until: str) -> None:
    assert iso(read_since(text, NOW)) == f"{since}:00.000Z"
    assert iso(read_until(text, NOW)) == f"{until}:00.000Z"


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),  # a day of 23 hours
        ("2026-07", "2026-06-30T22:00", "2026-07-31T22:00"),
        ("2026-01-10 18:30", "2026-01-10T17:30", "2026-01-10T17:30"),
        ("2024-05-01T18:30+03:00", "2024-05-01T15:30", "2024-05-01T15:30"),
        ("вчера", "2026-05-15T22:00", "2026-05-16T22:00"),
        ("60d", "2026-03-18T06:40", "2026-03-18T06:40"),
    ],
)
def test_a_time_of_a_person_is_that_of_the_machine(berlin: None, text: str, since: str, until: str) -> None:
    assert iso(read_since(text, NOW)) == f"{since}:00.000Z"
    assert iso(read_until(text, NOW)) == f"{until}:00.000Z"


def test_a_moment_is_shown_by_the_clock_of_the_machine(berlin: None) -> None:
    assert minute("2026-07-31T22:30:00.000Z") == "2026-08-01 00:30"
    assert minute(None) == "-"
    assert minute("damaged") == "damaged"
    assert days("2026-01-10T22:00:00.000Z", "2026-01-10T23:30:00.000Z") == "2026-01-10 to 2026-01-11"
    assert days("2026-01-10T10:00:00.000Z", "2026-01-10T12:00:00.000Z") == "2026-01-10"


NO_TIMES = (
    *("", "soon", "2024-13", "2024-02-30", "99999999d", "999999d", "9999-12-31", "0000-01-01", "0001-01-01", "7x"),
    *("-7d", "1e5d", "٣d", "2024-05-01T25:00", "2024-05-01\0", "31.02.2024", "\ud800", "2024-05-01T10:00+99:00"),
)


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_refused_without_being_quoted(text: str) -> None:
    for read in (read_since, read_until):
        with pytest.raises(InvalidValue, match="must be a time like 2024-05-01") as refused:
            read(text, NOW)
        assert not text or text not in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with suppress(InvalidValue):
        assert read_since(text, NOW) <= read_until(text, NOW)


# -- pages -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, MAX_PAGE), st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 35))
def test_the_name_of_a_page_is_read_again(page: int, last_rowid: int, asked_at: int) -> None:
    cursor = Cursor(page=page, last_rowid=last_rowid, asked_at=asked_at)
    assert read_cursor(str(cursor)) == cursor
    assert read_cursor(str(page)) == page


@pytest.mark.parametrize("text", ["", "0", "-1", "1001", "2-", "2-xyz-1", "2-1", "2-ffffffffffffffff-1", "٣", "1\n"])
def test_what_names_no_page_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        read_cursor(text)


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What does my sister eat?", ["sister", "eat"]),
        ("Где живёт моя сестра, сестры?", ["живёт", "сестра"]),
        ("ok thanks", ["ok", "thanks"]),
        ("ну ладно", ["ну", "ладно"]),
        ("день рождения 🎂", ["рождения", "🎂"]),
        ("🎂", ["🎂"]),
        ("k", ["k"]),
        ("猫", ["猫"]),
        ("我的猫叫什么名字", ["猫叫", "名字"]),
        ("NEAR(alarm* ^code)", ["NEAR", "alarm", "code"]),
        ("", []),
        (" …!? — «»\0", []),
        ("\ud800", []),
    ],
)
def test_what_a_search_looks_for(text: str, words: list[str]) -> None:
    assert read_search_words(text) == words


def test_a_very_long_query_is_cut() -> None:
    assert len(read_search_words(" ".join(f"word{number}" for number in range(5_000)))) == MAX_WORDS


# -- snippets ----------------------------------------------------------------------------------------------------------


def marked(content: str, *words: str, tokens: int = 80) -> tuple[str, list[str]]:
    made = snippet(content, {stem(word) for word in words}, tokens)
    return made.text, [made.text[begin:end] for begin, end in made.marks]


@pytest.mark.parametrize(
    ("content", "words", "matches"),
    [
        ("Я видел сестру и её сёстры, сестрой горжусь", ["сестра"], ["сестру", "сёстры", "сестрой"]),
        ("Allergies: my allergy is bad", ["allergic", "allergy"], ["Allergies", "allergy"]),
        ("за́мок и ЗАМОК", ["замок"], ["за́мок", "ЗАМОК"]),
        ("我的猫叫小白，猫很可爱猫", ["猫"], ["猫", "猫", "猫"]),
        ("我的猫叫小白", ["猫叫", "叫小", "小白"], ["猫叫小白"]),
        ("りんごが好き。リンゴ", ["りん", "んご"], ["りんご", "リンゴ"]),
        ("a party 🎂 with cake", ["🎂", "party"], ["party", "🎂"]),
        ("nothing of it", ["peanut"], []),
    ],
)
def test_matches_are_marked_whatever_their_ending(content: str, words: list[str], matches: list[str]) -> None:
    assert marked(content, *words) == (content, matches)


def test_a_snippet_is_one_line_around_the_match_of_a_long_message() -> None:
    text, matches = marked("One.\n\n" * 500 + "The needle\tis here. " + "More. " * 500, "needles", tokens=30)
    assert matches == ["needle"]
    assert "The needle is here." in text
    assert len(text) < 150
    assert marked("我们去了公园。" * 2_000 + "这里有一只猫。" + "天气很好。" * 2_000, "猫", tokens=20)[1] == ["猫"]
    assert marked("我们去了公园。" * 500 + "这里有一只猫。" + "天气很好。" * 200, "猫", tokens=20)[1] == ["猫"]


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_marks_are_in_the_snippet_in_order_and_apart(content: str, words: list[str]) -> None:
    made = snippet(content, {stem(word) for word in words}, 40)
    flat = [place for mark in made.marks for place in mark]
    assert flat == sorted(set(flat))
    assert all(0 <= place <= len(made.text) for place in flat)
    assert made.text == " ".join(made.text.split())


# -- the newer first ---------------------------------------------------------------------------------------------------


def ranked(
    rowid: int, head: str, *, role: Role = Role.USER, tokens: int = 10, **given: Any
) -> RankedEntry[MessagePlace]:
    place = MessagePlace(
        rowid=rowid,
        chat=chat_id(LOCAL_USER, "main"),
        seq=rowid,
        role=role,
        created_at="2026-05-17T06:40:00.000Z",
        tokens=tokens,
        head=head[:64],
        traits=0,
        before=0,
        previous=rowid - 1,
        next=rowid + 1,
    )
    values = {"score": 1 / rowid, "vector_rank": None, "distance": None, "text_rank": None, "bm25": None}
    return RankedEntry(item=place, rowid=rowid, **{**values, **given})


def test_of_messages_that_say_the_same_the_newer_comes_first() -> None:
    long = "Напомни мне, пожалуйста, завтра утром позвонить сестре и отцу насчёт "
    found = newer_first(
        [
            ranked(1, "Buy milk!"),
            ranked(2, "something else"),
            ranked(3, "buy milk", role=Role.ASSISTANT),
            ranked(4, long, tokens=30),
            ranked(9, "Buy  MILK"),
            ranked(7, "buy milk."),
            ranked(8, long, tokens=30),
            ranked(10, long, tokens=44),
            ranked(11, "…"),
            ranked(12, "?"),
        ]
    )
    assert [each.rowid for each in found] == [9, 2, 3, 8, 7, 1, 4, 10, 11, 12]


def test_a_match_comes_before_what_only_stands_beside_it() -> None:
    """But not before what is nearer by meaning, and not before what stands elsewhere."""
    found = matches_first(
        [
            ranked(6, "beside", score=0.9),
            ranked(40, "elsewhere", score=0.8),
            ranked(8, "nearer", score=0.7, vector_rank=1),
            ranked(7, "the match", score=0.6, vector_rank=2, bm25=-5.0),
        ]
    )
    assert [each.rowid for each in found] == [40, 8, 7, 6]
    assert [each.score for each in found] == [0.8, 0.7, 0.6, 0.6]
