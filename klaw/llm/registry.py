"""What is known of a model, from the configuration, the price list, and defaults. Facts are answered at once; ``know``
looks names up in the list."""

import datetime as dt
import ipaddress
from collections.abc import Mapping
from decimal import Decimal
from urllib.parse import urlsplit

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.config.llm import LOCAL_PROVIDER, ProviderModelConfig
from klaw.config.schema import EngineConfig
from klaw.errors import NoPriceList
from klaw.llm import prices
from klaw.llm.prices import FREE, ListedPrices, Prices, Rate, WantedPrice

MAX_REMEMBERED = 512
"""Models whose facts are kept; people try names."""

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class ModelFacts:
    """``context_tokens``: prompt and answer together. None: unknown."""

    context_tokens: int | None
    tools: bool
    images: bool
    prices: Prices | None


class Registry:
    """Facts about all models, also those that nobody has configured. ``clock``: some prices depend on the hour."""

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = trio.Lock()
        self._listed: dict[str, ListedPrices | None] = {}
        self.failed = False
        """The list could not be read."""

    async def know(self, *names: str) -> None:
        """Look models up, ``provider/model``, where the list may know more than the configuration. It takes a second
        the first time."""
        if all(name in self._listed or self._question(name) is None for name in names):
            return
        async with self._lock:
            wanted = {name: question for name in names if (question := self._question(name)) is not None}
            wanted = {name: question for name, question in wanted.items() if name not in self._listed}
            if not wanted:
                return
            found: Mapping[str, ListedPrices | None] = dict.fromkeys(wanted)
            try:
                found = dict(zip(wanted, await prices.look_up(list(wanted.values())), strict=True))
                self.failed = False
            except NoPriceList as error:
                self.failed = True
                log.warning("prices_not_found", error=error_class(error), reason=str(error))
            if len(self._listed) + len(found) > MAX_REMEMBERED:
                self._listed.clear()
            self._listed.update(found)

    async def know_configured(self) -> None:
        """So that no turn has to wait for it."""
        await self.know(*configured_models(self._config))

    def problems(self) -> Mapping[str, str]:
        if not self.failed:
            return {}
        return {"no_price_list": "the price list could not be read: costs are known only where prices are configured"}

    def facts(self, name: str) -> ModelFacts:
        """Also of a model that does not exist."""
        provider, _, model = name.partition("/")
        if provider == LOCAL_PROVIDER:
            return ModelFacts(
                context_tokens=self._config.local_model.context_tokens,
                tools=self._config.local_model.tools,
                images=False,
                prices=FREE,
            )
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
        )

    def context_tokens(self, name: str) -> int:
        """Context length to plan with: ``context.defaultBudgetTokens`` where it is not known."""
        return self.facts(name).context_tokens or self._config.context.default_budget_tokens

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
    if own.input_price is None or own.output_price is None:
        return None
    return Prices(
        input=_rate(own.input_price),
        output=_rate(own.output_price),
        cached_input=_rate(own.cached_input_price) if own.cached_input_price is not None else None,
        cache_write=_rate(own.cache_write_price) if own.cache_write_price is not None else None,
    )


def _rate(price: float) -> Rate:
    return Rate(Decimal(str(price)))
