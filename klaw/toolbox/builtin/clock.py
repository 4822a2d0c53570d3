"""The tool ``current_time``: models do not know what day it is."""

import datetime as dt
from typing import Annotated

from klaw.actor.clock import Clock
from klaw.convert import Bounds
from klaw.domain.names import zone as zone_of
from klaw.errors import InvalidName
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool


def clock_tools(clock: Clock) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.READ)
    async def current_time(
        _context: ToolContext,
        zone: Annotated[str | None, "IANA zone: Europe/Moscow; without it local time", Bounds(at_most=64)] = None,
    ) -> str | ToolFailure:
        """Tell the current date, weekday and time in a time zone. Use it whenever the answer depends on what day or
        time it is now."""
        try:
            found = zone_of(zone) if zone is not None else None
        except InvalidName as error:
            return ToolFailure.of(error)
        now = dt.datetime.fromtimestamp(clock.now(), dt.UTC).astimezone(found)
        # Not strftime's %A: the names must not depend on the machine's language.
        shown = f"{WEEKDAYS[now.weekday()]}, {now.isoformat(timespec='seconds')}"
        return shown if found is None else f"{shown} ({found.key})"

    return (current_time,)


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
