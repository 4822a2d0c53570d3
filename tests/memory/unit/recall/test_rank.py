"""Ranking: shared scores, fusion, speakers, days, lengths."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import attrs
import pytest

from klaw.domain.days import Period
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.recall.excerpt import speaker_stems
from klaw.memory.recall.message_features import MESSAGES, gather
from klaw.memory.recall.query import Query
from klaw.memory.recall.ranker import Pool, RankedEntry
from klaw.store.engine.tokenizer import stem
from klaw.store.search.fulltext import TextHit
from klaw.store.search.ranked_lists import Lists, MessagePlace
from klaw.store.search.vector_search import Neighbour


def place(rowid: int, *, head: str = "text", tokens: int = 40, day: str = "2026-11-01") -> MessagePlace:
    return MessagePlace(
        rowid=rowid,
        chat=chat_id(LOCAL_USER, "main"),
        seq=rowid,
        role=Role.USER,
        created_at=f"{day}T10:{rowid:02}:00.000Z",
        tokens=tokens,
        head=head,
        traits=0,
        before=0,
        previous=rowid - 1,
        next=rowid + 1,
    )


def pool(
    lists: Lists, names: Sequence[str] = (), periods: Sequence[Period] = (), words: Sequence[str] = ()
) -> Pool[MessagePlace]:
    stems = frozenset(map(stem, words))
    query = Query(
        words=tuple(words), content_stems=stems, stems=stems | frozenset(names), command=False, periods=tuple(periods)
    )
    return gather(lists, query)


def rank(lists: Lists, *query: Any, **named: Any) -> list[RankedEntry[MessagePlace]]:
    return pool(lists, *query, **named).rank()


def order(lists: Lists, *, names: tuple[str, ...] = (), periods: tuple[Period, ...] = ()) -> list[int]:
    return [each.rowid for each in rank(lists, names, periods)]


def test_a_row_in_both_lists_comes_first() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(30, 0.11), Neighbour(40, 0.2)],
        hits=[TextHit(20, -4.5), TextHit(30, -4.0)],
        places=[place(1), place(20), place(30), place(40)],
    )
    assert order(lists)[0] == 30


def test_the_neighbours_of_a_hit_share_its_score_the_next_more_than_the_previous() -> None:
    lists = Lists(hits=[TextHit(5, -4.0)], places=[place(4), place(5), place(6)])
    found = rank(lists, (), ())
    assert [each.rowid for each in found] == [5, 6, 4]
    assert [each.text_rank for each in found] == [1, 2, 3]
    assert [each.bm25 for each in found] == [-4.0, None, None]


def test_nothing_is_shared_over_a_long_pause() -> None:
    far = [place(4, day="2026-10-01"), place(5), place(6, day="2026-12-01")]
    assert order(Lists(hits=[TextHit(5, -4.0)], places=far)) == [5]


def test_a_message_of_the_person_asked_about_is_raised() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(3, 0.11)],
        places=[place(1, head="Борис: видел Анну"), place(3, head="Анна: я купила дом")],
    )
    assert order(lists) == [1, 3]
    found = rank(lists, [stem("Анны")], ())
    assert [(each.rowid, each.boosts) for each in found] == [(3, ("speaker",)), (1, ())]


def test_what_was_said_in_the_days_asked_about_is_raised() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(3, 0.11), Neighbour(5, 0.12)],
        places=[place(1), place(3, day="2026-05-06"), place(5, day="2026-05-05")],
    )
    day = Period(date(2026, 5, 5), date(2026, 5, 5))
    found = rank(lists, (), [day])
    assert [each.rowid for each in found] == [3, 5, 1]
    assert [each.boosts for each in found] == [("date",), ("date",), ()]


def test_rows_that_only_the_dated_list_has_are_ranked_too() -> None:
    lists = Lists(dated=[Neighbour(7, 0.2)], places=[place(7)])
    (found,) = rank(lists, (), ())
    assert (found.vector_rank, found.distance) == (None, 0.2)


def test_of_equals_the_longer_comes_first_and_then_the_newer() -> None:
    near = [Neighbour(9, 0.1), Neighbour(1, 0.1)]
    assert order(Lists(neighbours=near, places=[place(1, tokens=80), place(9, tokens=10)])) == [1, 9]
    assert order(Lists(neighbours=near, places=[place(1), place(9)])) == [9, 1]


def test_a_score_is_the_sum_of_its_parts() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(30, 0.11), Neighbour(40, 0.2)],
        hits=[TextHit(20, -4.5, 1), TextHit(30, -4.0, 2)],
        places=[place(1), place(20, head="Anna: yes"), place(30, tokens=90), place(40)],
    )
    for each in rank(lists, [stem("Anna")], words=["peas", "frost"]):
        assert set(each.parts) <= set(MESSAGES.parts)
        assert sum(each.parts.values()) == pytest.approx(each.score, abs=0.05)
        assert (each.parts.get("speaker", 0) > 0) == (each.rowid == 20)


def test_scores_of_tokens_count_against_each_other_and_a_missing_one_as_their_mean() -> None:
    apart = (1, 11, 21)
    lists = Lists(neighbours=[Neighbour(at, 0.1) for at in apart], places=[place(at) for at in apart])
    found = pool(lists).rank({1: 0.9, 21: 0.5})
    assert [(each.rowid, each.token_score) for each in found] == [(1, 0.9), (11, None), (21, 0.5)]
    assert found[1].parts.get("meaning", 0.0) == 0.0
    assert [each.rowid for each in pool(lists).rank({})] == [21, 11, 1]


def test_neighbours_of_other_chats_do_not_speak_for_a_message() -> None:
    def density(*chats: str) -> list[float]:
        places = [attrs.evolve(place(at), chat=chat_id(LOCAL_USER, chat)) for at, chat in enumerate(chats, 1)]
        near = [Neighbour(at, 0.1) for at in range(1, len(chats) + 1)]
        return [
            float(each)
            for each in pool(Lists(neighbours=near, places=places)).features[:, MESSAGES.names.index("density")]
        ]

    assert all(density("a", "a", "a"))
    assert density("a", "b", "c") == [0, 0, 0]


def test_a_row_of_an_index_without_its_message_is_left_out() -> None:
    assert order(Lists(neighbours=[Neighbour(1, 0.1), Neighbour(2, 0.2)], places=[place(2)])) == [2]


def test_speakers() -> None:
    assert speaker_stems("Anna Smith: hello") == {stem("Anna"), stem("Smith")}
    assert speaker_stems("Анна: привет") == {stem("Анна")}
    assert speaker_stems("at 10: hello") == {stem("at"), "10"}
    assert speaker_stems("no speaker here") == speaker_stems("") == speaker_stems("http://x") == frozenset()
