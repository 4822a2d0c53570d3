"""The daily spending limits of the installation. No I/O: at the start it is given what the store knows of today.

Before a call its worst case is set aside, after it the actual cost is counted instead, so that calls at the same time
cannot pass a limit together.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from klaw.actor.clock import Clock
from klaw.domain.usage import NANO, UsageSum, dollars
from klaw.llm.errors import OverBudget

# What all users may see has no amounts: others have spent them, too.
_RENEWED = "It is renewed at 00:00 UTC"


@attrs.frozen(kw_only=True)
class BudgetReport:
    day: str
    spent_nano: int
    limit_nano: int | None
    unpriced_tokens: int
    limit_tokens: int | None
    reserved_nano: int
    share: float | None
    warn_share: float
    refused: int


class DailyBudget:
    """Dollars limit the calls whose price is known, tokens the others. From ``warn_share`` of a limit on it warns."""

    def __init__(self, dollars_a_day: float | None, tokens_a_day: int | None, warn_share: float, clock: Clock) -> None:
        self.limit(dollars_a_day, tokens_a_day, warn_share)
        self._clock = clock
        self._day, self._spent = self.today(), UsageSum()
        self._reserved: list[UsageSum] = []
        self._told, self._refused = False, 0

    def limit(self, dollars_a_day: float | None, tokens_a_day: int | None, warn_share: float) -> None:
        """Set the limits of the day, this one included."""
        self._limit_nano = round(dollars_a_day * NANO) if dollars_a_day is not None else None
        self._limit_tokens = tokens_a_day
        self._warn_share = warn_share

    def check(self, worst: UsageSum | None = None) -> str | None:
        """Say to users which limit forbids a call that may spend ``worst`` (None: any call); None if none does."""
        self._turn_the_day()
        held = sum(self._reserved, self._spent)
        wanted = worst or UsageSum(cost_nano=1, unpriced_tokens=1)
        if (limit := self._limit_nano) is not None and wanted.cost_nano and held.cost_nano + wanted.cost_nano > limit:
            budget = f"the daily budget of {dollars(limit)} (llm.dailyBudget)"
            left = limit - held.cost_nano
            asked = f"may cost {dollars(wanted.cost_nano)}, more than is left of {budget}"
        elif (
            (limit := self._limit_tokens) is not None
            and (more := wanted.unpriced_tokens) > 0
            and (held.unpriced_tokens + more > limit)
        ):
            budget = f"the daily budget of {limit:,} tokens (llm.dailyTokens)"
            left = limit - held.unpriced_tokens
            asked = f"may take {more:,} tokens, more than are left of {budget}"
        else:
            return None
        return f"this request {asked}. {_RENEWED}" if worst and left > 0 else f"{budget} is used up. {_RENEWED}"

    @contextmanager
    def reserved(self, worst: UsageSum) -> Iterator[None]:
        """Set aside the most that a call may spend while it runs. Raises OverBudget, not for one without cost."""
        refused = self.check(worst)
        if refused is not None:
            self._refused += 1
            raise OverBudget(refused)
        self._reserved.append(worst)
        try:
            yield
        finally:
            self._reserved.remove(worst)

    def charge(self, spent: UsageSum) -> None:
        self._turn_the_day()
        self._spent += spent

    def take_warning(self) -> str | None:
        """A warning, once a day, when ``warn_share`` is reached; else None."""
        report = self.report()
        if self._told or report.share is None or report.share < self._warn_share:
            return None
        self._told = True
        return f"The daily LLM budget is running low. {_RENEWED}; when it is used up, no more is spent until then."

    def today(self) -> str:
        return dt.datetime.fromtimestamp(self._clock.now(), dt.UTC).date().isoformat()

    def restore(self, day: str, spent: UsageSum) -> None:
        """Take over what the store knows of a day; a warning that was given then is not repeated."""
        self._turn_the_day()
        if day == self._day:
            self._spent += spent
            share = self.report().share
            self._told = share is not None and share >= self._warn_share

    def report(self) -> BudgetReport:
        self._turn_the_day()
        limits = ((self._limit_nano, self._spent.cost_nano), (self._limit_tokens, self._spent.unpriced_tokens))
        return BudgetReport(
            day=self._day,
            spent_nano=self._spent.cost_nano,
            limit_nano=self._limit_nano,
            unpriced_tokens=self._spent.unpriced_tokens,
            limit_tokens=self._limit_tokens,
            reserved_nano=sum(worst.cost_nano for worst in self._reserved),
            share=max((used / limit for limit, used in limits if limit is not None), default=None),
            warn_share=self._warn_share,
            refused=self._refused,
        )

    def problems(self) -> Mapping[str, str]:
        report = self.report()
        found = {}
        if report.refused or self.check() is not None:
            what = "is nearly used up: requests that may cost more than what is left are refused"
            what = "is used up: models that cost are not asked" if self.check() is not None else what
            found["budget_used_up"] = f"the daily LLM budget {what}. {_RENEWED}"
        elif report.share is not None and report.share >= self._warn_share:
            found["budget_low"] = "The daily LLM budget is running low."
        if report.limit_nano is not None and report.limit_tokens is None and report.unpriced_tokens:
            found["budget_unpriced"] = (
                "llm.dailyBudget does not limit models whose price is unknown: "
                "give their prices, or set llm.dailyTokens"
            )
        return found

    def _turn_the_day(self) -> None:
        """A clock that is set back frees nothing; running calls stay reserved."""
        today = self.today()
        if today > self._day:
            self._spent, self._told, self._refused = UsageSum(), False, 0
        self._day = today
