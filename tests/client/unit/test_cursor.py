"""Cursor: each seq once and upwards, whatever arrives."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.client.streams import MAX_EARLY, ChatCursor
from klaw.wire.frames import MessageFrame


def entry(seq: int, content: str = "x", created_at: str = "t") -> MessageFrame:
    return MessageFrame(
        chat="main", seq=seq, id=f"i{seq}", role="user", kind="text", content=content, created_at=created_at
    )


def take_all(cursor: ChatCursor) -> list[int]:
    taken = []
    while (each := cursor.take()) is not None:
        taken.append(each.seq)
    return taken


@given(st.lists(st.integers(1, 30), max_size=200), st.integers(0, 20))
def test_taken_seqs_are_consecutive_whatever_comes(arrivals: list[int], last: int) -> None:
    cursor = ChatCursor(last)
    taken: list[int] = []
    for seq in arrivals:
        cursor.place(entry(seq))
        taken += take_all(cursor)
    assert taken == list(range(last + 1, last + 1 + len(taken)))
    present = set(arrivals)
    expected = last
    while expected + 1 in present:
        expected += 1
    assert cursor.last == expected
    assert cursor.has_gap == any(seq > expected for seq in arrivals)


def test_the_first_entry_decides_where_an_unplaced_cursor_begins() -> None:
    cursor = ChatCursor(None)
    assert not cursor.has_gap
    cursor.place(entry(7))
    assert take_all(cursor) == [7]


def test_a_message_says_more_than_an_early_acknowledgement() -> None:
    cursor = ChatCursor(0)
    cursor.place(entry(2, "", created_at=""))
    cursor.place(entry(2, "whole"))
    cursor.place(entry(1))
    assert [each.content for each in (cursor.take(), cursor.take()) if each] == ["x", "whole"]


def test_what_a_page_lacks_does_not_exist() -> None:
    cursor = ChatCursor(3)
    cursor.place(entry(9))
    cursor.place_page([entry(6), entry(7)])
    assert take_all(cursor) == [6, 7]
    assert cursor.has_gap
    cursor.place_page([])
    assert take_all(cursor) == [9]
    assert not cursor.has_gap


def test_only_a_server_that_has_less_than_was_asked_for_is_behind() -> None:
    cursor = ChatCursor(10)
    cursor.resume()
    assert not cursor.caught_up(10)
    cursor.resume()
    assert cursor.resuming
    assert cursor.caught_up(4)
    assert not cursor.resuming
    cursor.place(entry(5))
    assert take_all(cursor) == [5]


def test_too_many_early_entries_are_left_to_be_fetched() -> None:
    cursor = ChatCursor(0)
    for seq in range(2, MAX_EARLY + 50):
        cursor.place(entry(seq))
    cursor.place_page([entry(1)])
    assert take_all(cursor) == list(range(1, MAX_EARLY + 2))
    assert cursor.has_gap
