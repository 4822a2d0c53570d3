"""Metering: every call to a model is checked against the daily limits before it is sent, and counted and priced after.

A piece of work (a turn, a run, a step in the background) has one ``Meter``. It wraps the routes of the work, so whoever
calls the provider of a wrapped route need not think of money.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from klaw.domain import tokens, usage
from klaw.domain.usage import Spent
from klaw.errors import OverBudget
from klaw.llm.adapt import estimate_tokens
from klaw.llm.budget import Budget, Refused, Reservation
from klaw.llm.dialect import EmptyAnswer
from klaw.llm.prices import spent_of
from klaw.llm.provider import OnDelta, Provider
from klaw.llm.registry import Registry
from klaw.llm.router import Route
from klaw.llm.types import Completion, Delta, Request, Unanswered, Usage


@attrs.frozen(kw_only=True)
class Accounts:
    """What all metering shares."""

    registry: Registry
    budget: Budget

    def meter(self) -> "Meter":
        """A meter for one piece of work."""
        return Meter(self)


class Meter:
    """What one piece of work has used so far."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._by_model: dict[str, Spent] = {}

    def wrap(self, route: Route) -> Route:
        """The route with a provider that counts here. Calls of it raise OverBudget, before anything is sent, when they
        could pass a daily limit."""
        return attrs.evolve(route, provider=_Metered(route, self._accounts, self))

    def add(self, model: str, spent: Spent) -> None:
        """Count a call. ``model`` is ``provider/model``."""
        self._by_model[model] = self._by_model.get(model, Spent()) + spent

    @property
    def spent(self) -> Spent:
        """All of it together."""
        return usage.add(self._by_model.values())

    def record(self) -> dict[str, Any]:
        """What ``TurnRecord.usage``, or ``usage`` in ``Run.details``, keeps of it. Empty when there was no call."""
        return usage.record(self._by_model)


class _Metered:
    """See ``klaw.llm.provider.Provider``."""

    def __init__(self, route: Route, accounts: Accounts, meter: Meter) -> None:
        self._route = route
        self._inner: Provider = route.provider
        self._accounts = accounts
        self._meter = meter

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``. A call that is torn half-way counts with an estimate of what was made until then,
        one without an answer with what the provider counted.

        Raises:
            OverBudget: a daily limit could be passed; nothing was sent.
        """
        await self._accounts.registry.know(*self._names())
        prompt_tokens = estimate_tokens(request) + _tools_tokens(request)
        reservation = self._reserve(request, prompt_tokens)
        written: list[str] = []

        def relay(delta: Delta) -> None:
            written.append(delta.text)
            on_delta(delta)

        def estimated() -> Usage:
            return Usage(prompt_tokens=prompt_tokens, completion_tokens=tokens.estimate("".join(written)))

        try:
            completion = await self._inner.stream(request, relay)
        except EmptyAnswer as error:
            self._count_unanswered(error.calls, estimated())
            self._count(reservation, self._route.name, None, estimated=True)
            raise
        except BaseException:
            self._count(reservation, self._route.name, estimated() if written else None, estimated=True)
            raise
        asked_only = Usage(prompt_tokens=prompt_tokens, completion_tokens=0)
        self._count_unanswered(completion.unanswered, asked_only)
        counted = completion.usage
        self._count(
            reservation, completion.model or self._route.name, counted or estimated(), estimated=counted is None
        )
        return completion

    async def aclose(self) -> None:
        """Does nothing: the provider belongs to the router."""

    # -- inside ----------------------------------------------------------------------------------------------------

    def _reserve(self, request: Request, prompt_tokens: int) -> Reservation:
        route = self._route
        most = request.max_tokens if request.max_tokens is not None else route.max_output_tokens
        worst = self._worst(Usage(prompt_tokens=prompt_tokens, completion_tokens=most))
        reserved = self._accounts.budget.reserve(worst)
        if isinstance(reserved, Refused):
            raise OverBudget(reserved.text)
        return reserved

    def _worst(self, most: Usage) -> Spent:
        """The dearest that a call may be, whichever model of the route answers."""
        by_model = [spent_of(most, self._accounts.registry.facts(name).prices) for name in self._names()]
        return Spent(
            cost_nano=max(spent.cost_nano for spent in by_model),
            unpriced_tokens=max(spent.unpriced_tokens for spent in by_model),
        )

    def _names(self) -> tuple[str, ...]:
        return (self._route.name, *self._route.fallback)

    def _count_unanswered(self, calls: Sequence[Unanswered], estimate: Usage) -> None:
        """Count calls that brought nothing; those that no provider counted with an estimate."""
        for call in calls:
            model, used = call.model or self._route.name, call.usage or estimate
            prices = self._accounts.registry.facts(model).prices
            spent = spent_of(used, prices, estimated=call.usage is None)
            self._accounts.budget.charge(spent)
            self._meter.add(model, spent)

    def _count(self, reservation: Reservation, model: str, used: Usage | None, *, estimated: bool) -> None:
        if used is None:
            reservation.settle(Spent())
            return
        spent = spent_of(used, self._accounts.registry.facts(model).prices, estimated=estimated)
        reservation.settle(spent)
        self._meter.add(model, spent)


def _tools_tokens(request: Request) -> int:
    """About how many tokens the offered tools take."""
    return sum(tokens.estimate(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.tools)
