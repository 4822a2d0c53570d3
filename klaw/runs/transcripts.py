"""Reading runs from the ends of their transcripts, and no more than is needed. All functions block."""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
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

MAX_LINE_BYTES = 1024 * 1024
"""A longer line would fill any model's context, and is left out."""
MAX_READ_BYTES = 64 * 1024 * 1024
"""How much is read for one history; reached only when many of the newest runs are incomplete or very long."""
MAX_SHOWN_CHARS = 500_000
_MAX_RUN_ID = 128
_LOG = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl", re.ASCII)
"""One file a day, so names sort by age."""

log = structlog.get_logger("klaw.runs")


@attrs.frozen(kw_only=True)
class PastRun:
    """A complete run: it begins with the request and ends with an answer."""

    id: str
    messages: tuple[ChatMessage, ...]


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


def load(conversations: Path, user: UserId, name: TaskName, *, runs: int, max_tokens: int) -> tuple[PastRun, ...]:
    """The last complete runs of a task, at most ``runs``, oldest first; none older once those found have
    ``max_tokens``. What cannot be read is left out, with one warning for each file."""
    if runs <= 0 or max_tokens <= 0:
        return ()
    folder = conversations / run_folder(user_id(user), task_name(name))
    kept: dict[str, list[ChatMessage]] = {}
    incomplete: set[str] = set()
    whole: dict[str, int] = {}  # tokens of the runs whose request is found
    for run, message in _messages(_files(folder)):
        if run not in kept:
            if len(whole) >= runs or sum(whole.values()) >= max_tokens:
                break
            if not ends_a_run(message):
                incomplete.add(run)
            if run in incomplete:
                continue
        kept.setdefault(run, []).append(message)
        if message.role == "user":
            whole[run] = request_tokens(kept[run])
    found = [run for run in kept if run in whole][:runs]
    return tuple(PastRun(id=run, messages=tuple(reversed(kept[run]))) for run in reversed(found))


def of_run(conversations: Path, run: Run) -> tuple[list[ChatMessage], bool]:
    """What was said in a run, oldest first, and whether that is all. What cannot be read is left out."""
    path = conversations / run_folder(run.user, run.task) / f"{run.started_at[:10]}.jsonl"
    found: list[ChatMessage] = []
    chars = 0
    for owner, said in _messages([path] if path.exists() else []):
        if owner == run.id:
            chars += len(said.content) + sum(len(call.arguments) for call in said.tool_calls)
            if chars > MAX_SHOWN_CHARS and found:
                break
            found.insert(0, said)
            if said.role == "user":
                return found, True
    return found, False


def ends_a_run(message: ChatMessage) -> bool:
    return message.role == "assistant" and not message.tool_calls


def read_line(record: object) -> tuple[str, ChatMessage]:
    """The run and the message of one line of a transcript. Raises BadValue for a malformed line."""
    line = JOURNAL.read(record, _TranscriptLine)
    about = line.metadata
    if line.type is MessageKind.TOOL_CALL and about.calls is None:
        raise BadValue([Problem("metadata.calls", "is required")])
    if line.role is Role.TOOL and about.call is None:
        raise BadValue([Problem("metadata.call", "is required")])
    return about.run, ChatMessage(
        role=line.role.value,
        content=line.content,
        tool_calls=about.calls or () if line.type is MessageKind.TOOL_CALL else (),
        tool_call_id=about.call if line.role is Role.TOOL else None,
        echo=echo_of({ECHO: about.echo}) if line.role is Role.ASSISTANT else None,
    )


def _files(folder: Path) -> list[Path]:
    """The transcripts, newest first. Files of other names are not ours."""
    try:
        names = [name for name in os.listdir(folder) if _LOG.fullmatch(name)]  # noqa: PTH208 - thousands of names
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("history_unreadable", error=error_class(error))
        return []
    return [folder / name for name in sorted(names, reverse=True)]


def _messages(files: Iterable[Path]) -> Iterator[tuple[str, ChatMessage]]:
    """The messages of the files with the ids of their runs, the last first."""
    left = MAX_READ_BYTES
    for path in files:
        wrong = ""
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other side
                wrong = "NotAFile"
                continue
            for line in lines_backwards(path, longest=MAX_LINE_BYTES, at_most=left):
                try:
                    yield read_line(json.loads(line.decode()))
                except (ValueError, RecursionError) as error:
                    wrong = wrong or ("TooLong" if line == TOO_LONG else error_class(error))
            left -= status.st_size
        except OSError as error:
            wrong = wrong or error_class(error)
        finally:
            if wrong:
                log.warning("malformed_line", file=path.name, error=wrong)
        if left <= 0:
            log.warning("history_cut", bytes=MAX_READ_BYTES)
            return
