"""Connecting a model: by the server if one runs, else by the command itself."""

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw.config.services import OTHER, SERVICES, DayCost, Use
from klaw.convert import Bounds, Check
from klaw.errors import ConfigError
from klaw.operations import operation as op
from klaw.operations import server
from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.lines import told_prices

if TYPE_CHECKING:
    from klaw.actor.threads import Threads
    from klaw.llm.connect import ServiceConnection
    from klaw.operations.answers import Flat

EVERYTHING: tuple[Use, ...] = ("chats", "background", "tasks")
_LISTS_NOTHING = (404, 405)
_FORM = "[A-Za-z_][A-Za-z0-9_]{0,199}"


def _variable(text: str) -> str:
    if not re.fullmatch(_FORM, text):
        raise ValueError("must be the name of an environment variable, not the key itself")
    return text


@attrs.frozen(kw_only=True)
class ServiceAndKey:
    url: Annotated[str, Bounds(1, 2_000)] | None = op.argument("the address of its API", metavar="URL")
    key: Annotated[str, Bounds(1, 4_000)] | None = attrs.field(
        default=None, repr=False, metadata={"argument": op.Argument(help="its key, which is kept in secrets.env")}
    )
    key_env: Annotated[str, Check(_variable, Bounds(pattern=_FORM))] | None = op.argument(
        "the environment variable that holds the key", metavar="VARIABLE"
    )


@attrs.frozen(kw_only=True)
class ServiceToAsk(ServiceAndKey):
    service: op.Name = op.required("which: ollama, openrouter, anthropic … or other")


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
    models: "list[Flat]"


class ConnectedModel(TypedDict):
    """``answer``: what the model said, None without a test. ``cost``: US dollars of a day of talk. ``switched_on``:
    what works by itself from then on. ``key_in``: the variable of ``secrets.env`` that got the key. ``in_effect``: a
    server uses it already."""

    model: str
    answer: str | None
    seconds: float | None
    tools: bool | None
    cost: DayCost
    switched_on: list[str]
    key_in: str | None
    changed: bool
    in_effect: bool


_HOW: Any = {"scope": op.Scope.OPERATOR, "offline": True, "bare": True}


@server.MODELS.operation("models_services", op.Nothing, route="GET services", **_HOW)
async def services(_asked: op.Nothing, _caller: Caller, parts: DatabaseParts) -> KnownServices:
    """List the services that can be connected, those that answer on this machine first."""
    from klaw.config.secrets import with_secrets
    from klaw.llm.discovery import find_local

    found = {each.service if each.service in SERVICES else OTHER: each.base_url for each in await find_local()}
    keys = await files().run(with_secrets, parts.paths.config_file.parent)
    listed = [
        OneService(
            id=each.id,
            name=each.name,
            url=found.get(each.id, each.base_url),
            key_env=each.key_env,
            key_page=each.key_page,
            found=each.id in found,
            has_key=bool(keys.get(each.key_env)),
        )
        for each in SERVICES.values()
    ]
    return {"services": sorted(listed, key=lambda each: not each["found"])}


@server.MODELS.operation("models_look", ServiceToAsk, deadline_s=30, route="POST look", **_HOW)
async def look(asked: ServiceToAsk, _caller: Caller, parts: DatabaseParts) -> OfferedModels:
    """List the models of a service, and what each can do; nothing is changed."""
    from klaw.llm import connect as connecting

    found = await connecting.look(await files().run(_connection, asked, parts))
    names = ("name", "context_tokens", "tools", "images", "thinking", "embedding")
    told = [
        {**{name: getattr(each, name) for name in names}, "prices": told_prices(each.prices) if each.prices else None}
        for each in found.models
    ]
    return {"service": found.service, "note": found.note, "models": told}


@server.MODELS.operation("models_connect", ModelToConnect, changes=True, deadline_s=250, **_HOW)
async def connect(asked: ModelToConnect, _caller: Caller, parts: DatabaseParts) -> ConnectedModel:
    """Connect a model: ask it once, then use it from now on. Its key goes into secrets.env."""
    from klaw.config.edit import Draft
    from klaw.llm import connect as connecting

    config, file, found = parts.config, parts.paths.config_file, None
    connection = await files().run(_connection, asked, parts)
    try:
        found = await connecting.look(connection)
        if found.base_url != connection.base_url:
            connection = await files().run(_connection, attrs.evolve(asked, url=found.base_url), parts)
    except connecting.NotConnected as error:
        if error.status not in _LISTS_NOTHING or not asked.test:
            raise
    tried = await connecting.try_model(config, connection, asked.model, found, parts.budget, asks=asked.test)
    changes = connecting.changes_for(config, connection, asked.model, asked.use)
    after, name = (await files().run(Draft.of, file, changes)).config, f"{connection.provider}/{asked.model}"
    key_in = connection.variable if connection.stores and not asked.dry_run else None
    if not asked.dry_run:
        await take_up(parts, changes, key_in, connection.key)
        await (await parts.registry()).know(name)  # before the first turn plans with it
    return {
        "model": name,
        "answer": tried.answer,
        "seconds": tried.seconds,
        "tools": tried.tools,
        "cost": tried.cost,
        "switched_on": list(connecting.switched_on(config, after)),
        "key_in": key_in,
        "changed": not asked.dry_run,
        "in_effect": not asked.dry_run and parts.budget is not None,
    }


@cache
def files() -> "Threads":
    """One thread: keys are written one after the other."""
    from klaw.actor.threads import Threads

    return Threads("connecting", 1)


async def take_up(parts: DatabaseParts, changes: dict[str, Any], key_in: str | None, key: str | None) -> None:
    """Write the key, and change the settings. Raises ConfigError: nothing was changed."""
    from klaw.config.secrets import store

    folder, refused = parts.paths.config_file.parent, None
    before = await files().run(store, folder, key_in, key) if key_in is not None else None
    try:
        await parts.change(changes)
    except ConfigError as error:
        refused = error
    if refused is not None:
        if key_in is not None:
            await files().run(store, folder, key_in, before)
        raise refused


def _connection(asked: ServiceToAsk, parts: DatabaseParts) -> "ServiceConnection":
    from klaw.config.secrets import with_secrets
    from klaw.llm.connect import connection_of

    service = SERVICES.get(asked.service)
    if service is None:
        close = difflib.get_close_matches(asked.service.lower(), SERVICES, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise op.OperationError("unknown_service", f"is none of {', '.join(SERVICES)}{meant}", field="service")
    secrets = with_secrets(parts.paths.config_file.parent)
    given = {"url": asked.url, "key": asked.key, "key_env": asked.key_env}
    return connection_of(parts.config, service, **given, environ=parts.environ, secrets=secrets)
