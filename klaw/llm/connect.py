"""Connecting a model: what a service offers, a call that shows whether a model answers, what a day with it costs, and
what is to be changed in the configuration. Nothing is written here."""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from klaw.config.document import join_path
from klaw.config.edit import UNSET
from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS
from klaw.config.llm import ProviderConfig
from klaw.config.schema import EngineConfig
from klaw.config.services import ANTHROPIC_URL, QUESTIONS, DayCost, KnownService, Use
from klaw.domain.text import one_line
from klaw.errors import KlawError
from klaw.llm.discovery import DiscoveredService, discover
from klaw.llm.errors import ProviderError, ProviderNetworkError, ProviderRefused
from klaw.llm.facts import ModelFacts
from klaw.llm.prices import FREE, Prices, spent_of
from klaw.llm.router import Router
from klaw.llm.trial import say_hello, try_abilities
from klaw.llm.types import Usage

ANSWER_S = 10.0
"""A service of the internet that sends nothing for so long is not connected."""
LOADING_S = 100.0
"""One at home may have to load the model first."""
SHOWN_CHARS = 200

USES: Mapping[Use, tuple[str, ...]] = {"chats": (), "background": ("summarization", "topics"), "tasks": ("subagent",)}
"""What a model is for, and the keys of ``routing.tasks`` that say so."""


class NotConnected(KlawError):
    """A service or its model cannot be connected; the text says why and what to do. ``argument`` is what to change,
    ``status`` that of the service's answer."""

    code = "not_connected"

    def __init__(self, text: str, argument: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.argument, self.status = argument, status


@attrs.frozen(kw_only=True)
class ServiceConnection:
    """A service to connect. ``provider`` is its name in ``providers``, ``variable`` that of its key; empty: it has
    none, or ``existing``, what is configured at this address, has one of its own."""

    service: KnownService
    provider: str
    base_url: str
    existing: ProviderConfig | None = None
    variable: str = ""
    key: str | None = attrs.field(default=None, repr=False)
    stores: bool = False
    """The key is not in the environment."""

    @property
    def is_near(self) -> bool:
        """Whether it is on this machine or in its network, where nobody sends a bill."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_private
        except ValueError:
            return "." not in host or host.endswith((".local", ".lan", ".home.arpa"))

    @property
    def own_url(self) -> str | None:
        """``baseUrl``; None where the API has an address of its own."""
        return None if self.service.type == "anthropic" and self.base_url == ANTHROPIC_URL else self.base_url

    @property
    def settings(self) -> ProviderConfig:
        """As it is asked now: with the key itself, and little patience."""
        return attrs.evolve(
            self.existing or ProviderConfig(type=self.service.type, base_url=self.base_url),
            base_url=self.own_url,
            api_key=Secret(self.key) if self.key else None,
            timeout_s=LOADING_S if self.is_near else ANSWER_S,
            max_s=LOADING_S,
            max_retries=0,
        )

    def explained(self, error: ProviderError) -> NotConnected:
        """An error in the words of somebody who is connecting the service."""
        status, argument = getattr(error, "status", None), ""
        if status in (401, 403):
            error.hint, argument = "is the key right?" if self.key else "it wants a key", "key"
        elif isinstance(error, ProviderRefused) and status == 404:
            error.hint = "are the address and the model's name right?"
        elif isinstance(error, ProviderNetworkError):
            error.hint, argument = "is it running, and is the address right?", "url"
        return NotConnected(error.told(), argument, status)


def connection_of(
    config: EngineConfig,
    service: KnownService,
    *,
    url: str | None,
    key: str | None,
    key_env: str | None,
    environ: Mapping[str, str],
    secrets: Mapping[str, str],
) -> ServiceConnection:
    """What a person said, completed by what is known.

    Args:
        key_env: the variable that holds the key, or gets its name; None: the usual one.
        environ: the server's environment; empty if that is not known.
        secrets: this process's, and what ``secrets.env`` holds.

    Raises NotConnected: something is missing."""
    url = (url or service.base_url).rstrip("/")
    if not re.fullmatch(ADDRESS["pattern"], url):
        raise NotConnected(f"must {ADDRESS['hint']}, up to its version (usually /v1)", "url")
    if not urlsplit(url).path:
        url += "/v1"
    provider = _provider_name(config, service, url)
    existing = config.providers.get(provider)
    made = ServiceConnection(service=service, provider=provider, base_url=url, existing=existing)
    variable = key_env or service.key_env or f"{re.sub('[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"
    if key is not None:
        if environ.get(variable, key) != key:  # which would win
            variable = f"KLAW_{variable}"
        return attrs.evolve(made, key=key, variable=variable, stores=environ.get(variable) != key)
    if key_env is None and existing is not None and existing.api_key is not None:
        return attrs.evolve(made, key=existing.api_key.reveal(f"providers.{provider}.apiKey"))
    if secrets.get(variable) and (key_env is not None or url == service.base_url):  # no other address gets it unasked
        stores = environ.get(variable) != secrets[variable]
        return attrs.evolve(made, key=secrets[variable], variable=variable, stores=stores)
    if key_env is not None:
        raise NotConnected(f"the environment variable {key_env} is not set", "key_env")
    if service.key_env:
        raise NotConnected(f"{service.name} wants a key: get one at https://{service.key_page}", "key")
    return made


def _provider_name(config: EngineConfig, service: KnownService, url: str) -> str:
    """That of the provider at this address, else one that is free."""
    known = {name: (each.base_url or ANTHROPIC_URL).rstrip("/") for name, each in config.providers.items()}
    names = [service.id, *(f"{service.id}{number}" for number in range(2, len(known) + 3))]
    same = [name for name, address in known.items() if address == url]
    return (same or [name for name in names if name not in known])[0]


async def look(connection: ServiceConnection) -> DiscoveredService:
    """Ask a service which models it has. Raises NotConnected."""
    service = connection.service
    try:
        found = await discover(service.id, connection.base_url, connection.key)
    except ProviderError as error:
        status = getattr(error, "status", None)
        raise NotConnected(error.told(), "key" if status in (401, 403) else "url", status) from None
    if all(each.embedding for each in found.models):
        why = found.note or "none of its models chats"
        raise NotConnected(f"{service.name} at {connection.base_url}: {why}", "url")
    return found


@attrs.frozen(kw_only=True)
class TriedModel:
    answer: str
    seconds: float
    tools: bool | None
    """Whether it calls tools; None: that did not show."""


async def try_model(
    config: EngineConfig, connection: ServiceConnection, model: str, facts: ModelFacts | None
) -> TriedModel:
    """Let a model say something, and call a tool if nobody knows whether it can. Raises NotConnected."""
    providers = {**config.providers, connection.provider: connection.settings}
    router = Router(attrs.evolve(config, providers=providers), _no_local_model)
    try:
        route = router.route(f"{connection.provider}/{model}", alone=True)
        said = await say_hello(route, config.llm.temperature)
        if isinstance(said, ProviderError):
            raise connection.explained(said)
        tools = facts.tools if facts is not None else None
        if tools is None:
            (tools,) = [check.found for check in await try_abilities(config, router, route.name, ["tools"])]
        return TriedModel(answer=one_line(said.completion.text)[:SHOWN_CHARS], seconds=said.seconds, tools=tools)
    finally:
        with trio.move_on_after(2, shield=True):
            await router.aclose()


def _no_local_model() -> Any:
    raise AssertionError("the built-in model is not connected")


# -- what a day costs -------------------------------------------------------------------------------------------------

TURN = Usage(prompt_tokens=3_000, completion_tokens=250)
BACKGROUND = Usage(prompt_tokens=60_000, completion_tokens=6_000)
"""All calls for that day: some 8 summaries, and 4 sessions that become topics and facts."""


def day_cost(connection: ServiceConnection, prices: Prices | None) -> DayCost:
    prices = FREE if connection.is_near else prices
    if prices is None:
        return DayCost(chats=None, background=None)
    turn, background = (Decimal(spent_of(each, prices).cost_nano) / 10**9 for each in (TURN, BACKGROUND))
    return DayCost(chats=float(QUESTIONS * turn), background=float(background))


# -- what is written --------------------------------------------------------------------------------------------------


def changes_for(
    config: EngineConfig, connection: ServiceConnection, model: str, use: Collection[Use]
) -> dict[str, Any]:
    """Key paths and their new values, for ``config.edit``. What the model is not used for stays with the model that
    does it now."""
    name, routing, at = _escaped(f"{connection.provider}/{model}"), config.routing, f"providers.{connection.provider}"
    changed: dict[str, Any] = {}
    if connection.existing is None:
        if connection.service.type != "openai":
            changed[f"{at}.type"] = connection.service.type
        if connection.own_url is not None:
            changed[f"{at}.baseUrl"] = _escaped(connection.own_url)
    if connection.variable:
        changed[f"{at}.apiKey"] = f"${{{connection.variable}}}"
    if "chats" in use:
        changed["routing.default"] = name
    for kind, tasks in USES.items():
        for task in tasks:
            own: tuple[str, ...] = getattr(routing.tasks, task)
            if kind in use:
                changed[f"routing.tasks.{task}"] = UNSET if "chats" in use else [name]
            elif "chats" in use and not own:
                changed[f"routing.tasks.{task}"] = [_escaped(each) for each in (routing.default, *routing.fallback)]
    if connection.existing is None or model not in connection.existing.models:
        changed[join_path(f"{at}.models", model)] = {}  # it stays in the lists when another becomes the usual one
    return changed


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def switched_on(before: EngineConfig, after: EngineConfig) -> Sequence[str]:
    """What works by itself from now on."""
    return [each for each in before.waits_for_model if each not in after.waits_for_model]
