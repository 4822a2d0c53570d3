"""Jumps of the wall clock."""

import pytest

from klaw.runs.due import Watch


@pytest.mark.parametrize(
    ("wall", "monotonic", "jump"),
    [(1060.0, 60.0, 0.0), (1064.0, 60.0, 0.0), (4660.0, 60.0, 3600.0), (-2540.0, 60.0, -3600.0), (1000.0, 60.0, -60.0)],
)
def test_a_jump_is_what_the_wall_clock_went_beyond_real_time(wall, monotonic, jump):
    look = Watch(wall=1000.0, monotonic=0.0).look(wall=wall, monotonic=monotonic)
    assert look.jump_s == jump
    assert look.watch == Watch(wall=wall, monotonic=monotonic)


def test_a_clock_that_is_steered_does_not_jump():
    watch = Watch(wall=1000.0, monotonic=0.0)
    for step in range(1, 100):
        look = watch.look(wall=1000.0 + step * 60.03, monotonic=step * 60.0)
        assert look.jump_s == 0
        watch = look.watch
