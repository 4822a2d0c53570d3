"""The time zone of the machine, by its IANA name."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from klaw.config.background import SYSTEM_ZONE
from klaw.domain.names import MAX_ZONE, InvalidName, zone

FALLBACK = "UTC"
_FOLDER = "zoneinfo/"

log = structlog.get_logger("klaw.runs")


def default_zone(configured: str, environ: Mapping[str, str] | None = None, etc: Path = Path("/etc")) -> str:
    """The zone of cron tasks that name none: ``subagents.zone``, or the machine's for ``system``.

    The machine's is in ``TZ``, else what ``/etc/localtime`` links to, else in ``/etc/timezone``; UTC when none of them
    names a known zone. Reads two files at most: ask once, at start.
    """
    if configured != SYSTEM_ZONE:
        return configured
    for name in _candidates(os.environ if environ is None else environ, etc):
        try:
            return zone(name).key
        except InvalidName:
            continue
    log.warning("time_zone_unknown", name=FALLBACK)
    return FALLBACK


def _candidates(environ: Mapping[str, str], etc: Path) -> Iterator[str]:
    if environ.get("TZ"):
        yield environ["TZ"].removeprefix(":").rpartition(_FOLDER)[2]
    try:
        linked = str((etc / "localtime").resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        linked = ""
    if _FOLDER in linked:
        yield linked.rpartition(_FOLDER)[2]
    try:
        with (etc / "timezone").open(encoding="utf-8") as file:
            yield file.read(MAX_ZONE + 1).strip()
    except (OSError, ValueError):
        return
