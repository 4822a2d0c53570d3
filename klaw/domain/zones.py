"""Time zones by their IANA names, and moments on their clocks."""

import datetime as dt
import difflib
import re
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from klaw.domain.names import InvalidName

MAX_ZONE = 64

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Files beside the zones on some systems; what they mean depends on the machine."""
_NO_AREAS = ("posix/", "right/")
"""Copies of all zones; those of ``right`` count leap seconds, which Unix time does not."""


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name such as ``Europe/Berlin`` or ``UTC``; upper and lower case matter.

    Raises InvalidName, whose text suggests a zone where one is near.
    """
    if len(name) > MAX_ZONE or not _ZONE.fullmatch(name) or name in _NO_ZONES or name.startswith(_NO_AREAS):
        raise InvalidName("a time zone has an IANA name such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidName(f"there is no time zone of this name{_suggestion(name)}") from error


def local_time(moment: float, name: str) -> str:
    """A moment (Unix seconds) on the clock of a zone, with its offset: ``2026-11-23T09:00:00+01:00``. A zone that this
    machine does not know gives UTC."""
    try:
        known: dt.tzinfo = zone(name)
    except InvalidName:
        known = dt.UTC
    return dt.datetime.fromtimestamp(moment, known).isoformat(timespec="seconds")


def clock_text(moment: str) -> str:
    """What ``local_time`` gave, as people read it: ``2026-11-23 Mon 09:00 +01:00``."""
    when = dt.datetime.fromisoformat(moment)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[when.weekday()]
    seconds = f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
    return f"{when:%Y-%m-%d} {day} {seconds} {moment[19:]}"


def _suggestion(name: str) -> str:
    known = {known.lower(): known for known in available_timezones() if not known.startswith(_NO_AREAS)}
    cities = {known.rpartition("/")[2]: known for known in sorted(known, reverse=True)}
    wanted = name.lower()
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
    if wanted in cities:
        near = [cities[wanted]]
    return f"; did you mean {known[near[0]]}?" if near else ""
