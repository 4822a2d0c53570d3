"""Invariant rebuild, for tasks and runs: whatever was done to them, a database made from the logs has the same."""

import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.actor.clock import iso
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import At, Every, Run, RunKind, RunStatus, TaskName
from klaw.errors import NoSuchChat, NoSuchTask, RunOver, StorageFull, TaskExists
from klaw.store.kinds import messages, run_edits, runs, tasks
from klaw.store.kinds.run_edits import RunLines
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.files import Places, log_sizes, remove
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.store import Store
from tests.support.reindexing import differing, digests_of, ended, reached, reindexing_store, run, talk
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import START, FullDisk, new, running_store

USERS = ("local", "anna")
TEXTS = st.sampled_from(["", "ok", "Что нового на даче?", "a\nb\u2028c\0d", '{"silent": true}']) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=30
)
NAMES = ["put", "put", "remove", "begin", "begin", "refuse", "transcript", "deliver", "end", "end", "full", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5), TEXTS, st.integers(0, 1 << 24)), max_size=30)


class Steps:
    """Carries out random steps, and keeps beside the store what it should have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FullDisk()
        self.tasks: dict[tuple[str, str], Any] = {}
        self.runs: dict[str, Run] = {}
        self.delivered = 0

    async def do(self, steps: Any) -> None:
        rest = list(steps)
        while True:
            async with running_store(self.root, fsync=self.disk, checkpoint_bytes=900) as store:
                await self.check(store)
                while rest:
                    name, *values = rest.pop(0)
                    if name == "restart":
                        break
                    await self._step(store.writer, name, *values)
                else:
                    await self.check(store)
                    return

    async def check(self, store: Store) -> None:
        found = await store.readers.run(tasks.everybodys, enabled_only=False)
        assert {(each.user, each.name): each for each in found} == self.tasks
        for user in USERS:
            listed = await store.readers.run(runs.newest, UserId(user), limit=999)
            assert {each.id: each for each in listed} == {
                each.id: each for each in self.runs.values() if each.user == user
            }

    async def _step(self, writer: Any, name: str, number: int, text: str, seed: int) -> None:
        user, called = USERS[number % 2], f"task-{number % 3}"
        at = START + seed  # up to half a year, forward and back
        match name:
            case "put":
                await self._put(writer, user, called, at, text, seed)
            case "remove":
                if (user, called) in self.tasks:
                    await writer.run(tasks.remove, user, called, iso(at))
                    del self.tasks[user, called]
                else:
                    with pytest.raises(NoSuchTask):
                        await writer.run(tasks.remove, user, called, iso(at))
            case "begin" | "refuse":
                status = RunStatus.RUNNING if name == "begin" else RunStatus.REFUSED
                kind = list(RunKind)[seed % 4]
                begins = run_of(called, user=user, at=at, status=status, kind=kind, message=text)
                if not (await writer.run(run_edits.begin, begins)).repeated:
                    self.runs[begins.id] = begins
            case _ if self.runs:
                chosen = list(self.runs.values())[seed % len(self.runs)]
                try:
                    await self._go_on(writer, chosen, name, text, seed)
                except RunOver:
                    assert chosen.status.over

    async def _put(self, writer: Any, user: str, called: str, at: float, text: str, seed: int) -> None:
        once = At(instant=iso(at), zone=(None, "Europe/Berlin")[seed % 2])
        trigger = [task().trigger, Every(seconds=1 + seed), once][seed % 3]
        put = task(called, user=user, at=at, message=text, trigger=trigger, enabled=bool(seed % 2), model=text or None)
        expected = "existing" if (user, called) in self.tasks else "new"
        with pytest.raises(NoSuchTask if expected == "new" else TaskExists):
            await writer.run(tasks.put, put, "existing" if expected == "new" else "new")
        await writer.run(tasks.put, put, expected)
        self.tasks[user, called] = put

    async def _go_on(self, writer: Any, chosen: Run, name: str, text: str, seed: int) -> None:
        target = f"chat {chosen.user}"
        after = attrs.evolve(
            chosen, prompt_tokens=chosen.prompt_tokens + seed % 100, details={"rate": seed / 7, "é": text}
        )
        if name == "transcript":
            await writer.run(run_edits.append_transcript, chosen, 1, exchange(chosen))
            return
        if name == "end":
            status = [RunStatus.DONE, RunStatus.SILENT, RunStatus.FAILED, RunStatus.INTERRUPTED][seed % 4]
            after = attrs.evolve(after, status=status, ended_at=iso(START + seed), result=text, error=text or None)
            last = RunLines(first_seq=5, messages=(exchange(chosen)[-1],))
            if not (await writer.run(run_edits.save, after, transcript=last)).repeated:
                self.runs[chosen.id] = after
            return
        after = attrs.evolve(after, delivered=chosen.delivered + 1)
        said = result(after, text, number=after.delivered, chat=target)
        if chosen.status.over:
            with pytest.raises(RunOver):
                await writer.run(run_edits.save, after, delivery=said)
        elif name == "full":
            self.disk.full = True
            with pytest.raises(StorageFull):
                await writer.run(run_edits.save, attrs.evolve(chosen, note=text + "!"))
            self.disk.full = False
        elif not any(each.delivered for each in self.runs.values()) and seed % 2:
            with pytest.raises(NoSuchChat):
                await writer.run(
                    run_edits.save, after, delivery=attrs.evolve(said, chat=chat_id(chosen.user, "nobody here"))
                )
        else:
            await writer.run(messages.append, [new("hello", user=chosen.user, chat=target)])
            await writer.run(run_edits.save, after, delivery=said)
            self.runs[chosen.id] = after
            self.delivered += 1


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_whatever_was_done_the_logs_give_the_same_tasks_and_runs(steps: Any) -> None:
    """Put, changed, removed, begun, refused, delivered, ended; a full disk, restarts, a clock that goes back months."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        done = Steps(root)
        trio.run(done.do, steps)
        before = digests_of(root / "klaw.db")
        report = run(root)
        assert differing(report) == set(), report.tables
        assert report.swapped
        assert (report.tally.malformed, report.tally.conflicts) == (0, 0)
        assert report.tally.runs == len(done.runs)
        assert digests_of(root / "klaw.db") == before == digests_of(root / "klaw.db.old")
        for path in sorted(root.glob("klaw.db*")):
            path.unlink()  # and the start's own way to the same
        trio.run(done.do, [])
        assert digests_of(root / "klaw.db") == before


async def work(store: Store, name: str, number: int) -> None:
    """A task that is changed and runs, and says something."""
    writer, known = store.writer, await store.readers.run(tasks.get, UserId("local"), TaskName(name))
    if known is None:
        await writer.run(tasks.put, task(name), "new")
    elif number % 5 == 4:
        await writer.run(tasks.remove, known.user, known.name, iso(START + number))
    else:
        await writer.run(tasks.put, attrs.evolve(known, message=f"сделай {number}"), "existing")
    begun = (await writer.run(run_edits.begin, run_of(name))).run
    await writer.run(run_edits.append_transcript, begun, 1, exchange(begun)[:3] * 4)
    if number % 4:
        final = attrs.evolve(begun, status=RunStatus.DONE, delivered=1, result="x" * 50)
        await writer.run(run_edits.save, final, delivery=result(begun, f"итог {number}"))


async def filled(root: Path, rounds: int = 20) -> None:
    async with running_store(root) as store:
        await talk(store, rounds=20)
        await store.writer.run(messages.append, [new("hello")])
        for number in range(rounds):
            await work(store, f"t{number % 3}", number)


async def checked(root: Path) -> None:
    remove(Places(root / "klaw.db").old)
    before = digests_of(root / "klaw.db")
    report = run(root)
    assert report.swapped, report.tables
    assert digests_of(root / "klaw.db") == before
    assert report.tally.conflicts == 0


async def test_what_changes_meanwhile_is_in_the_new_database(tmp_path: Path) -> None:
    """Tasks and runs go on all the time that a server is reindexed; the runs that it compared go on as well."""
    await filled(tmp_path, rounds=40)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await reindexer.start(ReindexOptions())
        number = 0
        while reindexer.status.state == "running":
            number += 1
            await work(store, f"t{number % 3}", number)
            for old in (await store.readers.run(runs.running))[:1]:
                await store.writer.run(run_edits.save, attrs.evolve(old, prompt_tokens=old.prompt_tokens + 1))
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped, (status.report.reason, status.report.tables)
        await work(store, "t1", 1)
        live = await store.readers.run(runs.newest, UserId("local"), limit=9999)
        assert len(live) == 40 + number + 1
    await checked(tmp_path)


async def _reindexed(reindexer: Reindexer) -> Any:
    await reindexer.start(ReindexOptions())
    status = await ended(reindexer)
    assert status.report is not None, status.error
    return status.report


FORGED = {
    "a run": ("UPDATE runs SET result = 'подделка' WHERE change = (SELECT min(change) FROM runs)", "runs"),
    "a lost run": ("DELETE FROM runs WHERE change = (SELECT min(change) FROM runs)", "runs"),
    "a task": ("UPDATE tasks SET message = 'подделка'", "tasks"),
    "a lost task": ("DELETE FROM tasks", "tasks"),
}


@pytest.mark.parametrize("what", FORGED)
async def test_a_difference_is_refused(tmp_path: Path, what: str) -> None:
    """Of a stopped store and of a running one, with the table's name."""
    statement, table = FORGED[what]
    await filled(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await store.database.run(lambda connection: connection.execute(statement))
        report = await _reindexed(reindexer)
        assert not report.swapped
        assert differing(report) == {table}
        assert "подделка" not in repr(report)
    report = run(tmp_path)
    assert not report.swapped
    assert differing(report) == {table}
    assert run(tmp_path, accept=True).swapped
    async with running_store(tmp_path) as store:
        assert (await store.writer.run(run_edits.begin, run_of())).repeated is False


async def test_what_was_built_before_a_task_was_removed_is_gone_on_with(tmp_path: Path) -> None:
    """An interrupted reindex leaves tasks and runs as they were then; the next one does not believe them."""
    await filled(tmp_path)
    building = Building(Places(tmp_path / "klaw.db"), slice_s=1.0)
    building.open(embed_again=False)
    for _ in building.read(log_sizes(tmp_path), whole=True):
        pass
    assert (building.tally.runs, building.tally.conflicts) == (20, 0)
    building.close()
    async with running_store(tmp_path) as store:
        for known in await store.readers.run(tasks.everybodys, enabled_only=False):
            await store.writer.run(tasks.remove, known.user, known.name, iso(START))
        await work(store, "later", 1)
        for old in await store.readers.run(runs.running):
            await store.writer.run(run_edits.save, attrs.evolve(old, status=RunStatus.INTERRUPTED))
    report = run(tmp_path)
    assert report.swapped, report.tables
    assert report.tally.reused > 0


async def test_transcripts_are_left_alone(tmp_path: Path) -> None:
    """However long or broken they are: they count for nothing, and stay."""
    await filled(tmp_path)
    (transcript, *_) = transcripts(tmp_path)
    with transcript.open("a") as file:
        file.write('not json\n{"rowid":1,"id":"x"}\n' + "x" * 300_000)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await reindexer.start(ReindexOptions())
        await reached(reindexer, "compare")
        begun = (await store.writer.run(run_edits.begin, run_of())).run
        await store.writer.run(run_edits.append_transcript, begun, 1, [new("long " * 60_000)])
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        assert (status.report.tally.malformed, status.report.tally.conflicts) == (0, 0)
    assert "not json" in transcript.read_text()
    await checked(tmp_path)


def transcripts(root: Path) -> list[Path]:
    return sorted(root.glob("conversations/scheduler_*/*.jsonl"))
