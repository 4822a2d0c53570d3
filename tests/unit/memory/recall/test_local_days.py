"""26.C4: "yesterday" is a day on the clock of the machine, in questions, in times of searches and among messages."""

import time
from datetime import date

import pytest

from klaw.actor.clock import day_begins, from_iso, local_day
from klaw.memory.recall.dates import Period, read_since, read_until
from klaw.memory.recall.query import read_query

NOW = from_iso("2026-11-22T20:00:00Z")
"""In Tokyo it is the morning of the 23rd."""


@pytest.fixture(autouse=True)
def tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["What did I say yesterday?", "О чём мы говорили вчера?"])
def test_yesterday_in_a_question(text):
    day = date(2026, 11, 22)
    assert read_query(text, NOW, None).periods == (Period(first=day, last=day),)


@pytest.mark.parametrize("text", ["yesterday", "вчера"])
def test_yesterday_of_a_search(text):
    assert (read_since(text, NOW), read_until(text, NOW)) == (
        from_iso("2026-11-21T15:00:00Z"),
        from_iso("2026-11-22T15:00:00Z"),
    )


def test_the_day_of_a_message():
    assert local_day("2026-11-21T15:00:00.000Z") == date(2026, 11, 22)
    assert day_begins(date(2026, 11, 22)) == "2026-11-21T15:00:00.000Z"
