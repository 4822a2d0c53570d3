"""What a model's tokens cost, and what a call comes to. Pure."""

from decimal import ROUND_HALF_EVEN, Decimal

import attrs

from klaw.domain.usage import Spent
from klaw.llm.types import Usage

_NANO_PER_TOKEN = Decimal(1000)
"""Nano-dollars a token at a price of one dollar a million."""
_MOST_TOKENS = 10_000_000
"""No call has more: what a provider reports beyond it is nonsense, and would make sums overflow."""


@attrs.frozen
class Rate:
    """Dollars for a million tokens: ``base``, and other prices for calls with more prompt tokens than a bound."""

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()
    """(more prompt tokens than this, price), ascending."""

    def of(self, prompt_tokens: int) -> Decimal:
        """The price in a call with so many prompt tokens."""
        reached = [price for bound, price in self.tiers if prompt_tokens > bound]
        return reached[-1] if reached else self.base


@attrs.frozen(kw_only=True)
class Prices:
    """What a model costs. Without a price of its own, what is read from or written to a cache costs like the rest."""

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None


FREE = Prices(input=Rate(Decimal(0)), output=Rate(Decimal(0)))


def cost_nano(usage: Usage, prices: Prices) -> int:
    """What a call costs in nano-dollars."""
    usage = plausible(usage)
    prompt, cached, written = usage.prompt_tokens, usage.cached_tokens or 0, usage.cache_write_tokens or 0
    dollars_by_million = (
        (prompt - cached - written) * prices.input.of(prompt)
        + cached * (prices.cached_input or prices.input).of(prompt)
        + written * (prices.cache_write or prices.input).of(prompt)
        + usage.completion_tokens * prices.output.of(prompt)
    )
    return int((dollars_by_million * _NANO_PER_TOKEN).to_integral_value(rounding=ROUND_HALF_EVEN))


def plausible(usage: Usage) -> Usage:
    """The counts of a provider without nonsense: none is negative, and the parts of the prompt fit into it."""
    prompt = _count(usage.prompt_tokens)
    cached = min(prompt, _count(usage.cached_tokens))
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(usage.completion_tokens),
        cached_tokens=cached,
        cache_write_tokens=min(prompt - cached, _count(usage.cache_write_tokens)),
    )


def _count(tokens: int | None) -> int:
    return min(_MOST_TOKENS, max(0, tokens or 0))


def spent_of(usage: Usage, prices: Prices | None, *, estimated: bool = False) -> Spent:
    """One call. ``prices`` None: they are not known."""
    usage = plausible(usage)
    tokens = usage.prompt_tokens + usage.completion_tokens
    return Spent(
        calls=1,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        cost_nano=cost_nano(usage, prices) if prices is not None else 0,
        unpriced_calls=int(prices is None),
        unpriced_tokens=tokens if prices is None else 0,
        estimated_calls=int(estimated),
    )
