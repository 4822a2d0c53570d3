"""Tasks and runs."""

from typing import Any, NotRequired, TypedDict


class RunAnswer(TypedDict):
    """A run of a task or a subagent; ``message`` and ``result`` only where it is shown whole."""

    id: str
    user: str
    task: str
    kind: str
    due: str
    attempt: int
    status: str
    message: NotRequired[str]
    model: str
    inject_into: str | None
    started_at: str
    ended_at: str | None
    prompt_tokens: int
    completion_tokens: int
    error: str | None
    note: str | None
    result: NotRequired[str]
    delivered: int
    parent: str | None
    notify: NotRequired[str | None]
    depth: NotRequired[int]
    details: NotRequired[dict[str, Any]]


class TriggerAnswer(TypedDict):
    """``kind`` tells which of the others are there."""

    kind: str
    shown: str
    expression: NotRequired[str]
    zone: NotRequired[str | None]
    seconds: NotRequired[int]
    instant: NotRequired[str]


class TaskAnswer(TypedDict):
    user: str
    name: str
    trigger: TriggerAnswer
    message: str
    model: str | None
    inject_into: str | None
    enabled: bool
    timeout_s: int | None
    max_tokens: int | None
    daily_tokens: int | None
    created_at: str
    updated_at: str
    zone: str
    next_fires: list[str]
    running: bool
    last_run: RunAnswer | None
    warning: str | None


class Tasks(TypedDict):
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


class Transcript(TypedDict):
    run: str
    messages: list[SaidInRun]
    cut: bool
