"""What calls to models used: tokens by kind and cost. Pure.

Money is counted in whole nano-dollars (a billionth of a US dollar): a token of a model that costs 0.001 dollars a
million is one of them, so sums are exact."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

NANO = 1_000_000_000


@attrs.frozen(kw_only=True)
class UsageSum:
    """What some calls used together. ``UsageSum()`` is nothing."""

    calls: int = 0
    prompt_tokens: int = 0
    """Whole prompts, whether cached or not."""
    completion_tokens: int = 0
    cached_tokens: int = 0
    """The part of the prompts that was read from the provider's cache."""
    cache_write_tokens: int = 0
    cost_nano: int = 0
    """Nano-dollars; without the calls whose price is not known."""
    unpriced_calls: int = 0
    unpriced_tokens: int = 0
    """Their prompt and completion tokens."""
    estimated_calls: int = 0
    """Calls whose tokens are an estimate: they were stopped half-way, or the provider did not count."""

    def __add__(self, other: "UsageSum") -> "UsageSum":
        mine, others = attrs.astuple(self), attrs.astuple(other)
        return UsageSum(**dict(zip(FIELDS, (a + b for a, b in zip(mine, others, strict=True)), strict=True)))

    @property
    def cost_usd(self) -> float:
        return self.cost_nano / NANO


FIELDS = tuple(field.name for field in attrs.fields(UsageSum))


def add(spent: Iterable[UsageSum]) -> UsageSum:
    return sum(spent, UsageSum())


def record(by_model: Mapping[str, UsageSum]) -> dict[str, Any]:
    """What a turn or a run keeps of its calls, as JSON: the sums, and the same for each model, the first to answer
    first."""
    if not by_model:
        return {}
    parts = [{"model": model, **attrs.asdict(spent)} for model, spent in by_model.items()]
    return {**attrs.asdict(add(by_model.values())), "models": parts}


def dollars(nano: int) -> str:
    """An amount for people: cents from a dollar on, else four digits that matter; never ``$0`` for something."""
    amount = nano / NANO
    if nano == 0 or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.0001 else "under $0.0001"
