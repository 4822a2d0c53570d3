"""What the first ranking says of sessions, for the second."""

import math
from collections.abc import Sequence

import attrs
import numpy as np
import pytest

from klaw.actor.clock import iso
from klaw.domain.message import SESSION_PAUSE_S, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.recall import ranker as ranker_module
from klaw.memory.recall.message_features import gather
from klaw.memory.recall.query import Query, read_query
from klaw.memory.recall.ranker import Ranker
from klaw.memory.recall.sessions import FARTHEST, Sessions
from klaw.store.engine.traits import NAME, NUMBER, TIME, traits_of
from klaw.store.search.ranked_lists import Lists, MessagePlace
from klaw.store.search.vector_search import Neighbour

PAUSE = SESSION_PAUSE_S + 1.0


def place(rowid: int, at: float, *, chat: str = "main", text: str = "text", before: str = "") -> MessagePlace:
    return MessagePlace(
        rowid=rowid,
        chat=chat_id(LOCAL_USER, chat),
        seq=rowid,
        role=Role.USER,
        created_at=iso(1_760_000_000.0 + at),
        tokens=40,
        head=text[:64],
        traits=traits_of(text),
        before=traits_of(before) if before else 0,
        previous=None,
        next=None,
    )


def columns(places: Sequence[MessagePlace], scores: Sequence[float]) -> dict[str, list[float]]:
    found = Sessions.of(places).columns(np.array(scores, float))
    return {name: pytest.approx(column.tolist()) for name, column in found.items()}


def test_a_pause_ends_a_session_and_other_chats_have_their_own() -> None:
    places = [place(1, 0), place(9, PAUSE * 2), place(2, 60), place(3, 90, chat="other"), place(10, PAUSE * 2 + 30)]
    assert Sessions.of(places).numbers.tolist() in ([0, 1, 0, 2, 1], [1, 2, 1, 0, 2])


def test_the_best_and_the_best_three_of_a_session_with_the_lowest_for_what_is_missing() -> None:
    places = [place(1, 0), place(2, 1), place(3, 2), place(4, 3), place(9, PAUSE * 2)]
    found = columns(places, [4.0, 1.0, -2.0, 3.0, 2.0])
    assert found["session_best"] == [4.0, 4.0, 4.0, 4.0, 2.0]
    three = (4.0 + 3.0 + 1.0) / 3
    assert found["session_three"] == [three, three, three, three, (2.0 - 2.0 - 2.0) / 3]


def test_how_far_a_session_is_from_the_best_one() -> None:
    places = [place(at, PAUSE * at) for at in range(1, 50)]
    scores = [float(at == 5) for at in range(1, 50)]
    away = columns(places, scores)["session_away"]
    assert away == [math.log1p(min(abs(at - 5), FARTHEST)) for at in range(1, 50)]
    elsewhere = columns([place(1, 0), place(2, 1, chat="other")], [1.0, 0.0])["session_away"]
    assert elsewhere == [0.0, math.log1p(FARTHEST)]


def test_the_best_of_those_beside_it_in_the_same_session() -> None:
    places = [place(1, 0), place(4, 10), place(6, 20), place(7, 20 + PAUSE), place(5, 15, chat="other")]
    assert columns(places, [3.0, 1.0, 2.0, 9.0, 8.0])["beside"] == [1.0, 3.0, 1.0, 1.0, 1.0]


def test_one_candidate_stands_alone() -> None:
    assert columns([place(1, 0)], [0.0]) == {
        "session_best": [0.0], "session_three": [0.0], "session_away": [0.0], "beside": [0.0]
    }  # fmt: skip


def test_the_second_pass_ranks_by_what_the_first_said_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    later = PAUSE * 3
    near = [(1, 0.10, -later), (5, 0.12, later), (6, 0.13, later + 5), (7, 0.14, later + 9), (9, 0.4, 0)]
    lists = Lists(
        neighbours=[Neighbour(rowid, distance) for rowid, distance, _ in near],
        places=[place(rowid, at) for rowid, _, at in near],
    )
    first = {"distance": -10.0}

    def order(again: dict[str, dict[str, float]]) -> list[int]:
        made = Ranker(made={}, words=first, vectors=first, tokens=first, again=again)
        monkeypatch.setattr(ranker_module, "built_in", lambda _package: made)
        ranked = gather(lists, query("")).rank()
        if again:
            assert all("session" in each.parts for each in ranked)
        return [each.rowid for each in ranked]

    assert order({}) == [1, 5, 6, 7, 9]
    assert order({"vectors": {"distance": -10.0, "session_three": 5.0}}) == [5, 6, 7, 1, 9]


@pytest.mark.parametrize(("long", "order"), [(0, [1, 2, 3, 4, 5]), (1, [1, 2, 3, 4, 5]), (2, [5, 4, 3, 2, 1])])
def test_chats_with_long_messages_have_a_ranker_of_their_own(
    monkeypatch: pytest.MonkeyPatch, long: int, order: list[int]
) -> None:
    near = Ranker(made={}, words={}, vectors={"distance": -10.0})
    made = attrs.evolve(near, other=Ranker(made={}, words={}, vectors={"distance": 10.0}))
    monkeypatch.setattr(ranker_module, "built_in", lambda _package: made)
    places = [attrs.evolve(place(at, at), tokens=400 if at <= long else 40) for at in range(1, 6)]
    lists = Lists(neighbours=[Neighbour(at, at / 10) for at in range(1, 6)], places=places)
    assert [each.rowid for each in gather(lists, query("")).rank()] == order


def query(text: str) -> Query:
    return read_query(text, 1_760_000_000.0, None)


@pytest.mark.parametrize(
    ("text", "asks_for"),
    [
        ("When did Anna move?", TIME),
        ("Когда Анна переехала?", TIME),
        ("В каком году это было?", TIME),
        ("How many cats does she have?", NUMBER),
        ("Сколько у неё кошек?", NUMBER),
        ("How long did the flight take?", TIME | NUMBER),
        ("Сколько лет её сыну?", TIME | NUMBER),
        ("Who came along?", NAME),
        ("Кто пришёл?", NAME),
        ("В каком городе она живёт?", NAME),
        ("Как зовут её сестру?", NAME),
        ("What does she like?", 0),
        ("Что она любит?", 0),
    ],
)
def test_what_a_question_asks_for(text: str, asks_for: int) -> None:
    assert query(text).asks_for == asks_for


def test_what_is_asked_for_raises_what_has_it_and_what_follows_a_question_is_known() -> None:
    told = {1: ("He moved house", ""), 2: ("He moved yesterday, to Rome with 2 cats", "When did he move?")}
    places = [place(rowid, rowid, text=text, before=before) for rowid, (text, before) in told.items()]
    pool = gather(Lists(neighbours=[Neighbour(1, 0.1), Neighbour(2, 0.1)], places=places), query("When did he move?"))
    features = dict(zip(pool.of.names, pool.features.T.tolist(), strict=True))
    known = {name: features[name] for name in ("time", "number", "name", "previous_asks", "previous_short")}
    assert known == {
        "time": [0, 1],
        "number": [0, 0],
        "name": [0, 0],
        "previous_asks": [0, 1],
        "previous_short": [0, 1],
    }
