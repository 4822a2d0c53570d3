""" "Yesterday" is a day of local time, in questions, in the times of searches and among messages."""

import time
from datetime import date
from zoneinfo import ZoneInfo

import pytest

from klaw.actor.clock import from_iso, iso
from klaw.domain.days import Period, local_clock, local_day, read_since, read_until, start_of_day
from klaw.memory.recall.query import read_query

EAST = ("Asia/Tokyo", from_iso("2026-11-24T14:30:00Z"))
"""Tuesday 23:30 there, Tuesday in UTC."""
EARLY_EAST = ("Asia/Tokyo", from_iso("2026-11-23T15:30:00Z"))
"""Tuesday 00:30 there, Monday in UTC."""
WEST = ("America/New_York", from_iso("2026-11-25T04:30:00Z"))
"""Tuesday 23:30 there, Wednesday in UTC."""
TUESDAY = date(2026, 11, 24)


@pytest.fixture(params=(EAST, EARLY_EAST, WEST), ids=("east-late", "east-early", "west-late"))
def now(request, monkeypatch):
    """A moment of Tuesday, 24 November, in the machine's zone."""
    zone, moment = request.param
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield moment
    time.tzset()


NAMED = [
    ("today", 24),
    ("сегодня", 24),
    ("yesterday", 23),
    ("вчера", 23),
    ("day before yesterday", 22),
    ("позавчера", 22),
    ("last Tuesday", 17),
    ("last Monday", 23),
    ("прошлый вторник", 17),
    ("3 days ago", 21),
    ("три дня назад", 21),
]


@pytest.mark.parametrize(("words", "day"), NAMED)
def test_a_day_in_a_question_is_one_of_local_time(now, words, day):
    for question in (f"What did I say {words}?", f"О чём мы говорили {words}?"):
        assert read_query(question, now, None).periods == (Period(date(2026, 11, day), date(2026, 11, day)),)


@pytest.mark.parametrize(("words", "day"), NAMED)
def test_a_search_since_a_day_begins_where_the_day_of_a_question_does(now, words, day):
    assert read_since(words, now) == start_of_day(date(2026, 11, day))
    assert read_until(words, now) == start_of_day(date(2026, 11, day + 1))


def test_a_message_belongs_to_its_local_day(now):
    assert local_day(now) == TUESDAY
    assert local_day(start_of_day(TUESDAY)) == TUESDAY
    assert local_day(start_of_day(TUESDAY) - 1) == date(2026, 11, 23)


@pytest.mark.parametrize(("zone", "moment"), [EAST, EARLY_EAST, WEST])
def test_the_zone_of_a_person_goes_before_that_of_the_machine(monkeypatch, zone, moment):
    here, monday = ZoneInfo(zone), date(2026, 11, 23)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        assert local_day(moment, here) == TUESDAY
        assert read_query("What did I say yesterday?", moment, None, here).periods == (Period(monday, monday),)
        for words in ("yesterday", "вчера", "2026-11-23", "2026-11-23T00:00"):
            assert read_since(words, moment, here) == start_of_day(monday, here)
        assert read_until("yesterday", moment, here) == start_of_day(TUESDAY, here)
    time.tzset()


def test_models_are_told_the_local_day(now):
    assert local_clock(iso(now)).startswith("2026-11-24 Tue ")


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25), (TUESDAY, 24)])
def test_a_day_on_which_the_clocks_change_has_its_own_length(monkeypatch, day, hours):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        assert read_until(day.isoformat(), WEST[1]) - read_since(day.isoformat(), WEST[1]) == hours * 3600
    time.tzset()
