"""The arithmetic of the ``covered`` invariant."""

from klaw.domain.names import ChatId
from klaw.store.search.coverage import NAMED, ChatTally, Damage, IndexRow, Tallies, add_rows, damage_of

MAIN = ChatId("local:main")


def row(seq: int, *, words: int | None = 3, vector: bool = False, chat: ChatId = MAIN, **changes: bool) -> IndexRow:
    given = {"searchable": True, "marked": vector, **changes}
    return IndexRow(rowid=seq, chat=chat, seq=seq, words=words, vector=vector, **given)


def tally(*rows: IndexRow) -> ChatTally:
    tallies: Tallies = {}
    add_rows(tallies, rows)
    return tallies[MAIN]


def test_what_can_be_found_is_covered():
    """Words or a vector are enough; commands are not searched, and a message without a word counts apart."""
    counted = tally(
        row(1),
        row(2, words=0, vector=True),
        row(3, words=None, searchable=False),
        row(4, words=0, silent=True),
        row(5, vector=True),
    )
    assert (counted.messages, counted.not_searchable, counted.wordless, counted.lost) == (5, 1, 1, 0)
    assert (counted.in_text, counted.with_vector) == (2, 2)


def test_what_cannot_be_found_is_uncovered_outside_the_window():
    counted = tally(row(1, words=None), row(2, words=0), row(3), row(4, words=None))
    assert counted.lost == 3
    assert counted.uncovered(window_start=5) == 3
    assert counted.uncovered(window_start=4) == 2
    assert counted.uncovered(window_start=1) == 0
    assert counted.uncovered_seqs(window_start=4) == [1, 2]


def test_of_very_many_the_number_is_right_and_the_newest_are_named():
    counted = tally(*[row(seq, words=None) for seq in range(1, NAMED + 501)])
    assert counted.uncovered(window_start=NAMED + 491) == NAMED + 490
    assert counted.uncovered_seqs(NAMED + 491)[0] == 501


def test_damage():
    """Every way in which indexes and messages can disagree has its name."""
    found = damage_of(
        [
            row(1),
            row(2, words=None, vector=True),
            row(3, marked=True),
            row(4, vector=True, marked=False),
            row(5, searchable=False),
            row(6, words=None, searchable=False),
        ]
    )
    assert found == Damage(missing_texts=(2,), lost_vectors=(3,), unmarked_vectors=(4,), orphan_texts=(5,))
    assert found.repairable
    assert not Damage(orphan_texts=(5,)).repairable
    assert list(Damage(missing_texts=(1, 2, 3), orphan_vectors=(9,), orphan_texts=(7,)).pieces(2)) == [
        Damage(missing_texts=(1, 2)),
        Damage(missing_texts=(3,)),
        Damage(orphan_vectors=(9,)),
    ]
    assert (found + Damage(orphan_vectors=(9,))).orphan_vectors == (9,)
