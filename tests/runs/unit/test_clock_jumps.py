"""Jumps of the wall clock."""

import pytest

from klaw.runs.due import Clocks


@pytest.mark.parametrize(
    ("wall", "monotonic", "jump"),
    [(1060.0, 60.0, 0.0), (1064.0, 60.0, 0.0), (4660.0, 60.0, 3600.0), (-2540.0, 60.0, -3600.0), (1000.0, 60.0, -60.0)],
)
def test_a_jump_is_what_the_wall_clock_went_beyond_real_time(wall, monotonic, jump):
    clocks = Clocks(wall=1000.0, monotonic=0.0)
    assert clocks.jumped_s(wall=wall, monotonic=monotonic) == jump
    assert (clocks.wall, clocks.monotonic) == (wall, monotonic)


def test_a_clock_that_is_steered_does_not_jump():
    clocks = Clocks(wall=1000.0, monotonic=0.0)
    for step in range(1, 100):
        assert clocks.jumped_s(wall=1000.0 + step * 60.03, monotonic=step * 60.0) == 0
