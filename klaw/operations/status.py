"""How the server is, for people; and its settings: what they are, and changing them without a restart."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw import __version__
from klaw.actor.clock import iso
from klaw.convert import Bounds
from klaw.domain.text import plural, span
from klaw.errors import ConfigError
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import ShownLines, Table, minute, size
from klaw.operations.mcp import in_short, servers_json
from klaw.operations.operation import Nothing, Noun, OperationError, Scope, argument
from klaw.operations.server import listed
from klaw.operations.usage import budget_text, spent_text

if TYPE_CHECKING:
    from klaw.config.listed import Setting
    from klaw.operations.answers import StatusAnswer
    from klaw.settings import ChangeResult

CONFIG = Noun("config", "check, show, describe and change the configuration (docs/configuration.md)")
STATUS = Noun("status", "show what the server does and what does not work (docs/operations.md)")


def _status(answer: dict[str, Any]) -> ShownLines:
    counts, llm, embedder, disk = answer["counts"], answer["llm"], answer["embedder"], answer["disk"]
    slots, local = llm["slots"], llm["local"]
    vectors = f"{plural(embedder['embedded'], 'vector')}, {embedder['waiting']} waiting"
    degraded = [each["text"] for each in answer["degraded"]] or ["nothing"]
    budget = [budget_text(llm["budget"])] if llm["budget"]["share"] is not None else []
    rows = [
        ["server", f"Klaw {answer['version']}, pid {answer['pid']}, up {span(answer['uptime_s'])}"],
        ["address", answer["address"] or "not listening"],
        ["connections", f"{answer['connections']} WebSocket, {answer['http_connections']} HTTP"],
        ["RAM", size(answer["rss_bytes"])],
        ["stored", _counted(counts, "message", "chat", "user")],
        ["memory", f"{_counted(counts, 'topic', 'fact')}, {plural(counts['people'], 'person', 'people')}"],
        *([["knowledge", _counted(counts, "base", "document")]] if counts.get("bases") else []),
        ["model", f"{llm['model']}, {slots['busy']} of {slots['total']} slots busy, {slots['waiting']} waiting"],
        ["spent today", "; ".join([spent_text(llm["today"]), *budget])],
        *[["provider", _provider(each)] for each in llm["providers"]],
        *[["MCP server", in_short(each)] for each in answer["mcp"]],
        *([["local model", _with_reason(local["state"], local["reason"])]] if local else []),
        [
            "embeddings",
            _with_reason(f"{embedder['state']} since {minute(embedder['since'])}, {vectors}", embedder["reason"]),
        ],
        ["search index", _coverage(answer["coverage"])],
        *[["tasks" if not place else "", text] for place, text in enumerate(_tasks(answer["tasks"]))],
        ["summaries", _off(answer, "summaries") or _summaries(answer["summaries"])],
        ["topics", _off(answer, "topics") or _topics(answer.get("topics"), answer.get("metrics", {}))],
        ["database", f"{size(disk['database_bytes'] + disk['wal_bytes'])}, schema {answer['schema']}"],
        ["logs to sync", size(disk["commit_log_bytes"])],
        ["disk", f"{size(disk['free_bytes'])} free"],
        *_config(answer.get("config", {})),
        *[["problems" if not place else "", text] for place, text in enumerate(degraded)],
    ]
    return ShownLines([Table(rows)], degraded=bool(answer["degraded"]))


def _config(about: dict[str, Any]) -> list[list[str]]:
    rows = [f"the file is wrong and not in effect: {about['wrong']}"] if about.get("wrong") else []
    rows += [f"after a restart: {', '.join(about['restart'])}"] if about.get("restart") else []
    return [["settings" if not place else "", text] for place, text in enumerate(rows)]


def _counted(counts: dict[str, int], *nouns: str) -> str:
    return ", ".join(plural(counts[f"{noun}s"], noun) for noun in nouns)


def _provider(provider: dict[str, Any]) -> str:
    name, error, calls = provider["name"], provider.get("error"), plural(provider["failures"], "failed call")
    match provider["state"]:
        case "open":
            said = f"{name}: paused for {span(provider['retry_in_s'])} after {calls}"
        case "half_open":
            said = f"{name}: being tried again after {calls}"
        case _ if provider["failures"]:
            said = f"{name}: {calls} in a row"
        case _:
            said = f"{name}: the last call failed" if error else f"{name}: works"
    said = f"{said}, {span(provider['failed_s'])} ago: {error}" if error else said
    for model, refused in provider.get("adapted", {}).items():
        said += f"; {model} refuses {', '.join(refused)} and is asked without"
    return said


def _coverage(coverage: dict[str, Any]) -> str:
    if coverage["error"]:
        return f"not known: the indexes cannot be read ({coverage['error']}); `klaw doctor` says more"
    lost, silent = coverage["uncovered"], coverage["wordless"]
    found = f"{lost} of {coverage['searchable']} messages cannot be found" if lost else "every message can be found"
    notes = [f"{silent} without words"] if silent else []
    repaired = coverage["repaired_texts"] + coverage["repaired_vectors"]
    notes += [f"{plural(repaired, 'index row')} repaired"] if repaired else []
    notes += [] if coverage["whole"] else [f"{coverage['messages']} checked so far"]
    return found + (f" ({', '.join(notes)})" if notes else "")


def _tasks(tasks: dict[str, Any]) -> list[str]:
    off = tasks["count"] - tasks["enabled"]
    first = plural(tasks["count"], "task") + (f", {off} of them disabled" if off else "")
    following = tasks["next"]
    out = [f"{first}, {plural(tasks['running'], 'run')} in progress, {tasks['queued']} waiting"]
    if following is not None:
        out.append(f"next: {following['task']} of {following['user']} at {minute(following['at'])}")
    out += [
        f"failing: {each['task']} of {each['user']} ({each['error']}); "
        f"see `klaw schedule runs {each['task']} --user {each['user']}`"
        for each in tasks["failing"]
    ]
    if tasks["undelivered"]:
        out.append(
            f"results of the last 30 days without a chat to go to: {tasks['undelivered']}; "
            "see `klaw runs --status failed`"
        )
    return out


def _off(answer: dict[str, Any], feature: str) -> str:
    return "off until a larger model is connected" if feature in answer.get("waits_for_model", ()) else ""


def _summaries(summaries: dict[str, Any]) -> str:
    if not summaries["enabled"]:
        return "off"
    said = f"{summaries['made']} made since the start"
    if summaries["last_made"]:
        said += f", the last at {summaries['last_made']}"
    if summaries["failing"]:
        chats = plural(summaries["failing"], "chat")
        said += f"; {chats} failed ({summaries['code']}), tried again at {summaries['next_try']}"
    return said


def _topics(status: dict[str, Any] | None, metrics: dict[str, Any]) -> str:
    if status is None:
        return "off (topics.enabled)"
    made, merged = (metrics[f"klaw_topics_{name}_total"]["value"] for name in ("extracted", "merged"))
    notes = [f"{status['failing']} failed and wait"] if status["failing"] else []
    notes += [status["error"]] if status["error"] else []
    text = f"{made} made and {merged} merged since the start, {plural(status['unarchived'], 'message')} without one"
    return text + (f" ({', '.join(notes)})" if notes else "")


def _with_reason(state: str, reason: str | None) -> str:
    return f"{state} ({reason})" if reason else state


@STATUS.operation("status", Nothing, cli="", show=_status, scope=Scope.OPERATOR, deadline_s=5)
async def status(_asked: Nothing, _caller: Caller, parts: Parts) -> "StatusAnswer":
    """Show what the server has stored, what it does, what it costs, and what does not work. The exit code is 0 if
    everything works, 3 if something does not, 1 if no server answers.
    """
    from klaw.actor import log as logging
    from klaw.backup.folder import last
    from klaw.upkeep import disk_usage

    core, today = parts.core, stored.usage.UsageFilters(since=parts.llm.budget.today())
    counts = await parts.readers.run(stored.inventory.counts)
    coverage, embedder = parts.memory.coverage.report(), parts.memory.embedder.status
    counted_at = coverage["counted_at"]
    return {
        "version": __version__,
        "pid": os.getpid(),
        "started_at": iso(core.started_at),
        "uptime_s": round(core.clock.now() - core.started_at, 1),
        "rss_bytes": _rss_bytes(),
        "address": parts.listeners.address(),
        "connections": len(parts.listeners.connections()),
        "http_connections": parts.listeners.http_connections(),
        "schema": counts.pop("schema"),
        "counts": counts,
        "llm": {
            "model": core.config.routing.default,
            "slots": parts.llm.slots.report(),
            "providers": parts.llm.router.report(),
            "budget": parts.llm.budget.report(),
            "today": await parts.readers.run(stored.usage.total, today),
            "local": parts.llm.local.report() if parts.llm.router.uses_local else None,
        },
        "embedder": {**attrs.asdict(embedder), "since": iso(embedder.since)},
        "mcp": servers_json(parts.tools.mcp),
        "coverage": {**coverage, "counted_at": iso(counted_at) if counted_at is not None else None},
        "tasks": await parts.tasks.scheduling.overview(),
        "summaries": parts.memory.summarizer.report(),
        "topics": parts.memory.archivist.status if core.config.makes_topics else None,
        "waits_for_model": core.config.waits_for_model,
        "metrics": core.metrics.report(),
        "threads": [each.report() for each in (core.files, parts.tools.threads, parts.agent.workspace.threads)],
        "degraded": listed(core.health),
        "disk": {
            **await core.files.run(disk_usage, core.paths, abandon=True),
            "commit_log_bytes": core.store.journal.pending_bytes,
        },
        "backup": await core.files.run(last, core.paths.backups_dir, abandon=True),
        "log_level": logging.level(),
        "config": {"wrong": core.changing.wrong, "restart": list(core.changing.waiting)},
    }


def _rss_bytes() -> int:
    """Resident memory of this process; procfs never blocks."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


# -- settings ----------------------------------------------------------------------------------------------------------

CHANGE_S = 75.0
_Key = Annotated[str, Bounds(1, 400)]


@attrs.frozen(kw_only=True)
class ConfigChange:
    values: Annotated[dict[str, Any], Bounds(0, 200)] = argument("keys with their new values", default=attrs.NOTHING)
    unset: Annotated[tuple[_Key, ...], Bounds(0, 200)] = argument("keys that get their default again", default=())


@attrs.frozen(kw_only=True)
class ConfigKeys:
    keys: Annotated[tuple[_Key, ...], Bounds(1, 200)] = argument(
        "keys that get their default again", default=attrs.NOTHING
    )


class ConfigAnswer(TypedDict):
    file: str
    wrong: str | None
    """Why the file as it is now is not in effect."""
    restart: tuple[str, ...]
    """Keys that wait for a restart."""
    undo: tuple[str, ...]
    """Keys that ``config_undo`` sets back."""
    settings: "list[Setting]"


@CONFIG.operation("config_show", Nothing, scope=Scope.OPERATOR)
async def show(_asked: Nothing, _caller: Caller, parts: Parts) -> ConfigAnswer:
    """List every setting with its value, where it comes from, and what it may be; secrets are hidden."""
    from klaw.config.document import read_written
    from klaw.config.listed import settings
    from klaw.config.load import ConfigText

    core = parts.core
    changing, config, file = core.changing, core.config, core.paths.config_file

    def listed() -> "list[Setting]":
        try:
            written = read_written(ConfigText.read(file).text)
        except ConfigError:
            written = {}
        return settings(config, written)

    return {
        "file": str(file),
        "wrong": changing.wrong,
        "restart": changing.waiting,
        "undo": tuple(changing.undo),
        "settings": await core.files.run(listed, abandon=True),
    }


_CHANGE: Any = {"scope": Scope.OPERATOR, "changes": True, "deadline_s": CHANGE_S}


@CONFIG.operation("config_set", ConfigChange, offline=True, bare=True, **_CHANGE)
async def change(asked: ConfigChange, _caller: Caller, parts: DatabaseParts) -> "ChangeResult":
    """Change settings: they are checked as a whole, written to the configuration file, and in effect at once, but for
    those that need a restart."""
    from klaw.config.edit import UNSET

    return await parts.change({**asked.values, **dict.fromkeys(asked.unset, UNSET)})


@CONFIG.operation("config_unset", ConfigKeys, offline=True, bare=True, **_CHANGE)
async def unset(asked: ConfigKeys, _caller: Caller, parts: DatabaseParts) -> "ChangeResult":
    """Take settings out of the configuration file, so that they have their defaults."""
    from klaw.config.edit import UNSET

    return await parts.change(dict.fromkeys(asked.keys, UNSET))


@CONFIG.operation("config_undo", Nothing, **_CHANGE)
async def undo(_asked: Nothing, _caller: Caller, parts: Parts) -> "ChangeResult":
    """Take the last change of settings back; a second time, make it again."""
    from klaw.settings import change_settings

    if not parts.core.changing.undo:
        raise OperationError("cannot_undo", "no setting was changed since the server was started")
    return await change_settings(parts.core, parts.core.changing.undo, undo=True)


@CONFIG.operation("config_reload", Nothing, **_CHANGE)
async def reload(_asked: Nothing, _caller: Caller, parts: Parts) -> "ChangeResult":
    """Read the configuration file again. If it is wrong, nothing changes, and the answer says what is wrong."""
    from klaw.settings import reload_settings

    return await reload_settings(parts.core)
