"""The parts of tasks and runs: the scheduler, and what can be asked of it; and the machine's time zone."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import structlog

from klaw.config.schema import SYSTEM_ZONE, EngineConfig
from klaw.core import Core
from klaw.domain.names import MAX_ZONE, zone
from klaw.errors import InvalidName
from klaw.runs.scheduler import Scheduler
from klaw.runs.service import Scheduling
from klaw.runs.tools import scheduling_tools
from klaw.toolbox.spec import ToolSpec


@attrs.frozen(kw_only=True)
class TaskParts:
    scheduler: Scheduler
    scheduling: Scheduling
    tools: Sequence[ToolSpec]


def build(core: Core) -> TaskParts:
    planner = Scheduler()
    scheduling = Scheduling(planner, core, default_zone=default_zone(core.config.subagents.zone))
    core.health.add(planner.problems)

    async def settings_changed(_before: EngineConfig) -> None:
        scheduling.zone = await core.files.run(default_zone, core.config.subagents.zone)
        planner.nudge()

    core.changing.told.append(settings_changed)
    return TaskParts(scheduler=planner, scheduling=scheduling, tools=scheduling_tools(scheduling, planner))


FALLBACK = "UTC"
_FOLDER = "zoneinfo/"

log = structlog.get_logger("klaw.runs")


def default_zone(configured: str, environ: Mapping[str, str] = os.environ, etc: Path = Path("/etc")) -> str:
    """The zone of cron tasks that name none: ``subagents.zone``, or the machine's for ``system``: in ``TZ``, else what
    ``/etc/localtime`` links to, else in ``/etc/timezone``; UTC when none of them names a known zone. Blocks."""
    if configured != SYSTEM_ZONE:
        return configured
    for name in _candidates(environ, etc):
        with suppress(InvalidName):
            return zone(name.removeprefix(":").rpartition(_FOLDER)[2]).key
    log.warning("time_zone_unknown", name=FALLBACK)
    return FALLBACK


def _candidates(environ: Mapping[str, str], etc: Path) -> Iterator[str]:
    yield environ.get("TZ", "")
    with suppress(OSError, RuntimeError):  # RuntimeError: links in a circle
        linked = str((etc / "localtime").resolve())
        yield linked if _FOLDER in linked else ""
    with suppress(OSError, ValueError), (etc / "timezone").open(encoding="utf-8") as file:
        yield file.read(MAX_ZONE + 1).strip()
