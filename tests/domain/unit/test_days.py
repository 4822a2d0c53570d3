"""Days that questions name, English and Russian."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.days import MAX_PERIODS, Period, find_periods

TODAY = date(2026, 11, 22)  # a Sunday


def periods(text: str, latest: date = TODAY) -> list[tuple[str, str]]:
    return [(each.first.isoformat(), each.last.isoformat()) for each in find_periods(text, today=TODAY, latest=latest)]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("What did Elise play 5 Jan 2024?", "2024-01-05"),
        ("What painting did Melanie show on October 13, 2023?", "2023-10-13"),
        ("the 10th of February 2024", "2024-02-10"),
        ("What did Paola explore on 24.01.2024.", "2024-01-24"),
        ("10.01.24", "2024-01-10"),
        ("what was on 2024-01-05?", "2024-01-05"),
        ("25/12/2023", "2023-12-25"),
        ("12/25/2023", "2023-12-25"),
        ("Что было 5 января 2024 года?", "2024-01-05"),
        ("15-го июля 2025", "2025-07-15"),
        ("on May 5 at 10:30", "2026-05-05"),
        ("1 августа", "2026-08-01"),
        ("25 декабря", "2025-12-25"),
        ("February 29", "2024-02-29"),
        ("yesterday", "2026-11-21"),
        ("О чём мы говорили позавчера?", "2026-11-20"),
        ("two days ago", "2026-11-20"),
        ("три дня назад", "2026-11-19"),
        ("last Friday", "2026-11-20"),
        ("в прошлую пятницу", "2026-11-20"),
        ("What did we eat on New Year's Eve?", "2025-12-31"),
        ("Где мы были в новогоднюю ночь 2024?", "2024-12-31"),
        ("at Halloween", "2026-10-31"),
        ("на Хэллоуин", "2026-10-31"),
        ("on Valentine's Day 2024", "2024-02-14"),
        ("в День Победы", "2026-05-09"),
        ("Where did she go on 16.01?", "2026-01-16"),
        ("что решили после 05.12", "2025-12-05"),
    ],
)
def test_a_day(text: str, day: str) -> None:
    assert periods(text) == [(day, day)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("in May 2023", "2023-05-01", "2023-05-31"),
        ("в январе 2023", "2023-01-01", "2023-01-31"),
        ("What did we cook in June?", "2026-06-01", "2026-06-30"),
        ("в мае", "2026-05-01", "2026-05-31"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("in 2023", "2023-01-01", "2023-12-31"),
        ("в 2023 году", "2023-01-01", "2023-12-31"),
        ("last week", "2026-11-09", "2026-11-15"),
        ("на прошлой неделе", "2026-11-09", "2026-11-15"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("в прошлом году", "2025-01-01", "2025-12-31"),
        ("неделю назад", "2026-11-12", "2026-11-18"),
        ("3 weeks ago", "2026-10-29", "2026-11-04"),
        ("last Christmas", "2025-12-24", "2025-12-26"),
        ("на Рождество", "2026-01-06", "2026-01-08"),
        ("under the tree on Christmas 2023", "2023-12-24", "2023-12-26"),
        ("на Новый год", "2025-12-31", "2026-01-02"),
    ],
)
def test_a_span(text: str, first: str, last: str) -> None:
    assert periods(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    ["May I ask something?", "march on", "11/22/63 by Stephen King", "01/02/2024", "version 1.2.2024.5", "в мартене",
     "Where is she on Friday?", "30.02.2024", "", "декабрист", "decide", "the second of them", "99999999999 days ago",
     "What do they watch during Thanksgiving?", "the Christmas tree", "о рождестве",
     "с 9.30 до 18.00", "on 2.5 wheels"],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    assert periods(text) == []


def test_a_month_without_its_year_is_the_last_in_which_something_was_said() -> None:
    assert periods("in June", latest=date(2023, 10, 1)) == [("2023-06-01", "2023-06-30")]


def test_two_dates_are_two_periods_and_relative_days_yield_to_dates() -> None:
    found = periods("между 3 марта 2024 и 5 апреля 2024, а не вчера")
    assert found == [("2024-03-03", "2024-03-03"), ("2024-04-05", "2024-04-05")]


def test_not_more_than_a_few_are_read() -> None:
    assert len(periods(" ".join(f"{day}.01.2024" for day in range(1, 20)))) == MAX_PERIODS


@given(st.text(alphabet="0123456789./- мая may jan янв year назад ago", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    for period in find_periods(text, today=TODAY, latest=TODAY):
        assert isinstance(period, Period)
        assert period.first <= period.last
