"""What a question says of the passages that were found for it."""

import pytest

from klaw.domain.knowledge import BaseId, DocumentId, SourceId
from klaw.domain.search import Decision, FoundPassage
from klaw.knowledge.passage_features import PASSAGES, best_of, gather, judge_passages, named_pages
from klaw.knowledge.search import EMPTY
from klaw.memory.recall.gate import Gate
from klaw.memory.recall.ranker import Pool, fuse
from klaw.store.search.fulltext import TextHit
from klaw.store.search.ranked_lists import Lists
from klaw.store.search.vector_search import Neighbour

GATE = Gate(threshold=0.5, content_words=2)


def found(rowid: int, text: str, page: int = 1) -> FoundPassage:
    return FoundPassage(
        rowid=rowid,
        base=BaseId("b"),
        source=SourceId("s"),
        document=DocumentId("d"),
        name="report.pdf",
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


def test_words_that_stand_together_and_beside_each_other_count_more() -> None:
    weights = {"leave": 2.0, "policy": 1.0}
    filler = "and so on with many other words that say nothing of it at all today " * 3
    pool = gathered(
        "leave policy on page 2",
        weights,
        found(1, "The leave policy is old."),
        found(2, f"Leave {filler} policy.", page=2),
        found(3, "Nothing."),
    )
    columns = {name: pool.features[:, at].tolist() for at, name in enumerate(PASSAGES.names)}
    assert columns["window"] == [1.0, pytest.approx(2 / 3), 0.0]
    assert columns["phrases"] == [1.0, 0.0, 0.0]
    assert columns["page"] == [0.0, 1.0, 0.0]
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


@pytest.mark.parametrize("text", ["Who is the author of this report?", "Кто автор отчёта?", "кто истец"])
def test_a_question_about_the_whole_document_looks_in_front(text: str) -> None:
    pool = gathered(text, {}, found(1, "a", page=4), found(2, "b"))
    assert pool.features[:, PASSAGES.names.index("front")].tolist() == [0.25, 1.0]


def test_other_questions_do_not() -> None:
    pool = gathered("How much is the rent?", {}, found(1, "a"))
    assert pool.features[:, PASSAGES.names.index("front")].tolist() == [0.0]
