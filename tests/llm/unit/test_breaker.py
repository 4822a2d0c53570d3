"""When a failing provider is left alone, and when it is tried again."""

from klaw.llm.service import BREAK, FAILURES_TO_OPEN, Breaker, BreakerState


def admitted(breaker: Breaker, now: float) -> int:
    permit = breaker.admit(now)
    assert permit is not None
    return permit


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(admitted(breaker, now), now)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker()
    for _ in range(5):
        for _ in range(FAILURES_TO_OPEN - 1):
            breaker.failed(admitted(breaker, 0), 0)
        breaker.succeeded(admitted(breaker, 0))
    assert breaker.state is BreakerState.CLOSED


def test_one_call_tries_it_after_the_pause() -> None:
    breaker = opened()
    assert breaker.admit(BREAK.first_s - 0.01) is None
    permit = admitted(breaker, BREAK.first_s)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.admit(BREAK.first_s) is None
    breaker.succeeded(permit)
    assert (breaker.state, breaker.failures) == (BreakerState.CLOSED, 0)


def test_the_pause_grows_with_every_failed_try_up_to_a_cap() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(8):
        pauses.append(breaker.retry_in_s(now))
        now += pauses[-1]
        breaker.failed(admitted(breaker, now), now)
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    breaker.succeeded(admitted(breaker, now + BREAK.most_s))
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(admitted(breaker, now), now)
    assert breaker.retry_in_s(now) == BREAK.first_s


def test_the_provider_may_ask_for_a_longer_pause_up_to_the_cap() -> None:
    for asked, pause in ((60, 60), (5, BREAK.first_s), (86_400, BREAK.most_s)):
        breaker = Breaker()
        for _ in range(FAILURES_TO_OPEN):
            breaker.failed(admitted(breaker, 0), 0, asked)
        assert breaker.retry_in_s(0) == pause


def test_a_cancelled_try_leaves_room_for_the_next() -> None:
    breaker = opened()
    breaker.abandoned(admitted(breaker, BREAK.first_s))
    assert breaker.admit(BREAK.first_s) is not None


def test_late_outcomes_of_earlier_calls_do_not_count() -> None:
    """Calls that began before it opened neither close it nor lengthen the pause."""
    breaker = Breaker()
    late = [admitted(breaker, 0) for _ in range(3)]
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(admitted(breaker, 0), 0)
    breaker.succeeded(late[0])
    breaker.failed(late[1], 5)
    breaker.abandoned(late[2])
    assert (breaker.state, breaker.failures) == (BreakerState.OPEN, FAILURES_TO_OPEN)
    assert breaker.retry_in_s(5) == opened().retry_in_s(5)
