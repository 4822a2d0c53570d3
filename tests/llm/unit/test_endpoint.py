"""What ``/embeddings`` and ``/rerank`` answer is taken when it is whole, and refused with a reason when it is not."""

import json
from typing import Any

import pytest

from klaw.llm.endpoint import NotNumbers, is_of_the_text, read_scores, read_vectors
from klaw.llm.errors import ContextTooLong, ProviderMalformed, ProviderRefused, ProviderTimeout


def data(*vectors: object, order: tuple[object, ...] | None = None) -> dict[str, Any]:
    indices = order or tuple(range(len(vectors)))
    return {"data": [{"index": index, "embedding": each} for index, each in zip(indices, vectors, strict=True)]}


def results(*scores: tuple[object, object]) -> dict[str, Any]:
    return {"results": [{"index": index, "relevance_score": score} for index, score in scores]}


def test_vectors_come_in_the_order_of_their_texts() -> None:
    assert read_vectors(data([1, 2.5], [3, 4], order=(1, 0)), 2) == [[3.0, 4.0], [1.0, 2.5]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "no list of results"),
        ({"data": "x"}, "no list of results"),
        ({"data": []}, "no list of results"),
        (data([1.0]), "1 vectors for 2 texts"),
        (data([1.0], [1.0], [1.0]), "index of a text"),
        (data([1.0], [1.0], order=(0, 0)), "index of a text"),
        (data([1.0], [1.0], order=(0, 2)), "index of a text"),
        (data([1.0], [1.0], order=(0, True)), "index of a text"),
        (data([1.0], [1.0], order=(0, "1")), "index of a text"),
        ({"data": [[1.0], [1.0]]}, "index of a text"),
        ({"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]}, "index of a text"),
        (data([1.0, 2.0], [1.0]), "a vector of 1 numbers, 2 were expected"),
        (data([], []), "a vector of 0 numbers"),
        (data([1.0], None), "in place of numbers"),
        (data([1.0], "AAAAAA=="), "in place of numbers"),
        (data([1.0], ["1.0"]), "in place of numbers"),
        (data([1.0], [True]), "in place of numbers"),
        (data([1.0], [float("nan")]), "in place of numbers"),
        (data([1.0], [float("inf")]), "in place of numbers"),
        (data([1.0], [10**400]), "in place of numbers"),
    ],
)
def test_what_are_no_vectors_is_refused(answer: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderMalformed, match=said):
        read_vectors(answer, 2)


def test_a_known_dimension_is_kept() -> None:
    assert read_vectors(data([1, 2]), 1, 2) == [[1.0, 2.0]]
    with pytest.raises(ProviderMalformed, match="a vector of 2 numbers, 3 were expected"):
        read_vectors(data([1, 2]), 1, 3)


def test_scores_are_of_any_scale_and_not_of_all() -> None:
    assert read_scores(results((2, -11.5), (0, 7)), 3) == {2: -11.5, 0: 7.0}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"results": []},
        {"results": {"0": 1}},
        results((0, 1), (0, 2)),
        results((3, 1)),
        results((-1, 1)),
        results((None, 1)),
        results((0, None)),
        results((0, "0.9")),
        results((0, json.loads("NaN"))),
    ],
)
def test_what_is_no_order_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ProviderMalformed):
        read_scores(answer, 3)


def test_which_failures_may_be_of_one_text() -> None:
    refusals = [ProviderRefused("", status=status, retryable=False) for status in (400, 422, 401, 404, 500, 529)]
    assert [is_of_the_text(each) for each in refusals] == [True, True, False, False, False, False]
    assert is_of_the_text(ContextTooLong("", status=500, retryable=False))
    assert is_of_the_text(NotNumbers(""))
    assert not is_of_the_text(ProviderMalformed(""))
    assert not is_of_the_text(ProviderTimeout(""))
