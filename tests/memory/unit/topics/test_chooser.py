"""Which topics fit a question, by the gate; and what a replayed recall makes of those that stood in a prompt."""

import attrs
import pytest

from klaw.domain.topic import Fate, TopicCandidate
from klaw.memory.recall.query import read_query
from klaw.memory.recall.replay import TurnReplay
from klaw.memory.topics.chooser import judge, worths
from klaw.store.engine.tokenizer import stem
from klaw.store.search.whereabouts import StoredRecall
from tests.context.unit.test_assemble import recalled
from tests.memory.unit.topics.test_merger import topic
from tests.support.stores import stored
from tests.support.turns import record

RANDOM = 0.78


def hit(number: int, summary: str, cosine: float | None = None, best: tuple[int, ...] = ()) -> TopicCandidate:
    return TopicCandidate(
        topic=topic(number, summary=summary), score=1.0, cosine=cosine, message_rank=1 if best else None, best=best
    )


def judged(question: str, *hits: TopicCandidate, said: dict[int, str] | None = None) -> list[tuple[Fate, bool]]:
    query = read_query(question, now=0, latest=None)
    found = judge(hits, said or {}, query, threshold=0.5, random_cosine=RANDOM)
    return [(each.fate, worth) for each, worth in found]


@pytest.mark.parametrize(
    ("question", "summary"),
    [("Which pies does grandmother bake?", "Grandmother's pies."), ("Какие пироги печёт бабушка?", "Пироги бабушки.")],
)
def test_a_topic_fits_by_its_vector_by_its_summary_or_by_a_message(question: str, summary: str) -> None:
    fits, asked, far = (Fate.CHOSEN, True), (Fate.TOO_FAR, True), (Fate.TOO_FAR, False)
    assert judged(question, hit(1, "x", 0.92)) == [fits]
    assert judged(question, hit(1, summary)) == [fits]
    assert judged(question, hit(1, "x", best=(5,)), said={5: summary}) == [fits]
    assert judged(question, hit(1, "x", best=(5,))) == [far]  # the message is gone
    # As far as unrelated texts are: nobody is asked. A little nearer: a model may say.
    assert judged(question, hit(1, "x", 0.77)) == [far]
    assert judged(question, hit(1, "x", 0.80)) == [asked]
    # Where another one fits, those that are nearer than chance come along by their place.
    assert judged(question, hit(1, "x", 0.92), hit(2, "y", 0.80), hit(3, "z", 0.7)) == [fits, fits, far]


@pytest.mark.parametrize("command", ["Write a haiku about pies", "Напиши хокку про пироги"])
def test_a_command_needs_a_much_nearer_one(command: str) -> None:
    assert judged(command, hit(1, "Pies and пироги of the family", 0.82)) == [(Fate.TOO_FAR, False)]
    assert judged(command, hit(1, "x", 0.95)) == [(Fate.CHOSEN, True)]


def test_messages_are_worth_what_the_question_asks_the_rarer_the_more() -> None:
    wanted = {stem(word) for word in ("пироги", "вишня")}
    said = [stored(1, "Пирогами накормили."), stored(2, "пирог и вишни"), stored(3, "ок")]
    one, both, none = worths(said, wanted)
    assert both > one > none == 0.0


def test_a_replay_does_not_count_what_a_topic_showed() -> None:
    shown, other = stored(3, "Grandmother bakes pies."), stored(4, "The train leaves at nine.")
    turn = record(stored(9))
    receipt = {"version": 2, "window": {"first_seq": 8}, "recall": {"kept": [4]}}
    receipt["topics"] = {"candidates": [{"id": 1, "decision": "chosen", "rowids": [3]}, {"id": 2}]}
    found = recalled(shown, other)
    replayed = TurnReplay(
        stored=StoredRecall(turn=attrs.evolve(turn, receipt=receipt), question="?", scope=None),
        before=found,
        after=found,
    )
    assert sorted(replayed.kept(found)) == replayed.kept_then == [4]
