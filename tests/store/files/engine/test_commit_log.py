"""The commit log's file: lines over zeros, groups as wholes, and what a power cut leaves of them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from klaw.store.engine import commit_log
from klaw.store.engine.commit_log import COMMIT_LOG, RESERVE_BYTES, CommitLog, LogEntry, read_groups

LOG = "turns/2026-11.jsonl"


def lines(root: Path) -> list[list[str]]:
    return [[line.decode() for _, line in group] for group in read_groups(root)]


def group(*texts: str) -> list[LogEntry]:
    return [LogEntry(LOG, text) for text in texts]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[CommitLog]:
    synced: list[int] = []
    with closing(CommitLog(tmp_path, synced.append)) as found:
        yield found


def test_lines_change_nothing_but_zeros_that_are_there(tmp_path: Path, opened: CommitLog) -> None:
    opened.append(group("one"))
    before = (tmp_path / COMMIT_LOG).stat()
    opened.append(group("два", "two"))
    opened.clear()
    opened.append(group("three"))
    after = (tmp_path / COMMIT_LOG).stat()
    assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks)
    assert lines(tmp_path) == [["three"]]


def test_of_what_was_taken_back_or_cleared_nothing_is_left(tmp_path: Path, opened: CommitLog) -> None:
    opened.append(group("kept"))
    opened.keep()
    opened.append(group("refused, and longer than what follows", "likewise"))
    opened.take_back()
    assert lines(tmp_path) == [["kept"]]
    opened.append(group("next"))
    opened.keep()
    opened.take_back()
    assert lines(tmp_path) == [["kept"], ["next"]]
    for size in (10, RESERVE_BYTES):
        opened.append(group("x" * size))
        opened.clear()
        assert not (tmp_path / COMMIT_LOG).read_bytes().strip(b"\0")
        assert opened.size == 0


def test_a_disk_that_fails_while_it_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = False

    def fsync(_descriptor: int) -> None:
        if failing:
            raise OSError("broken")

    with closing(CommitLog(tmp_path, fsync)) as opened:
        opened.append(group("made durable in its own log", "and so is this"))
        failing = True
        with pytest.raises(OSError, match="broken"):
            opened.clear()
        failing = False
        opened.append(group("next"))
        assert lines(tmp_path) == [["next"]]


@pytest.mark.parametrize("block", [64, 512])
def test_a_block_that_a_power_cut_left_out(tmp_path: Path, opened: CommitLog, block: int) -> None:
    """Blocks of the last group reach the disk in any order: without all of them, nothing of it counts."""
    opened.append(group("one"))
    opened.append(group("two", "три"))
    whole = len((tmp_path / COMMIT_LOG).read_bytes().rstrip(b"\0"))
    opened.append(group(*(f"{number:030}" for number in range(60))))
    data = (tmp_path / COMMIT_LOG).read_bytes()
    end = len(data.rstrip(b"\0"))
    for start in range(whole, end, block):
        lost = data[:start] + bytes(min(block, end - start)) + data[start + block :]
        (tmp_path / COMMIT_LOG).write_bytes(lost)
        assert lines(tmp_path) == [["one"], ["two", "три"]], f"without the block at {start}"


def test_a_group_behind_a_damaged_one_counts(tmp_path: Path, opened: CommitLog) -> None:
    for text in ("one", "two", "three"):
        opened.append(group(text))
    path = tmp_path / COMMIT_LOG
    path.write_bytes(path.read_bytes().replace(b"two", b"t\0o"))
    assert lines(tmp_path) == [["one"], ["three"]]
    assert list((tmp_path / "set-aside").iterdir())


def test_only_zeros(tmp_path: Path) -> None:
    (tmp_path / COMMIT_LOG).write_bytes(bytes(commit_log.RESERVE_BYTES))
    assert lines(tmp_path) == []
