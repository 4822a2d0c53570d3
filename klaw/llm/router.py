"""Finds the provider of a name ``provider/model``."""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import attrs
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.threads import Threads
from klaw.config.document import join_path
from klaw.config.llm import LOCAL_PROVIDER, EndpointPath, ProviderConfig
from klaw.config.schema import EngineConfig
from klaw.domain.message import ThinkingLevel
from klaw.errors import ConfigError
from klaw.llm.endpoint import ModelEndpoint
from klaw.llm.errors import ProviderNotSetUp
from klaw.llm.facts import ModelFacts
from klaw.llm.provider_record import secrets_of
from klaw.llm.providers.anthropic import AnthropicDialect
from klaw.llm.providers.http import IDLE_S, HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.providers.thinking_members import most_tokens
from klaw.llm.registry import Registry
from klaw.llm.service import BreakerState, Service
from klaw.llm.types import Model, Provider, Route, Thinking

PASSES_S = 300.0
"""An older failure says nothing of now."""
_NOTHING_WORKS = frozenset({401, 402, 403})
"""The key is wrong or there is no credit, so every call fails."""

Task: TypeAlias = Literal["chat", "subagent", "summarization", "topics", "reranker", "expansion"]


def configured_models(config: EngineConfig, *, chat: bool = False) -> list[str]:
    """``provider/model``: routes first, each once; with ``chat`` only those that may answer in chats."""
    names = [name for _, name in config.routing.places()]
    others = [f"{provider}/{model}" for provider, model in config.endpoints.values()]
    names += [] if chat else others
    names += [f"{provider}/{model}" for provider, settings in config.providers.items() for model in settings.models]
    return list(dict.fromkeys(names))


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

    def endpoint(self, provider: str, model: str, path: EndpointPath) -> ModelEndpoint:
        name = f"{provider}/{model}"
        key = f"{name} ({path})"
        if key not in self._endpoints:
            make = partial(self._make, provider, path)
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

    async def renew(self, providers: Container[str], *, local: bool) -> None:
        """Settings of some providers, or of the ``local`` model, have changed: later calls go by them."""
        if local and self._local is not None:
            old, self._local = self._local, None
            await old.aclose()
        for key, service in self._all().items():
            if key.partition("/")[0] in providers:
                await service.renew()
        self._services = {name: each for name, each in self._services.items() if name in self._config.providers}

    async def aclose(self) -> None:
        providers: list[Provider] = [*self._all().values(), *([self._local] if self._local is not None else [])]
        self._services, self._endpoints, self._local = {}, {}, None
        for provider in providers:
            await provider.aclose()

    def _make(self, name: str, path: EndpointPath | None = None) -> HttpProvider:
        """Raises ConfigError: a secret is missing, or the provider was taken out of the configuration."""
        settings = self._config.providers.get(name)
        if settings is None:
            raise ConfigError.of("is not there any more", join_path("providers", name))
        habits, learned = self._registry.habits(name), partial(self._registry.note_habits, name)
        return _make(name, settings, path, habits=habits, learned=learned)

    def _all(self) -> Mapping[str, Service]:
        return {**self._services, **{key: endpoint.service for key, endpoint in self._endpoints.items()}}

    def _model(self, name: str, key: str, level: ThinkingLevel | None) -> Model:
        provider, slash, model = name.partition("/")
        if not provider or not slash or not model:
            raise ConfigError.of("must have the form provider/model", key)
        settings, local = self._config.providers.get(provider), self._config.local_model
        asked: Provider
        facts = self._registry.facts(name)
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
                self._services[provider] = Service(provider, partial(self._make, provider), self._threads)
            asked = self._services[provider]
            most = facts.output_tokens or self._config.llm.max_reply_tokens
        return Model(
            provider=asked,
            name=name,
            model=model,
            context_tokens=self._registry.context_tokens(name),
            max_output_tokens=min(self._config.llm.max_reply_tokens, most),
            tools=bool(facts.tools),
            images=bool(facts.images),
            json_schema=facts.json_schema is not False,
            loads_context=self._registry.loads_context(name),
            thinking=self._thinking(name, facts, level) if facts.thinking else None,
        )

    def _thinking(self, name: str, facts: ModelFacts, level: ThinkingLevel | None) -> Thinking:
        provider, _, model = name.partition("/")
        settings = self._config.providers.get(provider)
        if level is None and settings is not None and model in settings.models:
            level = settings.models[model].thinking
        is_asked = "claude" in model or (settings is not None and settings.type == "anthropic")
        if level is None and is_asked:  # these think when they are asked to
            return Thinking()
        most = most_tokens(
            level,
            context_tokens=self._registry.context_tokens(name),
            output_tokens=facts.output_tokens,
            answer_tokens=self._config.llm.max_reply_tokens,
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


def _make(name: str, config: ProviderConfig, path: EndpointPath | None = None, **learning: Any) -> HttpProvider:
    """A provider, or one of its addresses. Raises ConfigError for a secret. Reads files, so it is for a thread."""
    api_key, headers = secrets_of(name, config)
    settings = HttpSettings(
        name=name,
        base_url=config.base_url,
        api_key=api_key,
        headers=headers,
        extra_body=config.extra_body,
        timeout_s=config.timeout_s,
        idle_s=max(IDLE_S, config.timeout_s),
        max_s=config.max_s,
        max_retries=config.max_retries,
    )
    if path is not None:
        return HttpProvider(settings, OpenAiDialect(), f"{(config.base_url or '').rstrip('/')}/{path}")
    dialect = AnthropicDialect() if config.type == "anthropic" else OpenAiDialect(config.base_url or "")
    return HttpProvider(settings, dialect, **learning)
