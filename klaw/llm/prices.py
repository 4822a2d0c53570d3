"""Prices of tokens and calls, and the price list (genai-prices) of known services.

The library takes 30 MB and a fifth of a second to import. So a child process imports it, answers one list of questions
and ends: ``python -m klaw.llm.prices``, JSON in and out. It never asks the network.
"""

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any, TypeAlias

import attrs
import trio

from klaw.actor.failure import error_class
from klaw.convert import JOURNAL, Form
from klaw.domain.usage import UsageSum
from klaw.errors import NoPriceList
from klaw.llm.types import Usage

_NANO_PER_TOKEN = Decimal(1000)
_MOST_TOKENS = 10_000_000
"""What a provider reports beyond it is nonsense, and would make sums overflow."""

Money: TypeAlias = Annotated[Decimal, Form(Decimal, str)]


@attrs.frozen
class Tier:
    above: int
    price: Money


@attrs.frozen
class Rate:
    """Dollars for a million tokens. ``tiers`` are ascending."""

    base: Money
    tiers: tuple[Tier, ...] = ()

    def of(self, prompt_tokens: int) -> Decimal:
        reached = [tier.price for tier in self.tiers if prompt_tokens > tier.above]
        return reached[-1] if reached else self.base


@attrs.frozen(kw_only=True)
class Prices:
    """What a model costs. What is read from or written to a cache costs like the rest if it has no price of its own."""

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None


FREE = Prices(input=Rate(Decimal(0)), output=Rate(Decimal(0)))


def _count(tokens: int | None) -> int:
    return min(_MOST_TOKENS, max(0, tokens or 0))


def spent_of(usage: Usage, prices: Prices | None, *, estimated: bool = False) -> UsageSum:
    """What one call used, with plausible counts: none is negative, and the parts of the prompt fit into it."""
    prompt, completion = _count(usage.prompt_tokens), _count(usage.completion_tokens)
    cached = min(prompt, _count(usage.cached_tokens))
    written = min(prompt - cached, _count(usage.cache_write_tokens))
    by_million = Decimal(0)
    if prices is not None:
        by_million = (
            (prompt - cached - written) * prices.input.of(prompt)
            + cached * (prices.cached_input or prices.input).of(prompt)
            + written * (prices.cache_write or prices.input).of(prompt)
            + completion * prices.output.of(prompt)
        )
    return UsageSum(
        calls=1,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        cache_write_tokens=written,
        cost_nano=int((by_million * _NANO_PER_TOKEN).to_integral_value(rounding=ROUND_HALF_EVEN)),
        unpriced_calls=int(prices is None),
        unpriced_tokens=prompt + completion if prices is None else 0,
        estimated_calls=int(estimated),
    )


FREE_VARIANT = ":free"
ANSWER_S = 60.0


@attrs.frozen(kw_only=True)
class WantedPrice:
    """A question for the price list: what a model costs at the service of this address or name."""

    model: str
    api_url: str | None
    service: str | None


@attrs.frozen(kw_only=True)
class PricePeriod:
    """Prices from a date on, or between two times of the day (ISO-8601, UTC); None: a call costs not by tokens only."""

    from_date: str | None = None
    from_time: str | None = None
    until_time: str | None = None
    prices: Prices | None

    def holds(self, moment: dt.datetime) -> bool:
        if self.from_date is not None:
            return moment.date().isoformat() >= self.from_date
        if self.from_time is None or self.until_time is None:
            return True
        now = moment.time().isoformat()
        if self.until_time < self.from_time:
            return now >= self.from_time or now < self.until_time
        return self.from_time <= now < self.until_time


@attrs.frozen(kw_only=True)
class ListedPrices:
    """Where several periods hold, the last one counts."""

    context_tokens: int | None
    periods: tuple[PricePeriod, ...]

    def prices_at(self, moment: dt.datetime) -> Prices | None:
        """``moment`` is in UTC."""
        holding = [period for period in self.periods if period.holds(moment)] or self.periods[:1]
        return holding[-1].prices if holding else None


Answers: TypeAlias = list[ListedPrices | None]


async def look_up(wanted: Sequence[WantedPrice]) -> Answers:
    """Ask the price list, in the same order; None for what it does not know. Raises NoPriceList."""
    question = json.dumps([attrs.asdict(each) for each in wanted]).encode()
    command = [sys.executable, "-m", "klaw.llm.prices"]
    try:
        with trio.fail_after(ANSWER_S):
            done = await trio.run_process(command, stdin=question, capture_stdout=True, stderr=subprocess.DEVNULL)
        answers = JOURNAL.read(json.loads(done.stdout), Answers)
    except (OSError, subprocess.CalledProcessError, trio.TooSlowError, ValueError) as error:
        raise NoPriceList(f"the price list did not answer ({error_class(error)})") from error
    if len(answers) != len(wanted):
        raise NoPriceList("the price list gave another number of answers")
    return answers


def answer(wanted: Sequence[WantedPrice]) -> Answers:
    """Imports the library. Raises ImportError."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    return [_find(snapshot, each) for each in wanted]


def _find(snapshot: Any, wanted: WantedPrice) -> ListedPrices | None:
    try:
        provider = snapshot.find_provider(None, wanted.service, wanted.api_url)
    except LookupError:
        return None
    model = wanted.model
    free = provider.id == "openrouter" and model.endswith(FREE_VARIANT)
    found = provider.find_model(model.removesuffix(FREE_VARIANT) if free else model, all_providers=snapshot.providers)
    if found is None:
        return None
    if free:
        periods = [PricePeriod(prices=FREE)]
    elif isinstance(found.prices, list):
        periods = [PricePeriod(**_hours(each.constraint), prices=_prices(each.prices)) for each in found.prices]
    else:
        periods = [PricePeriod(prices=_prices(found.prices))]
    return ListedPrices(context_tokens=found.context_window, periods=tuple(periods))


def _hours(constraint: Any) -> dict[str, Any]:
    if constraint is None:
        return {}
    if hasattr(constraint, "start_date"):
        return {"from_date": constraint.start_date.isoformat()}
    times = (constraint.start_time, constraint.end_time)
    begin, end = (
        (dt.datetime.combine(dt.date(2000, 1, 1), time) - (time.utcoffset() or dt.timedelta())) for time in times
    )
    return {"from_time": begin.time().isoformat(), "until_time": end.time().isoformat()}


def _prices(prices: Any) -> Prices | None:
    if prices.requests_kcount is not None:
        return None
    price = _rate(prices.input_mtok)
    if price is None:
        return None
    output = _rate(prices.output_mtok) or FREE.output  # models that only read, for instance for embeddings
    cached, written = _rate(prices.cache_read_mtok), _rate(prices.cache_write_mtok)
    return Prices(input=price, output=output, cached_input=cached, cache_write=written)


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", ())
    return Rate(getattr(price, "base", price), tuple(Tier(tier.start, tier.price) for tier in tiers))


if __name__ == "__main__":
    json.dump(JOURNAL.write(answer(JOURNAL.read(json.load(sys.stdin), list[WantedPrice]))), sys.stdout)
