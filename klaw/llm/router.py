"""Finds the provider of a name ``provider/model``, and what is known of the model: from the configuration, the price
list (where ``Registry.know`` looks names up), and defaults."""

import datetime as dt
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, SystemClock
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config.document import join_path
from klaw.config.llm import LOCAL_PROVIDER, ProviderConfig, ProviderModelConfig
from klaw.config.schema import EngineConfig
from klaw.domain.message import ThinkingLevel
from klaw.errors import ConfigError, NoPriceList
from klaw.llm.endpoint import ModelEndpoint, Path
from klaw.llm.errors import ProviderNotSetUp
from klaw.llm.prices import FREE, ListedPrices, Prices, Rate, WantedPrice, look_up
from klaw.llm.providers.anthropic import AnthropicDialect
from klaw.llm.providers.http import IDLE_S, HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.providers.thinking_members import is_known_thinker, most_tokens
from klaw.llm.service import BreakerState, Service
from klaw.llm.types import Model, Provider, Route, Thinking

MAX_REMEMBERED = 512
"""People try names."""
PASSES_S = 300.0
"""An older failure says nothing of now."""
_NOTHING_WORKS = frozenset({401, 402, 403})
"""The key is wrong or there is no credit, so every call fails."""

Task: TypeAlias = Literal["chat", "subagent", "summarization", "topics", "reranker"]

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class ModelFacts:
    """``context_tokens``: prompt and answer together. None: unknown."""

    context_tokens: int | None
    tools: bool
    images: bool
    prices: Prices | None
    thinking: bool = False
    """It can think, by its settings, by its name, or because it did."""


class Registry:
    """Facts about all models, also those that nobody has configured."""

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = trio.Lock()
        self._listed: dict[str, ListedPrices | None] = {}
        self._thinkers: set[str] = set()
        self.failed = False

    async def know(self, *names: str) -> None:
        """Look ``provider/model`` up where the list may know more than the configuration. First it takes a second."""
        if not self._unknown(names):
            return
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

    def problems(self) -> Mapping[str, str]:
        if not self.failed:
            return {}
        return {"no_price_list": "the price list could not be read: costs are known only where prices are configured"}

    def has_thought(self, name: str) -> None:
        """``provider/model`` sent thinking."""
        if name not in self._thinkers and len(self._thinkers) < MAX_REMEMBERED:
            self._thinkers.add(name)

    def facts(self, name: str) -> ModelFacts:
        provider, _, model = name.partition("/")
        thinks = name in self._thinkers or is_known_thinker(model)
        if provider == LOCAL_PROVIDER:
            local = self._config.local_model
            has = {"tools": local.tools, "images": False, "thinking": thinks}
            return ModelFacts(context_tokens=local.context_tokens, prices=FREE, **has)
        settings = self._config.providers.get(provider)
        own = settings.models.get(model) if settings is not None else None
        listed = self._listed.get(name)
        prices = _own_prices(own) if own is not None else None
        if prices is None and listed is not None:
            prices = listed.prices_at(dt.datetime.fromtimestamp(self._clock.now(), dt.UTC))
        return ModelFacts(
            context_tokens=(own and own.context_tokens) or (listed and listed.context_tokens) or None,
            tools=own is not None and own.tools,
            images=settings is not None and settings.takes_images(model),
            prices=prices,
            thinking=thinks or (own is not None and own.thinking is not None),
        )

    def context_tokens(self, name: str) -> int:
        """Context length to plan with: ``context.defaultBudgetTokens`` where it is not known."""
        return self.facts(name).context_tokens or self._config.context.default_budget_tokens

    def _unknown(self, names: Sequence[str]) -> dict[str, WantedPrice]:
        asked = {name: self._question(name) for name in names if name not in self._listed}
        return {name: question for name, question in asked.items() if question is not None}

    def _question(self, name: str) -> WantedPrice | None:
        """None where the list cannot know anything."""
        provider, _, model = name.partition("/")
        settings = self._config.providers.get(provider)
        if settings is None or not model:
            return None
        own = settings.models.get(model)
        if own is not None and own.context_tokens is not None and _own_prices(own) is not None:
            return None
        url = settings.base_url
        if url is not None and not _is_public(url):
            return None
        return WantedPrice(model=model, api_url=url, service=settings.type if url is None else None)


def _is_public(url: str) -> bool:
    """Known services have names with a dot."""
    host = urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in host
    return False


def configured_models(config: EngineConfig) -> list[str]:
    """``provider/model``: routes first, each once."""
    names = [name for _, name in config.routing.places()]
    names += [f"{provider}/{model}" for provider, model in config.endpoints.values()]
    names += [f"{provider}/{model}" for provider, settings in config.providers.items() for model in settings.models]
    return list(dict.fromkeys(names))


def _own_prices(own: ProviderModelConfig) -> Prices | None:
    def rate(price: float | None) -> Rate | None:
        return Rate(Decimal(str(price))) if price is not None else None

    price, output = rate(own.input_price), rate(own.output_price)
    if price is None or output is None:
        return None
    cached, written = rate(own.cached_input_price), rate(own.cache_write_price)
    return Prices(input=price, output=output, cached_input=cached, cache_write=written)


class Router:
    """All routes of a configuration. Providers are made when a route to them is first asked for."""

    def __init__(self, config: EngineConfig, local: Callable[[], Provider], registry: Registry | None = None) -> None:
        self._config = config
        self._registry = registry or Registry(config, SystemClock())
        self._make_local = local
        self._local: Provider | None = None
        self._services: dict[str, Service] = {}
        self._endpoints: dict[str, ModelEndpoint] = {}
        self._threads = Threads("secrets", 1)

    @property
    def uses_local(self) -> bool:
        return self._config.routing.uses_local

    def route(
        self,
        name: str | None = None,
        *,
        key: str = "routing.default",
        task: Task = "chat",
        alone: bool = False,
        thinking: ThinkingLevel | None = None,
    ) -> Route:
        """Find a route. ``name``, ``provider/model``, takes the place of the task's first model; ``key`` says in an
        error where it comes from. ``alone``: no other model stands in. ``thinking`` takes the place of what the models
        are set to. Raises ConfigError: the name has another form, or there is no such provider or local model."""
        routing = self._config.routing
        own: tuple[str, ...] = () if task == "chat" else getattr(routing.tasks, task)
        first, *others = own or (routing.default, *routing.fallback)
        if name is not None:
            first, others = name, others if own else [*routing.fallback]
        others = [] if alone else [other for other in dict.fromkeys(others) if other != first]
        model = self._model(first, key, thinking)
        stand_ins = tuple(self._model(other, "routing", thinking) for other in others)
        return Route(**attrs.asdict(model, recurse=False), stand_ins=stand_ins)

    def endpoint(self, provider: str, model: str, path: Path) -> ModelEndpoint:
        name = f"{provider}/{model}"
        key = f"{name} ({path})"
        if key not in self._endpoints:
            make = partial(_make, provider, self._config.providers[provider], path)
            self._endpoints[key] = ModelEndpoint(service=Service(key, make, self._threads), name=name, model=model)
        return self._endpoints[key]

    def report(self) -> tuple[dict[str, Any], ...]:
        return tuple(service.report() for service in self._all().values())

    async def prepare(self) -> None:
        """Look the secrets of all configured routes up, so that a missing one is reported early."""
        for _, name in self._config.routing.places():
            self.route(name)
        for service in self._all().values():
            with suppress(ProviderNotSetUp):
                await service.ready()

    def problems(self) -> Mapping[str, str]:
        """Providers that refuse everything, lack a secret or are paused, until a call succeeds or for ``PASSES_S``; a
        missing secret or a pause of one in a route stays."""
        found = {}
        now, routed = trio.current_time(), {name.partition("/")[0] for _, name in self._config.routing.places()}
        for name, service in self._all().items():
            error = service.error
            is_old = error is not None and now - error.at >= PASSES_S and not service.breaker.retry_in_s(now)
            if is_old and (service.problem is None or name not in routed):
                continue
            if service.problem is not None:
                found[f"llm:{name}"] = f"the LLM provider {name} is not set up: {service.problem}"
            elif service.breaker.state is not BreakerState.CLOSED:
                why = f": {error.text}" if error is not None else ""
                found[f"llm:{name}"] = f"the LLM provider {name} is paused after several failures{why}"
            elif error is not None and error.status in _NOTHING_WORKS:
                found[f"llm:{name}"] = f"the LLM provider {name} refused the last call: {error.text}"
        return found

    async def aclose(self) -> None:
        providers: list[Provider] = [*self._all().values(), *([self._local] if self._local is not None else [])]
        self._services, self._endpoints, self._local = {}, {}, None
        for provider in providers:
            await provider.aclose()

    def _all(self) -> Mapping[str, Service]:
        return {**self._services, **{key: endpoint.service for key, endpoint in self._endpoints.items()}}

    def _model(self, name: str, key: str, level: ThinkingLevel | None) -> Model:
        provider, slash, model = name.partition("/")
        if not provider or not slash or not model:
            raise ConfigError.of("must have the form provider/model", key)
        settings, local = self._config.providers.get(provider), self._config.local_model
        asked: Provider
        own: ProviderModelConfig | None = None
        if provider == LOCAL_PROVIDER:
            if model != local.model:
                raise ConfigError.of(f"names a local model that is not localModel.model, which is {local.model}", key)
            if self._local is None:
                self._local = self._make_local()
            asked, most = self._local, local.max_reply_tokens
        elif settings is None:
            known = ", ".join(sorted([LOCAL_PROVIDER, *self._config.providers]))
            raise ConfigError.of(f"names a provider that is not configured; known are {known}", key)
        else:
            if provider not in self._services:
                self._services[provider] = Service(provider, partial(_make, provider, settings), self._threads)
            asked, own = self._services[provider], settings.models.get(model)
            most = (own and own.max_output_tokens) or self._config.llm.max_reply_tokens
        facts = self._registry.facts(name)
        return Model(
            provider=asked,
            name=name,
            model=model,
            context_tokens=self._registry.context_tokens(name),
            max_output_tokens=min(self._config.llm.max_reply_tokens, most),
            tools=facts.tools,
            images=facts.images,
            json_schema=own is None or own.json_schema,
            thinking=self._thinking(name, level or (own and own.thinking) or None, own, most)
            if facts.thinking
            else None,
        )

    def _thinking(
        self, name: str, level: ThinkingLevel | None, own: ProviderModelConfig | None, answer: int
    ) -> Thinking:
        settings = self._config.providers.get(name.partition("/")[0])
        is_asked = "claude" in name or (settings is not None and settings.type == "anthropic")
        if level is None and is_asked:  # these think when they are asked to
            return Thinking()
        most = most_tokens(
            level,
            context_tokens=self._registry.context_tokens(name),
            output_tokens=own.max_output_tokens if own is not None else None,
            answer_tokens=min(answer, self._config.llm.max_reply_tokens),
        )
        return Thinking(level=level, tokens=most)


def context_tokens_of(config: EngineConfig, name: str | None = None) -> int:
    """``name`` None: ``routing.default``. The default budget for an unknown model."""
    provider, _, model = (config.routing.default if name is None else name).partition("/")
    if provider == LOCAL_PROVIDER:
        return config.local_model.context_tokens
    settings = config.providers.get(provider)
    known = settings.models.get(model) if settings is not None else None
    return (known and known.context_tokens) or config.context.default_budget_tokens


def _make(name: str, config: ProviderConfig, path: Path | None = None) -> HttpProvider:
    """A provider, or one of its addresses. Raises ConfigError for a secret. Reads files, so it is for a thread."""
    key = join_path("providers", name)
    headers = f"{key}.headers"
    settings = HttpSettings(
        name=name,
        base_url=config.base_url,
        api_key=config.api_key.reveal(join_path(key, "apiKey")) if config.api_key is not None else None,
        headers={header: value.reveal(join_path(headers, header)) for header, value in config.headers.items()},
        extra_body=config.extra_body,
        timeout_s=config.timeout_s,
        idle_s=max(IDLE_S, config.timeout_s),
        max_s=config.max_s,
        max_retries=config.max_retries,
    )
    if path is not None:
        return HttpProvider(settings, OpenAiDialect(), f"{(config.base_url or '').rstrip('/')}/{path}")
    dialect = AnthropicDialect() if config.type == "anthropic" else OpenAiDialect(config.base_url or "")
    return HttpProvider(settings, dialect)
