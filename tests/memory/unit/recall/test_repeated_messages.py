"""Of two messages that say the same the newer one is preferred."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.message import Role
from klaw.domain.search import Candidate, Decision
from klaw.memory.recall.excerpt import line_tokens, pack
from klaw.memory.recall.gate import _stems, prefer_newer
from tests.support.stores import stored


def candidate(seq: int, text: str, decision: Decision = Decision.NEAR, role: Role = Role.USER) -> Candidate:
    return Candidate(
        message=stored(seq, text, role=role),
        vector_rank=None,
        distance=None,
        text_rank=None,
        bm25=None,
        score=1.0,
        decision=decision,
        text=text,
        tokens=line_tokens(text),
    )


def decided(*candidates: Candidate) -> list[tuple[int, str]]:
    return [(each.message.seq, each.decision.value) for each in prefer_newer(list(candidates))]


def test_the_newer_one_takes_the_better_place() -> None:
    """Also when it was ranked below: with topK 1 it must be the one that is kept."""
    found = [
        candidate(4, "Anna moved to Kazan last spring with her cat"),
        candidate(7, "The garden gate is green"),
        candidate(9, "Anna moved to Kazan last spring with her cat!"),
    ]
    assert decided(*found) == [(9, "near"), (4, "repeated"), (7, "near")]
    packed = pack(prefer_newer(found), [], top_k=1, max_tokens=400)
    assert [each.message.seq for each in packed if each.passed] == [9]
    assert next(each for each in packed if each.message.seq == 4).repeated_by == 9


def test_inflections_and_case_are_the_same_in_russian() -> None:
    assert decided(candidate(1, "Код калитки — 4711"), candidate(2, "КОД КАЛИТКИ 4711.")) == [
        (2, "near"),
        (1, "repeated"),
    ]


def test_the_newest_of_many_stands_for_all() -> None:
    same = [candidate(seq, "купить хлеб и молоко") for seq in (5, 2, 8, 1)]
    assert decided(*same) == [(8, "near"), (5, "repeated"), (2, "repeated"), (1, "repeated")]


def test_what_differs_in_a_word_that_matters_is_not_the_same() -> None:
    apart = [candidate(1, "the code of the gate is 4711"), candidate(2, "the code of the gate is 4712")]
    assert decided(*apart) == [(1, "near"), (2, "near")]


def test_a_long_one_that_differs_in_a_word_is_the_same() -> None:
    """An updated fact: at least nine tenths of the stems are shared."""
    words = " ".join(f"word{chr(97 + n)}" for n in range(25))
    assert decided(candidate(1, f"{words} 4711"), candidate(2, f"{words} 4712")) == [(2, "near"), (1, "repeated")]


def test_an_answer_that_quotes_the_user_does_not_stand_for_the_user() -> None:
    quoted = [candidate(1, "I am allergic to peanuts"), candidate(2, "I am allergic to peanuts", role=Role.ASSISTANT)]
    assert decided(*quoted) == [(1, "near"), (2, "near")]


def test_what_the_gate_refused_neither_repeats_nor_replaces() -> None:
    refused = [candidate(1, "the same words here"), candidate(2, "the same words here", Decision.TOO_FAR)]
    assert decided(*refused) == [(1, "near"), (2, "too_far")]


def test_texts_without_words_are_left_alone() -> None:
    assert decided(candidate(1, "👍"), candidate(2, "…!"), candidate(3, "")) == [(1, "near"), (2, "near"), (3, "near")]


@given(st.lists(st.tuples(st.sampled_from(["a b", "b a", "привет", "x", "x x", ""]), st.sampled_from(Decision))))
def test_nothing_is_lost_or_invented(items: list[tuple[str, Decision]]) -> None:
    """All candidates are there once; of what passed, one of each text still passes."""
    found = [candidate(seq, text, decision) for seq, (text, decision) in enumerate(items, 1)]
    after = prefer_newer(found)
    assert sorted(each.message.seq for each in after) == [each.message.seq for each in found]
    assert {_stems(e.message) for e in found if e.passed} == {_stems(e.message) for e in after if e.passed}
    for each in after:
        assert (each.decision is Decision.REPEATED and each.repeated_by is not None) or each in found
        assert each.repeated_by is None or each.repeated_by > each.message.seq
