"""Ranking: shared scores, fusion, speakers, days, lengths."""

import random
from datetime import date

import attrs
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.message import Role
from klaw.memory.recall.dates import Period
from klaw.memory.recall.excerpt import speaker_stems
from klaw.memory.recall.rank import rank, reach
from klaw.store.search.candidates import Lists, Place
from klaw.store.search.fulltext import TextHit
from klaw.store.search.tokenizer import stem
from klaw.store.search.vector_search import Neighbour


def place(rowid: int, *, head: str = "text", tokens: int = 40, day: str = "2026-11-01") -> Place:
    return Place(
        rowid=rowid,
        seq=rowid,
        role=Role.USER,
        created_at=f"{day}T10:{rowid:02}:00.000Z",
        tokens=tokens,
        head=head,
        previous=rowid - 1,
        next=rowid + 1,
    )


def order(lists: Lists, *, names: tuple[str, ...] = (), periods: tuple[Period, ...] = ()) -> list[int]:
    return [each.place.rowid for each in rank(lists, names, periods).best]


def test_a_row_in_both_lists_comes_first() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(30, 0.2)],
        hits=[TextHit(20, -5.0), TextHit(30, -4.0)],
        places=[place(1), place(20), place(30)],
    )
    assert order(lists)[0] == 30


def test_the_neighbours_of_a_hit_share_its_score_the_next_more_than_the_previous() -> None:
    lists = Lists(hits=[TextHit(5, -4.0)], places=[place(4), place(5), place(6)])
    found = rank(lists, (), ()).best
    assert [each.place.rowid for each in found] == [5, 6, 4]
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
    found = rank(lists, [stem("Анны")], ()).best
    assert [(each.place.rowid, each.boosts) for each in found] == [(3, ("speaker",)), (1, ())]


def test_what_was_said_in_the_days_asked_about_is_raised() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1), Neighbour(3, 0.11), Neighbour(5, 0.12)],
        places=[place(1), place(3, day="2026-05-06"), place(5, day="2026-05-05")],
    )
    day = Period(date(2026, 5, 5), date(2026, 5, 5))
    found = rank(lists, (), [day]).best
    assert [each.place.rowid for each in found] == [3, 5, 1]
    assert [each.boosts for each in found] == [("date",), ("date",), ()]


def test_rows_that_only_the_dated_list_has_are_ranked_too() -> None:
    lists = Lists(dated=[Neighbour(7, 0.2)], places=[place(7)])
    (found,) = rank(lists, (), ()).best
    assert (found.vector_rank, found.distance) == (None, 0.2)


def test_a_longer_message_wins_a_tie_and_then_the_newer() -> None:
    lists = Lists(
        neighbours=[Neighbour(1, 0.1)], hits=[TextHit(9, -1.0)], places=[place(1, tokens=80), place(9, tokens=10)]
    )
    assert order(lists) == [1, 9]
    same = Lists(neighbours=[Neighbour(1, 0.1)], hits=[TextHit(9, -1.0)], places=[place(1), place(9)])
    assert order(same) == [9, 1]


def test_a_row_of_an_index_without_its_message_is_left_out() -> None:
    assert order(Lists(neighbours=[Neighbour(1, 0.1), Neighbour(2, 0.2)], places=[place(2)])) == [2]


def test_speakers() -> None:
    assert speaker_stems("Anna Smith: hello") == {stem("Anna"), stem("Smith")}
    assert speaker_stems("Анна: привет") == {stem("Анна")}
    assert speaker_stems("at 10: hello") == {stem("at"), "10"}
    assert speaker_stems("no speaker here") == speaker_stems("") == speaker_stems("http://x") == frozenset()


@given(
    near=st.permutations(range(1, 201)),
    hits=st.lists(st.integers(1, 300), unique=True, max_size=60),
    names=st.booleans(),
    limit=st.integers(1, 60),
    seed=st.randoms(use_true_random=False),
)
def test_what_is_out_of_reach_is_not_missed(
    near: list[int], hits: list[int], names: bool, limit: int, seed: random.Random
) -> None:
    def made(rowid: int) -> Place:
        head = "Anna: yes" if seed.random() < 0.3 else "text"
        return attrs.evolve(
            place(1, head=head, tokens=seed.choice([1, 12, 40, 300])), rowid=rowid, previous=rowid - 1, next=rowid + 1
        )

    lists = Lists(
        neighbours=[Neighbour(rowid, at / 1000) for at, rowid in enumerate(near)],
        hits=[TextHit(rowid, -1.0 - at) for at, rowid in enumerate(reversed(hits))],
        places=[made(rowid) for rowid in range(1, 301)],
    )
    wanted = [stem("Anna")] if names else []
    known = {*hits, *(hit + 1 for hit in hits), *(hit - 1 for hit in hits), *near[: reach(limit)]}
    fewer = attrs.evolve(lists, places=[each for each in lists.places if each.rowid in known])
    whole = rank(lists, wanted, ()).best
    assert rank(lists, wanted, (), limit).best == whole[:limit]
    assert rank(fewer, wanted, (), limit).best == whole[:limit]
