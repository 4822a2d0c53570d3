"""How long the last five runs of a task take to load out of 200 MB of transcripts.

    python tools/bench_history.py [--megabytes 200] [--repeats 20] [--home DIR] [--json]

Three folders of that size are made: one file, one file for each run (some 16,000), and one file whose last line but one
run is a line of 50 MB. Each is loaded a number of times: first with the page cache emptied of its files, as far as the
system lets us, then warm.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.domain.names import LOCAL_USER
from klaw.domain.task import TaskName, run_folder
from klaw.runs.transcripts import load
from tests.support.runs.transcripts import answer, as_bytes, calls, request, result

RUNS = 5
PAGE = "The quick brown fox jumps over the lazy dog. Съешь ещё этих мягких французских булок. " * 40
"""A tool's result of about 5 KB."""


def one_run(number: int) -> bytes:
    run = f"r{number:08d}"
    return as_bytes(
        [
            request(run),
            calls(run, "c1", "c2"),
            result(run, "c1", PAGE),
            result(run, "c2", PAGE),
            answer(run, PAGE[:800]),
        ]
    )


def runs(size: int) -> Iterator[bytes]:
    """Runs of together at least ``size`` bytes."""
    number = 0
    while size > 0:
        made = one_run(number)
        size -= len(made)
        number += 1
        yield made


def one_file(folder: Path, size: int) -> None:
    with (folder / "2026-11-22.jsonl").open("wb") as file:
        file.writelines(runs(size))


def many_files(folder: Path, size: int) -> None:
    for number, made in enumerate(runs(size)):
        year, rest = divmod(number, 12 * 28)
        month, day = divmod(rest, 28)
        path = folder / f"{1900 + year % 8000:04d}-{month + 1:02d}-{day + 1:02d}.jsonl"
        path.write_bytes(made)


def long_line(folder: Path, size: int) -> None:
    with (folder / "2026-11-22.jsonl").open("wb") as file:
        file.writelines(runs(size - 50_000_000))
        file.write(b"x" * 50_000_000 + b"\n")
        file.write(one_run(10**7))


def forget(folder: Path) -> None:
    """Ask the system to drop the files from its cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(home: Path, name: str, repeats: int) -> dict[str, float | int | str]:
    folder = home / run_folder(LOCAL_USER, TaskName(name))
    forget(folder)
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        found = load(home, LOCAL_USER, TaskName(name), runs=RUNS, max_tokens=10**9)
        times.append((time.perf_counter() - began) * 1000)
        assert len(found) == RUNS
    files = [path.stat().st_size for path in folder.iterdir()]
    return {
        "folder": name,
        "files": len(files),
        "megabytes": round(sum(files) / 1e6, 1),
        "cold_ms": round(times[0], 2),
        "p50_ms": round(statistics.median(times[1:]), 2),
        "max_ms": round(max(times[1:]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))  # the long line is warned of
    with tempfile.TemporaryDirectory(dir=args.home) as made:
        home = Path(made)
        for name, make in (("one-file", one_file), ("many-files", many_files), ("long-line", long_line)):
            folder = home / run_folder(LOCAL_USER, TaskName(name))
            folder.mkdir()
            make(folder, args.megabytes * 1_000_000)
            figures = measure(home, name, args.repeats)
            if args.json:
                print(json.dumps(figures))
            else:
                print(
                    f"{figures['folder']:>11}: {figures['files']:>6} files, {figures['megabytes']} MB: first"
                    f" {figures['cold_ms']} ms, then p50 {figures['p50_ms']} ms, at most {figures['max_ms']} ms"
                )


if __name__ == "__main__":
    main()
