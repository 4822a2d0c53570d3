"""The one way to ask a model: a call is checked against the daily limits, goes through the models of its route until
one answers, and is counted and priced. A piece of work (a turn, a run, a step in the background) has one ``Meter``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.domain import tokens, usage
from klaw.domain.message import ThinkingLevel
from klaw.domain.names import ChatId, UserId
from klaw.domain.usage import UsageSum
from klaw.errors import KlawError
from klaw.llm.budget import DailyBudget
from klaw.llm.endpoint import ModelEndpoint
from klaw.llm.errors import BadCall, ContextTooLong, ProviderError
from klaw.llm.local_model import ACTOR_NAME, LocalModel, LocalProcess, LocalProvider
from klaw.llm.prices import spent_of
from klaw.llm.providers.adapt import fitted, request_tokens, tools_tokens
from klaw.llm.providers.dialect import EmptyAnswer
from klaw.llm.registry import Registry, Try
from klaw.llm.router import Router, Task
from klaw.llm.slots import Slots
from klaw.llm.types import Completion, Delta, Model, OnDelta, ReasoningDelta, Request, Route, Usage
from klaw.store.engine import meta
from klaw.store.engine.writer import Writer
from klaw.store.kinds import usage as stored_usage
from klaw.store.kinds.usage import UsageFilters

T = TypeVar("T")

WRITE_S = 5.0
"""Longest wait for the note on what was spent, while everything ends."""

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class LlmClient:
    router: Router
    registry: Registry
    budget: DailyBudget
    slots: Slots

    @property
    def temperature(self) -> float | None:
        """What questions in the background are asked with."""
        return None

    def meter(self) -> "Meter":
        return Meter(self)

    async def route(
        self,
        name: str | None = None,
        *,
        key: str = "routing.default",
        task: Task = "chat",
        thinking: ThinkingLevel | None = None,
    ) -> Route:
        """``Router.route``, when its models are known: of one that was never used, the service is asked first."""
        find = partial(self.router.route, name, key=key, task=task, thinking=thinking)
        route = find()
        asked = await self.registry.know(*(model.name for model in (route, *route.stand_ins)), hurry=True)
        return find() if asked else route


class Meter:
    def __init__(self, client: LlmClient) -> None:
        self._registry = client.registry
        self._budget = client.budget
        self._by_model: dict[str, UsageSum] = {}

    async def stream(self, route: Route, request: Request, on_delta: OnDelta) -> Completion:
        """Send a request and pass on the answer as it arrives. When a model fails before the first delta, the next one
        of the route is asked with the request adapted to it. A torn call is counted by an estimate.

        Raises:
            OverBudget: nothing was sent.
            ContextTooLong: of the first model, or of another one, with its context length; a shorter prompt goes
                through the route from its beginning.
            ProviderError: all failed; the first model's error.
        """
        models: tuple[Model, ...] = (route, *route.stand_ins)
        await self._registry.know(*(model.name for model in models), hurry=True)
        prompt = request_tokens(request.messages) + tools_tokens(request.tools)
        most = request.max_tokens if request.max_tokens is not None else route.max_output_tokens
        most += max(model.thinking_tokens for model in models)
        errors: list[ProviderError] = []
        with self._budget.reserved(self._worst(models, Usage(prompt_tokens=prompt, completion_tokens=most))):
            for place, model in enumerate(models):
                written: list[str] = []
                try:
                    own = fitted(request, model, stands_in=place > 0)
                    return await self._call(model, own, prompt, on_delta, written)
                except ContextTooLong as error:
                    self._registry.failed_with(model.name, error)
                    if place and error.context_tokens is None:
                        error.context_tokens = model.context_tokens
                    raise
                except ProviderError as error:
                    self._registry.failed_with(model.name, error)
                    if written or isinstance(error, BadCall):  # the model is told of a bad call
                        raise
                    errors.append(error)
                    if place + 1 < len(models):
                        log.warning("llm_fallback", model=model.name, code=error.code, attempt=place)
        raise errors[0]

    async def post(
        self,
        endpoint: ModelEndpoint,
        members: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], T],
        *,
        prompt_tokens: int,
        within_s: float,
    ) -> T:
        """``ModelEndpoint.post``, counted where its price is known. Raises OverBudget: nothing was sent."""
        return await self.counted(endpoint.name, partial(endpoint.post, members, read, within_s), prompt_tokens)

    async def counted(self, name: str, ask: Callable[[], Awaitable[tuple[T, Usage | None]]], prompt_tokens: int) -> T:
        """What ``ask`` gives beside what the provider counted; where that is nothing, ``prompt_tokens`` count. Nothing
        is counted where the price of the model (``provider/model``) is unknown. Raises OverBudget: nothing was sent."""
        prices = self._registry.facts(name).prices
        estimate = Usage(prompt_tokens=prompt_tokens, completion_tokens=0)
        with self._budget.reserved(spent_of(estimate, prices) if prices is not None else UsageSum()):
            try:
                outcome, used = await ask()
            except trio.Cancelled:  # nobody waits for it any more, but it was sent and costs
                if prices is not None:
                    self.count(name, estimate, estimated=True)
                raise
        if prices is not None:
            self.count(name, used or estimate, estimated=used is None)
        return outcome

    def count(self, model: str, used: Usage, *, estimated: bool) -> None:
        """``model`` is ``provider/model``."""
        spent = spent_of(used, self._registry.facts(model).prices, estimated=estimated)
        self._budget.charge(spent)
        self._by_model[model] = self._by_model.get(model, UsageSum()) + spent

    @property
    def spent(self) -> UsageSum:
        return usage.add(self._by_model.values())

    def record(self) -> dict[str, Any]:
        """For ``TurnRecord.usage`` and ``usage`` in ``Run.details``. Empty when there was no call."""
        return usage.record(self._by_model)

    def take(self) -> dict[str, Any]:
        """``record``, and begin at zero."""
        record = self.record()
        self._by_model.clear()
        return record

    async def _call(
        self, model: Model, request: Request, prompt_tokens: int, on_delta: OnDelta, written: list[str]
    ) -> Completion:
        """Call a model, and count it however it ends. ``written`` gets the text that was passed on."""

        def relay(delta: Delta) -> None:
            if isinstance(delta, ReasoningDelta):
                self._registry.has_thought(model.name)
            written.append(delta.text)
            on_delta(delta)

        def count(name: str, used: Usage | None) -> None:
            estimate = Usage(prompt_tokens=prompt_tokens, completion_tokens=tokens.estimate("".join(written)))
            self.count(name, used or estimate, estimated=used is None)

        try:
            completion = await model.provider.stream(request, relay)
        except EmptyAnswer as error:  # costs like any other
            count(model.name, error.usage)
            raise
        except BaseException:
            if written:
                count(model.name, None)
            raise
        count(completion.model or model.name, completion.usage)
        self._registry.answered(model.name)
        return completion

    def _worst(self, models: Sequence[Model], most: Usage) -> UsageSum:
        spent = [spent_of(most, self._registry.facts(model.name).prices) for model in models]
        dearest, longest = max(each.cost_nano for each in spent), max(each.unpriced_tokens for each in spent)
        return UsageSum(cost_nano=dearest, unpriced_tokens=longest)


async def note_spending(
    record: Mapping[str, Any], writer: Writer, at: str, source: str, user: UserId, chat: ChatId | None = None
) -> None:
    """Keep what a piece of work has spent (``Meter.record``), if it was anything; also when cancelled, for which it
    waits up to ``WRITE_S``."""
    if not (models := record.get("models")):
        return
    with trio.move_on_after(WRITE_S, shield=True) as scope:
        try:
            await writer.run(stored_usage.note_spent, source, user, chat, models, at)
        except KlawError as error:  # the daily limit has it; only a restart would forget it
            log.warning("spending_not_noted", error=error_class(error), name=source)
    if scope.cancelled_caught:  # it may be stored all the same
        log.warning("spending_not_noted", error="TooSlow", name=source)


CORRECTION_TURNS = 200
SMOOTHING = 0.3
LOWEST, HIGHEST = 0.5, 16.0
OVERFLOW_SHARE = 0.7
"""After a refusal the next prompt has at most this share of the refused one."""


class TokenCorrection:
    """Corrects token estimates by the counts of providers, with a moving average for each model."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def of(self, model: str) -> float:
        return self._ratios.get(model, 1.0)

    def seed(self, ratios: Mapping[str, float]) -> None:
        """Begin with what was known before a restart; what was learned since then counts more."""
        self._ratios = {model: _bounded(ratio) for model, ratio in ratios.items()} | self._ratios

    def learn(self, model: str, *, estimated: int, reported: int) -> None:
        if estimated > 0 and reported > 0:
            ratio = _bounded(reported / estimated)
            known = self._ratios.get(model)
            self._ratios[model] = ratio if known is None else known + SMOOTHING * (ratio - known)

    def overflowed(self, model: str, *, refused: int, usable: int) -> None:
        """A prompt was too long: make the next one shorter. In estimated tokens: ``refused`` is that prompt, ``usable``
        what was planned for it (``Budget.usable``)."""
        shorter = max(1.0, refused * OVERFLOW_SHARE)
        self._ratios[model] = _bounded(self.of(model) * max(1.0, usable / shorter))


def _bounded(ratio: float) -> float:
    return min(HIGHEST, max(LOWEST, ratio))


@attrs.frozen(kw_only=True)
class Llm(LlmClient):
    core: Core
    local: LocalModel
    correction: TokenCorrection = attrs.Factory(TokenCorrection)

    async def remember(self) -> None:
        """Load from the store what was spent today, the corrections of token estimates, and what is known of models."""
        budget, readers = self.budget, self.core.readers
        today = budget.today()
        budget.restore(today, await readers.run(stored_usage.total, UsageFilters(since=today)))
        self.correction.seed(await readers.run(stored_usage.corrections, CORRECTION_TURNS))
        await self.registry.restore(await readers.run(meta.with_prefix, meta.MODELS))

    @property
    def temperature(self) -> float | None:
        return self.core.config.llm.temperature

    async def start(self, try_model: Try) -> None:
        """Start the local model, if a route leads to it, look up the secrets of the routes, and ask services."""
        await self._start_local()
        await self.router.prepare()
        await self.core.supervisor.start(self.registry.spec(try_model))

    async def _start_local(self) -> None:
        if self.router.uses_local and not self.core.supervisor.alive(ACTOR_NAME):
            process = LocalProcess(self.core.config.local_model, self.core.paths.models_dir, self.local)
            await self.core.supervisor.start(process.spec())

    async def settings_changed(self, before: EngineConfig) -> None:
        """Go by the settings in effect; answers of providers that are under way come to their end."""
        now = self.core.config
        self.budget.limit(now.llm.daily_budget, now.llm.daily_tokens, now.llm.budget_warn_share)
        self.slots.resize(now.processing.max_concurrent_llm)
        local = now.local_model != before.local_model or not self.router.uses_local
        if local:
            await self.core.supervisor.stop(ACTOR_NAME, "its settings were changed, or nothing uses it any more")
        await self.router.renew({*before.providers, *now.providers}, local=local)
        if now.providers != before.providers:
            self.registry.forget()
        await self._start_local()
        await self.router.prepare()

    def local_problems(self) -> Mapping[str, str]:
        if not self.router.uses_local:
            return {}
        return self.local.problems(only=self.core.config.routing.default_provider == LOCAL_PROVIDER)

    async def stop(self) -> None:
        await self.core.supervisor.stop(self.registry.ACTOR, "shutdown")
        await self.core.supervisor.stop(ACTOR_NAME, "shutdown")
        await self.router.aclose()


def build(core: Core) -> Llm:
    config, local = core.live(lambda settings: settings), LocalModel()

    async def save(provider: str, known: str) -> None:
        await core.writer.run(lambda tx: meta.put(tx.connection, f"{meta.MODELS}{provider}", known))

    registry = Registry(config, core.clock, save)
    router = Router(config, lambda: LocalProvider(local, ready_within_s=config.local_model.start_timeout_s), registry)
    limits = config.llm
    budget = DailyBudget(limits.daily_budget, limits.daily_tokens, limits.budget_warn_share, core.clock)
    core.health.add(router.problems, budget.problems, registry.problems)
    llm = Llm(
        core=core,
        local=local,
        router=router,
        registry=registry,
        budget=budget,
        slots=Slots(config.processing.max_concurrent_llm),
    )
    core.health.add(llm.local_problems)
    core.changing.told.append(llm.settings_changed)
    return llm


def without_server(
    config: EngineConfig, clock: Clock, *, budget: DailyBudget | None = None, local: LocalModel | None = None
) -> LlmClient:
    """For what is done apart from the server's routes: nothing is stored. Without a ``budget`` there are no limits."""
    registry, model = Registry(config, clock), local or LocalModel()
    ready_within_s = config.local_model.start_timeout_s if local is not None else 0.0
    return LlmClient(
        router=Router(config, lambda: LocalProvider(model, ready_within_s=ready_within_s), registry),
        registry=registry,
        budget=budget or DailyBudget(None, None, 1.0, clock),
        slots=Slots(1),
    )
