"""Tasks, runs and deliveries after crashes: what the logs have is there once, and no record says more than that."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from klaw.actor.clock import iso
from klaw.domain.message import Message, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import Run, RunStatus, Task, TaskName
from klaw.store import changes, migrations
from klaw.store.engine import connect, meta
from klaw.store.engine.commit_log import CommitLog
from klaw.store.engine.journal import Journal
from klaw.store.engine.transaction import WriteRequest, commit_group
from klaw.store.kinds import messages, records, run_edits, runs, tasks, turns
from klaw.store.kinds.run_edits import RunLines
from klaw.store.rebuild.logcheck import read_logs
from klaw.store.rebuild.values import Tally
from tests.support.reindexing import digests_of
from tests.support.repository import REPOSITORY
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import START, new, running_store
from tests.support.turns import record

LOCAL = UserId("local")
MAIN = chat_id(LOCAL, "main")


async def fill(root: Path) -> None:
    """Tasks that were put, changed and removed; runs of several months in all states; deliveries and transcripts."""
    async with running_store(root) as store:
        writer = store.writer
        await writer.run(messages.append, [new("hello")])
        for name in ("news", "water", "gone"):
            await writer.run(tasks.put, task(name), "new")
        await writer.run(tasks.put, task("water", message="Полей цветы", at=START + 40 * 86400), "existing")
        await writer.run(tasks.remove, LOCAL, TaskName("gone"), iso(START + 41 * 86400))
        for number in range(6):
            run = (await writer.run(run_edits.begin, run_of(at=START + number * 20 * 86400))).run
            await writer.run(run_edits.append_transcript, run, 1, exchange(run)[:3])
            if number % 3 == 2:
                continue
            final = attrs.evolve(run, status=RunStatus.DONE, ended_at=iso(START), result="да", delivered=number % 3)
            last = RunLines(first_seq=4, messages=(exchange(run)[3],))
            await writer.run(run_edits.save, final, transcript=last, delivery=result(run) if number % 3 else None)


async def opened(root: Path) -> tuple[Tally, list[Any]]:
    """What opening the store restored, and what it has then."""
    async with running_store(root) as store:
        return store.opened.reconciled, [
            await store.readers.run(tasks.everybodys, enabled_only=False),
            await store.readers.run(runs.newest, LOCAL, limit=99),
            await store.readers.run(messages.after, MAIN, 0, 99),
        ]


def drop_database(root: Path) -> None:
    for path in sorted(root.glob("klaw.db*")):
        path.unlink()


async def test_a_lost_database_gets_tasks_runs_and_results_from_the_logs(tmp_path: Path) -> None:
    await fill(tmp_path)
    _, before = await opened(tmp_path)
    digests = digests_of(tmp_path / "klaw.db")
    drop_database(tmp_path)
    restored, after = await opened(tmp_path)
    assert after == before
    assert (restored.tasks, restored.runs, restored.messages, restored.conflicts) == (5, 6, 3, 0)
    assert digests_of(tmp_path / "klaw.db") == digests
    again, _ = await opened(tmp_path)
    assert (again.tasks, again.runs, again.messages, again.turns) == (0, 0, 0, 0)


async def test_numbers_go_on_after_a_rebuild(tmp_path: Path) -> None:
    """The next entry and the next change come after all that the logs have, also after those of removed tasks."""
    await fill(tmp_path)
    drop_database(tmp_path)
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task("new"), "new")
        run = (await store.writer.run(run_edits.begin, run_of())).run
        assert await store.readers.run(meta.last_entry) == 6
        assert await store.readers.run(runs.change_of, run.id) == 11


async def test_what_only_the_logs_have_is_restored(tmp_path: Path) -> None:
    """As after a crash between the journal's fsync and the database's commit; also in logs of earlier months."""
    await fill(tmp_path)
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    async with running_store(tmp_path) as store:
        (running, *_) = await store.readers.run(runs.running)  # of the second month
        await store.writer.run(run_edits.save, attrs.evolve(running, status=RunStatus.INTERRUPTED))
        await store.writer.run(tasks.remove, LOCAL, TaskName("news"), iso(START + 99 * 86400))
    _, expected = await opened(tmp_path)
    for name in ("memory", "runs"):
        shutil.rmtree(copy / name)
        shutil.copytree(tmp_path / name, copy / name)
    restored, after = await opened(copy)
    assert (restored.tasks, restored.runs) == (1, 1)
    assert after == expected


async def test_a_clock_that_goes_back_brings_no_removed_task_back(tmp_path: Path) -> None:
    """The removal stands in an earlier month's log than what it removes."""
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task(at=START + 400 * 86400), "new")
        await store.writer.run(tasks.remove, LOCAL, TaskName("news"), iso(START))
    drop_database(tmp_path)
    _, (found, _, _) = await opened(tmp_path)
    assert found == []


def task_logs(root: Path) -> list[Path]:
    return [*root.glob("memory/*.jsonl"), *root.glob("runs/*.jsonl"), *root.glob("conversations/scheduler_*/*.jsonl")]


BAD = [
    "not json",
    "[1]",
    "null",
    "{}",
    '{"entry":99,"change":99}',
    '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"task","key":"../x","value":{}}',
    '{"entry":99,"time":"2026","user_id":"local","op":"put","what":"task","key":"x","value":[]}',
    '{"entry":99,"time":"2026","user_id":"local","op":"drop","what":"task","key":"x"}',
    '{"entry":"9","time":"2026","user_id":"local","op":"remove","what":"task","key":"news"}',
    '{"entry":99,"time":"2026","user_id":"local","op":"remove","what":"mystery","key":"news"}',
    '{"change":99,"id":"\\ud83d"}',
]


@pytest.mark.parametrize("line", BAD)
async def test_malformed_and_torn_lines_are_skipped_and_counted(tmp_path: Path, line: str) -> None:
    await fill(tmp_path)
    _, before = await opened(tmp_path)
    logs = task_logs(tmp_path)
    for log in logs:
        log.write_text(f"{line}\n{log.read_text()}{line}\n" + '{"entry":98,"change":98,"to')
    drop_database(tmp_path)
    report = read_logs(tmp_path, whole=True)
    assert len(report.torn) == len(logs)
    assert set(report.malformed.values()) == {2}
    assert len(report.malformed) == len(logs)
    _, after = await opened(tmp_path)
    assert after == before


@pytest.mark.parametrize("kind", ["run", "memory", "spoken"])
def test_records_with_a_field_missing_or_of_another_type_are_malformed(kind: str) -> None:
    run, put = run_of(), attrs.evolve(tasks.TASK.put(LOCAL, TaskName("a"), task("a"), "t"), entry=1)
    line, parse = {
        "run": (runs.run_line(runs.RunState(1, run)), runs.parse_run),
        "memory": (changes.line(put), records.read),
        "spoken": (runs.transcript_line(run, 1, new()), runs.parse_transcript),
    }[kind]
    unused = {"rowid", "channel", "segment"} if kind == "spoken" else set()
    fields = (*attrs.fields(Run), *attrs.fields(Task))
    defaulted = {field.name for field in fields if field.default is not attrs.NOTHING}

    def broken(record: dict[str, Any]) -> Any:
        for name, value in record.items():
            if name in unused:
                continue
            if name not in defaulted:
                yield {key: kept for key, kept in record.items() if key != name}
            yield {**record, name: [value] if not isinstance(value, dict) else 7}
            if isinstance(value, dict) and name == "value":
                yield from ({**record, name: inner} for inner in broken(value))

    assert parse(json.loads(line)) is not None
    seen = 0
    for wrong in broken(json.loads(line)):
        seen += 1
        with pytest.raises((KeyError, TypeError, ValueError)):
            parse(wrong)
    assert seen >= 15


# -- crashes -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


def commit_until_killed(root: Path, monkeypatch: pytest.MonkeyPatch, writes: int, group: list[WriteRequest]) -> bool:
    """Commit a group in a process that dies before its n-th write. Returns whether it died."""
    left = writes
    real, ahead = Journal._write, CommitLog._write

    def come_by() -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1

    def write(self: Journal, descriptor: int, data: bytes) -> None:
        come_by()
        real(self, descriptor, data)

    def write_ahead(self: CommitLog, data: bytes, start: int) -> None:
        if data.strip(b"\0"):
            come_by()
        ahead(self, data, start)

    journal = Journal(root, checkpoint_bytes=1 << 20)
    journal.lock()
    journal.open()
    connection = apsw.Connection(str(root / "klaw.db"))
    connect.prepare_writer(connection)
    migrations.migrate(connection)
    monkeypatch.setattr(Journal, "_write", write)
    monkeypatch.setattr(CommitLog, "_write", write_ahead)
    monkeypatch.setattr(Journal, "rollback", lambda _self: None)  # who is killed takes nothing back
    try:
        commit_group(connection, journal, group)
    except Killed:
        return True
    finally:
        monkeypatch.undo()
        connection.close()
        journal.release()
    return False


@pytest.mark.parametrize("writes", range(8))
def test_a_kill_between_any_two_writes_leaves_an_honest_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """One group ends a run, begins another, and has a message of a third chat; the process dies before its n-th write.

    A run of the group that began earlier writes to the log of runs first, so the order of the group counts.
    """
    run, other = run_of(), run_of()
    final = attrs.evolve(run, status=RunStatus.DONE, ended_at=iso(START), result="ja", delivered=1)
    trio.run(_prepare, tmp_path, run)
    group: list[WriteRequest] = [
        WriteRequest(run_edits.begin, (other,)),
        WriteRequest(messages.append, ([new("hi", chat="third")],)),
        WriteRequest(
            run_edits.save,
            (final,),
            {"transcript": RunLines(first_seq=1, messages=tuple(exchange(run))), "delivery": result(run)},
        ),
    ]
    killed = commit_until_killed(tmp_path, monkeypatch, writes, group)
    assert killed or writes >= 5
    trio.run(_check, tmp_path, run.id, killed)


@pytest.mark.parametrize("writes", range(5))
def test_a_kill_between_any_two_writes_leaves_no_turn_without_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Two chats are answered in one group; the log of turns is one for both."""
    names = ("a", "b")

    async def ask() -> list[Message]:
        async with running_store(tmp_path) as store:
            return [(await store.writer.run(messages.append, [new("?", chat=name)]))[0].message for name in names]

    async def look() -> None:
        async with running_store(tmp_path) as store:
            for name in names:
                chat = chat_id(LOCAL, name)
                answered = await store.readers.run(turns.last, chat)
                found = await store.readers.run(messages.after, chat, 1, 9)
                assert answered is None or [message.content for message in found] == ["!"]

    asked = trio.run(ask)
    group: list[WriteRequest] = [
        WriteRequest(messages.append, ([new("!", chat=name, role=Role.ASSISTANT)], record(question)))
        for name, question in zip(names, asked, strict=True)
    ]
    assert commit_until_killed(tmp_path, monkeypatch, writes, group) == (writes < 4)
    trio.run(look)


async def _prepare(root: Path, run: Any) -> None:
    async with running_store(root) as store:
        await store.writer.run(messages.append, [new("hello")])
        await store.writer.run(run_edits.begin, run)


async def _check(root: Path, run: str, killed: bool) -> None:
    async with running_store(root) as store:
        stored = await store.readers.run(runs.get, LOCAL, run)
        assert stored is not None
        delivered = await store.readers.run(runs.delivered_of, LOCAL, run)
        assert len(delivered) <= 1
        assert stored.delivered <= len(delivered), "it says that it delivered what nobody sees"
        assert (stored.status is RunStatus.DONE) == (stored.delivered == 1)
        if not killed:
            assert stored.status is RunStatus.DONE
        if stored.status is RunStatus.RUNNING:  # as the scheduler recovers it
            honest = attrs.evolve(stored, status=RunStatus.INTERRUPTED, delivered=len(delivered))
            assert not (await store.writer.run(run_edits.save, honest)).repeated
        seqs = [message.seq for message in await store.readers.run(messages.after, MAIN, 0, 9)]
        assert seqs == list(range(1, 2 + len(delivered)))


CHILD = """
import os, sys, trio, attrs, structlog
from pathlib import Path
from klaw.actor.clock import iso
from klaw.domain.task import RunStatus
from klaw.store.kinds import messages, run_edits
from klaw.store.kinds.run_edits import RunLines
from tests.support.stores import new, running_store
from tests.support.runs.tasks import exchange, result, run_of

async def main():
    begin = sys.argv[2]
    async with running_store(Path(sys.argv[1]), checkpoint_bytes=20_000) as store:
        async def work(name):
            await store.writer.run(messages.append, [new("hello", chat=name, id=f"{begin}-{name}-hello")])
            number = 0
            while True:
                number += 1
                run = run_of(name, id=f"{begin}-{name}-{number}", due=f"{begin}-{number:06}")
                begun = await store.writer.run(run_edits.begin, run)
                assert not begun.repeated
                os.write(1, f"began {run.id}\\n".encode())
                await store.writer.run(run_edits.append_transcript, run, 1, exchange(run)[:3])
                run = attrs.evolve(run, delivered=1)
                await store.writer.run(run_edits.save, run, delivery=result(run, f"Teil 1 von {run.id}", chat=name))
                os.write(1, f"delivered {run.id}/1\\n".encode())
                final = attrs.evolve(run, delivered=2, status=RunStatus.DONE, ended_at=iso(0), result="ответ")
                last = RunLines(first_seq=4, messages=(exchange(run)[3],))
                end = result(run, "Ende", number=2, chat=name)
                await store.writer.run(run_edits.save, final, transcript=last, delivery=end)
                os.write(1, f"done {run.id}\\n".encode())
        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(work, name)

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
trio.run(main)
"""


async def test_sigkill_in_a_storm_of_runs_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Kill a real process in its middle, four times; look at what it was told, at the records and at the chats."""
    root = tmp_path / "data"
    told: list[str] = []
    for number in range(4):
        process = subprocess.Popen(  # noqa: ASYNC220 - it only forks; what blocks is read in threads
            [sys.executable, "-c", CHILD, str(root), f"k{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert process.stdout is not None
        head = [await trio.to_thread.run_sync(process.stdout.readline) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        rest = await trio.to_thread.run_sync(process.stdout.read)
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
        told += [line.decode().strip() for line in head]
        told += [line.decode() for line in rest.split(b"\n")[:-1]]
    async with running_store(root) as store:
        assert store.opened.reconciled.conflicts == 0
        known = {run.id: run for run in await store.readers.run(runs.newest, LOCAL, limit=100_000)}
        said: Counter[str] = Counter()
        for name in "abcd":
            found = await store.readers.run(messages.after, chat_id(LOCAL, name), 0, 100_000)
            assert [message.seq for message in found] == list(range(1, len(found) + 1))
            said.update(message.id for message in found if "run" in message.metadata)
        assert set(said.values()) == {1}
        for line in told:
            what, run = line.split()
            match what:
                case "began":
                    assert run in known
                case "delivered":
                    assert said[run] == 1
                case "done":
                    assert (known[run].status, known[run].result) == (RunStatus.DONE, "ответ")
                    assert said[f"{run}/2"] == 1
        for run in known.values():
            delivered = await store.readers.run(runs.delivered_of, LOCAL, run.id)
            assert run.delivered <= len(delivered) == said[f"{run.id}/1"] + said[f"{run.id}/2"]
            assert run.status in (RunStatus.RUNNING, RunStatus.DONE)
            assert run.status is RunStatus.RUNNING or len(delivered) == 2
        assert sum(run.status is RunStatus.RUNNING for run in known.values()) <= 4 * 4
    before = digests_of(root / "klaw.db")
    drop_database(root)
    await opened(root)
    assert digests_of(root / "klaw.db") == before
