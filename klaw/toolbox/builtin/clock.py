"""The tool ``current_time``: models do not know what day it is."""

import datetime as dt
import zoneinfo
from typing import Annotated

from klaw.actor.clock import Clock
from klaw.convert import Bounds
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool


def clock_tools(clock: Clock) -> tuple[ToolSpec, ...]:
    """The tools that tell the time.

    Args:
        clock: the wall clock.
    """

    @tool(permission=Permission.READ)
    async def current_time(
        _context: ToolContext, zone: Annotated[str, "IANA zone: Europe/Moscow", Bounds(at_most=64)] = "UTC"
    ) -> str | ToolFailure:
        """Tell the current date, weekday and time in a time zone. Use it whenever the answer depends on what day or
        time it is now."""
        found = load_zone(zone)
        if found is None:
            return ToolFailure(f"There is no time zone {zone!r}. Give an IANA name such as Europe/Berlin, or UTC.")
        now = dt.datetime.fromtimestamp(clock.now(), found)
        # Not strftime's %A: the names must not depend on the machine's language.
        return f"{WEEKDAYS[now.weekday()]}, {now.isoformat(timespec='seconds')} ({found.key})"

    return (current_time,)


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def load_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """The time zone of an IANA name; None when there is none."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
