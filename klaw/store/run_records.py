"""Runs and their transcripts as JSON objects of the logs, and which log each belongs to. Pure.

A run has a line for each of its states; the one with the highest ``change`` counts. All of them stand in the log of the
month in which it began, whatever it became later.
"""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from klaw.domain.message import Kind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import Run, RunKind, RunStatus, run_folder, task_name
from klaw.store.fields import json_object, optional_text, text, whole
from klaw.store.records import CONVERSATIONS, dumps

RUNS = "runs"
_TRANSCRIPTS = "scheduler_"


@attrs.frozen
class RunState:
    """One line of a run's log."""

    change: int
    """Number of the change among all changes of runs; grows."""
    run: Run


def run_path(run: Run) -> str:
    return f"{RUNS}/{run.started_at[:7]}.jsonl"


def run_line(state: RunState) -> str:
    return dumps({"change": state.change, **fields(state.run)})


def fields(run: Run) -> dict[str, Any]:
    """A run as JSON's values; two runs are the same when these are."""
    return {
        "id": run.id,
        "user_id": run.user,
        "task": run.task,
        "kind": run.kind,
        "due": run.due,
        "attempt": run.attempt,
        "status": run.status,
        "message": run.message,
        "model": run.model,
        "inject_into": run.inject_into,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "error": run.error,
        "note": run.note,
        "result": run.result,
        "delivered": run.delivered,
        "parent": run.parent,
        "notify": run.notify,
        "depth": run.depth,
        "details": json.loads(dumps(dict(run.details))),  # a tuple comes back as a list
    }


def without_names(record: dict[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a run of whose texts names were taken out.

    Args:
        record: the line.
        last: ``change``, texts and details of the run's last state, without them. Of earlier states, which count no
            more, only what the run was asked is left.
    """
    texts = dict(last) if record.get("change") == last["change"] else {"result": "", "details": {}}
    return {**record, "note": None, "error": None, **texts, "message": last["message"], "change": record.get("change")}


def parse_run(record: dict[str, Any]) -> RunState:
    """A run's state of a log's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    return RunState(
        whole(record["change"]),
        Run(
            id=text(record["id"]),
            user=UserId(text(record["user_id"])),
            task=task_name(text(record["task"])),
            kind=RunKind(record["kind"]),
            due=text(record["due"]),
            attempt=whole(record["attempt"]),
            status=RunStatus(record["status"]),
            message=text(record["message"]),
            model=text(record["model"]),
            inject_into=optional_text(record["inject_into"]),
            started_at=text(record["started_at"]),
            ended_at=optional_text(record["ended_at"]),
            prompt_tokens=whole(record["prompt_tokens"]),
            completion_tokens=whole(record["completion_tokens"]),
            error=optional_text(record["error"]),
            note=optional_text(record["note"]),
            result=text(record["result"]),
            delivered=whole(record["delivered"]),
            parent=optional_text(record["parent"]),
            notify=optional_text(record["notify"]),
            depth=whole(record["depth"]),
            details=json_object(record["details"]),
        ),
    )


# -- transcripts ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Spoken:
    """One line of a run's transcript."""

    id: str
    user: UserId
    folder: str
    seq: int
    """Place within the run."""
    role: Role
    type: Kind
    content: str
    metadata: dict[str, Any]
    tokens: int
    created_at: str

    @property
    def run(self) -> str:
        return str(self.metadata["run"])


def transcript_path(run: Run) -> str:
    """JSONL of a run: one file a task and UTC day, and all of a run in that of the day on which it began."""
    return f"{CONVERSATIONS}/{run_folder(run.user, run.task)}/{run.started_at[:10]}.jsonl"


def is_transcript(path: str) -> bool:
    """Whether a log below the data folder, or its folder, is one of runs and not a chat's.

    A chat's folder has an encoded colon.
    """
    top, _, rest = path.partition("/")
    folder = rest.split("/", 1)[0]
    return top == CONVERSATIONS and folder.startswith(_TRANSCRIPTS) and "%" not in folder


def transcript_line(run: Run, seq: int, message: NewMessage) -> str:
    """In the form of a chat's log; ``rowid`` is null, for it is no row of ``messages``."""
    return dumps(
        {
            "rowid": None,
            "id": message.id,
            "user_id": run.user,
            "channel": message.channel,
            "chat_id": run_folder(run.user, run.task),
            "seq": seq,
            "role": message.role,
            "type": message.type,
            "content": message.content,
            "metadata": {"model": run.model, **message.metadata, "run": run.id},
            "tokens": message.tokens,
            "created_at": message.created_at,
            "segment": 0,
        }
    )


def parse_transcript(record: dict[str, Any]) -> Spoken:
    """A transcript's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    spoken = Spoken(
        id=text(record["id"]),
        user=UserId(text(record["user_id"])),
        folder=text(record["chat_id"]),
        seq=whole(record["seq"]),
        role=Role(record["role"]),
        type=Kind(record["type"]),
        content=text(record["content"]),
        metadata=json_object(record["metadata"]),
        tokens=whole(record["tokens"]),
        created_at=text(record["created_at"]),
    )
    text(spoken.metadata["run"])
    return spoken
