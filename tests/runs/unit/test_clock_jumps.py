"""Jumps of the wall clock."""

import pytest

from klaw.runs.due import ClockWatch


@pytest.mark.parametrize(
    ("wall", "monotonic", "jump"),
    [(1060.0, 60.0, 0.0), (1064.0, 60.0, 0.0), (4660.0, 60.0, 3600.0), (-2540.0, 60.0, -3600.0), (1000.0, 60.0, -60.0)],
)
def test_a_jump_is_what_the_wall_clock_went_beyond_real_time(wall, monotonic, jump):
    watch = ClockWatch(wall=1000.0, monotonic=0.0)
    assert watch.jumped_s(wall=wall, monotonic=monotonic) == jump
    assert watch == ClockWatch(wall=wall, monotonic=monotonic)


def test_a_clock_that_is_steered_does_not_jump():
    watch = ClockWatch(wall=1000.0, monotonic=0.0)
    for step in range(1, 100):
        assert watch.jumped_s(wall=1000.0 + step * 60.03, monotonic=step * 60.0) == 0
