"""The daily limits: no order of calls passes them, the day turns at 00:00 UTC, somebody is told once."""

from contextlib import ExitStack, suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.clock import from_iso
from klaw.domain.usage import NANO, UsageSum
from klaw.llm.budget import DailyBudget
from klaw.llm.errors import OverBudget


class Hands:
    """A clock that the test sets."""

    def __init__(self, at: str = "2026-11-22T23:00:00+00:00") -> None:
        self.at = at

    def now(self) -> float:
        return from_iso(self.at)


def dollars(amount: float) -> UsageSum:
    return UsageSum(calls=1, cost_nano=round(amount * NANO))


def unpriced(tokens: int) -> UsageSum:
    return UsageSum(calls=1, unpriced_calls=1, unpriced_tokens=tokens)


def make(money: float | None = 1.0, tokens: int | None = None, **more: Any) -> DailyBudget:
    return DailyBudget(money, tokens, more.get("warn", 0.8), more.get("clock") or Hands())


def spend(budget: DailyBudget, spent: UsageSum) -> str | None:
    try:
        with budget.reserved(spent):
            budget.charge(spent)
    except OverBudget as refused:
        return str(refused)
    return None


ACTIONS = st.lists(st.tuples(st.booleans(), st.integers(0, 400_000_000), st.floats(0, 1)), max_size=60)


@given(ACTIONS)
def test_calls_under_way_together_never_pass_the_limit(actions: list[tuple[bool, int, float]]) -> None:
    """Whatever begins and ends in whatever order: what was spent and what may be spent stay within the limit."""
    budget, under_way = make(1.0), list[tuple[int, ExitStack]]()
    for begin, worst, part in actions:
        if begin or not under_way:
            call = ExitStack()
            with suppress(OverBudget):
                call.enter_context(budget.reserved(UsageSum(cost_nano=worst)))
                under_way.append((worst, call))
        else:
            most, call = under_way.pop(0)
            budget.charge(UsageSum(cost_nano=int(most * part)))
            call.close()
        report = budget.report()
        assert report.spent_nano + report.reserved_nano <= NANO
    for _, call in under_way:
        call.close()
    assert budget.report().reserved_nano == 0


def test_a_refusal_names_the_limit_and_not_what_others_spent() -> None:
    budget = make(1.0)
    assert spend(budget, dollars(0.95)) is None
    refused = spend(budget, dollars(0.25))
    assert refused is not None
    for words in ("daily budget of $1.00", "llm.dailyBudget", "may cost $0.2500, more than is left", "00:00 UTC"):
        assert words in refused
    assert "used up" not in refused
    assert "nearly used up" in budget.problems()["budget_used_up"]
    assert spend(budget, dollars(0.05)) is None
    assert "is used up: " in budget.problems()["budget_used_up"]
    refused = spend(budget, dollars(0.25))
    assert refused is not None
    assert "is used up" in refused
    assert budget.report().refused == 2


def test_models_that_cost_nothing_go_on() -> None:
    budget = make(1.0, 100)
    spend(budget, dollars(1.0))
    spend(budget, unpriced(100))
    assert budget.check(dollars(0.01)) is not None
    assert budget.check(unpriced(1)) is not None
    assert budget.check() is not None
    assert spend(budget, UsageSum(calls=1, prompt_tokens=5)) is None


def test_tokens_of_unknown_price_have_their_own_limit() -> None:
    budget = make(None, 1000)
    assert spend(budget, dollars(999)) is None
    assert spend(budget, unpriced(900)) is None
    refused = spend(budget, unpriced(200))
    assert refused is not None
    assert "llm.dailyTokens" in refused
    assert "this request may take 200 tokens, more than are left of the daily budget of 1,000 tokens" in refused


def test_money_without_a_limit_for_unknown_prices_is_pointed_out() -> None:
    budget = make(1.0, None)
    assert spend(budget, unpriced(10**9)) is None
    assert set(budget.problems()) == {"budget_unpriced"}
    assert make(None, None).problems() == {}


def test_a_new_day_begins_at_midnight_utc_and_a_clock_set_back_gives_nothing_back() -> None:
    clock = Hands("2026-11-22T23:59:59+00:00")
    budget = make(1.0, clock=clock)
    spend(budget, dollars(1.0))
    assert spend(budget, dollars(0.1)) is not None
    clock.at = "2026-11-21T10:00:00+00:00"
    assert spend(budget, dollars(0.1)) is not None
    clock.at = "2026-11-23T03:00:00+03:00"
    assert spend(budget, dollars(0.1)) is None
    assert budget.report().day == "2026-11-23"
    assert budget.problems() == {}


def test_somebody_is_told_once_a_day() -> None:
    clock = Hands()
    budget = make(1.0, clock=clock)
    spend(budget, dollars(0.79))
    assert budget.take_warning() is None
    spend(budget, dollars(0.05))
    assert "running low" in (budget.take_warning() or "")
    assert budget.take_warning() is None
    assert set(budget.problems()) == {"budget_low"}
    clock.at = "2026-11-24T00:00:00+00:00"
    spend(budget, dollars(0.9))
    assert budget.take_warning() is not None


def test_a_restart_remembers_the_day() -> None:
    budget = make(1.0)
    budget.restore("2026-11-22", dollars(0.9))
    assert spend(budget, dollars(0.2)) is not None
    assert budget.take_warning() is None  # somebody was told before the restart
    other = make(1.0)
    other.restore("2026-11-21", dollars(0.9))
    assert spend(other, dollars(0.2)) is None
