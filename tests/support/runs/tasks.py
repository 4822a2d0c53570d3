"""Tasks, runs and what they say, for tests of the store."""

import itertools
from typing import Any

from klaw.actor.clock import iso
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import Cron, Run, RunKind, RunStatus, Task, TaskName, delivery_message
from tests.support.stores import START, new

_count = itertools.count(1)


def task(name: str = "news", *, user: str = "local", at: float = START, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "trigger": Cron(expression="0 9 * * 1-5", zone="Europe/Berlin"),
        "message": "What is new? / Что нового?",
        "inject_into": "main",
        "max_tokens": 5000,
        "created_at": iso(START),
        "updated_at": iso(at),
        "anchor_at": iso(START),
    }
    return Task(user=UserId(user), name=TaskName(name), **{**values, **changes})


def run_of(name: str = "news", *, user: str = "local", at: float | None = None, **changes: Any) -> Run:
    """A run that begins; another one at each call."""
    number = next(_count)
    started = START + number * 60 if at is None else at
    values: dict[str, Any] = {
        "id": f"run{number}",
        "kind": RunKind.SCHEDULED,
        "due": iso(started),
        "status": RunStatus.RUNNING,
        "message": "What is new? / Что нового?",
        "model": "local/tiny",
        "inject_into": "main",
        "started_at": iso(started),
        "details": {"rounds": 0},
    }
    return Run(user=UserId(user), task=TaskName(name), **{**values, **changes})


def result(run: Run, text: str = "Nothing new. / Ничего нового.", *, number: int = 1, chat: str = "main") -> NewMessage:
    return delivery_message(run, number, chat_id(run.user, chat), text, iso(START + 5))


def exchange(run: Run) -> list[NewMessage]:
    """A request, a tool call with its result, and an answer, as the runner writes them."""
    who: dict[str, Any] = {"user": run.user, "chat": "unused"}
    return [
        new(run.message, **who),
        new(
            "",
            **who,
            role=Role.ASSISTANT,
            kind=MessageKind.TOOL_CALL,
            calls=[{"id": "c1", "name": "x", "arguments": "{}"}],
        ),
        new("42", **who, role=Role.TOOL, kind=MessageKind.TOOL_RESULT, call="c1", name="x"),
        new("Всё спокойно.", **who, role=Role.ASSISTANT),
    ]
