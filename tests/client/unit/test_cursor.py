"""Streams: each message once and in order, whatever arrives, and a watch where something is missing."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.client.streams import CAPACITY, Inbox, Streams
from klaw.wire.frames import CaughtUp, MessageFrame, Watch


def entry(seq: int, *, replayed: bool = False) -> MessageFrame:
    return MessageFrame(chat="main", seq=seq, id=f"i{seq}", role="user", kind="text", content="x", replayed=replayed)


class Stage:
    """A connected client's streams, and what comes out of them."""

    def __init__(self, **positions: int) -> None:
        self.asked: list[Watch] = []
        self.inbox = Inbox()
        self.streams = Streams(positions, self.inbox, self.asked.append)
        self.streams.connected()

    def place(self, *seqs: int, replayed: bool = False) -> None:
        for seq in seqs:
            self.streams.place(entry(seq, replayed=replayed))

    def caught_up(self, seq: int) -> None:
        self.streams.caught_up(CaughtUp(chat="main", seq=seq))

    def take(self) -> list[int]:
        """The seqs of the messages that were given out."""
        taken = []
        while self.inbox._waiting:
            event = self.inbox._out.receive_nowait()
            taken += [event.seq] if isinstance(event, MessageFrame) else []
            self.streams.relieve()
        return taken


@given(st.lists(st.integers(1, 30), max_size=200), st.integers(0, 20))
def test_live_messages_are_given_out_in_order_and_a_gap_is_asked_for_once(arrivals: list[int], last: int) -> None:
    stage = Stage(main=last)
    stage.caught_up(last)
    expected = last
    for seq in arrivals:
        expected += seq == expected + 1
        stage.place(seq)
    assert stage.take() == list(range(last + 1, expected + 1))
    assert stage.streams.positions() == {"main": expected}
    assert len(stage.asked) <= 1
    assert bool(stage.asked) >= (max([*arrivals, 0]) > expected)


@given(st.sets(st.integers(1, 40)), st.integers(0, 20), st.integers(1, 40))
def test_what_is_sent_again_closes_every_gap(stored: set[int], last: int, arrived: int) -> None:
    """Also where the server lacks messages."""
    stage = Stage(main=last)
    stage.caught_up(last)
    stage.place(arrived)
    head = max([arrived, last])
    for watch in stage.asked:
        assert watch.seq is not None
        again = sorted({each for each in stored if watch.seq < each <= head} | {arrived})
        stage.place(*again, replayed=True)
        stage.caught_up(head)
    given_out = stage.take()
    assert given_out == sorted({*given_out})
    assert {arrived, *stored} & set(range(last + 1, head + 1)) >= set(given_out) >= {arrived} & {*range(last + 1, 41)}
    assert len(stage.asked) == (arrived > last + 1)


def test_the_first_message_decides_where_an_unplaced_chat_begins() -> None:
    stage = Stage()
    stage.place(7, 8)
    assert stage.take() == [7, 8]
    assert not stage.asked


def test_a_live_message_that_overtakes_what_is_sent_again_waits_for_it() -> None:
    stage = Stage(main=3)
    stage.place(9)
    stage.place(4, 5, 9, replayed=True)
    stage.caught_up(9)
    assert stage.take() == [4, 5, 9]
    assert not stage.asked


def test_an_own_message_that_is_acknowledged_behind_a_gap_is_asked_for() -> None:
    """The server acknowledges it in its place, and sends it as a message only when it is asked again."""
    stage = Stage(main=5)
    stage.place(6, replayed=True)
    stage.place(8)  # as an acknowledgement comes; the server no longer has message 7
    stage.place(9, replayed=True)
    stage.caught_up(9)
    assert stage.take() == [6]
    assert [each.seq for each in stage.asked] == [6]
    stage.place(8, 9, replayed=True)
    stage.caught_up(9)
    assert stage.take() == [8, 9]
    assert len(stage.asked) == 1


def test_the_newest_message_behind_a_gap_is_asked_for() -> None:
    """It was stored after the watch, so it is not marked as sent again."""
    stage = Stage(main=5)
    stage.place(8)
    stage.caught_up(8)
    assert [each.seq for each in stage.asked] == [5]
    stage.place(8, replayed=True)
    stage.caught_up(8)
    assert stage.take() == [8]


def test_an_acknowledgement_that_nobody_waits_for_is_asked_for_while_the_server_sends() -> None:
    stage = Stage(main=5)
    stage.streams.reach("main", 6)
    stage.place(7, replayed=True)
    stage.caught_up(7)
    assert stage.take() == []
    assert [each.seq for each in stage.asked] == [5]
    stage.place(6, 7, replayed=True)
    stage.caught_up(7)
    assert stage.take() == [6, 7]


def test_what_finds_no_room_is_asked_for_although_the_server_had_trouble_with_the_chat() -> None:
    stage = Stage(main=0)
    total = CAPACITY
    assert not stage.streams.refused(None, "main")  # such as a turn that failed
    stage.place(*range(1, total + 1), replayed=True)
    stage.caught_up(total)
    taken = stage.take()
    assert [each.seq for each in stage.asked] == [len(taken)]
    stage.place(*range(len(taken) + 1, total + 1), replayed=True)
    stage.caught_up(total)
    assert taken + stage.take() == list(range(1, total + 1))


def test_newest_messages_that_the_server_lacks_are_not_asked_for_again() -> None:
    stage = Stage(main=5)
    stage.caught_up(7)
    stage.place(8)
    assert stage.take() == [8]
    assert not stage.asked


def test_only_a_server_that_has_less_than_was_asked_for_is_behind() -> None:
    stage = Stage(main=10)
    stage.caught_up(10)
    stage.streams.connected()
    stage.caught_up(4)
    stage.place(5)
    assert stage.take() == [5]
    assert not stage.asked


def test_what_finds_no_room_is_asked_for_when_there_is_some() -> None:
    stage = Stage(main=0)
    total = CAPACITY + 50
    stage.place(*range(1, total + 1), replayed=True)
    stage.caught_up(total)
    assert not stage.asked
    taken = stage.take()
    assert taken == list(range(1, len(taken) + 1))
    assert [each.seq for each in stage.asked] == [len(taken)]
    stage.place(*range(len(taken) + 1, total + 1), replayed=True)
    stage.caught_up(total)
    assert taken + stage.take() == list(range(1, total + 1))
