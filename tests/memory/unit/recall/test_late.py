"""MaxSim against its definition, written out."""

import numpy as np
import pytest

from klaw.memory.embed.token_coder import BITS, encode
from klaw.memory.recall.token_overlap import max_sim


def states(seed: int, count: int) -> np.ndarray:
    return np.random.RandomState(seed).randn(count, BITS).astype(np.float32)


def test_the_score_is_the_sum_over_the_questions_tokens_of_their_most_similar_token() -> None:
    question, messages = states(1, 3), [states(2, 5), states(3, 1), states(4, 7)]
    expected = [
        sum(max(float(mine @ np.where(theirs > 0, 1, -1)) for theirs in message) for mine in question)
        for message in messages
    ]
    assert max_sim(question, [encode(message) for message in messages]) == pytest.approx(expected, rel=1e-4)


def test_messages_without_codes_have_no_score_wherever_they_stand() -> None:
    question, code = states(1, 2), encode(states(2, 4))
    (alone,) = max_sim(question, [code])
    assert alone is not None
    assert max_sim(question, [b"", code, b"", b"", code, b""]) == [None, alone, None, None, alone, None]
    assert max_sim(question, []) == []
    assert max_sim(question, [b""]) == [None]


def test_a_question_without_tokens_scores_nothing() -> None:
    assert max_sim(states(1, 0), [encode(states(2, 4))]) == [None]


def test_many_long_messages_score_like_each_alone() -> None:
    question, codes = states(1, 4), [encode(states(seed, 1 + seed * 40 % 500)) for seed in range(2, 20)]
    alone = [max_sim(question, [code])[0] for code in codes]
    assert max_sim(question, codes) == pytest.approx(alone, rel=1e-4)
