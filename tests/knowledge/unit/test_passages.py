"""Cutting documents into passages: what holds for every document, and where cuts are made."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.domain import tokens
from klaw.domain.knowledge import Block, Passage
from klaw.knowledge.reading.passages import MOST, SMALL, TARGET, Cutter
from tests.support.documents import cut, text_of

RUSSIAN = "Договор аренды заключён 5 марта 2024 г. в Москве. Арендатор, А. С. Петров, платит до 10-го числа. "
ENGLISH = "The lease was signed by Mr. Smith on 5 March. The tenant pays 1.5 thousand by the 10th. "

words = st.text("abcdefgh абвгдежз.,!?\n\t 0123456789-–«»()漢字🙂", min_size=0, max_size=60)
texts = st.builds(
    lambda parts, times: " ".join(parts) * times, st.lists(words, max_size=5), st.sampled_from([1, 1, 1, 3, 20])
)
blocks = st.builds(
    Block,
    text=texts,
    page=st.none(),
    headings=st.sampled_from([(), ("One",), ("One", "Один"), ("Two",)]),
    kind=st.sampled_from(["text", "table", "code"]),
)


@st.composite
def documents(draw: st.DrawFn) -> list[Block]:
    """With pages that count up, or without."""
    made = draw(st.lists(blocks, max_size=12))
    if draw(st.booleans()):
        page, paged = 1, []
        for block in made:
            page += draw(st.sampled_from([0, 0, 0, 1, 2]))
            paged.append(Block(text=block.text, page=page, headings=block.headings, kind=block.kind))
        return paged
    return made


def visible(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=60, deadline=None)
@given(documents())
def test_holds_for_every_document(document: list[Block]) -> None:
    passages = list(cut(document))
    assert [passage.ordinal for passage in passages] == list(range(len(passages)))
    whole = text_of(passages)
    assert visible(whole) == visible("".join(block.text for block in document))  # nothing is lost, nothing is doubled
    for passage in passages:
        assert whole[passage.start : passage.end] == passage.text == passage.text.strip() != ""
        assert passage.tokens == tokens.estimate(passage.text) <= MOST
        assert passage.first_page == passage.last_page
    for page in {block.page for block in document}:  # the page of a citation is right
        said = visible("".join(block.text for block in document if block.page == page))
        assert visible("".join(passage.text for passage in passages if passage.first_page == page)) == said
    for before, after in pairwise(passages):  # two small ones in a row on one page would have been joined
        if before.first_page == after.first_page and before.tokens < SMALL and after.tokens < SMALL:
            assert before.tokens + after.tokens > MOST
    assert list(cut(document)) == passages


@settings(max_examples=20, deadline=None)
@given(documents())
def test_blocks_one_by_one_make_the_same(document: list[Block]) -> None:
    cutter = Cutter()
    passages: list[Passage] = []
    for block in document:
        passages += cutter.add(block)
    assert passages + cutter.finish() == list(cut(document))


@pytest.mark.parametrize("sentence", [RUSSIAN, ENGLISH])
def test_long_prose_is_cut_behind_sentences(sentence: str) -> None:
    passages = list(cut([Block(text=sentence * 60, page=3)]))
    assert len(passages) > 4
    assert all(200 <= passage.tokens <= TARGET for passage in passages[:-1])
    assert all(passage.text.endswith(".") for passage in passages)
    assert not any(passage.text.endswith((" г.", "Mr.", "А.", "С.", "1.")) for passage in passages)


@pytest.mark.parametrize("sentence", [RUSSIAN, ENGLISH])
def test_sections_begin_passages_and_small_ones_are_joined(sentence: str) -> None:
    passages = list(
        cut(
            [
                Block(text="Контракт", headings=("Контракт",)),
                Block(text=sentence * 5, headings=("Контракт",)),
                Block(text="1. Срок", headings=("Контракт", "1. Срок")),
                Block(text=sentence * 5, headings=("Контракт", "1. Срок")),
                Block(text="1.1. Пеня", headings=("Контракт", "1. Срок", "1.1. Пеня")),
                Block(text=sentence, headings=("Контракт", "1. Срок", "1.1. Пеня")),
                Block(text="1.2. Залог", headings=("Контракт", "1. Срок", "1.2. Залог")),
                Block(text=sentence, headings=("Контракт", "1. Срок", "1.2. Залог")),
            ]
        )
    )
    assert [passage.heading for passage in passages] == ["Контракт", "Контракт > 1. Срок", "Контракт > 1. Срок"][
        : len(passages)
    ]
    assert passages[1].text.startswith("1. Срок\n\n")
    assert "1.2. Залог" in passages[-1].text


def test_pages_are_never_mixed() -> None:
    passages = list(cut([Block(text=f"Слайд {page}", page=page) for page in range(1, 6)]))
    assert [(passage.first_page, passage.text) for passage in passages] == [(n, f"Слайд {n}") for n in range(1, 6)]


def test_tables_are_cut_between_rows() -> None:
    rows = [f"Имя: Анна {n}; Город: Тверь; Сумма: {n * 1000}" for n in range(80)]
    passages = list(cut([Block(text="\n".join(rows), page=1, kind="table")]))
    assert len(passages) > 2
    assert [row for passage in passages for row in passage.text.split("\n")] == rows


def test_one_word_of_a_million_letters() -> None:
    passages = list(cut([Block(text="ж" * 1_000_000)]))
    assert all(passage.tokens <= TARGET for passage in passages)
    assert visible(text_of(passages)) == "ж" * 1_000_000
