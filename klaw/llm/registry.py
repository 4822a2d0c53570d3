"""What is known of all models, also of those that nobody has configured: the configuration wins, then what a tiny call
showed, then what the service says, then the price list. What was learned is kept in the database, so that it counts
while the service cannot be reached. Services are asked when they are first used, once a day, and after an error that a
changed model would explain."""

import datetime as dt
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, from_iso, iso
from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config.llm import LOCAL_PROVIDER, ProviderConfig, ProviderModelConfig
from klaw.config.schema import EngineConfig
from klaw.config.services import ANTHROPIC_URL, is_near
from klaw.errors import ConfigError, NoPriceList
from klaw.llm.discovery import DiscoveredService, discover
from klaw.llm.errors import ContextTooLong, ProviderError, ProviderRefused
from klaw.llm.facts import FactOrigin, ModelFacts, configured, merged
from klaw.llm.prices import FREE, ListedPrices, Prices, WantedPrice, look_up
from klaw.llm.provider_record import ProviderRecord, read_records, record_text, secrets_of
from klaw.llm.providers.adapt import Habits
from klaw.llm.providers.thinking_members import is_known_thinker

if TYPE_CHECKING:
    from klaw.llm.facts import ModelCheck

MAX_REMEMBERED = 512
"""People try names."""
DAY_S = 86_400.0
LOOK_S = 3_600.0
"""Between two looks whether a service is due, also one that did not answer."""
DOUBT_S = 60.0
"""A service is not asked again sooner, whatever fails."""
HURRY_S = 3.0
"""A turn waits no longer for a service that was never asked."""
TRIED_FOR_S = 30 * DAY_S
"""After this time what was tried or refused counts no more."""
_CHANGED = frozenset({400, 404, 422})
_CONFIG, _DEFAULT, _PRICES = FactOrigin(source="config"), FactOrigin(source="default"), FactOrigin(source="prices")

log = structlog.get_logger("klaw.llm")


Save: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Keeps what is known of a provider, by its name."""
Try: TypeAlias = Callable[[str, Sequence[str]], Awaitable["Sequence[ModelCheck]"]]
"""Finds out by tiny calls whether ``provider/model`` takes ``tools`` or ``images``."""


class Registry:
    ACTOR = "llm.models"

    def __init__(self, config: EngineConfig, clock: Clock, save: Save | None = None) -> None:
        self._config = config
        self._clock = clock
        self._save = save
        self._lock = trio.Lock()
        self._threads = Threads("secrets", 1)
        self._listed: dict[str, ListedPrices | None] = {}
        self._records: dict[str, ProviderRecord] = {}
        self._asking: dict[str, trio.Lock] = {}
        self._asked_at: dict[str, float] = {}
        """When a service was last asked in this run, with or without an answer (Trio's time)."""
        self._tried_at: dict[str, float] = {}
        self._thinkers: set[str] = set()
        """Those that sent thinking in this run."""
        self._doubted: set[str] = set()
        self._unsaved: set[str] = set()
        self._wanted = trio.Event()
        self.failed = False
        self.errors: dict[str, str] = {}
        """Why a service could not be asked the last time, by provider, for the operator."""

    async def restore(self, kept: Mapping[str, str]) -> None:
        """Take what an earlier run has kept."""
        oldest = iso(self._clock.now() - TRIED_FOR_S)
        self._records |= await self._threads.run(read_records, kept, oldest)

    async def know(self, *names: str, hurry: bool = False) -> bool:
        """Ask for ``provider/model`` who may know more than the configuration: the service, if it was never asked, and
        the price list. First it takes seconds; in a ``hurry`` a service is waited for only where nothing is known, for
        ``HURRY_S``, and asked again in the background. Returns whether anybody was asked."""
        asked = [name for name in names if not (hurry and self._is_told(name))]
        new = [each for each in dict.fromkeys(name.partition("/")[0] for name in asked) if self._is_new(each)]
        for provider in new:
            with trio.move_on_after(HURRY_S if hurry else math.inf) as waiting:
                await self._ask(provider, only_new=True)
            if waiting.cancelled_caught:
                self._asked_at.setdefault(provider, trio.current_time())
                self._doubt(provider)
        if not self._unknown(names):
            return bool(new)
        async with self._lock:
            wanted = self._unknown(names)
            found: Sequence[ListedPrices | None] = [None] * len(wanted)
            try:
                if wanted:
                    found = await look_up(list(wanted.values()))
                    self.failed = False
            except NoPriceList as error:
                self.failed = True
                log.warning("prices_not_found", error=error_class(error), reason=str(error))
            if len(self._listed) + len(found) > MAX_REMEMBERED:
                self._listed.clear()
            self._listed |= zip(wanted, found, strict=True)
        return True

    def forget(self) -> None:
        """Providers have changed: look up again what the price list has."""
        self._listed.clear()
        self._asked_at = {name: at for name, at in self._asked_at.items() if self.service(name) is not None}
        self._wanted.set()

    def problems(self) -> Mapping[str, str]:
        text = "the price list could not be read: costs are known only where prices are configured"
        return {"no_price_list": text} if self.failed else {}

    def facts(self, name: str) -> ModelFacts:
        """What is known of ``provider/model``."""
        provider = name.partition("/")[0]
        if provider == LOCAL_PROVIDER:
            local = self._config.local_model
            return ModelFacts(
                name=name,
                context_tokens=local.context_tokens,
                output_tokens=local.max_reply_tokens,
                tools=local.tools,
                images=False,
                thinking=name in self._thinkers or is_known_thinker(name) or None,
                prices=FREE,
            ).dated(_CONFIG)
        settings = self._config.providers.get(provider)
        if settings is None:
            return ModelFacts(name=name)
        (record, model), own, said = self._of(name), self._own(name), self._said(name)
        longest = said.longest_context if said is not None and self.loads_context(name) else None
        if longest is not None and own is not None and own.context_tokens is not None:
            own = attrs.evolve(own, context_tokens=min(own.context_tokens, longest))  # it is loaded with no more
        images = True if settings.type == "anthropic" and settings.base_url is None else None
        assumed = ModelFacts(name=name, images=images, thinking=is_known_thinker(model) or None).dated(_DEFAULT)
        told = configured(own).dated(_CONFIG) if own is not None else None
        return merged(name, filter(None, (told, record.tried.get(model), said, self._from_list(name), assumed)))

    def charged(self, name: str) -> Prices | None:
        """What a person pays; nothing for a service at home that wants no key and tells no prices. Limits count such a
        model as one of unknown price: it may be a proxy."""
        settings, told = self._config.providers.get(name.partition("/")[0]), self.facts(name).prices
        free = settings is not None and settings.api_key is None and is_near(_address(settings))
        return told or (FREE if free else None)

    def context_tokens(self, name: str) -> int:
        """Context length to plan with: ``context.defaultBudgetTokens`` where it is not known."""
        return self.facts(name).context_tokens or self._config.context.default_budget_tokens

    def loads_context(self, name: str) -> bool:
        """Whether the service is asked to load the model with the configured context."""
        service, own = self.service(name.partition("/")[0]), self._own(name)
        return service is not None and service.service == "ollama" and own is not None and bool(own.context_tokens)

    def service(self, provider: str) -> DiscoveredService | None:
        """What the service said the last time."""
        return self._record(provider).service

    def left_out(self, name: str) -> tuple[str, ...]:
        """What ``provider/model`` is asked without, because it refuses it."""
        record, model = self._of(name)
        return record.habits[model].told() if model in record.habits else ()

    # -- learning ------------------------------------------------------------------------------------------------------

    def habits(self, provider: str) -> dict[str, Habits]:
        """What its models were found to take, to be changed by who asks them (then ``note_habits``)."""
        return self._record(provider).habits

    def note_habits(self, provider: str) -> None:
        now, habits = iso(self._clock.now()), self.habits(provider)
        habits |= {model: attrs.evolve(each, at=now) for model, each in habits.items() if not each.at}
        self._keep_soon(provider)

    def learn(self, provider: str, found: DiscoveredService) -> None:
        """Take what a service said."""
        self._record(provider).service = found
        self._keep_soon(provider)

    def _keep_soon(self, provider: str) -> None:
        self._unsaved.add(provider)
        self._wanted.set()

    def unlearn(self, name: str) -> None:
        """Forget what a model was found to refuse: it is tried anew."""
        record, model = self._of(name)
        record.habits.pop(model, None)

    def has_thought(self, name: str) -> None:
        """A model sent thinking."""
        if name not in self._thinkers and len(self._thinkers) < MAX_REMEMBERED:
            self._thinkers.add(name)
            self._note(name, {"thinking": True})

    def note_checks(self, name: str, checks: "Sequence[ModelCheck]") -> None:
        """Take what tiny calls showed. A model that only did not want to call a tool may still be able to."""
        found, said = {_CHECKED[each.name]: each for each in checks if each.name in _CHECKED}, self._said(name)
        is_said = said.known() if said is not None else ()
        self._note(name, {field: each.found for field, each in found.items() if each.sure or field not in is_said})

    def _note(self, name: str, found: Mapping[str, bool | None]) -> None:
        record, model = self._of(name)
        known: dict[str, Any] = {field: each for field, each in found.items() if each is not None}
        if known:
            tried = attrs.evolve(record.tried.get(model, ModelFacts(name=model)), **known, origins={})
            record.tried[model] = tried.dated(FactOrigin(source="tried", at=iso(self._clock.now())))
            self._keep_soon(name.partition("/")[0])

    def answered(self, name: str) -> None:
        """A call went well: what is only assumed of a model that was not loaded can be asked now, and what nobody says
        of one that was not used before can be tried."""
        said, facts = self._said(name), self.facts(name)
        if said is not None and said.origins.get("context_tokens") == _DEFAULT:
            self._doubt(name)
        if None in (facts.tools, facts.images) and name not in self._tried_at:
            self._wanted.set()

    def failed_with(self, name: str, error: ProviderError) -> None:
        """A call failed: perhaps the model has changed."""
        if isinstance(error, ContextTooLong) or (isinstance(error, ProviderRefused) and error.status in _CHANGED):
            self._doubt(name)

    def _doubt(self, name: str) -> None:
        if (provider := name.partition("/")[0]) in self._config.providers:
            self._doubted.add(provider)
            self._wanted.set()

    # -- asking --------------------------------------------------------------------------------------------------------

    def spec(self, try_model: Try) -> ActorSpec:
        """The actor that asks services anew, and tries the models in use where these say too little."""

        async def run(vitals: Vitals, task_status: TaskStarted) -> None:
            task_status.started()
            while True:
                self._wanted = trio.Event()
                for provider in filter(self._is_due, list(self._config.providers)):
                    vitals.doing("asking a service")
                    await self._ask(provider)
                for name, abilities in self._untried().items():
                    vitals.doing("trying a model")
                    self._tried_at[name] = trio.current_time()
                    self.note_checks(name, await try_model(name, abilities))
                for provider in list(self._unsaved):
                    await self._keep(provider)
                vitals.doing("idle")
                with trio.move_on_after(DOUBT_S if self._doubted else LOOK_S):
                    await self._wanted.wait()

        return ActorSpec(name=self.ACTOR, run=run, stop_budget_s=1)

    def _is_new(self, provider: str) -> bool:
        is_asked = provider in self._asked_at or self.service(provider) is not None
        return provider in self._config.providers and not is_asked

    def _is_due(self, provider: str) -> bool:
        at, service = self._asked_at.get(provider), self.service(provider)
        if at is None:
            is_old = service is None or self._clock.now() - from_iso(service.at) >= DAY_S
            return is_old or provider in self._doubted
        wait_s = DOUBT_S if provider in self._doubted else LOOK_S if provider in self.errors else DAY_S
        return trio.current_time() - at >= wait_s

    async def _ask(self, provider: str, *, only_new: bool = False) -> None:
        async with self._asking.setdefault(provider, trio.Lock()):
            settings = self._config.providers.get(provider)
            if settings is None or (only_new and provider in self._asked_at):
                return
            try:
                key, headers = await self._threads.run(secrets_of, provider, settings, abandon=True)
                service = "anthropic" if settings.type == "anthropic" else None
                found = await discover(service, _address(settings), key, headers=headers, clock=self._clock)
            except (ProviderError, ConfigError) as error:
                self.errors[provider] = error.told() if isinstance(error, ProviderError) else str(error)
                log.info("service_not_asked", provider=provider, error=error_class(error))
            else:
                self.errors.pop(provider, None)
                self.learn(provider, found)
                log.info("service_asked", provider=provider, kind=found.service, count=len(found.models))
            self._asked_at[provider] = trio.current_time()
            self._doubted.discard(provider)

    def _untried(self) -> dict[str, list[str]]:
        """The models in use, and which abilities nobody says of them."""
        found = {}
        for name in dict.fromkeys(name for _, name in self._config.routing.places()):
            facts, now = self.facts(name), trio.current_time()
            is_new = now - self._tried_at.get(name, now - DAY_S) >= DAY_S
            if is_new and not facts.embedding and self.service(name.partition("/")[0]) is not None:
                found[name] = [each for each in ("tools", "images") if getattr(facts, each) is None]
        return {name: abilities for name, abilities in found.items() if abilities}

    async def _keep(self, provider: str) -> None:
        self._unsaved.discard(provider)
        record = self._records.get(provider)
        if self._save is not None and record is not None:
            now = attrs.evolve(record, tried={**record.tried}, habits={**record.habits})
            await self._save(provider, await self._threads.run(record_text, now, abandon=True))

    # -- single sources ------------------------------------------------------------------------------------------------

    def _record(self, provider: str) -> ProviderRecord:
        """What was learned at the provider's present address."""
        settings, record = self._config.providers.get(provider), self._records.get(provider)
        if settings is None:
            return ProviderRecord(base_url="")
        if record is None or record.base_url != _address(settings):
            record = self._records[provider] = ProviderRecord(base_url=_address(settings))
        return record

    def _of(self, name: str) -> tuple[ProviderRecord, str]:
        """What was learned at a model's provider, and the provider's name of the model."""
        provider, _, model = name.partition("/")
        return self._record(provider), model

    def _is_told(self, name: str) -> bool:
        """Whether more than an assumption is known of a model."""
        return any(origin.source != "default" for origin in self.facts(name).origins.values())

    def _own(self, name: str) -> ProviderModelConfig | None:
        provider, _, model = name.partition("/")
        settings = self._config.providers.get(provider)
        return settings.models.get(model) if settings is not None else None

    def _said(self, name: str) -> ModelFacts | None:
        record, model = self._of(name)
        return record.service.model(model) if record.service is not None else None

    def _from_list(self, name: str) -> ModelFacts | None:
        listed = self._listed.get(name)
        if listed is None:
            return None
        prices = listed.prices_at(dt.datetime.fromtimestamp(self._clock.now(), dt.UTC))
        return ModelFacts(name=name, context_tokens=listed.context_tokens, prices=prices).dated(_PRICES)

    def _unknown(self, names: Sequence[str]) -> dict[str, WantedPrice]:
        asked = {name: self._question(name) for name in names if name not in self._listed}
        return {name: question for name, question in asked.items() if question is not None}

    def _question(self, name: str) -> WantedPrice | None:
        """None where the list cannot know anything."""
        provider, _, model = name.partition("/")
        settings, facts = self._config.providers.get(provider), self.facts(name)
        if settings is None or not model or None not in (facts.context_tokens, facts.prices):
            return None
        url = settings.base_url
        if url is not None and is_near(url):
            return None
        return WantedPrice(model=model, api_url=url, service=settings.type if url is None else None)


_CHECKED = {"tools": "tools", "images": "images", "json": "json_schema"}
"""Fields of ``ModelFacts`` that a check is about."""


def _address(settings: ProviderConfig) -> str:
    return settings.base_url or ANTHROPIC_URL
