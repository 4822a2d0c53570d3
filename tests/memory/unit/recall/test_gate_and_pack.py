"""The pure parts of recall: content words, fusion, gate, packing. English and Russian."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.search import Candidate, Decision
from klaw.memory.recall.excerpt import MIN_SHARE_TOKENS, line_tokens, pack
from klaw.memory.recall.gate import Evidence, Gate, calibrated
from klaw.memory.recall.query import content_words, is_command
from klaw.memory.recall.ranker import RRF_K, reciprocal_rank_fusion
from klaw.store.engine.tokenizer import stem
from klaw.store.search.fulltext import match_in
from tests.support.repository import REPOSITORY
from tests.support.stores import stored


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "Thanks a lot!",
        "lol",
        "good night",
        "👍",
        "",
        "…!?",
        "да",
        "Ну ладно, спасибо большое!",
        "привет",
        "хорошо",
    ],
)
def test_small_talk_has_no_content(text: str) -> None:
    assert content_words(text, 10) == []


def test_questions_keep_their_content_words() -> None:
    assert content_words("Where does my sister live in Kazan?", 10) == ["sister", "live", "Kazan"]
    assert content_words("Как зовут мою собаку?", 10) == ["зовут", "собаку"]


def test_inflections_count_once() -> None:
    assert content_words("dogs and dog, собаку с собакой", 10) == ["dogs", "собаку"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("кошкой", "Кошка"), ("ёлки", "ЕЛКИ"), ("running", "Runs"), ("café", "CAFE"), ("города", "городом")],
)
def test_forms_of_a_word_share_a_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_fusion_rewards_being_in_both_lists() -> None:
    scores = reciprocal_rank_fusion([(1.0, [1, 2, 3]), (1.0, [3, 4])])
    assert max(scores, key=lambda rowid: scores[rowid]) == 3
    assert scores[3] == pytest.approx(1 / (RRF_K + 3) + 1 / (RRF_K + 1))


def test_fusion_weighs_its_lists() -> None:
    scores = reciprocal_rank_fusion([(1.0, [1]), (0.5, [2])])
    assert scores == {1: pytest.approx(1 / (RRF_K + 1)), 2: pytest.approx(0.5 / (RRF_K + 1))}


def test_calibrated_distance_is_0_for_identical_and_1_for_random_pairs() -> None:
    assert calibrated(0.0, 0.77) == 0
    assert calibrated(1 - 0.77, 0.77) == pytest.approx(1)


NEAR = Evidence(distance=0.4, shared_words=0)
FAR = Evidence(distance=0.6, shared_words=0)
CHANCE = Evidence(distance=1.1, shared_words=0)
WORDS_ONLY = Evidence(distance=None, shared_words=1)


def test_gate_lets_nothing_pass_without_content() -> None:
    assert Gate(threshold=0.5, content_words=0).decide([NEAR, WORDS_ONLY]) == [Decision.NO_CONTENT] * 2


def test_gate_lets_nothing_pass_when_nothing_is_near() -> None:
    assert Gate(threshold=0.5, content_words=4).decide([FAR, WORDS_ONLY]) == [Decision.TOO_FAR] * 2


def test_gate_lets_the_rest_pass_by_rank_when_something_is_near() -> None:
    decisions = Gate(threshold=0.5, content_words=4).decide([FAR, NEAR, WORDS_ONLY, CHANCE])
    assert decisions == [Decision.RANKED, Decision.NEAR, Decision.RANKED, Decision.TOO_FAR]


def test_gate_takes_enough_shared_words_for_relevance() -> None:
    assert Gate(threshold=0.5, content_words=2).decide([WORDS_ONLY, FAR]) == [Decision.WORDS, Decision.RANKED]


def test_gate_wants_more_for_commands_to_the_model() -> None:
    command = Gate(threshold=0.5, content_words=2, command=True)
    assert command.decide([NEAR, WORDS_ONLY]) == [Decision.TOO_FAR] * 2
    both = Evidence(distance=None, shared_words=2)
    assert command.decide([both, NEAR]) == [Decision.WORDS, Decision.TOO_FAR]


@pytest.mark.parametrize(
    "query",
    ["Write a haiku about the sea", "tell me a joke", "What's 17 * 23?", "what time is it?", "расскажи анекдот",
     "Переведи на английский: дом", "Который час?"],
)  # fmt: skip
def test_commands_to_the_model_are_recognised(query: str) -> None:
    assert is_command(query)


@pytest.mark.parametrize(
    "query",
    ["What did I tell you about the sea?", "Write to my sister about the trip", "What is the code of the gate?",
     "Напиши моей сестре про поездку", "Что мы решили про отпуск?", "Tell me about Kazan"],
)  # fmt: skip
def test_questions_about_the_conversation_are_no_commands(query: str) -> None:
    assert not is_command(query)


def candidate(seq: int, text: str, decision: Decision = Decision.NEAR) -> Candidate:
    return Candidate(
        message=stored(seq, text),
        vector_rank=None,
        distance=None,
        text_rank=None,
        bm25=None,
        score=1 / seq,
        decision=decision,
        text=text,
        tokens=line_tokens(text),
    )


def test_packing_skips_what_does_not_fit_and_tries_the_next() -> None:
    packed = pack([candidate(n, "x " * 70) for n in (1, 2, 3)] + [candidate(4, "z")], [], top_k=4, max_tokens=80)
    assert [item.decision for item in packed] == [Decision.NEAR, Decision.NEAR, Decision.OVER_BUDGET, Decision.NEAR]


def test_packing_stops_at_top_k() -> None:
    packed = pack([candidate(n, "x") for n in range(1, 5)], [], top_k=2, max_tokens=400)
    assert [item.decision for item in packed] == [Decision.NEAR] * 2 + [Decision.OVER_TOP_K] * 2


def test_packing_leaves_refused_candidates_alone() -> None:
    (refused,) = pack([candidate(1, "x", Decision.TOO_FAR)], [], top_k=1, max_tokens=400)
    assert refused.decision is Decision.TOO_FAR


def test_a_long_message_is_excerpted_around_the_match() -> None:
    text = "начало " * 400 + "собаку зовут Рекс " + "конец " * 400
    (packed,) = pack([candidate(1, text)], [stem("Рекс")], top_k=1, max_tokens=100)
    assert packed.passed
    assert "Рекс" in packed.text
    assert packed.text.startswith("… ")
    assert packed.text.endswith(" …")


def test_a_long_message_leaves_room_for_the_others() -> None:
    texts = ["word " * 400, "short", "x " * 70]
    packed = pack([candidate(seq, text) for seq, text in enumerate(texts, 1)], [], top_k=8, max_tokens=200)
    assert all(item.passed for item in packed)
    assert packed[1].text == "short"


@pytest.mark.parametrize("word", ["word ", "слово "])
def test_each_of_several_long_messages_shows_a_part_of_itself_the_better_the_more(word: str) -> None:
    scores = [9.0, 8.5, 8.0, 5.0, 5.0, 4.0, 4.0, 2.0]
    long = [attrs.evolve(candidate(seq, word * 300), score=score) for seq, score in enumerate(scores, 1)]
    packed = pack(long, [], top_k=8, max_tokens=400)
    assert all(each.passed for each in packed)
    shown = [each.tokens for each in packed]
    assert shown[0] > shown[1] > shown[2] > shown[3]
    assert shown[0] < 200
    assert min(shown) >= MIN_SHARE_TOKENS - 8


def test_what_a_reranker_put_first_shows_no_less_than_what_follows() -> None:
    scores = [1.0, 9.0, 8.0]
    long = [attrs.evolve(candidate(seq, "word " * 300), score=score) for seq, score in enumerate(scores, 1)]
    first, second, third = (each.tokens for each in pack(long, [], top_k=3, max_tokens=300))
    assert first >= second >= third - 8


def test_a_message_that_is_hardly_longer_than_its_share_takes_no_more() -> None:
    packed = pack([candidate(seq, "слово " * 50) for seq in range(1, 10)], [], top_k=8, max_tokens=400)
    assert sum(each.passed for each in packed) == 8


def test_what_is_left_of_the_budget_gives_excerpts_more_room() -> None:
    text = "word " * 100
    (alone,) = pack([candidate(1, text)], [], top_k=8, max_tokens=400)
    assert alone.text == text
    first, second = pack([candidate(1, text), candidate(2, text)], [], top_k=8, max_tokens=220)
    assert first.tokens > MIN_SHARE_TOKENS
    assert first.tokens + second.tokens <= 220


@given(
    st.lists(st.tuples(st.text(max_size=600), st.sampled_from(Decision)), max_size=12),
    st.integers(1, 10),
    st.integers(50, 500),
)
def test_packing_keeps_its_budget_and_its_places(
    items: list[tuple[str, Decision]], top_k: int, max_tokens: int
) -> None:
    packed = pack(
        [candidate(seq, text, decision) for seq, (text, decision) in enumerate(items, 1)],
        [stem("word")],
        top_k=top_k,
        max_tokens=max_tokens,
    )
    kept = [item for item in packed if item.passed]
    assert sum(line_tokens(item.text) for item in kept) <= max_tokens
    assert len(kept) <= top_k
    assert [item.message.seq for item in packed] == list(range(1, len(items) + 1))


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5))
def test_queries_are_never_fts_syntax(wanted: list[str]) -> None:
    """Whatever a word holds, it stands quoted in the expression."""
    expression = match_in(wanted, "c7")
    quoted = expression.split("{content}: (", 1)[1]
    assert quoted.count('"') % 2 == 0


def test_small_talk_of_the_shared_set() -> None:
    """Most of the development set's small talk has no content; what has some is left to the distance."""
    path = REPOSITORY.parent / "shared" / "data" / "smalltalk-dev.json"
    if not path.exists():
        pytest.skip("needs the shared conversation data, which is not part of the repository")
    queries = json.loads(path.read_text(encoding="utf-8"))["queries"]
    silent = sum(not content_words(query, 10) for query in queries)
    assert silent / len(queries) >= 0.75
