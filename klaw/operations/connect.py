"""Connecting a model: of a server that runs. ``klaw models connect`` does the same by itself without one."""

import difflib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw.config.services import OTHER, SERVICES, DayCost, Use
from klaw.convert import Bounds, Check
from klaw.errors import ConfigError
from klaw.operations import operation as op
from klaw.operations import server
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import told_prices

if TYPE_CHECKING:
    from klaw.actor.threads import Threads
    from klaw.config.schema import EngineConfig
    from klaw.llm.connect import ServiceConnection
    from klaw.llm.facts import ModelFacts

Change = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Changes key paths of the configuration. Raises ConfigError: nothing was changed."""
EVERYTHING: tuple[Use, ...] = ("chats", "background", "tasks")
_LISTS_NOTHING = (404, 405)
_FORM = "[A-Za-z_][A-Za-z0-9_]{0,199}"


def _variable(text: str) -> str:
    if not re.fullmatch(_FORM, text):
        raise ValueError("must be the name of an environment variable, not the key itself")
    return text


@attrs.frozen(kw_only=True)
class ServiceToAsk:
    service: op.Name = op.required("which: ollama, openrouter, anthropic … or other")
    url: Annotated[str, Bounds(1, 2_000)] | None = op.argument("the address of its API, up to /v1", metavar="URL")
    key: Annotated[str, Bounds(1, 4_000)] | None = attrs.field(
        default=None, repr=False, metadata={"argument": op.Argument(help="its key, which is kept in secrets.env")}
    )
    key_env: Annotated[str, Check(_variable, Bounds(pattern=_FORM))] | None = op.argument(
        "the environment variable that holds the key", metavar="VARIABLE"
    )


@attrs.frozen(kw_only=True)
class ModelToConnect(ServiceToAsk):
    model: op.Name = op.argument("the model, as the service calls it", default=attrs.NOTHING)
    use: tuple[Use, ...] = op.argument("what for: chats, background (summaries and topics), tasks", default=EVERYTHING)
    test: bool = op.argument("ask the model first; if it does not answer, nothing is changed", default=True)
    dry_run: bool = op.argument("change nothing", default=False)


class OneService(TypedDict):
    """``found``: it answers on this machine. ``has_key``: a key of it is known."""

    id: str
    name: str
    url: str
    key_env: str
    key_page: str
    found: bool
    has_key: bool


class KnownServices(TypedDict):
    services: list[OneService]


class OfferedModels(TypedDict):
    """``service``: what it was recognised as; ``note``: what people should know."""

    service: str
    note: str
    models: list[dict[str, Any]]


class ConnectedModel(TypedDict):
    """``answer``: what the model said, None without a test. ``cost``: US dollars of a day of talk. ``switched_on``:
    what works by itself from then on. ``key_in``: the variable of ``secrets.env`` that got the key."""

    model: str
    answer: str | None
    seconds: float | None
    tools: bool | None
    cost: DayCost
    switched_on: list[str]
    key_in: str | None
    changed: bool


@server.MODELS.operation("models_services", op.Nothing, scope=op.Scope.OPERATOR, route="GET services")
async def services(_asked: op.Nothing, _caller: Caller, parts: Parts) -> KnownServices:
    """List the services that can be connected, those that answer on this machine first."""
    return await known_services(parts.paths.config_file)


@server.MODELS.operation("models_look", ServiceToAsk, scope=op.Scope.OPERATOR, deadline_s=30, route="POST look")
async def look(asked: ServiceToAsk, _caller: Caller, parts: Parts) -> OfferedModels:
    """List the models of a service, and what each can do; nothing is changed."""
    return await offered(asked, parts.config, parts.paths.config_file)


@server.MODELS.operation("models_connect", ModelToConnect, scope=op.Scope.OPERATOR, changes=True, deadline_s=250)
async def connect(asked: ModelToConnect, _caller: Caller, parts: Parts) -> ConnectedModel:
    """Connect a model: ask it once, then use it from now on. Its key goes into secrets.env."""
    from klaw.settings import change_settings

    change = partial(change_settings, parts.core)
    done = await connected(asked, parts.config, parts.paths.config_file, change, os.environ)
    if done["changed"]:
        await parts.llm.registry.know(done["model"])  # before the first turn plans with it
    return done


# -- the same for a server and for the command line; ``file``: the configuration --------------------------------------


@cache
def _files() -> "Threads":
    """One thread: keys are written one after the other."""
    from klaw.actor.threads import Threads

    return Threads("connecting", 1)


async def known_services(file: Path) -> KnownServices:
    from klaw.config.secrets import with_secrets
    from klaw.llm.discovery import find_local

    found = {each.service if each.service in SERVICES else OTHER: each.base_url for each in await find_local()}
    environ = await _files().run(with_secrets, file.parent)
    listed = [
        OneService(
            id=each.id,
            name=each.name,
            url=found.get(each.id, each.base_url),
            key_env=each.key_env,
            key_page=each.key_page,
            found=each.id in found,
            has_key=bool(environ.get(each.key_env)),
        )
        for each in SERVICES.values()
    ]
    return {"services": sorted(listed, key=lambda each: not each["found"])}


async def offered(asked: ServiceToAsk, config: "EngineConfig", file: Path) -> OfferedModels:
    from klaw.llm import connect as connecting

    connection = await _files().run(_connection, asked, config, file, os.environ)
    found = await connecting.look(connection)
    return {"service": found.service, "note": found.note, "models": [_told(each) for each in found.models]}


async def connected(
    asked: ModelToConnect, config: "EngineConfig", file: Path, change: Change, environ: Mapping[str, str]
) -> ConnectedModel:
    """``environ``: the environment of the server, in which no key has to be stored again. Raises NotConnected,
    ConfigError, OperationError: nothing was changed."""
    from klaw.config.edit import Draft
    from klaw.config.secrets import store
    from klaw.llm import connect as connecting

    connection = await _files().run(_connection, asked, config, file, environ)
    facts = tried = None
    try:
        found = await connecting.look(connection)
        facts = next((each for each in found.models if each.name == asked.model), None)
        if found.base_url != connection.base_url:
            at_its_address = attrs.evolve(asked, url=found.base_url)
            connection = await _files().run(_connection, at_its_address, config, file, environ)
    except connecting.NotConnected as error:
        if error.status not in _LISTS_NOTHING or not asked.test:
            raise
    if asked.test:
        tried = await connecting.try_model(config, connection, asked.model, facts)
    changes = connecting.changes_for(config, connection, asked.model, asked.use)
    after = (await _files().run(Draft.of, file, changes)).config
    key_in = connection.variable if connection.stores and not asked.dry_run else None
    if not asked.dry_run:
        before = await _files().run(store, file.parent, key_in, connection.key) if key_in is not None else None
        refused = None
        try:
            await change(changes)
        except ConfigError as error:
            refused = error
        if refused is not None:
            if key_in is not None:
                await _files().run(store, file.parent, key_in, before)
            raise op.OperationError("bad_config", str(refused))
    return {
        "model": f"{connection.provider}/{asked.model}",
        "answer": tried.answer if tried is not None else None,
        "seconds": round(tried.seconds, 2) if tried is not None else None,
        "tools": tried.tools if tried is not None else None,
        "cost": connecting.day_cost(connection, facts.prices if facts is not None else None),
        "switched_on": list(connecting.switched_on(config, after)),
        "key_in": key_in,
        "changed": not asked.dry_run,
    }


def _connection(
    asked: ServiceToAsk, config: "EngineConfig", file: Path, environ: Mapping[str, str]
) -> "ServiceConnection":
    from klaw.config.secrets import with_secrets
    from klaw.llm.connect import connection_of

    service = SERVICES.get(asked.service)
    if service is None:
        close = difflib.get_close_matches(asked.service.lower(), SERVICES, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise op.OperationError("unknown_service", f"is none of {', '.join(SERVICES)}{meant}", field="service")
    return connection_of(
        config,
        service,
        url=asked.url,
        key=asked.key,
        key_env=asked.key_env,
        environ=environ,
        secrets=with_secrets(file.parent),
    )


def _told(facts: "ModelFacts") -> dict[str, Any]:
    names = ("name", "context_tokens", "tools", "images", "thinking", "embedding")
    told = {name: getattr(facts, name) for name in names}
    return {**told, "prices": told_prices(facts.prices) if facts.prices is not None else None}
