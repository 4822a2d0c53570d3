"""A home with every kind of log, and lines that Klaw never wrote, for tests."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from klaw.config.paths import Paths
from klaw.domain.task import RunStatus
from klaw.store.kinds import facts, messages, run_edits, tasks
from tests.support.facts import fact
from tests.support.reindexing import talk
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import new, running_store

HALF = "\ud800"
"""A half surrogate: JSON can hold it, UTF-8 cannot."""
DEEP = 100_000
"""Brackets in brackets, far more than any parser takes."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 40,
    (1 << 62) - 1,
    (1 << 63) - 1,
    1 << 63,
    1 << 70,
    float("inf"),
    float("nan"),
    "",
    "x",
    HALF,
    "\0",
    "local",
    "anna:main",
    "..",
    "9999-99-99T00:00:00Z",
    "2026-01-01",
    [],
    [HALF],
    {},
    {"x": HALF},
    {"x": 1 << 70},
    {"x": float("nan")},
    {HALF: 1},
)
"""In place of a value of a record."""
LINES: dict[str, bytes] = {
    "brackets": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "open brackets": b"[" * DEEP,
    "a long number": b'{"rowid":' + b"9" * 5000 + b"}",
    "no UTF-8": b"\xff\xfe\x80",
    "zeros": b"\0" * 5000,
    "null": b"null",
    "a number": b"17",
    "nothing in it": b"{}",
}
"""No record of any kind."""


async def make_home(root: Path, *, vectors: bool = False) -> Paths:
    """A stopped server's home with messages, turns, facts, tasks, runs and a transcript."""
    paths = Paths.resolve(root, {})
    paths.config_dir.mkdir(parents=True)
    (paths.config_dir / "engine.yaml").write_text(
        json.dumps({"embedding": {"enabled": False}, "routing": {"default": "test/x"}, "providers": []})
    )
    async with running_store(paths.data_dir) as store:
        await talk(store, rounds=12, vectors=vectors)
        await store.writer.run(messages.append, [new("привет")])
        for number in range(3):
            await store.writer.run(facts.put, fact(f"Anna has {number} cats."), "new")
        await store.writer.run(tasks.put, task(), "new")
        begun = (await store.writer.run(run_edits.begin, run_of())).run
        await store.writer.run(run_edits.append_transcript, begun, 1, exchange(begun))
        final = attrs.evolve(begun, status=RunStatus.DONE, delivered=1)
        await store.writer.run(run_edits.save, final, delivery=result(begun))
    return paths


def copied(paths: Paths, to: Path) -> Paths:
    shutil.copytree(paths.data_dir.parent, to)
    return Paths.resolve(to, {})


def logs(paths: Paths) -> list[Path]:
    """One log of each kind."""
    data = paths.data_dir
    patterns = ("conversations/local%3A*/*", "turns/*", "memory/*", "runs/*", "conversations/scheduler_*/*")
    return [min(data.glob(f"{pattern}.jsonl")) for pattern in patterns]


def changed(line: bytes) -> Iterator[bytes]:
    """The line with each value of its record replaced by each odd one."""
    record = json.loads(line)
    for key in record:
        for value in VALUES:
            yield dumped({**record, key: value})


def dumped(record: Any) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def put(log: Path, line: bytes, at: int | None = None) -> None:
    """Put a line into a log, before another one or at its end."""
    lines = log.read_bytes().splitlines(keepends=True)
    lines.insert(len(lines) if at is None else at, line + b"\n")
    log.write_bytes(b"".join(lines))
