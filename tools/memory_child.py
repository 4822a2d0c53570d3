"""One life of a process that changes memory, and kills itself at a named point; for ``tools/memory_drill.py``.

    python -m tools.memory_child DIR '{"op": "merge", "point": "torn", "skip": 0, "seed": 7, "number": 3}'

It opens the store, finishes what an earlier life began in the background, and carries the operation out again and
again. Before each it prints what is about to happen (``begin``), after it what was acknowledged (``done``), one JSON
object a line.
"""

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.store.engine import journal
from klaw.store.engine.commit_log import CommitLog
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.store.forget import finding
from klaw.store.forget import logs as forget_logs
from tests.support import stores, turns
from tools.memory_work import OPERATIONS, Work, finish_background

OF_WRITES = ("append", "torn", "logs", "torn_commit", "commit", "sql", "kept", "fsync", "random")
OF_FORGETTING = (
    "files",
    "removed",
    "rewrite",
    "draft",
    "replaced",
    "cleaned",
    "compact",
    "compacted",
    "copies",
    "copied",
    "note",
)
REPETITIONS = 4
"""Of an operation in one life; a point that is not reached by then is none of it."""


def points_of(operation: str) -> tuple[str, ...]:
    """The moments at which an operation can be killed:

    - ``append``: nothing is written
    - ``torn``: a part of the lines is in the log; ``logs``: all are, and the commit log has none
    - ``torn_commit``: the commit log has a part of them; ``commit``: all are durable, and not in the database
    - ``sql``: inside the transaction; ``fsync``: before or after any; ``kept``: it is committed, nobody knows
    - ``files``, ``removed``: around the files that tools wrote
    - ``rewrite``, ``draft``, ``replaced``, ``cleaned``: around a log that is rewritten
    - ``compact``, ``compacted``, ``copies``, ``copied``: around what follows in the database and in copies
    - ``note``: before the note that a forgetting is finished
    - ``random``: after some milliseconds
    """
    return OF_WRITES + (OF_FORGETTING if operation.startswith("forget") else ())


class Deadline:
    """Ends the process when it has come by the point often enough since it was armed."""

    def __init__(self, point: str, skip: int, chance: random.Random) -> None:
        self.point = point
        self.left = skip
        self.chance = chance
        self.armed = False
        self.timed = False

    def arm(self, on: bool) -> None:
        if on and self.point == "random" and not self.timed:
            self.timed = True
            timer = threading.Timer(self.chance.uniform(0, 0.06), self.die)
            timer.daemon = True
            timer.start()
        self.armed = on

    def is_here(self, point: str) -> bool:
        """Whether this is the moment; counts how often it came."""
        if not self.armed or point != self.point:
            return False
        self.left -= 1
        return self.left < 0

    def at(self, point: str) -> None:
        if self.is_here(point):
            self.die()

    def part(self, data: bytes) -> bytes:
        """The beginning of some lines: whole ones or not."""
        ends = [place + 1 for place, byte in enumerate(data) if byte == 10][:-1]
        whole = ends and self.chance.random() < 0.6
        return data[: self.chance.choice(ends) if whole else len(data) // 2]

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class DyingCommitLog(CommitLog):
    """A commit log that comes by the points of writing it."""

    deadline: Deadline

    def _write(self, data: bytes, start: int) -> None:
        if data.strip(b"\0"):
            self.deadline.at("logs")
            if self.deadline.is_here("torn_commit"):
                super()._write(self.deadline.part(data), start)
                self.deadline.die()
        super()._write(data, start)


class DyingJournal(Journal):
    """A journal that comes by the points of writing and rewriting."""

    deadline: Deadline

    def append(self, entries: Any) -> None:
        self.deadline.at("append")
        if any('"what":"forget"' in each.line and '"op":"remove"' in each.line for each in entries):
            self.deadline.at("note")
        super().append(entries)
        if entries:
            self.deadline.at("commit")

    def keep(self) -> None:
        self.deadline.at("kept")
        super().keep()

    def _write(self, descriptor: int, data: bytes) -> None:
        if data and self.deadline.is_here("torn"):
            os.write(descriptor, self.deadline.part(data))
            self.deadline.die()
        super()._write(descriptor, data)

    def begin_rewrite(self, path: str, line_of: Callable[[bytes], bytes]) -> LogRewrite:
        self.deadline.at("rewrite")
        return super().begin_rewrite(path, line_of)

    def exchange(self, rewrite: LogRewrite, **how: Any) -> bool:
        done = super().exchange(rewrite, **how)
        self.deadline.at("cleaned")
        return done


def _around(deadline: Deadline, function: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        deadline.at(before)
        found = function(*args, **kwargs)
        deadline.at(after)
        return found

    return call


def _fsync(deadline: Deadline, descriptor: int) -> None:
    deadline.at("fsync")
    os.fsync(descriptor)
    deadline.at("fsync")


def say(kind: str, **values: Any) -> None:
    """Tell the drill. The line is in the pipe before anything else happens."""
    os.write(1, (json.dumps({"kind": kind, **values}, ensure_ascii=False) + "\n").encode())


async def live(root: Path, wanted: dict[str, Any]) -> None:
    chance = random.Random(f"{wanted['seed']} {wanted['number']}")
    deadline = Deadline(wanted["point"], wanted["skip"], chance)
    DyingJournal.deadline = DyingCommitLog.deadline = deadline
    journal.CommitLog = DyingCommitLog  # type: ignore[misc]
    stores.Journal = DyingJournal  # type: ignore[misc]
    turns._count = count(wanted["number"] * 1_000)  # ids of other lives are taken
    forget_logs.compact = _around(deadline, forget_logs.compact, "compact", "compacted")
    finding.remove = _around(deadline, finding.remove, "files", "removed")
    forget_logs.remove_copies = _around(deadline, forget_logs.remove_copies, "copies", "copied")
    Path.replace = _around(deadline, Path.replace, "draft", "replaced")  # type: ignore[method-assign]

    def traced(connection: apsw.Connection) -> None:
        def look(_cursor: apsw.Cursor, _statement: str, _values: Any) -> bool:
            if not connection.getautocommit():
                deadline.at("sql")
            return True

        connection.exec_trace = look

    async with stores.running_store(root, fsync=partial(_fsync, deadline), checkpoint_bytes=20_000) as store:
        await store.database.run(traced)
        work = Work(store=store, root=root, chance=chance, say=say, number=wanted["number"], arm=deadline.arm)
        await finish_background(work)
        for place in range(REPETITIONS):
            await OPERATIONS[wanted["op"]](work, place)
    say("end")


if __name__ == "__main__":
    log.configure("error", "json")
    trio.run(live, Path(sys.argv[1]), json.loads(sys.argv[2]))
