"""Tasks and runs."""

from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

from klaw.domain.task import Run, Task
from klaw.operations.answers import fields_of
from klaw.runs.service import LONG

if TYPE_CHECKING:
    RunAnswer: TypeAlias = dict[str, Any]
    TaskAnswer: TypeAlias = dict[str, Any]
else:
    RunAnswer = fields_of("RunAnswer", Run, maybe=LONG, status=str)
    """A run of a task or a subagent; what may be long only where it is shown whole. It may also wait."""


class TriggerAnswer(TypedDict):
    """``kind`` tells which of the others are there."""

    kind: str
    shown: str
    expression: NotRequired[str]
    zone: NotRequired[str | None]
    seconds: NotRequired[int]
    instant: NotRequired[str]


if not TYPE_CHECKING:
    TaskAnswer = fields_of(
        "TaskAnswer",
        Task,
        "anchor_at",
        trigger=TriggerAnswer,
        zone=str,
        next_fires=list[str],
        running=bool,
        last_run=RunAnswer | None,
        warning=str | None,
    )


class TaskList(TypedDict):
    user: str
    tasks: list[TaskAnswer]


class OneTask(TypedDict):
    task: TaskAnswer


class NamedTask(TypedDict):
    user: str
    name: str


class RemovedTask(TypedDict):
    removed: NamedTask


class PreviewedTrigger(TypedDict):
    trigger: TriggerAnswer
    zone: str
    next_fires: list[str]


class Heart(TypedDict):
    chat: str | None
    every: str | None


class RunPage(TypedDict):
    user: str
    task: str | None
    status: str | None
    runs: list[RunAnswer]
    next: str | None


class OneRun(TypedDict):
    run: RunAnswer
    cancelled: NotRequired[bool]


class CallInRun(TypedDict):
    name: str
    arguments: str


class SaidInRun(TypedDict):
    role: str
    content: str
    calls: list[CallInRun]


class RunTranscript(TypedDict):
    run: str
    messages: list[SaidInRun]
    cut: bool
