"""What the admin socket understands about tasks and runs. Pure.

Each is about one user's; without ``user`` it is ``local``.
"""

from typing import ClassVar

import attrs

from klaw.admin.kinds import Fields, Limit


@attrs.frozen(kw_only=True)
class ScheduleList:
    """All tasks of a user."""

    command: ClassVar[str] = "schedule_list"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None


@attrs.frozen(kw_only=True)
class ScheduleAdd:
    """Make a task."""

    command: ClassVar[str] = "schedule_add"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fields: Fields


@attrs.frozen(kw_only=True)
class ScheduleEdit:
    """Change the given fields of a task."""

    command: ClassVar[str] = "schedule_edit"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    name: str
    fields: Fields


@attrs.frozen(kw_only=True)
class ScheduleEnable:
    """Switch a task on or off."""

    command: ClassVar[str] = "schedule_enable"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    name: str
    enabled: bool = True
    now: bool = False
    """With a one-shot whose time is over: run it at once."""


@attrs.frozen(kw_only=True)
class ScheduleRemove:
    """Remove a task. Its runs stay."""

    command: ClassVar[str] = "schedule_remove"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    name: str


@attrs.frozen(kw_only=True)
class ScheduleRun:
    """Run a task now."""

    command: ClassVar[str] = "schedule_run"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    name: str


@attrs.frozen(kw_only=True)
class Runs:
    """A user's runs, the newest first."""

    command: ClassVar[str] = "runs"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    task: str | None = None
    status: str | None = None
    before: str | None = None
    """Id of the run after which the list goes on."""
    limit: Limit | None = None


@attrs.frozen(kw_only=True)
class RunShow:
    """One run with what was asked and what came of it."""

    command: ClassVar[str] = "run_show"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    run: str


@attrs.frozen(kw_only=True)
class RunCancel:
    """End a run that goes on or waits."""

    command: ClassVar[str] = "run_cancel"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    run: str
