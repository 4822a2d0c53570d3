"""The parts of the side of models: who answers, what it costs, and who waits for it."""

from functools import partial

import attrs

from klaw.config.llm import LOCAL_PROVIDER
from klaw.core import Core
from klaw.llm.budget import Budget
from klaw.llm.client import LlmClient
from klaw.llm.correction import TokenCorrection
from klaw.llm.local.process import LocalProcess
from klaw.llm.local.provider import LocalModel, LocalProvider
from klaw.llm.registry import Registry
from klaw.llm.router import Router
from klaw.llm.slots import Slots
from klaw.store.kinds import usage
from klaw.store.kinds.usage import UsageFilters

CORRECTION_TURNS = 200
"""The newest turns, from which the corrections of token estimates are taken at the start."""


@attrs.frozen(kw_only=True)
class Llm(LlmClient):
    """See ``build``."""

    core: Core
    local: LocalModel
    correction: TokenCorrection = attrs.Factory(TokenCorrection)

    async def remember(self) -> None:
        """Take over from the store what was spent today, and how far off token estimates were."""
        budget, readers = self.budget, self.core.readers
        today = budget.today()
        budget.restore(today, await readers.run(usage.total, UsageFilters(since=today)))
        self.correction.seed(await readers.run(usage.corrections, CORRECTION_TURNS))

    async def start(self) -> None:
        """Start the local model, if a route leads to it; load what the routes need."""
        if self.router.uses_local:
            process = LocalProcess(self.core.config.local_model, self.core.paths.models_dir, self.local)
            await self.core.supervisor.start(process.spec())
        await self.router.prepare()

    async def stop(self) -> None:
        """Stop it; nobody asks any more."""
        await self.core.supervisor.stop("llm.local", "shutdown")
        await self.router.aclose()


def build(core: Core) -> Llm:
    """Make the parts; nothing runs yet."""
    config, local = core.config, LocalModel()
    registry = Registry(config, core.clock)
    ready_s = config.local_model.start_timeout_s
    router = Router(config, lambda: LocalProvider(local, ready_within_s=ready_s), registry.context_tokens)
    limits = config.llm
    budget = Budget(limits.daily_budget, limits.daily_tokens, limits.budget_warn_share, core.clock)
    core.health.add(router.problems, budget.problems, registry.problems)
    if router.uses_local:
        core.health.add(partial(local.problems, only=config.routing.default_provider == LOCAL_PROVIDER))
    return Llm(
        core=core,
        local=local,
        router=router,
        registry=registry,
        budget=budget,
        slots=Slots(config.processing.max_concurrent_llm),
    )
