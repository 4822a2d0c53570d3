"""Every message gets one home, whatever the splitter says."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.memory.topics.splitter import AnsweredTopic as Topic
from klaw.memory.topics.splitter import by_size, place

WILD = st.integers(-(10**9), 10**9) | st.integers(-3, 45)


def groups(found):
    return [(group.summary, group.members) for group in found]


def test_the_earlier_of_two_overlapping_topics_wins():
    found = place([Topic("b", 3, 6), Topic("a", 1, 4)], 6)
    assert groups(found) == [("a", (1, 2, 3, 4)), ("b", (5, 6))]


def test_one_inside_another_is_left_out():
    assert groups(place([Topic("a", 1, 5), Topic("b", 2, 3)], 5)) == [("a", (1, 2, 3, 4, 5))]


def test_what_is_left_over_becomes_one_group():
    found = place([Topic("a", 2, 3), Topic("b", 5, 5)], 6)
    assert groups(found) == [(None, (1, 4, 6)), ("a", (2, 3)), ("b", (5,))]


def test_ids_are_clamped_and_those_of_others_left_out():
    assert groups(place([Topic("a", -5, 2), Topic("b", 3, 99), Topic("c", 700, 900)], 4)) == [
        ("a", (1, 2)),
        ("b", (3, 4)),
    ]
    assert groups(place([Topic("c", 700, 900)], 2)) == [(None, (1, 2))]


def test_first_and_last_may_come_in_the_wrong_order():
    assert groups(place([Topic("a", 3, 1)], 3)) == [("a", (1, 2, 3))]


def test_ten_thousand_topics():
    found = place([Topic(str(n), n % 400 + 1, n % 400 + 3) for n in range(10_000)], 400)
    assert sum(len(group.members) for group in found) == 400


@given(st.lists(st.builds(Topic, st.text(max_size=3), WILD, WILD), max_size=40), st.integers(1, 40))
def test_each_message_ends_in_exactly_one_group(pieces, count):
    found = place(pieces, count)
    members = [member for group in found for member in group.members]
    assert sorted(members) == list(range(1, count + 1))
    assert all(list(group.members) == sorted(set(group.members)) and group.members for group in found)
    assert [group.members[0] for group in found] == sorted(group.members[0] for group in found)
    # A topic that a piece made is a run without a gap.
    for group in found:
        if group.summary is not None:
            assert group.members == tuple(range(group.members[0], group.members[-1] + 1))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 60), st.data())
def test_parts_by_size_hold_all_and_none_is_too_large_unless_it_is_one_message(sizes, limit, data):
    members = data.draw(st.lists(st.integers(1, len(sizes)), min_size=1, unique=True).map(sorted))
    parts = by_size(members, sizes, limit)
    assert [member for part in parts for member in part] == members
    for part in parts:
        assert len(part) == 1 or sum(sizes[member - 1] for member in part) <= limit
