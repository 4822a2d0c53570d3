"""What operators ask of a server beside its status: health, log level, a reindex, models, a
check-up."""

from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

import attrs

from klaw.actor.clock import iso
from klaw.errors import ActorStopped, ConfigError
from klaw.operations.handler import OPERATOR, Caller, DatabaseParts, Parts
from klaw.operations.lines import ShownLines, told_prices
from klaw.operations.operation import Name, Nothing, Noun, OperationError, Scope, argument, required
from klaw.operations.perform import operations, perform, read

if TYPE_CHECKING:
    from klaw.core import Health
    from klaw.llm.facts import ModelCheck
    from klaw.llm.registry import Registry
    from klaw.operations.answers import DegradedSince
    from klaw.store.rebuild.actor import ReindexStatus

HEALTH = Noun("health", "ask whether everything works, for monitoring")
LOG = Noun("log", "show or set the level of the server's log")
REINDEX = Noun("reindex", "rebuild the database from the logs")
MODELS = Noun("models", "list and test the models of the configuration (docs/models.md)")
DOCTOR = Noun("doctor", "check the installation (docs/operations.md)")
WRITER_PING_S = 5.0
"""A writer that has not committed an empty transaction after this time counts as stuck."""


# -- health and log ---------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Log:
    level: Literal["debug", "info", "warning", "error"] | None = argument(
        "debug, info, warning or error, until the next start (default: only show the level)", positional=True
    )


class HealthAnswer(TypedDict):
    state: str
    writer_ping_ms: float | None
    degraded: "list[DegradedSince]"
    failed_actors: list[str]


class LogLevel(TypedDict):
    level: str


def _health(answer: dict[str, Any]) -> ShownLines:
    problems = [each["text"] for each in answer["degraded"]]
    problems += [f"the part {name} has failed; see `klaw actors`" for name in answer["failed_actors"]]
    if answer["writer_ping_ms"] is None:
        problems.insert(0, f"the database did not commit within {WRITER_PING_S:g} s")
    state = "not everything works" if answer["state"] == "degraded" else answer["state"]
    lines = [state, *(f"  {text}" for text in problems)]
    return ShownLines(lines, found=answer["state"] != "failing", degraded=answer["state"] == "degraded")


def listed(health: "Health") -> "list[DegradedSince]":
    from klaw.operations.answers import DegradedSince

    problems = health.problems()
    return [DegradedSince(code=code, text=text, since=iso(health.since[code])) for code, text in problems.items()]


@HEALTH.operation("health", Nothing, cli="", show=_health, scope=Scope.USER, deadline_s=8)
async def health(_asked: Nothing, caller: Caller, parts: Parts) -> HealthAnswer:
    """Tell whether everything works, or what does not, or that nothing can be stored. The exit code is 0 if all is
    ok, 3 if something does not work, 1 if nothing can be stored or no server answers.

    Which parts have failed is for operators: the names of parts have the names of users and chats.
    """
    import trio

    from klaw.actor.supervisor import ActorState

    ping_ms, begin = None, trio.current_time()
    with trio.move_on_after(WRITER_PING_S):
        try:
            await parts.writer.ping()
            ping_ms = round((trio.current_time() - begin) * 1000, 2)
        except ActorStopped:
            pass
    degraded, actors = listed(parts.core.health), parts.core.supervisor.report()
    failed = [each.name for each in actors if each.state is ActorState.FAILED] if caller.operator else []
    state = "failing" if ping_ms is None else "degraded" if degraded or failed else "ok"
    return {"state": state, "writer_ping_ms": ping_ms, "degraded": degraded, "failed_actors": failed}


@LOG.operation(
    "log", Log, cli="", show=lambda answer: [answer["level"]], scope=Scope.OPERATOR, changes=True, deadline_s=2
)
async def log(asked: Log, _caller: Caller, _parts: Parts) -> LogLevel:
    """Show the level of the server's log, or set it until the next start."""
    from klaw.actor import log as logging

    if asked.level is not None:
        logging.set_level(asked.level)
    return {"level": logging.level()}


# -- reindex ----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReindexChoices:
    accept_differences: bool = argument("use the new database even if it differs from the old one", default=False)
    embed_again: bool = argument("make all vectors again (default: take them over)", default=False)


@attrs.frozen(kw_only=True)
class Reindex(ReindexChoices):
    action: Literal["start", "status", "cancel"] = argument("start it, ask how far it is, or stop it", default="status")


@REINDEX.operation("reindex", Reindex, scope=Scope.OPERATOR, changes=True)
async def reindex(asked: Reindex, _caller: Caller, parts: Parts) -> "ReindexStatus":
    """Rebuild the database from the logs, compare the two, and swap them if they are equal."""
    from klaw.store.rebuild.values import ReindexOptions

    if asked.action == "start":
        await parts.reindexer.start(
            ReindexOptions(accept_differences=asked.accept_differences, embed_again=asked.embed_again)
        )
    elif asked.action == "cancel":
        await parts.reindexer.cancel()
    return parts.reindexer.status


# -- models, a check-up: the command line has them without a server ---------------------------------


@attrs.frozen(kw_only=True)
class ModelToTest:
    model: Name = required("PROVIDER/MODEL")


class KnownValue(TypedDict):
    """``source``: config, tried, service, prices or default; ``at``: when it was tried or the service said it.
    ``title`` and ``said_by`` are for people."""

    value: int | bool | str
    source: str
    at: str | None
    title: str
    said_by: str


_TITLES = {
    "context_tokens": "Context", "longest_context": "Longest context", "output_tokens": "Longest answer",
    "tools": "tools", "images": "images", "thinking": "thinking", "json_schema": "JSON schema",
    "embedding": "embeddings", "prices": "Prices",
}  # fmt: skip
_SAID_BY = {
    "config": "set in the configuration", "service": "the service says so", "prices": "from the price list",
    "tried": "tried", "default": "assumed",
}  # fmt: skip


class KnownModel(TypedDict):
    """``left_out``: members of requests and other things that the model was found to refuse."""

    name: str
    values: dict[str, KnownValue]
    left_out: list[str]


class AskedService(TypedDict):
    """``error``: why it could not be asked the last time."""

    provider: str
    service: str | None
    asked_at: str | None
    models: int
    note: str
    error: str | None


class ModelList(TypedDict):
    models: list[str]
    default: str
    known: list[KnownModel]
    services: list[AskedService]


class TestedModel(TypedDict):
    model: str
    checks: "list[ModelCheck]"


class CheckUp(TypedDict):
    ok: bool
    problems: int
    warnings: int
    findings: list[dict[str, str | None]]
    chats: dict[str, dict[str, int]]


@MODELS.operation("models_list", Nothing, scope=Scope.OPERATOR, offline=True)
async def models(_asked: Nothing, _caller: Caller, parts: DatabaseParts) -> ModelList:
    """List the models of the configuration, the usual one first, with what is known of each and who says so."""
    from klaw.llm.router import configured_models

    config, registry = parts.config, await parts.registry()
    names = configured_models(config)
    return {
        "models": names,
        "default": config.routing.default,
        "known": [_known(registry, name) for name in names],
        "services": [_service_told(registry, provider) for provider in config.providers],
    }


def _known(registry: "Registry", name: str) -> KnownModel:
    facts, values = registry.facts(name), dict[str, KnownValue]()
    for field in facts.known():
        if field != "embedding" or facts.embedding:  # as hardly any
            value = told_prices(facts.prices) if field == "prices" and facts.prices else getattr(facts, field)
            source, at = facts.origins[field].source, facts.origins[field].at
            title, said_by = _TITLES.get(field, field), _SAID_BY[source]
            values[field] = {"value": value, "source": source, "at": at, "title": title, "said_by": said_by}
    return {"name": name, "values": values, "left_out": list(registry.left_out(name))}


def _service_told(registry: "Registry", provider: str) -> AskedService:
    found, error = registry.service(provider), registry.errors.get(provider)
    return {
        "provider": provider,
        "service": found.service if found is not None else None,
        "asked_at": found.at if found is not None else None,
        "models": len(found.models) if found is not None else 0,
        "note": found.note if found is not None else "",
        "error": error,
    }


@MODELS.operation("models_test", ModelToTest, scope=Scope.OPERATOR, changes=True, deadline_s=120)
async def test(asked: ModelToTest, _caller: Caller, parts: Parts) -> TestedModel:
    """Ask a model a few tiny questions and say what works; it costs a few tokens."""
    from klaw.llm.trial import trials_of

    try:
        trials = trials_of(parts.config, parts.llm, asked.model)
    except ConfigError as error:
        raise OperationError("bad_model", str(error), field="model") from None
    parts.llm.registry.unlearn(asked.model)
    checks = [check for trial in trials for check in await trial()]
    parts.llm.registry.note_checks(asked.model, checks)
    return {"model": asked.model, "checks": checks}


@DOCTOR.operation("doctor", Nothing, scope=Scope.OPERATOR, deadline_s=60)
async def doctor(_asked: Nothing, _caller: Caller, parts: Parts) -> CheckUp:
    """Check the installation and say what to do; it changes nothing."""
    about = [await perform(read(operations()[name], {}), OPERATOR, parts) for name in ("status", "health")]
    return cast("CheckUp", await parts.listeners.check_up(*about))
