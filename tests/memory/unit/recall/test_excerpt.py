"""Excerpts of long messages, English and Russian."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain import tokens
from klaw.memory.recall.excerpt import excerpt
from klaw.store.engine.tokenizer import stem


def stems(*words: str) -> set[str]:
    return {stem(word) for word in words}


def test_a_text_that_fits_is_shown_whole() -> None:
    assert excerpt("Short. Text.", stems("text"), 20) == "Short. Text."


@pytest.mark.parametrize(
    ("text", "wanted", "limit", "shown"),
    [
        (
            "We talked all evening. The weather was bad. My sisters moved to Kazan in May. Then we had tea and cake.",
            stems("sister", "Kazan"),
            16,
            "My sisters moved to Kazan in May.",
        ),
        (
            "Мы болтали весь вечер. Погода была плохая. Мои сёстры переехали в Казань. Потом пили чай. Было поздно.",
            stems("сестра", "Казани"),
            22,
            "Мои сёстры переехали в Казань.",
        ),
    ],
)
def test_the_sentences_with_the_words_are_shown(text: str, wanted: set[str], limit: int, shown: str) -> None:
    cut = excerpt(text, wanted, limit)
    assert shown in cut
    assert cut.startswith("… ")
    assert cut.endswith(" …")
    assert tokens.estimate(cut) <= limit


def test_the_speaker_stays() -> None:
    text = "Anna Smith: " + "Nothing of interest was said here. " * 8 + "The key is under the mat. " + "More talk. " * 9
    cut = excerpt(text, stems("key"), 40)
    assert cut.startswith("Anna Smith: … ")
    assert "The key is under the mat." in cut


def test_without_a_match_the_beginning_is_shown() -> None:
    assert excerpt("First things first. " + "And more. " * 50, stems("zebra"), 20).startswith("First things first.")


def test_a_match_far_inside_a_huge_message_is_found() -> None:
    text = "слово " * 20_000 + "Пароль от сейфа лежит в шкафу. " + "слово " * 20_000
    assert "сейфа лежит" in excerpt(text, stems("сейф"), 60)


@given(st.text(max_size=600), st.lists(st.text(min_size=1, max_size=8), max_size=3), st.integers(10, 80))
def test_an_excerpt_fits_its_limit(text: str, wanted: list[str], limit: int) -> None:
    assert tokens.estimate(excerpt(text, {stem(word) for word in wanted}, limit)) <= limit


@given(st.text(alphabet="ab .!?\n", max_size=300), st.integers(12, 40))
def test_an_excerpt_is_made_of_the_text(text: str, limit: int) -> None:
    shown = excerpt(text, {"a"}, limit).removeprefix("… ").removesuffix(" …")
    assert shown in text
