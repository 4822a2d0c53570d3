"""Connecting a model: what a service offers, a call that shows whether a model answers, what a day with it costs, and
what is to be changed in the configuration. Nothing is written here."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from klaw.actor.clock import SystemClock
from klaw.config.document import join_path
from klaw.config.edit import UNSET
from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS
from klaw.config.llm import ProviderConfig
from klaw.config.schema import EngineConfig
from klaw.config.services import ANTHROPIC_URL, QUESTIONS, DayCost, KnownService, Use
from klaw.domain.text import one_line
from klaw.errors import KlawError
from klaw.llm.budget import DailyBudget
from klaw.llm.client import without_server
from klaw.llm.discovery import KEY_REFUSED, DiscoveredService, discover, loads
from klaw.llm.errors import ProviderError, ProviderNetworkError, ProviderTimeout
from klaw.llm.prices import Prices, spent_of
from klaw.llm.trial import Asking, TimedAnswer, try_abilities
from klaw.llm.types import Usage

ANSWER_S = 8.0
"""A service, or a model, that sends nothing for so long is not connected."""
LOADING_S = 100.0
"""A model that its service is loading has this time."""
SHOWN_CHARS = 200

USES: Mapping[Use, tuple[str, ...]] = {"chats": (), "background": ("summarization", "topics"), "tasks": ("subagent",)}
"""What a model is for, and the keys of ``routing.tasks`` that say so."""
_MAY_LOAD = "if it is still being loaded, try again"


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
    def is_ollama(self) -> bool:
        """Its first answer may have to wait for the model to be loaded, which it tells."""
        return self.service.id == "ollama"

    @property
    def own_url(self) -> str | None:
        """``baseUrl``; None where the API has an address of its own."""
        return None if self.service.type == "anthropic" and self.base_url == ANTHROPIC_URL else self.base_url

    @property
    def settings(self) -> ProviderConfig:
        """As it is asked now: with the key itself, and without repetitions."""
        return attrs.evolve(
            self.existing or ProviderConfig(type=self.service.type, base_url=self.base_url),
            base_url=self.own_url,
            api_key=Secret(self.key) if self.key else None,
            timeout_s=LOADING_S if self.is_ollama else ANSWER_S,
            max_s=LOADING_S,
            max_retries=0,
        )

    def explained(self, error: ProviderError) -> NotConnected:
        """An error in the words of somebody who is connecting the service."""
        status, argument = getattr(error, "status", None), ""
        if status in KEY_REFUSED:
            error.hint, argument = "is the key right?" if self.key else "it wants a key", "key"
        elif status == 404:
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
    url += "" if urlsplit(url).path else "/v1"
    known = {name: (each.base_url or ANTHROPIC_URL).rstrip("/") for name, each in config.providers.items()}
    free = (f"{service.id}{number or ''}" for number in (0, *range(2, len(known) + 3)))
    provider = next((name for name, at in known.items() if at == url), None) or next(n for n in free if n not in known)
    existing = config.providers.get(provider)
    made = ServiceConnection(service=service, provider=provider, base_url=url, existing=existing)
    variable = key_env or service.key_env or f"{re.sub('[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"
    if key is not None:
        if environ.get(variable, key) != key:  # which would win
            variable = f"KLAW_{variable}"
    elif key_env is None and existing is not None and existing.api_key is not None:
        return attrs.evolve(made, key=existing.api_key.reveal(f"providers.{provider}.apiKey"))
    elif key_env is not None or url == service.base_url:  # no other address gets it unasked
        key = secrets.get(variable)
    if key:
        return attrs.evolve(made, key=key, variable=variable, stores=environ.get(variable) != key)
    if key_env is not None:
        raise NotConnected(f"the environment variable {key_env} is not set", "key_env")
    if service.key_env:
        raise NotConnected(f"{service.name} wants a key: get one at https://{service.key_page}", "key")
    return made


async def look(connection: ServiceConnection) -> DiscoveredService:
    """Ask a service which models it has. Raises NotConnected."""
    service = connection.service
    try:
        found = await discover(service.id, connection.base_url, connection.key, within_s=ANSWER_S)
    except ProviderError as error:
        status = getattr(error, "status", None)
        raise NotConnected(error.told(), "key" if status in KEY_REFUSED else "url", status) from None
    if all(each.embedding for each in found.models):
        why = found.note or "none of its models chats"
        raise NotConnected(f"{service.name} at {connection.base_url}: {why}", "url")
    return found


@attrs.frozen(kw_only=True)
class TriedModel:
    """``tools``: whether it calls tools; None: that did not show."""

    answer: str | None = None
    seconds: float | None = None
    tools: bool | None = None
    cost: DayCost


async def try_model(
    config: EngineConfig,
    connection: ServiceConnection,
    model: str,
    found: DiscoveredService | None,
    budget: DailyBudget | None,
    *,
    asks: bool,
) -> TriedModel:
    """Let a model say something if ``asks``, and call a tool if nobody knows whether it can; and what a day with it
    costs. ``found``: what the service said; ``budget``: the limits that count what it costs. Raises NotConnected."""
    config = attrs.evolve(config, providers={**config.providers, connection.provider: connection.settings})
    llm, name = without_server(config, SystemClock(), budget=budget), f"{connection.provider}/{model}"
    if found is not None:
        llm.registry.learn(connection.provider, found)
    try:
        await llm.registry.know(name)
        cost, tools = day_cost(llm.registry.charged(name)), llm.registry.facts(name).tools
        if not asks:
            return TriedModel(cost=cost)
        asking = Asking(llm, llm.router.route(name, alone=True), config.llm.temperature)
        said = await _answer(asking, connection)
        if isinstance(said, ProviderError):
            raise connection.explained(said)
        if tools is None:
            (tools,) = [check.found for check in await try_abilities(config, llm, name, ["tools"])]
        text = one_line(said.completion.text)[:SHOWN_CHARS]
        return TriedModel(answer=text, seconds=round(said.seconds, 2), tools=tools, cost=cost)
    finally:
        with trio.move_on_after(2, shield=True):
            await llm.router.aclose()


async def _answer(asking: Asking, connection: ServiceConnection) -> TimedAnswer | ProviderError:
    """Its first answer. Raises NotConnected: it says nothing, and its service does not say that it is being loaded."""
    said: list[TimedAnswer | ProviderError] = []
    url, model, within_s = connection.base_url, asking.route.model, connection.settings.timeout_s
    was_loaded = connection.is_ollama and await loads(url, model)

    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await trio.sleep(ANSWER_S)
            if not asking.arrived_s and (was_loaded or not await loads(url, model)):
                nursery.cancel_scope.cancel(reason="the model says nothing")

        if connection.is_ollama:
            nursery.start_soon(give_up)
        said.append(await asking.hello())
        nursery.cancel_scope.cancel(reason="it has answered")
    if not said or isinstance(said[0], ProviderTimeout):
        why = f"the model did not answer within {within_s if said else ANSWER_S:.3g} s"
        raise NotConnected(f"{url}: {why} ({_MAY_LOAD})", "model")
    return said[0]


# -- what a day costs -------------------------------------------------------------------------------------------------

TURN = Usage(prompt_tokens=3_000, completion_tokens=250)
BACKGROUND = Usage(prompt_tokens=60_000, completion_tokens=6_000)
"""All calls for that day: some 8 summaries, and 4 sessions that become topics and facts."""


def day_cost(prices: Prices | None) -> DayCost:
    if prices is None:
        return DayCost(chats=None, background=None)
    turn, background = (spent_of(each, prices).cost_nano / 10**9 for each in (TURN, BACKGROUND))
    return DayCost(chats=QUESTIONS * turn, background=background)


# -- what is written --------------------------------------------------------------------------------------------------


def changes_for(
    config: EngineConfig, connection: ServiceConnection, model: str, use: Collection[Use]
) -> dict[str, Any]:
    """Key paths and their new values, for ``config.edit``. What the model is not used for stays with the model that
    does it now."""
    name, routing, at = f"{connection.provider}/{model}", config.routing, f"providers.{connection.provider}"
    changed: dict[str, Any] = {}
    if connection.existing is None:
        own = {"type": connection.service.type, "baseUrl": connection.own_url}
        changed = {f"{at}.{key}": _escaped(value) for key, value in own.items() if value and value != "openai"}
    if connection.variable:
        changed[f"{at}.apiKey"] = f"${{{connection.variable}}}"
    if "chats" in use:
        changed["routing.default"] = _escaped(name)
    for kind, tasks in USES.items():
        for task in tasks:
            if kind in use:
                changed[f"routing.tasks.{task}"] = UNSET if "chats" in use else [_escaped(name)]
            elif "chats" in use and not getattr(routing.tasks, task):
                changed[f"routing.tasks.{task}"] = [_escaped(each) for each in (routing.default, *routing.fallback)]
    if connection.existing is None or model not in connection.existing.models:
        changed[join_path(f"{at}.models", model)] = {}  # it stays in the lists when another becomes the usual one
    return changed


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def switched_on(before: EngineConfig, after: EngineConfig) -> Sequence[str]:
    """What works by itself from now on."""
    return [each for each in before.waits_for_model if each not in after.waits_for_model]
