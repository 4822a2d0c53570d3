"""Where in a message a question is met, against its definition, written out."""

import numpy as np
import pytest

from klaw.memory.embed.token_coder import BITS, MAX_TOKENS, encode
from klaw.memory.recall.excerpt import excerpt
from klaw.memory.recall.token_overlap import TokenOverlap, max_sim


def states(seed: int, count: int) -> np.ndarray:
    return np.random.RandomState(seed).randn(count, BITS).astype(np.float32)


def test_a_span_is_worth_the_max_sim_of_its_tokens() -> None:
    question, message, text = states(1, 3), states(2, 50), "x" * 500
    (whole,) = max_sim(question, [encode(message)])
    spans = [(0, 500), (0, 10), (100, 370), (490, 500)]
    expected = [max_sim(question, [encode(message[begin // 10 : end // 10])])[0] for begin, end in spans]
    found = TokenOverlap(question, encode(message)).shares(text, spans)
    assert found == pytest.approx([(each or 0) / (whole or 1) for each in expected], rel=1e-4)
    assert found[0] == 1


def test_what_stands_behind_the_last_code_is_worth_nothing() -> None:
    met = TokenOverlap(states(1, 2), encode(states(2, MAX_TOKENS)))
    before, behind = met.shares("x" * 10_000, [(0, 100), (9_000, 9_100)])
    assert before > 0
    assert behind == 0


def test_of_sentences_with_the_same_words_those_are_shown_that_meet_the_question() -> None:
    text = "".join(f"Sentence number {number} of the key. " for number in range(10, 30))
    question, message = states(1, 2), -np.abs(states(2, 100))
    message[60:63] = question[0]
    met = TokenOverlap(question, encode(message))
    shown = excerpt(text, {"key"}, 24, met)
    assert "number 22" in shown
    assert "number 10" in excerpt(text, {"key"}, 24)
