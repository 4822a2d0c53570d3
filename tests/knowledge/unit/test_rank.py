"""What a question says of the passages that were found for it."""

import pytest

from klaw.domain.knowledge import BaseId, DocumentId, SourceId
from klaw.domain.search import Decision, FoundPassage
from klaw.knowledge.passage_features import PASSAGES, best_of, gather, judge_passages, lack, named_pages
from klaw.knowledge.search import EMPTY
from klaw.memory.recall.gate import Gate
from klaw.memory.recall.ranker import Pool, fuse
from klaw.store.search.fulltext import TextHit
from klaw.store.search.ranked_lists import Lists
from klaw.store.search.vector_search import Neighbour

GATE = Gate(threshold=0.5, content_words=2)


def found(rowid: int, text: str, page: int | None = 1, name: str = "report.pdf") -> FoundPassage:
    return FoundPassage(
        rowid=rowid,
        base=BaseId("b"),
        source=SourceId("s"),
        document=DocumentId("d"),
        name=name,
        title="",
        ordinal=rowid,
        text=text,
        first_page=page,
        start=0,
        end=len(text),
        tokens=20,
    )


def gathered(text: str, weights: dict[str, float], *passages: FoundPassage) -> Pool[FoundPassage]:
    lists = Lists(hits=[TextHit(each.rowid, -1.0) for each in passages], weights=weights)
    return gather(lists, fuse(lists), passages, text, 0.7)


def column(pool: Pool[FoundPassage], name: str) -> list[float]:
    return pool.features[:, PASSAGES.names.index(name)].tolist()


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("What is on page 12?", {12}),
        ("the first page of the document", {1}),
        ("see pages 3 and the 7th page", {3, 7}),
        ("что на 12-й странице", {12}),
        ("таблица на странице 5, стр. 9", {5, 9}),
        ("на первой странице", {1}),
        ("a homepage with 12 users", set()),
        ("page(1)", {1}),
    ],
)
def test_a_question_names_pages_in_two_languages(text: str, pages: set[int]) -> None:
    assert named_pages(text) == pages


def test_documents_without_pages_are_ranked_by_weights_of_their_own() -> None:
    weights = {"leave": 2.0}
    notes, pages = [found(each, "leave", page=None) for each in (1, 2)], [found(each, "leave") for each in (3, 4)]
    assert gathered("leave", weights, *notes, pages[0]).other
    assert not gathered("leave", weights, notes[0], *pages).other


def test_words_beside_each_other_and_the_named_page_count_more() -> None:
    weights = {"leave": 2.0, "policy": 1.0}
    pool = gathered(
        "leave policy on page 2",
        weights,
        found(1, "The leave policy is old."),
        found(2, "Leave it to the policy.", page=2),
        found(3, "Nothing.", page=3),
    )
    assert column(pool, "page_phrases") == [1.0, 0.0, 0.0]
    assert column(pool, "page_words") == [pytest.approx(1.0), pytest.approx(1.0), 0.0]
    assert column(pool, "page") == [0.0, 1.0, 0.0]
    assert [each.shared_words for each in pool.entries] == [2, 2, 0]


def test_a_question_of_years_prefers_the_passage_that_has_them() -> None:
    pool = gathered(
        "расходы в 2015", {"расходы": 1.0, "2015": 1.0}, found(1, "Расходы 2014."), found(2, "Расходы 2015.")
    )
    ranked = judge_passages(pool.rank(), GATE, 0.7)
    assert [each.passage.rowid for each in ranked] == [2, 1]
    assert all(each.decision is Decision.WORDS for each in ranked)
    assert ranked[0].parts["numbers"] > 0


def test_lists_are_fused_and_nothing_found_is_nothing_ranked() -> None:
    lists = Lists(neighbours=[Neighbour(1, 0.1), Neighbour(2, 0.2)], hits=[TextHit(2, -3.0)])
    fused = fuse(lists)
    assert (best_of(fused, 1), set(fused)) == ([2], {1, 2})
    assert EMPTY.rank() == []


def test_what_one_passage_of_a_page_has_speaks_for_its_others() -> None:
    pool = gathered(
        "leave policy",
        {"leave": 2.0, "policy": 1.0},
        found(1, "The leave policy is old."),
        found(2, "It was written by Anna."),
        found(3, "It was written by Boris.", page=2),
    )
    assert column(pool, "page_phrases") == [1.0, 1.0, 0.0]
    assert column(pool, "page_words") == [pytest.approx(1.0), pytest.approx(1.0), 0.0]
    assert [each.rowid for each in pool.rank()] == [1, 2, 3]


@pytest.mark.parametrize("text", ["How much was the inventory in 2021?", "Каковы были запасы в 2021 году?"])
def test_a_document_of_another_year_counts_less(text: str) -> None:
    pool = gathered(
        text,
        {"2021": 1.0},
        found(1, "Inventory", name="corning-2020.pdf"),
        found(2, "Inventory", name="corning-2021.pdf"),
        found(3, "Inventory", name="corning.pdf"),
    )
    assert column(pool, "year") == [-1.0, 1.0, 0.0]


def test_what_is_far_and_has_no_number_of_the_question_lacks_the_most() -> None:
    passages = [found(1, "Sales of 2015 rose."), found(2, "Nothing.")]

    def lacking(text: str, distance: float) -> float | None:
        lists = Lists(neighbours=[Neighbour(1, distance), Neighbour(2, 0.2)], weights={"sales": 1.0})
        pool = gather(lists, fuse(lists), passages, text, 0.8)
        return lack(pool, pool.rank(), numbers=any(map(str.isdigit, text)))

    assert lacking("sales", 0.1) == pytest.approx(0.5)
    assert lacking("sales in 2015", 0.1) == pytest.approx(0.5)
    assert lacking("sales in 2016", 0.1) == pytest.approx(0.9)
    assert lacking("sales in 2016", 0.2) == pytest.approx(1.4)
    assert lack(gathered("sales", {"sales": 1.0}, *passages), [], numbers=False) is None
