"""Why a candidate was cut, and what would have changed it."""

from typing import Any

import pytest

from klaw.memory.recall.reasons import place_of, ranking, reason, remedy

SETTINGS = {"topK": 2, "maxTokens": 100, "relevanceThreshold": 0.5, "timeBudgetMs": 150}


def recall(*candidates: dict[str, Any], **changes: Any) -> dict[str, Any]:
    filled = [{"seq": seq, "tokens": 20, **each} for seq, each in enumerate(candidates, 1)]
    return {"query_words": 4, "settings": SETTINGS, "candidates": filled, **changes}


NEAR = {"decision": "near", "distance": 0.2}
OVER = {"decision": "over_top_k"}


def test_one_over_top_k_names_its_place_and_the_setting() -> None:
    told = recall(NEAR, {"decision": "repeated", "repeated_by": 9}, NEAR, {"decision": "too_far"}, OVER, OVER)
    assert [place_of(told, at) for at in (0, 2, 4, 5)] == [1, 2, 3, 4]
    assert reason(told, 5) == "place 4, topK is 2"
    expected = "autoRag.topK 2 was full, it was at place 4: with autoRag.topK 4 it would have come in."
    assert remedy(told, 5) == expected


def test_more_places_may_need_more_tokens_too() -> None:
    told = recall(NEAR, NEAR, OVER, {**OVER, "tokens": 60})
    assert "with autoRag.topK 4 and autoRag.maxTokens 120 it would have come in" in remedy(told, 3)


def test_one_over_the_budget_says_what_was_left() -> None:
    told = recall({**NEAR, "tokens": 70}, {"decision": "over_budget", "tokens": 64, "left_tokens": 30})
    assert reason(told, 1) == "30 of 100 tokens were left"
    assert "with autoRag.maxTokens 134 it would have come in" in remedy(told, 1)


def test_one_that_is_too_far_says_by_how_much() -> None:
    told = recall({"decision": "too_far", "distance": 0.6234, "shared_words": 1})
    assert reason(told, 0) == "0.12 over the 0.5; has 1 of 4 content words"
    assert "Its distance 0.62 is over 0.5: with autoRag.relevanceThreshold 0.63 it would have passed" in remedy(told, 0)
    assert "shares 2 of 4 content words" in remedy(told, 0)


def test_one_as_far_as_chance_has_no_setting() -> None:
    told = recall({"decision": "too_far", "distance": 1.2})
    assert reason(told, 0) == "as far away as chance, and shares no content word"
    assert "that of unrelated texts" in remedy(told, 0)
    assert "relevanceThreshold" not in remedy(told, 0)


def test_a_command_needs_more() -> None:
    told = recall({"decision": "too_far", "distance": 0.2}, command=True)
    assert reason(told, 0) == "0.05 over the 0.15 for a command; has 0 of 4 content words"
    assert "autoRag.relevanceThreshold 0.67" in remedy(told, 0)
    alone = recall({"decision": "too_far"}, command=True, query_words=1)
    assert "a question that is no command" in remedy(alone, 0)


@pytest.mark.parametrize(
    ("candidate", "because"),
    [
        ({"decision": "words", "shared_words": 2}, "has 2 of 4 content words"),
        ({"decision": "ranked"}, "by its place"),
        ({"decision": "repeated", "repeated_by": 9}, "message 9 is newer and says the same"),
        ({"decision": "no_content"}, "no content words"),
        ({"decision": "in_window"}, "the model sees it in full anyway"),
        ({"decision": "something new"}, ""),
    ],
)
def test_every_decision_has_its_words(candidate: dict[str, Any], because: str) -> None:
    assert because in reason(recall(candidate), 0)
    assert remedy(recall(candidate), 0)


@pytest.mark.parametrize("decision", ["near", "words", "too_far", "over_top_k", "over_budget", "in_window"])
def test_receipts_without_settings_are_explained_as_far_as_they_go(decision: str) -> None:
    """Version 1: None stands for what there is not."""
    old = {"query_words": 4, "candidates": [{"seq": 1, "decision": decision, "distance": None, "tokens": 5}]}
    reason(old, 0)
    assert remedy(old, 0)


def test_a_learned_score_is_told_by_its_parts_the_greatest_first() -> None:
    told = ranking({"parts": {"words": 1.4, "meaning": 2.1, "length": -0.2, "days": -1.25}})
    assert told == "raised by meaning +2.1, words +1.4; held back by days -1.25, length -0.2"
    assert ranking({"boosts": ["speaker", "date"]}) == "raised by speaker and date"  # of an earlier version
    assert ranking({}) == ranking({"parts": {}}) == ""
