"""Runs and their transcripts as JSON objects of the logs, and which log each belongs to. Pure.

A run has a line for each of its states; the one with the highest ``change`` counts. All of them stand in the log of the
month in which it began, whatever it became later.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import attrs

from klaw.convert import JOURNAL, Wire
from klaw.domain.message import Kind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import Run, run_folder
from klaw.store.records import CONVERSATIONS, dumps, message_line

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
    return dumps({"change": state.change, **JOURNAL.write(state.run)})


def fields(run: Run) -> dict[str, Any]:
    """A run as JSON's values; two runs are the same when these are."""
    found: dict[str, Any] = json.loads(dumps(JOURNAL.write(run)))  # a tuple comes back as a list
    return found


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
    """A run's state of a log's line. Raises KeyError or ValueError for a malformed one."""
    run = JOURNAL.read(record, Run)
    return RunState(JOURNAL.read(record["change"], int), run)


# -- transcripts ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Spoken:
    """One line of a run's transcript."""

    id: str
    user: Annotated[UserId, Wire("user_id")]
    folder: Annotated[str, Wire("chat_id")]
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
    return message_line(
        message,
        rowid=None,
        user_id=run.user,
        chat_id=run_folder(run.user, run.task),
        seq=seq,
        metadata={"model": run.model, **message.metadata, "run": run.id},
        segment=0,
    )


def parse_transcript(record: dict[str, Any]) -> Spoken:
    """A transcript's line. Raises KeyError or ValueError for a malformed one."""
    spoken = JOURNAL.read(record, Spoken)
    JOURNAL.read(spoken.metadata["run"], str)
    return spoken
