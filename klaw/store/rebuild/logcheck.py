"""Looking through the logs without changing or quoting them: which lines are malformed or torn, and what they name."""

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from sys import intern

import apsw
import attrs
import numpy as np
from numpy.typing import NDArray

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.store import changes, rows
from klaw.store.engine import set_aside
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.log_files import FAULTS, lines_backwards, parse
from klaw.store.kinds import messages as stored_messages
from klaw.store.kinds import records
from klaw.store.kinds import runs as stored_runs
from klaw.store.kinds import turns as stored_turns
from klaw.store.kinds.inventory import LoggedMessage, last_numbers, unknown_messages
from klaw.store.rebuild.reconcile import FARTHEST

TAIL_LINES = 100
"""Lines of each of a chat's newest logs that are read, unless all are asked for."""
TAIL_LOGS = 3
OLDER_LINES = 2
"""Lines of each older log: a clock that went back may have put the newest record there. The last one may be torn."""


class Numbers:
    """Numbers of records that should be 1, 2, 3 … with one record each. 16 bytes a record."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._records = array("q")

    def add(self, number: int, record: object) -> None:
        """Args: the number, and what tells its record from another one of the same number."""
        self._numbers.append(number)
        self._records.append(hash(record))

    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The numbers, each once, and which of them several records have."""
        both = np.stack([np.frombuffer(self._numbers, np.int64), np.frombuffer(self._records, np.int64)])
        numbers, counts = np.unique(np.unique(both, axis=1)[0], return_counts=True)
        return numbers, counts > 1

    def repeated(self) -> list[int]:
        numbers, several = self._sorted()
        return [int(number) for number in numbers[several]]

    def missing(self) -> list[tuple[int, int]]:
        """The gaps: the first and the last number of each that no record has."""
        numbers = np.concatenate([[0], self._sorted()[0]])
        return [(int(numbers[at]) + 1, int(numbers[at + 1]) - 1) for at in np.nonzero(np.diff(numbers) > 1)[0]]

    def last(self, known: int) -> int:
        """The highest number that Klaw can have given, if ``known`` was; numbers far above all others do not count."""
        last = known
        for number in self._sorted()[0]:
            if number > last + FARTHEST:
                break
            last = max(last, int(number))
        return last

    def far(self) -> int:
        """How many numbers are so far above all others that Klaw cannot have given them."""
        return int(np.count_nonzero(self._sorted()[0] > self.last(0)))


@attrs.define(kw_only=True)
class LogReport:
    logs: int = 0
    lines: int = 0
    malformed: dict[str, int] = attrs.Factory(dict)
    """Log -> lines that are no record of its kind; the last line of a torn log is not among them."""
    torn: list[str] = attrs.Factory(list)
    """Logs whose last line has no end."""
    unreadable: list[str] = attrs.Factory(list)
    messages: list[LoggedMessage] = attrs.Factory(list)
    last_seqs: dict[ChatId, int] = attrs.Factory(dict)
    """The highest number that was read, by chat."""
    turns: list[str] = attrs.Factory(list)
    runs: dict[str, int] = attrs.Factory(dict)
    """The highest change that was read, by run."""
    entries: Numbers = attrs.Factory(Numbers)
    rowids: Numbers = attrs.Factory(Numbers)
    changes: Numbers = attrs.Factory(Numbers)
    seqs: dict[ChatId, Numbers] = attrs.Factory(dict)
    """Numbers of each chat's messages; like the others they prove something only if every line was read."""
    set_aside: int = 0
    pending_lines: int = 0
    """Lines of the commit log: what the logs themselves may lack after a power cut."""


def read_logs(data_dir: Path, *, whole: bool) -> LogReport:
    """Read the ends of the newest logs, or with ``whole`` every line of all. What cannot be read is reported, never
    raised."""
    report = LogReport()
    with _reported(report, set_aside.FOLDER):
        report.set_aside = set_aside.count(data_dir)
    folders = [data_dir / name for name in (stored_turns.TURNS, changes.MEMORY, stored_runs.RUNS)]
    with _reported(report, stored_messages.CONVERSATIONS):
        chats = (data_dir / stored_messages.CONVERSATIONS).iterdir()
        folders = [*sorted(each for each in chats if each.is_dir()), *folders]
    for folder in folders:
        for place, path in enumerate(sorted(folder.glob("*.jsonl"), reverse=True)):
            most = None if whole else TAIL_LINES if place < TAIL_LOGS else OLDER_LINES
            name = path.relative_to(data_dir).as_posix()
            report.logs += 1
            with _reported(report, name):
                _read_log(path, name, report, most)
    with _reported(report, COMMIT_LOG):
        _read_commit_log(data_dir / COMMIT_LOG, report)
    return report


@contextmanager
def _reported(report: LogReport, name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError:
        report.unreadable.append(name)


@attrs.frozen(kw_only=True)
class LackingRecords:
    """What of the logs a database lacks."""

    messages: Mapping[ChatId, int]
    """How many by chat; chats without any are left out."""
    others: Mapping[str, int]
    """How many turns, runs and changes of memory, by their word."""

    @property
    def any(self) -> bool:
        return bool(self.messages) or any(self.others.values())


def lacking(connection: apsw.Connection, report: LogReport) -> LackingRecords:
    """What the database lacks of what was read, and can take: not what has a number that Klaw never gave."""
    last = last_numbers(connection)
    runs = (
        stored_runs.change_of(connection, run) < change
        for run, change in report.runs.items()
        if change <= last["change"] + FARTHEST
    )
    return LackingRecords(
        messages=unknown_messages(connection, report.messages, last["rowid"] + FARTHEST),
        others={
            "turn": sum(not stored_turns.exists(connection, turn) for turn in report.turns),
            "run": sum(runs),
            "memory change": report.entries.last(last["entry"]) - last["entry"],
        },
    )


def _take(report: LogReport, log: str, line: bytes) -> bool:
    """Note what a line of a log tells. False when it is no record of the log's kind."""
    try:
        record = parse(line)
        if stored_runs.is_transcript(log):
            stored_runs.parse_transcript(record)  # nothing that the database has
            return True
        match log.split("/", 1)[0]:
            case stored_turns.TURNS:
                report.turns.append(stored_turns.parse(record).id)
            case changes.MEMORY:
                report.entries.add(records.read(record).entry, rows.dumps(record))
            case stored_runs.RUNS:
                state = stored_runs.parse_run(record)
                report.changes.add(state.change, rows.dumps(record))
                report.runs[state.run.id] = max(state.change, report.runs.get(state.run.id, 0))
            case _:
                _take_message(report, stored_messages.parse_message(record))
    except FAULTS:
        return False
    return True


def _take_message(report: LogReport, message: Message) -> None:
    # Interned: a million lines name a few chats.
    chat, user = ChatId(intern(message.chat)), UserId(intern(message.user))
    report.messages.append(LoggedMessage(chat=chat, user=user, id=message.id, seq=message.seq, rowid=message.rowid))
    report.seqs.setdefault(chat, Numbers()).add(message.seq, message.id)
    report.rowids.add(message.rowid, message.id)
    report.last_seqs[message.chat] = max(message.seq, report.last_seqs.get(message.chat, 0))


def _read_log(path: Path, name: str, report: LogReport, most: int | None) -> None:
    torn = _is_torn(path)
    if torn:
        report.torn.append(name)
    for number, line in enumerate(islice(lines_backwards(path), most)):
        report.lines += 1
        if not _take(report, name, line) and not (torn and number == 0):
            report.malformed[name] = report.malformed.get(name, 0) + 1


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _read_commit_log(path: Path, report: LogReport) -> None:
    """Count its lines, and learn what they name: the next start puts them into the logs."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                log, _, record = line.partition(b"\t")
                report.pending_lines += 1
                _take(report, log.decode(errors="replace"), record)
