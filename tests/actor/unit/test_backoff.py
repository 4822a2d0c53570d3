"""Pauses after failures."""

from klaw.actor.backoff import SLOW, Backoff, Pauses


def test_pauses_double_up_to_the_longest():
    assert [Backoff(1.0, 300.0).pause_s(n) for n in (1, 2, 3, 9, 10, 10_000)] == [1, 2, 4, 256, 300, 300]
    assert [SLOW.pause_s(n) for n in (1, 2, 3, 4, 7, 8, 9_999)] == [300, 600, 1200, 2400, 19_200, 21_600, 21_600]


def test_each_thing_pauses_by_itself_from_five_minutes_to_six_hours():
    waits: Pauses[str] = Pauses()
    assert [waits.fail("a", 0.0) for _ in range(9)] == [300, 600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]
    assert waits.fail("b", 100.0) == 300
    assert waits.waits("b", 399.9)
    assert not waits.waits("b", 400.0)
    assert waits.next(100.0) == 400.0
    assert waits.next(400.0) == 21600.0
    waits.succeed("a")
    assert not waits.waits("a", 0.0)
    assert waits.count() == 1
    assert [waits.fail("c", 0.0) for _ in range(2000)][-1] == 21600
