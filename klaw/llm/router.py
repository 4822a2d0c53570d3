"""From a name ``provider/model`` to the provider that answers and what is known of the model."""

from collections.abc import Callable

import attrs

from klaw.config.schema import LOCAL_PROVIDER, EngineConfig, ProviderConfig
from klaw.errors import ConfigError, Problem
from klaw.llm.provider import Provider


@attrs.frozen(kw_only=True)
class Route:
    """Where a call goes.

    Args:
        provider: who answers; shared by all routes to it.
        name: the whole name, ``provider/model``.
        model: the provider's own name of the model, for ``Request.model``.
        context_tokens: prompt and answer together.
        max_output_tokens: longest answer; never more than ``llm.maxReplyTokens``.
        tools: whether the model can call tools.
    """

    provider: Provider
    name: str
    model: str
    context_tokens: int
    max_output_tokens: int
    tools: bool


class Router:
    """All routes of a configuration. Providers are made when a route to them is first asked for.

    Args:
        config: the whole configuration.
        local: makes the provider of the embedded model.
    """

    def __init__(self, config: EngineConfig, local: Callable[[], Provider]) -> None:
        self._config = config
        self._local = local
        self._providers: dict[str, Provider] = {}

    @property
    def uses_local(self) -> bool:
        """Whether any configured route leads to the embedded model, so that its process must run."""
        return self._config.routing.default_provider == LOCAL_PROVIDER

    def route(self, name: str | None = None, *, key: str = "routing.default") -> Route:
        """Find a route.

        Args:
            name: ``provider/model``; None for ``routing.default``.
            key: where the name comes from, for the error.

        Raises:
            ConfigError: the name has another form, or there is no such provider or local model.
        """
        name = self._config.routing.default if name is None else name
        provider, slash, model = name.partition("/")
        if not provider or not slash or not model:
            raise _problem(key, "must have the form provider/model")
        if provider == LOCAL_PROVIDER:
            return self._local_route(name, model, key)
        settings = self._config.providers.get(provider)
        if settings is None:
            known = ", ".join(sorted([LOCAL_PROVIDER, *self._config.providers]))
            raise _problem(key, f"names a provider that is not configured; known are {known}")
        known_model = settings.models.get(model)
        reply = self._config.llm.max_reply_tokens
        return Route(
            provider=self._provider(provider, lambda: _open_ai(provider, settings)),
            name=name,
            model=model,
            context_tokens=context_tokens_of(self._config, name),
            max_output_tokens=min(reply, (known_model and known_model.max_output_tokens) or reply),
            tools=known_model is not None and known_model.tools,
        )

    async def aclose(self) -> None:
        """Close all providers, one after the other, each bounded in time."""
        providers, self._providers = self._providers, {}
        for provider in providers.values():
            await provider.aclose()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _local_route(self, name: str, model: str, key: str) -> Route:
        local = self._config.local_model
        if model != local.model:
            raise _problem(key, f"names a local model that is not localModel.model, which is {local.model}")
        return Route(
            provider=self._provider(LOCAL_PROVIDER, self._local),
            name=name,
            model=model,
            context_tokens=context_tokens_of(self._config, name),
            max_output_tokens=self._config.llm.max_reply_tokens,
            tools=False,
        )

    def _provider(self, name: str, make: Callable[[], Provider]) -> Provider:
        if name not in self._providers:
            self._providers[name] = make()
        return self._providers[name]


def context_tokens_of(config: EngineConfig, name: str | None = None) -> int:
    """Context length of a model, ``provider/model``; None for ``routing.default``. The default budget for a model of
    which nothing is known."""
    provider, _, model = (config.routing.default if name is None else name).partition("/")
    if provider == LOCAL_PROVIDER:
        return config.local_model.context_tokens
    settings = config.providers.get(provider)
    known = settings.models.get(model) if settings is not None else None
    return (known and known.context_tokens) or config.context.default_budget_tokens


def _open_ai(name: str, config: ProviderConfig) -> Provider:
    from klaw.llm.openai import OpenAiProvider, OpenAiSettings  # httpx2 takes a tenth of a second to import

    return OpenAiProvider(
        OpenAiSettings(
            name=name,
            base_url=config.base_url,
            api_key=config.api_key.reveal() if config.api_key is not None else None,
            headers={header: value.reveal() for header, value in config.headers.items()},
            extra_body=config.extra_body,
            timeout_s=config.timeout_s,
            max_retries=config.max_retries,
        )
    )


def _problem(key: str, message: str) -> ConfigError:
    return ConfigError([Problem(path=key, message=message)])
