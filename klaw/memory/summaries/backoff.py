"""When a failed summary is tried again. Pure; times are Unix seconds."""

import datetime as dt

FIRST_S, LONGEST_S = 300.0, 6 * 3600.0


def pause(failures: int) -> float:
    """Seconds until the next attempt: 5 minutes after the first failure, then doubled, 6 hours at most."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(max(failures, 1) - 1, 30))


def retry_at(now: float, failures: int) -> float:
    return now + pause(failures)


def is_open(now: float, stored: float) -> bool:
    """Whether an attempt may be made. A moment that is farther off than any pause was written by a clock that was set
    back since: it does not count."""
    return now >= stored or stored - now > LONGEST_S + 24 * 3600


def next_day(now: float) -> float:
    """The next midnight UTC, when daily limits are renewed."""
    today = dt.datetime.fromtimestamp(now, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + dt.timedelta(days=1)).timestamp()
