"""Tasks and runs in the store: what is refused, what is all or nothing, what a reader and a chat then see."""

import json
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from klaw.actor.clock import iso
from klaw.domain.message import Message
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import At, Every, Run, RunKind, RunStatus, Task, TaskName, delivery_id, notice_message, task_name
from klaw.errors import (
    CannotUndo,
    IdConflict,
    InvalidName,
    NoSuchChat,
    NoSuchRun,
    NoSuchTask,
    RunOver,
    StorageError,
    StorageFull,
    TaskExists,
)
from klaw.runs.limits import RunLimit, was_told
from klaw.store import migrations
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import chats, messages, pending, run_edits, runs, tasks
from klaw.store.kinds.run_edits import RunLines
from klaw.store.search import fulltext
from klaw.store.store import Store
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import START, FullDisk, new, running_store

LOCAL = UserId("local")
MAIN = chat_id(LOCAL, "main")


def lines(root: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(root.glob(pattern)) for line in path.read_text().splitlines()]


def done(run: Run, **changes: Any) -> Run:
    values = {"status": RunStatus.DONE, "ended_at": iso(START + 99), "result": "готово", **changes}
    return attrs.evolve(run, **values)


async def begun(store: Store, **changes: Any) -> Run:
    return (await store.writer.run(run_edits.begin, run_of(**changes))).run


async def stored(store: Store, run: Run) -> Run | None:
    return await store.readers.run(runs.get, run.user, run.id)


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trigger",
    [
        task().trigger,
        Every(seconds=90),
        At(instant=iso(START + 1e6)),
        At(instant=iso(START + 1e6), zone="Europe/Berlin"),
    ],
)
async def test_a_task_is_read_as_it_was_put(tmp_path: Path, trigger: Any) -> None:
    put = task(trigger=trigger, model="zai/glm", enabled=False, timeout_s=5, daily_tokens=7)
    async with running_store(tmp_path) as store:
        assert await store.writer.run(tasks.put, put, "new") == put
        assert await store.readers.run(tasks.get, LOCAL, put.name) == put
        assert await store.readers.run(tasks.everybodys, enabled_only=False) == [put]
        assert await store.readers.run(tasks.everybodys, enabled_only=True) == []
    (line,) = lines(tmp_path, "memory/*.jsonl")
    assert (line["entry"], line["what"], line["op"], line["key"], line["user_id"]) == (
        1,
        "task",
        "put",
        "news",
        "local",
    )


async def test_two_tasks_of_one_name_are_refused_and_other_users_have_their_own(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task(), "new")
        with pytest.raises(TaskExists):
            await store.writer.run(tasks.put, task(message="another"), "new")
        await store.writer.run(tasks.put, task(user="anna"), "new")
        assert await store.readers.run(tasks.of_user, LOCAL) == [task()]
        assert await store.readers.run(tasks.of_user, UserId("bob")) == []
    assert len(lines(tmp_path, "memory/*.jsonl")) == 2


async def test_what_is_not_there_is_neither_changed_nor_removed(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        with pytest.raises(NoSuchTask, match="news"):
            await store.writer.run(tasks.put, task(), "existing")
        await store.writer.run(tasks.put, task(user="anna"), "new")
        with pytest.raises(NoSuchTask, match="news"):
            await store.writer.run(tasks.remove, LOCAL, TaskName("news"), iso(START))
    assert len(lines(tmp_path, "memory/*.jsonl")) == 1


async def test_a_task_is_changed_removed_and_made_again(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task(), "new")
        changed = task(enabled=False, at=START + 9)
        await store.writer.run(tasks.put, changed, "existing")
        assert await store.writer.run(tasks.remove, LOCAL, changed.name, iso(START + 10)) == changed
        assert await store.readers.run(tasks.of_user, LOCAL) == []
        await store.writer.run(tasks.put, task(), "new")
        assert await store.readers.run(tasks.of_user, LOCAL) == [task()]
    assert [(line["entry"], line["op"]) for line in lines(tmp_path, "memory/*.jsonl")] == [
        (1, "put"),
        (2, "put"),
        (3, "remove"),
        (4, "put"),
    ]


async def test_a_task_goes_back_to_what_it_was(tmp_path: Path) -> None:
    """Another trigger, or enabling, starts no run for the past; any other change neither repeats nor drops one."""
    first = task(message="Полить цветы")
    name = first.name
    async with running_store(tmp_path) as store:

        async def undo(seconds: int, to: int | None = None, user: UserId = LOCAL) -> Task | None:
            return await store.writer.run(tasks.undo, user, name, to, iso(START + seconds))

        await store.writer.run(tasks.put, first, "new")
        other = attrs.evolve(first, message="Вынести мусор", trigger=Every(seconds=90), updated_at=iso(START + 1))
        await store.writer.run(tasks.put, attrs.evolve(first, message="Вынести мусор"), "existing")
        await store.writer.run(tasks.put, other, "existing")
        assert await undo(2, to=2) == attrs.evolve(
            other, trigger=first.trigger, updated_at=iso(START + 2), anchor_at=iso(START + 2)
        )
        back = await undo(3, to=1)
        assert back == attrs.evolve(first, updated_at=iso(START + 3), anchor_at=iso(START + 2))
        await store.writer.run(tasks.remove, LOCAL, name, iso(START + 4))
        assert await undo(5) == attrs.evolve(first, updated_at=iso(START + 5), anchor_at=iso(START + 5))
        for wrong, to in (("no.*number", 99), ("so already", 7)):
            with pytest.raises(CannotUndo, match=wrong):
                await undo(6, to)
        with pytest.raises(NoSuchTask):
            await undo(6, user=UserId("anna"))
        assert [change.value is None for change in await store.readers.run(tasks.history, LOCAL, name)] == [
            *[False] * 5,
            True,
            False,
        ]
        await store.writer.run(tasks.put, task("new"), "new")
        assert await store.writer.run(tasks.undo, LOCAL, TaskName("new"), None, iso(START + 7)) is None
        assert await store.readers.run(tasks.get, LOCAL, TaskName("new")) is None


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "x" * 65, "Ä", "a.b"])
async def test_a_name_that_could_be_a_path_reaches_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        task_name(name)
    async with running_store(tmp_path) as store:
        with pytest.raises(StorageError):
            await store.writer.run(tasks.put, task(name), "new")
        with pytest.raises(StorageError):
            await store.writer.run(run_edits.begin, run_of(name))
        assert (await store.writer.run(messages.append, [new("goes on")]))[0].message.seq == 1
    assert lines(tmp_path, "memory/*.jsonl") == lines(tmp_path, "runs/*.jsonl") == []


async def test_values_that_cannot_be_stored_are_refused_alone(tmp_path: Path) -> None:
    """Lone surrogates, not-a-number, too large and negative numbers: the writer goes on, and so does its group."""
    bad = [
        run_of(message="\ud83d"),
        run_of(details={"x": float("nan")}),
        run_of(prompt_tokens=1 << 70),
        run_of(depth=-1),
        run_of(details={"x": object()}),
    ]
    async with running_store(tmp_path) as store:
        with pytest.raises(StorageError):
            await store.writer.run(tasks.put, task(message="\ud83d"), "new")
        refused = []

        async def begin(run: Run) -> None:
            try:
                await store.writer.run(run_edits.begin, run)
            except StorageError:
                refused.append(run)

        async with trio.open_nursery() as nursery:
            for run in bad:
                nursery.start_soon(begin, run)
            nursery.start_soon(store.writer.run, messages.append, [new("between")])
        assert len(refused) == len(bad)
        good = await begun(store)
        with pytest.raises(StorageError):
            await store.writer.run(run_edits.append_transcript, good, 1, [new("\ud83d")])
        assert await store.readers.run(runs.newest, LOCAL, limit=9) == [good]
        assert len(await store.readers.run(messages.after, MAIN, 0, 9)) == 1


# -- runs --------------------------------------------------------------------------------------------------------------


async def test_a_fire_time_never_runs_twice(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        first = await begun(store)
        again = await store.writer.run(run_edits.begin, attrs.evolve(first, id="another"))
        assert (again.repeated, again.run) == (True, first)
        for other in (
            attrs.evolve(first, id="r2", attempt=2),
            attrs.evolve(first, id="r3", kind=RunKind.MANUAL),
            attrs.evolve(first, id="r4", user=UserId("anna")),
        ):
            assert not (await store.writer.run(run_edits.begin, other)).repeated
        with pytest.raises(IdConflict):
            await store.writer.run(run_edits.begin, run_of(id=first.id))
        found = await store.readers.run(runs.attempts, LOCAL, first.task, first.kind, first.due)
        assert [run.id for run in found] == [first.id, "r2"]
    assert len(lines(tmp_path, "runs/*.jsonl")) == 4


async def test_a_refused_run_is_over_and_its_user_is_told(tmp_path: Path) -> None:
    published: list[Message] = []
    async with running_store(tmp_path, publish=published.extend) as store:
        await store.writer.run(messages.append, [new("hello")])
        run = run_of(status=RunStatus.REFUSED, note="daily limit")
        notice = notice_message(run, MAIN, "The task was not run: its daily limit is reached.", iso(START))
        answer = await store.writer.run(run_edits.begin, run, notice)
        assert (answer.repeated, published[-1].seq) == (False, 2)
        assert published[-1].content == notice.content
        assert await store.readers.run(runs.notice_of, LOCAL, run.id) == published[-1]
        assert await store.readers.run(runs.delivered_of, LOCAL, run.id) == []
        assert await store.readers.run(runs.running) == []
        unknown = run_of(status=RunStatus.REFUSED)
        with pytest.raises(NoSuchChat):
            await store.writer.run(
                run_edits.begin, unknown, notice_message(unknown, chat_id(LOCAL, "no"), "x", iso(START))
            )
        assert await stored(store, unknown) is None


async def test_the_user_is_told_once_a_day_of_each_limit(tmp_path: Path) -> None:
    run, by_task, by_user = run_of(started_at=iso(START)), RunLimit.TASK_DAY, RunLimit.USER_DAY
    async with running_store(tmp_path) as store:

        async def refuse(error: RunLimit, **changes: Any) -> None:
            values = {"status": RunStatus.REFUSED, "started_at": iso(START), "details": {"told": True}, **changes}
            await store.writer.run(run_edits.begin, run_of(error=str(error), **values))

        await refuse(by_task, details={})
        await refuse(by_task, user="anna")
        await refuse(by_task, started_at=iso(START - 86_400))
        await refuse(by_task, name="other")
        assert not await was_told(store.readers, run, by_task)
        await refuse(by_task)
        assert await was_told(store.readers, run, by_task)
        assert not await was_told(store.readers, run, by_user)
        await refuse(by_user, name="other")
        assert await was_told(store.readers, run, by_user)


async def test_a_result_is_delivered_with_the_run_in_one_piece(tmp_path: Path) -> None:
    """It has its seq, is published once, found by words, counts for the embedder, and answers nobody's question."""
    published: list[Message] = []
    async with running_store(tmp_path, publish=published.extend) as store:
        await store.writer.run(messages.append, [new("Вопрос без ответа")])
        run = await begun(store)
        final = done(run, delivered=1)
        last = RunLines(first_seq=4, messages=(exchange(run)[-1],))
        saved = await store.writer.run(run_edits.save, final, transcript=last, delivery=result(run, "Дождь на даче"))
        told = published[-1]
        assert (told.seq, told.id, saved.repeated) == (2, f"{run.id}/1", False)
        assert told.metadata == {"origin": "scheduled", "task": "news", "run": run.id}
        assert await stored(store, run) == final
        assert await store.readers.run(runs.delivered_of, LOCAL, run.id) == [told]
        rows = await store.readers.run(pending.read_rows, MAIN, 10)
        assert rows is not None
        assert [message.content for message in rows.pending] == ["Вопрос без ответа"]
        assert told in rows.history
        assert await store.readers.run(pending.pending_chats, iso(0)) == [MAIN]
        assert (await store.readers.run(fulltext.scores, ["дождя"], "c1", (0, 99), 99)).best(5)
        again = await store.writer.run(run_edits.save, final, transcript=last, delivery=result(run, "Дождь на даче"))
        assert again.repeated
        assert await store.readers.run(runs.delivered_of, LOCAL, run.id) == [told]
        assert len(published) == 2
    assert len(lines(tmp_path, "conversations/scheduler_news/*.jsonl")) == 1


async def test_deliveries_in_the_middle_are_counted_and_repeated_safely(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        run = await begun(store)
        for number in (1, 2):
            run = attrs.evolve(run, delivered=number)
            for repeated in (False, True):
                saved = await store.writer.run(
                    run_edits.save, run, delivery=result(run, f"часть {number}", number=number)
                )
                assert saved.repeated is repeated
        with pytest.raises(StorageError):  # its number is not the one that the state has
            await store.writer.run(run_edits.save, attrs.evolve(run, delivered=3), delivery=result(run, number=2))
        with pytest.raises(StorageError):
            await store.writer.run(run_edits.save, attrs.evolve(run, delivered=1))
        found = await store.readers.run(runs.delivered_of, LOCAL, run.id)
        assert [message.content for message in found] == ["часть 1", "часть 2"]
        assert await store.readers.run(runs.delivered_of, UserId("anna"), run.id) == []
        assert await store.readers.run(runs.delivered_of, LOCAL, run.id[:-1]) == []
        assert (await stored(store, run)) == run


@pytest.mark.parametrize(("owner", "chat"), [("local", "nowhere"), ("local", "main of anna"), ("anna", "main of anna")])
async def test_an_unknown_or_foreign_chat_is_an_error_and_nothing_is_written(
    tmp_path: Path, owner: str, chat: str
) -> None:
    """The text is not lost: the run is saved with it afterwards."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        await store.writer.run(messages.append, [new("hers", user="anna", chat="main of anna")])
        run = await begun(store)
        final = done(run, delivered=1)
        foreign = attrs.evolve(result(run), chat=chat_id(UserId(owner), chat))
        transcript = RunLines(first_seq=1, messages=tuple(exchange(run)))
        with pytest.raises(NoSuchChat) as refused:
            await store.writer.run(run_edits.save, final, transcript=transcript, delivery=foreign)
        assert refused.value.chat == chat
        assert "anna" not in str(refused.value)
        assert await stored(store, run) == run
        assert await store.readers.run(runs.delivered_of, LOCAL, run.id) == []
        kept = done(run, note="no such chat", status=RunStatus.FAILED)
        await store.writer.run(run_edits.save, kept, transcript=transcript)
        assert await stored(store, run) == kept
    assert len(lines(tmp_path, "conversations/scheduler_news/*.jsonl")) == 4


async def test_a_delivery_and_a_notice_are_both_or_neither(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        await store.writer.run(messages.append, [new("asked for it", chat="work")])
        run = await begun(store, kind=RunKind.SPAWNED, notify="work")
        final = done(run, delivered=1)
        bad = notice_message(run, chat_id(LOCAL, "gone"), "done", iso(START))
        with pytest.raises(NoSuchChat):
            await store.writer.run(run_edits.save, final, delivery=result(run), notice=bad)
        assert len(await store.readers.run(messages.after, MAIN, 0, 9)) == 1
        good = notice_message(run, chat_id(LOCAL, "work"), "done", iso(START))
        await store.writer.run(run_edits.save, final, delivery=result(run), notice=good)
        for chat in (MAIN, chat_id(LOCAL, "work")):
            assert len(await store.readers.run(messages.after, chat, 0, 9)) == 2


async def test_a_run_that_is_over_stays_as_it_ended(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        run = await begun(store)
        ended = done(run, status=RunStatus.CANCELLED)
        await store.writer.run(run_edits.save, ended)
        assert (await store.writer.run(run_edits.save, ended)).repeated
        with pytest.raises(RunOver):
            await store.writer.run(run_edits.save, done(run, delivered=1), delivery=result(run))
        with pytest.raises(RunOver):
            await store.writer.run(run_edits.append_transcript, run, 1, exchange(run))
        with pytest.raises(NoSuchRun):
            await store.writer.run(run_edits.save, done(run_of()))
        with pytest.raises(NoSuchRun):  # another user's
            await store.writer.run(run_edits.save, attrs.evolve(run, user=UserId("anna")))
        with pytest.raises(StorageError):
            await store.writer.run(run_edits.save, attrs.evolve(ended, started_at=iso(START + 1)))
        assert await stored(store, run) == ended


async def test_a_clients_message_cannot_stand_for_a_delivery(tmp_path: Path) -> None:
    """Not even one that got such an id some other way."""
    async with running_store(tmp_path) as store:
        run = await begun(store)
        await store.writer.run(messages.append, [new("forged", id=delivery_id(run.id, 1))])
        with pytest.raises(IdConflict):
            await store.writer.run(run_edits.save, done(run, delivered=1), delivery=result(run))
        assert await stored(store, run) == run


async def test_a_full_disk_keeps_nothing_of_an_end(tmp_path: Path) -> None:
    disk = FullDisk()
    async with running_store(tmp_path, fsync=disk) as store:
        await store.writer.run(messages.append, [new("hello")])
        run = await begun(store)
        disk.full = True
        final = done(run, delivered=1)
        transcript = RunLines(first_seq=1, messages=tuple(exchange(run)))
        with pytest.raises(StorageFull):
            await store.writer.run(run_edits.save, final, transcript=transcript, delivery=result(run))
        disk.full = False
        assert await stored(store, run) == run
        assert lines(tmp_path, "conversations/scheduler_news/*.jsonl") == []
        assert not (await store.writer.run(run_edits.save, final, transcript=transcript, delivery=result(run))).repeated


async def test_a_transcript_is_a_log_that_recall_never_sees(tmp_path: Path) -> None:
    """In the form of a chat's, one file for the whole run, also when it goes on after midnight."""
    evening = 1_760_054_340.0  # 23:59
    async with running_store(tmp_path) as store:
        run = await begun(store, user="anna", at=evening)
        await store.writer.run(run_edits.append_transcript, run, 1, exchange(run)[:3])
        final = done(run)
        answer = attrs.evolve(exchange(run)[3], created_at=iso(evening + 600))
        await store.writer.run(run_edits.save, final, transcript=RunLines(first_seq=4, messages=(answer,)))
        assert not (await store.readers.run(fulltext.scores, ["спокойно"], "c1", (0, 99), 99)).best(5)
        assert await store.readers.run(chats.listed, UserId("anna"), 9) == []
    records = lines(tmp_path, "conversations/*/*.jsonl")
    assert records == lines(tmp_path, "conversations/scheduler_news@anna/2025-10-09.jsonl")
    assert [(each["seq"], each["rowid"], each["chat_id"]) for each in records] == [
        (seq, None, "scheduler_news@anna") for seq in (1, 2, 3, 4)
    ]
    assert {(each["metadata"]["run"], each["metadata"]["model"]) for each in records} == {(run.id, "local/tiny")}
    assert records[1]["metadata"]["calls"][0]["id"] == records[2]["metadata"]["call"] == "c1"
    spoken = [runs.parse_transcript(each) for each in records]
    assert [each.run for each in spoken] == [run.id] * 4


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_by_page_task_and_status(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        made = [await begun(store, name=name) for name in ("news", "water") * 3]
        await begun(store, user="anna")
        await store.writer.run(run_edits.save, done(made[2]))

        async def listed(**filters: Any) -> list[str]:
            return [run.id for run in await store.readers.run(runs.newest, LOCAL, **{"limit": 99, **filters})]

        ids = [run.id for run in made]
        assert await listed() == ids[::-1]
        assert await listed(limit=2) == ids[:-3:-1]
        assert await listed(limit=2, before=ids[-2]) == ids[-3:-5:-1]
        assert await listed(task=TaskName("water")) == ids[5::-2]
        assert await listed(task=TaskName("water"), before=ids[3]) == [ids[1]]
        assert await listed(status=RunStatus.DONE) == [ids[2]]
        assert await listed(before="unknown") == []
        assert [run.id for run in await store.readers.run(runs.running)][:5] == [ids[0], ids[1], *ids[3:]]


async def test_tokens_by_task(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for name, user in (("news", "local"), ("water", "local"), ("never", "local"), ("news", "anna")):
            await store.writer.run(tasks.put, task(name, user=user), "new")
        for hour, tokens in enumerate((100, 20, 3)):
            run = await begun(store, at=START + 3600 * hour)
            await store.writer.run(run_edits.save, done(run, prompt_tokens=tokens, completion_tokens=1))
        await store.writer.run(
            run_edits.save, done(await begun(store, name="water", at=START + 7200), prompt_tokens=1000)
        )
        await begun(store, kind=RunKind.MANUAL, at=START + 9999)
        await store.writer.run(run_edits.save, done(await begun(store, user="anna", at=START), prompt_tokens=7))

        assert await store.readers.run(runs.tokens_by_task, iso(START)) == {
            (LOCAL, "news"): 126,
            (LOCAL, "water"): 1000,
            ("anna", "news"): 7,
        }
        assert (await store.readers.run(runs.tokens_by_task, iso(START + 3600)))[LOCAL, TaskName("news")] == 25
        assert await store.readers.run(runs.tokens_by_task, iso(START + 99999)) == {}


def test_lists_use_an_index() -> None:
    """A year of runs must not be read for one page, or at every start."""
    connection = apsw.Connection(":memory:")
    prepare_writer(connection)
    migrations.migrate(connection)
    plans: list[str] = []

    def trace(cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if statement.lstrip().startswith("SELECT"):
            explain = connection.cursor()
            explain.exec_trace = None
            plans.extend(row[3] for row in explain.execute(f"EXPLAIN QUERY PLAN {statement}", bindings))
        return True

    connection.exec_trace = trace
    run = run_of()
    runs.newest(connection, LOCAL, limit=5)
    runs.newest(connection, LOCAL, task=run.task, before="x", limit=5)
    runs.running(connection)
    runs.delivered_of(connection, LOCAL, "x")
    assert len(plans) >= 4
    scans = [plan for plan in plans if plan.startswith("SCAN") and "INDEX" not in plan and plan != "SCAN t"]
    assert [plan for plan in scans if "json_each" not in plan and "wanted" not in plan] == []
    assert not [plan for plan in plans if "TEMP B-TREE" in plan and "runs" in plan]
    connection.close()
