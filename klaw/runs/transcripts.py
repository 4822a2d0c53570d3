"""Loading a task's last complete runs from its transcripts: from the end, and no more than is needed.

The transcripts are the truth here, not the database. All functions block; run them in a thread under a limiter.
"""

import json
import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.convert import JOURNAL, Bounds, Check
from klaw.domain.message import ECHO, MessageKind, Role
from klaw.domain.names import UserId, user_id
from klaw.domain.task import Run, TaskName, run_folder, task_name
from klaw.errors import BadValue, Problem
from klaw.llm.providers.adapt import echo_of, request_tokens
from klaw.llm.types import ChatMessage, ToolCall
from klaw.store.engine.log_files import TOO_LONG, lines_backwards

_MAX_RUN_ID = 128


@attrs.frozen(kw_only=True)
class PastMessage:
    """One line of a run's transcript."""

    said: ChatMessage
    ends_a_run: bool


@attrs.frozen(kw_only=True)
class PastRun:
    """A complete run: it begins with the request and ends with an answer."""

    id: str
    messages: tuple[PastMessage, ...]

    @property
    def tokens(self) -> int:
        """Estimated tokens in a request."""
        return request_tokens([message.said for message in self.messages])


_Text = Annotated[str, Check(lambda text: text.replace("\0", ""))]


@attrs.frozen(kw_only=True)
class _About:
    run: Annotated[str, Bounds(1, _MAX_RUN_ID)]
    calls: tuple[ToolCall, ...] | None = None
    call: _Text | None = None
    echo: Any = None


@attrs.frozen(kw_only=True)
class _TranscriptLine:
    role: Role
    type: MessageKind
    content: _Text
    metadata: _About


def read_line(record: object) -> tuple[str, PastMessage]:
    """The run and the message of one line of a transcript. Raises BadValue for a malformed line."""
    line = JOURNAL.read(record, _TranscriptLine)
    about = line.metadata
    if line.type is MessageKind.TOOL_CALL and about.calls is None:
        raise BadValue([Problem("metadata.calls", "is required")])
    if line.role is Role.TOOL and about.call is None:
        raise BadValue([Problem("metadata.call", "is required")])
    said = ChatMessage(
        role=line.role.value,
        content=line.content,
        tool_calls=about.calls or () if line.type is MessageKind.TOOL_CALL else (),
        tool_call_id=about.call if line.role is Role.TOOL else None,
        echo=echo_of({ECHO: about.echo}) if line.role is Role.ASSISTANT else None,
    )
    return about.run, PastMessage(
        said=said, ends_a_run=line.role is Role.ASSISTANT and line.type is not MessageKind.TOOL_CALL
    )


class Collector:
    """Takes lines newest first and keeps the newest complete runs; those of several runs may be mixed. No more are
    wanted once there are ``runs`` of them, or ``max_tokens``."""

    def __init__(self, *, runs: int, max_tokens: int) -> None:
        self._runs = runs
        self._max_tokens = max_tokens
        self._kept: dict[str, list[PastMessage]] = {}
        self._incomplete: set[str] = set()
        self._begun: dict[str, int] = {}
        """Tokens of the runs whose request is found, so that they are whole."""

    @property
    def has_enough(self) -> bool:
        """Whether only further lines of the collected runs are of use."""
        return len(self._begun) >= self._runs or sum(self._begun.values()) >= self._max_tokens

    def add(self, run: str, message: PastMessage) -> bool:
        """Take the next line. Returns False when it shows that no further line is needed."""
        if run not in self._kept:
            if self.has_enough:
                return False
            if run in self._incomplete:
                return True
            if not message.ends_a_run:
                self._incomplete.add(run)
                return True
            self._kept[run] = []
        self._kept[run].append(message)
        if message.said.role == "user":
            self._begun[run] = request_tokens([kept.said for kept in self._kept[run]])
        return True

    def result(self) -> tuple[PastRun, ...]:
        """The runs, oldest first."""
        whole = [run for run in self._kept if run in self._begun][: self._runs]
        return tuple(PastRun(id=run, messages=tuple(reversed(self._kept[run]))) for run in reversed(whole))


MAX_LINE_BYTES = 1024 * 1024
"""A longer line would fill any model's context, and is left out."""
MAX_PARSED_BYTES = 16 * 1024 * 1024
"""How much is parsed for one history; reached only when many of the newest runs are incomplete or very long."""
MAX_SCANNED_BYTES = 256 * 1024 * 1024
"""How much is read for one history, including lines that are left out."""

_LOG = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl", re.ASCII)
"""One file a day, so names sort by age."""

log = structlog.get_logger("klaw.runs")


def load(conversations: Path, user: UserId, name: TaskName, *, runs: int, max_tokens: int) -> tuple[PastRun, ...]:
    """The last complete runs of a task, at most ``runs``, oldest first; none older once those found have
    ``max_tokens``.

    What cannot be read is left out, with one warning for each file. Raises InvalidName for a bad user or task.
    """
    if runs <= 0 or max_tokens <= 0:
        return ()
    folder = conversations / run_folder(user_id(user), task_name(name))
    collector = Collector(runs=runs, max_tokens=max_tokens)
    left = _BytesLeft(parsed=MAX_PARSED_BYTES, scanned=MAX_SCANNED_BYTES)
    for file in _files(folder):
        if not _collect(folder / file, collector, left):
            break
        if left.parsed <= 0 or left.scanned <= 0:
            log.warning("history_cut", bytes=MAX_SCANNED_BYTES - max(0, left.scanned))
            break
    return collector.result()


MAX_SHOWN_CHARS = 500_000
"""Only the last messages of a longer run are shown."""


@attrs.define
class TranscriptOfRun:
    """Takes lines newest first and keeps those of one run."""

    run: str
    messages: list[ChatMessage] = attrs.field(factory=list)
    """Newest first."""
    whole: bool = False
    """Whether its request was found."""
    chars: int = 0

    def add(self, run: str, message: PastMessage) -> bool:
        """Take the next line. Returns False when it shows that no further line is needed."""
        if run == self.run:
            said = message.said
            self.chars += len(said.content) + sum(len(call.arguments) for call in said.tool_calls)
            if self.chars > MAX_SHOWN_CHARS and self.messages:
                return False
            self.messages.append(said)
            self.whole = said.role == "user"
        return not self.whole


def of_run(conversations: Path, run: Run) -> TranscriptOfRun:
    """What was said in a run; no messages if it came to none. What cannot be read is left out, with a warning."""
    found = TranscriptOfRun(run.id)
    path = conversations / run_folder(run.user, run.task) / f"{run.started_at[:10]}.jsonl"
    if path.exists():
        _collect(path, found, _BytesLeft(parsed=MAX_SCANNED_BYTES, scanned=MAX_SCANNED_BYTES))
    return found


@attrs.define
class _BytesLeft:
    parsed: int
    scanned: int


def _files(folder: Path) -> list[str]:
    """Names of the transcripts, newest first. Files of other names are not ours."""
    try:
        names = [name for name in os.listdir(folder) if _LOG.fullmatch(name)]  # noqa: PTH208 - thousands of names
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("history_unreadable", error=error_class(error))
        return []
    return sorted(names, reverse=True)


def _collect(path: Path, collector: Collector | TranscriptOfRun, left: _BytesLeft) -> bool:
    """Give the file's lines to the collector, last first. Returns False when no more are needed."""
    warned = False

    def warn(error: str) -> None:
        nonlocal warned
        if not warned:
            log.warning("malformed_line", file=path.name, error=error)
        warned = True

    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other side
            warn("NotAFile")
            return True
        for line in lines_backwards(path, longest=MAX_LINE_BYTES, at_most=left.scanned):
            if left.parsed <= 0:
                return True
            if line == TOO_LONG:
                warn("TooLong")
                continue
            left.parsed -= len(line)
            try:
                run, message = read_line(json.loads(line.decode()))
            except (ValueError, RecursionError) as error:
                warn(error_class(error))
                continue
            if not collector.add(run, message):
                return False
    except OSError as error:
        warn(error_class(error))
        return True
    left.scanned -= status.st_size
    return True
