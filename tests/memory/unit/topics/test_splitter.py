"""Every message gets one home, whatever the splitter says."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.memory.topics.splitter import Piece, by_size, place

WILD = st.integers(-(10**9), 10**9) | st.integers(-3, 45)


def groups(placement):
    return [(group.summary, group.members) for group in placement.groups]


def test_the_earlier_of_two_overlapping_topics_wins():
    found = place([Piece("b", 3, 6), Piece("a", 1, 4)], 6)
    assert groups(found) == [("a", (1, 2, 3, 4)), ("b", (5, 6))]
    assert found.uncovered == 0


def test_one_inside_another_is_left_out():
    assert groups(place([Piece("a", 1, 5), Piece("b", 2, 3)], 5)) == [("a", (1, 2, 3, 4, 5))]


def test_what_is_left_over_becomes_one_group():
    found = place([Piece("a", 2, 3), Piece("b", 5, 5)], 6)
    assert groups(found) == [(None, (1, 4, 6)), ("a", (2, 3)), ("b", (5,))]
    assert found.uncovered == 3


def test_ids_are_clamped_and_those_of_others_left_out():
    assert groups(place([Piece("a", -5, 2), Piece("b", 3, 99), Piece("c", 700, 900)], 4)) == [
        ("a", (1, 2)),
        ("b", (3, 4)),
    ]
    assert groups(place([Piece("c", 700, 900)], 2)) == [(None, (1, 2))]


def test_first_and_last_may_come_in_the_wrong_order():
    assert groups(place([Piece("a", 3, 1)], 3)) == [("a", (1, 2, 3))]


def test_ten_thousand_topics():
    found = place([Piece(str(n), n % 400 + 1, n % 400 + 3) for n in range(10_000)], 400)
    assert sum(len(group.members) for group in found.groups) == 400


@given(st.lists(st.builds(Piece, st.text(max_size=3), WILD, WILD), max_size=40), st.integers(1, 40))
def test_each_message_ends_in_exactly_one_group(pieces, count):
    found = place(pieces, count)
    members = [member for group in found.groups for member in group.members]
    assert sorted(members) == list(range(1, count + 1))
    assert all(list(group.members) == sorted(set(group.members)) and group.members for group in found.groups)
    assert [group.members[0] for group in found.groups] == sorted(group.members[0] for group in found.groups)
    assert found.uncovered == sum(len(group.members) for group in found.groups if group.summary is None)
    # A topic that a piece made is a run without a gap.
    for group in found.groups:
        if group.summary is not None:
            assert group.members == tuple(range(group.members[0], group.members[-1] + 1))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 60), st.data())
def test_parts_by_size_hold_all_and_none_is_too_large_unless_it_is_one_message(sizes, limit, data):
    members = data.draw(st.lists(st.integers(1, len(sizes)), min_size=1, unique=True).map(sorted))
    parts = by_size(members, sizes, limit)
    assert [member for part in parts for member in part] == members
    for part in parts:
        assert len(part) == 1 or sum(sizes[member - 1] for member in part) <= limit
