"""Days on a calendar: each is due once, whatever the zone's clock does."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.memory.days import due_at, due_days, next_due, start_of, time_of

BERLIN = ZoneInfo("Europe/Berlin")
AT = dt.time(2, 30)
DAY_S = 86_400


def moment(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("day", "hours", "due"),
    [
        ("2026-11-21", 24, "2026-11-22T02:30:00+01:00"),
        ("2026-03-28", 24, "2026-03-29T03:30:00+02:00"),  # 02:30 is skipped
        ("2026-03-29", 23, "2026-03-30T02:30:00+02:00"),
        ("2026-10-24", 24, "2026-10-25T02:30:00+02:00"),  # 02:30 comes twice: the first one
        ("2026-10-25", 25, "2026-10-26T02:30:00+01:00"),
    ],
)
def test_a_day_and_its_time_with_summer_time(day: str, hours: int, due: str) -> None:
    date = dt.date.fromisoformat(day)
    assert start_of(date + dt.timedelta(days=1), BERLIN) - start_of(date, BERLIN) == hours * 3600
    assert due_at(date, AT, BERLIN) == moment(due)


def test_a_midnight_that_is_skipped_begins_the_day_after_the_gap() -> None:
    beirut = ZoneInfo("Asia/Beirut")  # 2021-03-28 began at 01:00
    assert start_of(dt.date(2021, 3, 28), beirut) == moment("2021-03-27T22:00:00+00:00")


def test_a_bounded_number_of_missed_days_is_due_the_oldest_first() -> None:
    now = moment("2026-11-22T02:29:59+01:00")
    assert [str(day) for day in due_days(now, AT, BERLIN, 3)] == ["2026-11-19", "2026-11-20"]
    assert next_due(now, AT, BERLIN) == now + 1
    assert [str(day) for day in due_days(now + 1, AT, BERLIN, 3)] == ["2026-11-19", "2026-11-20", "2026-11-21"]
    assert next_due(now + 1, AT, BERLIN) == now + 1 + DAY_S


@given(
    now=st.integers(1_000_000_000, 2_000_000_000),
    at=st.times(),
    zone=st.sampled_from(["Europe/Berlin", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "UTC"]),
)
def test_the_next_moment_makes_exactly_one_more_day_due(now: int, at: dt.time, zone: str) -> None:
    known, at = ZoneInfo(zone), at.replace(second=0, microsecond=0)
    due = next_due(now, at, known)
    assert now < due <= now + 2 * DAY_S + 2 * 3600
    before, after = due_days(due - 1, at, known, 10), due_days(due, at, known, 10)
    assert set(after) - set(before) == {after[-1]}


@pytest.mark.parametrize("text", ["24:00", "3:30", "03:60", "03:30:00", "half past three", ""])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time of day"):
        time_of(text)
