"""The token bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.gateway.connection_limits import TokenBucket


def test_a_burst_passes_and_then_the_rate_holds():
    bucket = TokenBucket(rate=2.0, burst=3, now=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(0.5)
    assert bucket.take(0.5) == 0.0
    assert bucket.take(0.5) > 0


def test_a_refused_frame_costs_nothing():
    bucket = TokenBucket(rate=1.0, burst=1, now=0.0)
    bucket.take(0.0)
    for _ in range(100):
        assert bucket.take(0.5) > 0
    assert bucket.take(1.0) == 0.0


@given(st.lists(st.floats(0, 10), max_size=200))
def test_never_more_than_burst_and_rate_allow(pauses):
    bucket, now, passed = TokenBucket(rate=5.0, burst=10, now=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now) == 0.0
    assert passed <= 10 + 5.0 * now + 1e-6


def test_what_is_spent_in_advance_is_waited_for_and_bounded():
    bucket = TokenBucket(rate=2.0, burst=10, now=0.0)
    assert bucket.borrow(0.0, 8) == 0.0
    assert bucket.borrow(0.0, 4) == pytest.approx(1.0)
    assert bucket.take(0.0) == pytest.approx(1.5)
    for _ in range(100):
        bucket.borrow(0.0, 4)
    assert bucket.take(0.0) == pytest.approx(5.5)
