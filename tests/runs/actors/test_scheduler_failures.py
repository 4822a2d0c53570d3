"""The scheduler in trouble: broken runs, full and slow disks, models that are down, clocks that jump, restarts."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import klaw.runs.scheduler as scheduler_module
from klaw.actor.clock import from_iso, iso
from klaw.actor.supervisor import ActorState
from klaw.domain.message import Message, MessageKind
from klaw.domain.names import LOCAL_USER
from klaw.domain.task import HEARTBEAT, Cron, Run, RunKind, RunStatus, Task, TaskName, notice_message
from klaw.errors import NotStarted
from klaw.store.kinds import messages, run_edits, tasks
from tests.runs.actors.test_scheduler import ended
from tests.support.chats_world import World, replace_fsync, world
from tests.support.llm_server import Cut, Hang, Reply, Text, Tool, Wait, text_reply, tool_reply
from tests.support.runs.timing import at_rest, open_chat, timed
from tests.support.waiting import until
from tests.support.writing import Real, instead

START = 1_792_000_000.0
"""2026-10-14, a moment in no hurry."""
DOWN = Reply(before_head=(Cut(),))


async def said(here: World) -> list[Message]:
    """What runs have said in the chat."""
    found = await here.app.core.readers.run(messages.after, here.chat, 0, 1000)
    return [message for message in found if message.type is MessageKind.SCHEDULED]


async def add(here: World, name: str, message: str = "Look / Посмотри", **more: Any) -> None:
    trigger = {} if {"at", "every", "cron"} & set(more) else {"cron": "0 9 * * *", "zone": "Europe/Berlin"}
    await here.app.tasks.scheduling.add(
        LOCAL_USER, {"name": name, "message": message, "injectInto": "main"} | trigger | more
    )


def state_of(here: World) -> ActorState | None:
    return here.app.core.supervisor.state("subagents.scheduler")


def crashes(here: World) -> int:
    (report,) = [each for each in here.app.core.supervisor.report() if each.name == "subagents.scheduler"]
    return report.restarts


# -- one broken run ----------------------------------------------------------------------------------------------------


async def test_a_broken_run_is_recorded_and_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scheduler_module.carry_out

    async def breaking(live: Any, *args: Any, **more: Any) -> None:
        if live.run.task == "broken":
            raise RuntimeError("a bug")
        await real(live, *args, **more)

    monkeypatch.setattr(scheduler_module, "carry_out", breaking)
    async with world(tmp_path) as here:
        await open_chat(here)
        await add(here, "good")
        gate = trio.Event()
        here.llm.replies.append(Reply(steps=(Wait(gate), Text("Fine."))))
        good = await here.app.tasks.scheduling.run_now(LOCAL_USER, "good")
        broken = await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": "broken", "message": "x"}, notify="main")
        run = await ended(here, broken.id)
        assert (run.status, run.error) == (RunStatus.FAILED, "internal")
        assert "broken has ended (failed)" in (await here.reply(1, kind=MessageKind.SCHEDULED)).content
        gate.set()
        assert (await ended(here, good.id)).status is RunStatus.DONE
        assert crashes(here) == 0


async def test_a_task_that_cannot_be_understood_stops_no_other(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        now = iso(here.app.core.clock.now())
        odd = Task(
            user=LOCAL_USER,
            name=TaskName("odd"),
            trigger=Cron(expression="every full moon", zone="UTC"),
            message="x",
            created_at=now,
            updated_at=now,
            anchor_at=now,
        )
        await here.app.core.writer.run(tasks.put, odd, "new")
        here.llm.replies.append(text_reply("Wake up!"))
        await add(here, "alarm", at="2026-01-01T00:00Z", now=True)
        assert (await here.reply(1, kind=MessageKind.SCHEDULED)).content == "Wake up!"
        assert here.app.core.health.problems()["tasks_failed"]
        await here.app.tasks.scheduling.remove(LOCAL_USER, "odd")
        await until(lambda: "tasks_failed" not in here.app.core.health.problems())
        assert crashes(here) == 0


async def test_what_is_asked_for_at_the_moment_of_waking_is_carried_out(tmp_path: Path, mock_clock: MockClock) -> None:
    """A start that is under way when the scheduler was to look again is not given up half-way."""
    async with timed(tmp_path, mock_clock, start=START) as there:
        here = there.here
        here.llm.respond = lambda _request: text_reply("Found.")
        await there.rest()
        gate = trio.Event()

        async def slowly(begin: Real, *args: Any) -> Any:
            await gate.wait()
            return await begin(*args)

        instead(here.app.core.writer, run_edits.begin, slowly)
        begun: list[Run] = []

        async def spawn() -> None:
            begun.append(await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": "dig", "message": "x"}))

        await there.passes(50)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            await there.stalls()
            await there.passes(20)
            await there.stalls()
            gate.set()
        await there.rest()
        assert [run.status for run in await there.runs()] == [RunStatus.DONE]
        assert (await there.runs())[0].id == begun[0].id


# -- full and slow disks -----------------------------------------------------------------------------------------------


def disk(here: World) -> Callable[[bool], None]:
    """Lets the disk be full, or not."""
    full = False

    def fsync(_file: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "full")

    def set_full(value: bool) -> None:
        nonlocal full
        full = value

    replace_fsync(here, fsync)
    return set_full


async def test_a_full_disk_loses_no_end_and_uses_up_no_fire_time(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=START) as there:
        here, full = there.here, disk(there.here)
        await open_chat(here)
        await add(here, "once", at=iso(START + 100))
        await add(here, "later", at=iso(START + 150))
        gate = trio.Event()
        here.llm.replies += [Reply(steps=(Wait(gate), Text("Готово."))), text_reply("Later.")]
        await there.rest()
        await there.passes(101)
        await there.stalls()
        assert {job.run.task for job in here.app.tasks.scheduler.live.values()} == {"once"}
        full(True)
        gate.set()
        await there.stalls()
        await there.passes(60)  # "later" is due too, and cannot begin
        await there.stalls()
        assert [run.status for run in await there.runs()] == [RunStatus.RUNNING]
        assert await said(here) == []
        full(False)
        await there.passes(61)
        await there.stalls()
        await there.rest()
        once, later = await there.runs("once"), await there.runs("later")
        assert [(run.status, run.delivered) for run in (*once, *later)] == [(RunStatus.DONE, 1)] * 2
        assert [message.content for message in await said(here)] == ["Готово.", "Later."]
        # It ended when it ended, not when the disk had room.
        assert from_iso(once[0].ended_at or "") == pytest.approx(START + 101, abs=1)
        assert crashes(here) == 0


async def test_a_write_that_was_given_up_is_settled_by_what_the_store_holds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with timed(tmp_path, mock_clock, start=START, tools_for_model=True) as there:
        here = there.here
        await open_chat(here)
        await add(here, "day")
        stuck, goes_on = threading.Event(), threading.Event()
        goes_on.set()

        def fsync(_file: int) -> None:
            stuck.set()
            goes_on.wait(20)

        replace_fsync(here, fsync)
        gate = trio.Event()
        here.llm.replies += [
            Reply(steps=(Wait(gate), Tool("a", "schedule_deliver", '{"text": "Срочно!"}')), finish_reason="tool_calls"),
            text_reply("I sent it."),
        ]
        run = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        await there.stalls()
        # The disk stalls while the message is delivered, for longer than a write may take.

        async def save(saved: Real, state: Run, **more: Any) -> Any:
            if more.get("delivery") is not None:
                goes_on.clear()
            return await saved(state, **more)

        instead(here.app.core.writer, run_edits.save, save)
        gate.set()
        await there.stalls()
        assert not goes_on.is_set()
        mock_clock.jump(31)  # at once: the writer is stuck
        await there.stalls()
        goes_on.set()
        for _ in range(10):  # the writer, after a slow commit, waits a moment for others to join
            await there.stalls()
            await there.passes(1)
        await there.rest()
        (found,) = await there.runs()
        assert (found.id, found.status, found.error, found.delivered) == (run.id, RunStatus.FAILED, "internal", 1)
        contents = [message.content for message in await said(here)]
        assert contents[0] == "Срочно!"
        assert [content for content in contents if content == "Срочно!"] == ["Срочно!"]
        assert crashes(here) == 0


# -- a model that is down ----------------------------------------------------------------------------------------------


async def test_while_the_model_is_down_it_is_tried_again_ever_later_and_told_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with timed(tmp_path, mock_clock, start=START, subagents={"retries": 2}) as there:
        here = there.here
        await open_chat(here)
        here.llm.respond = lambda _request: DOWN
        await add(here, "once", at=iso(START + 100))
        await there.until(START + 1000)
        runs = await there.runs()
        assert [(run.status, run.attempt) for run in runs] == [(RunStatus.FAILED, number) for number in (1, 2, 3)]
        assert [round(from_iso(run.started_at) - START) for run in runs] == [100, 160, 280]
        (told,) = await said(here)
        assert "once did not succeed" in told.content
        assert told.metadata["run"] == runs[-1].id


async def test_it_is_tried_again_until_the_model_is_back(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=START) as there:
        here = there.here
        await open_chat(here)
        await add(here, "once", "Поздравь с днём рождения", at=iso(START + 100))
        here.llm.replies += [DOWN, DOWN, text_reply("С днём рождения!")]
        await there.until(START + 1000)
        assert [run.status for run in await there.runs()] == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.DONE]
        assert [message.content for message in await said(here)] == ["С днём рождения!"]


async def test_a_frequent_task_tells_of_its_failures_once_a_day(tmp_path: Path, mock_clock: MockClock) -> None:
    """No attempt fits before its next fire time, so each failure is the last word on that time."""
    async with timed(tmp_path, mock_clock, start=START) as there:
        here = there.here
        await open_chat(here)
        here.llm.respond = lambda _request: DOWN
        await add(here, "often", every="60s")
        await there.until(START + 605)
        runs = await there.runs()
        assert [(run.status, run.attempt) for run in runs] == [(RunStatus.FAILED, 1)] * 10
        assert len(await said(here)) == 1
        assert here.app.core.health.problems()["tasks_failed"]


# -- clocks ------------------------------------------------------------------------------------------------------------


async def test_a_jump_forward_fires_once_with_a_note_and_one_back_nothing_twice(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with timed(tmp_path, mock_clock, start=START) as there:
        here = there.here
        await open_chat(here)
        here.llm.respond = lambda _request: text_reply("Done.")
        await add(here, "hourly", every="1h")
        await there.until(START + 3700)
        there.clock.set_by(10 * 3600)  # suspended for ten hours
        await there.passes(60)
        await there.rest()
        first, second = await there.runs()
        assert first.note is None
        assert second.note is not None
        assert "earlier fire times skipped: 9" in second.note
        assert "the machine slept" in second.note
        there.clock.set_by(-5 * 3600)  # set back by five
        await there.until(there.now() + 5 * 3600)
        assert len(await there.runs()) == 2
        await there.until(there.now() + 3600)
        assert len(await there.runs()) == 3
        dues = [run.due for run in await there.runs()]
        assert len(dues) == len(set(dues))


# -- who goes first ----------------------------------------------------------------------------------------------------


async def test_a_turn_waits_for_no_more_than_the_running_call(tmp_path: Path) -> None:
    slots = {"processing": {"maxConcurrentLlm": 1, "debounceMs": 0}, "subagents": {"maxConcurrent": 4}}
    async with world(tmp_path, **slots) as here:
        await open_chat(here)
        gate = trio.Event()
        here.llm.replies.append(Reply(steps=(Wait(gate), Text("first"))))
        here.llm.respond = lambda _request: text_reply("ok")
        for name in ("one", "two", "three", "four"):
            await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": name, "message": f"background {name}"})
        await here.llm.wait_for_requests(2)
        await until(lambda: here.app.llm.slots.report().waiting_background == 3)
        await here.send("Quick question / Быстрый вопрос")
        await until(lambda: here.app.llm.slots.report().waiting == 4)
        gate.set()
        await here.turn(2)
        asked = [request.last_user for request in here.llm.requests]
        assert asked[1].startswith("background") or "background" in asked[1]
        assert "Quick question" in asked[2]


async def test_what_is_spawned_again_and_again_keeps_no_task_from_its_turn(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    one = {"subagents": {"maxConcurrent": 1}}
    async with timed(tmp_path, mock_clock, start=START, **one) as there:
        here = there.here
        await open_chat(here)
        gates = [trio.Event() for _ in range(5)]
        here.llm.replies += [Reply(steps=(Wait(gate), Text("ok"))) for gate in gates]
        await add(here, "due", at=iso(START + 10))
        await there.rest()
        spawn = here.app.tasks.scheduling.spawn
        await spawn(LOCAL_USER, {"name": "a1", "message": "x"})
        await spawn(LOCAL_USER, {"name": "a2", "message": "x"})
        await there.stalls()
        await there.passes(11)
        await there.stalls()
        await spawn(LOCAL_USER, {"name": "a3", "message": "x"})
        for gate in gates:
            await there.stalls()
            gate.set()
        await there.rest()
        assert [run.task for run in sorted(await there.runs(), key=lambda run: run.ended_at or "")] != []
        order = [request.body["messages"][-1]["content"] for request in here.llm.requests[1:]]
        assert [name for text in order for name in ("a1", "a2", "due", "a3") if f"[{name}," in text] == [
            "a1",
            "a2",
            "due",
            "a3",
        ]


async def test_a_task_waits_for_its_turn_once(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"maxConcurrent": 1}) as here:
        await add(here, "day")
        here.llm.replies.append(Reply(steps=(Hang(),)))
        first = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        await here.llm.wait_for_requests(1)
        second = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        with pytest.raises(NotStarted, match="already"):
            await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        for run in (second, first):
            assert await here.app.tasks.scheduling.cancel(LOCAL_USER, run.id)
            assert (await ended(here, run.id)).status is RunStatus.CANCELLED


async def test_a_cancellation_that_comes_too_late_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        full = disk(here)
        await add(here, "day")
        gate = trio.Event()
        here.llm.replies.append(Reply(steps=(Wait(gate), Text("Done."))))
        run = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        await here.llm.wait_for_requests(2)
        full(True)
        gate.set()
        await until(lambda: here.app.tasks.scheduler.live[run.id].ending)
        assert not await here.app.tasks.scheduling.cancel(LOCAL_USER, run.id)
        full(False)
        found = await ended(here, run.id)
        assert (found.status, found.delivered) == (RunStatus.DONE, 1)


# -- spending ----------------------------------------------------------------------------------------------------------


async def test_two_runs_at_once_cannot_both_use_the_last_tokens(tmp_path: Path) -> None:
    limits = {"subagents": {"dailyTokens": 3000}, "processing": {"maxConcurrentLlm": 4}}
    async with world(tmp_path, **limits) as here:
        await open_chat(here)
        gate = trio.Event()
        here.llm.respond = lambda _request: Reply(steps=(Wait(gate), Text("ok")), usage=(900, 300))
        for name in ("one", "two", "three"):
            await add(here, name)
        begun = [await here.app.tasks.scheduling.run_now(LOCAL_USER, name) for name in ("one", "two")]
        await here.llm.wait_for_requests(3)
        # Each may answer with what the other, at its longest, leaves.
        longest = [request.body["max_tokens"] for request in here.llm.requests[1:]]
        assert sum(longest) < 3000
        gate.set()
        assert [(await ended(here, run.id)).status for run in begun] == [RunStatus.DONE] * 2
    async with world(tmp_path, **limits) as here:
        # What was spent counts after a restart too; the answer is kept short enough for what is left.
        here.llm.respond = lambda _request: text_reply("ok", usage=(400, 10))
        third = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "three")).id)
        assert third.status is RunStatus.DONE
        assert here.llm.requests[-1].body["max_tokens"] < 600
        with pytest.raises(NotStarted, match="2810 are used"):
            await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": "long", "message": "слово " * 200})


# -- tasks that change -------------------------------------------------------------------------------------------------


async def test_a_task_is_edited_disabled_and_removed_while_it_runs(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await add(here, "day", "First request")
        gates = [trio.Event(), trio.Event()]
        here.llm.replies += [Reply(steps=(Wait(gates[0]), Text("One."))), DOWN]
        run = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        await here.llm.wait_for_requests(2)
        await here.app.tasks.scheduling.edit(LOCAL_USER, "day", {"message": "Second request", "injectInto": "other"})
        await here.app.tasks.scheduling.enable(LOCAL_USER, "day", False)
        gates[0].set()
        found = await ended(here, run.id)
        assert (found.message, found.inject_into, found.delivered) == ("First request", "main", 1)
        assert "First request" in here.llm.requests[1].last_user
        await here.app.tasks.scheduling.enable(LOCAL_USER, "day", True)
        failed = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (failed.status, failed.message) == (RunStatus.FAILED, "Second request")
        assert "tasks_failed" in here.app.core.health.problems()
        await here.app.tasks.scheduling.remove(LOCAL_USER, "day")
        await until(lambda: "tasks_failed" not in here.app.core.health.problems())


async def test_a_text_that_found_no_chat_stays_beside_the_final_one(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True) as here:
        await add(here, "day", injectInto="nowhere")
        here.llm.replies += [
            tool_reply(Tool("a", "schedule_deliver", '{"text": "Срочная новость."}')),
            text_reply("There is no such chat."),
        ]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.error, run.delivered) == (RunStatus.FAILED, "no_such_chat", 0)
        assert run.result == "Срочная новость.\n\nThere is no such chat."


async def test_a_heartbeat_that_fails_stays_out_of_the_chat(tmp_path: Path, mock_clock: MockClock) -> None:
    beat = {"heartbeat": {"intervalSeconds": 600}, "subagents": {"retries": 0}}
    async with timed(tmp_path, mock_clock, start=START, **beat) as there:
        here = there.here
        await open_chat(here)
        (tmp_path / "workspace").mkdir(exist_ok=True)
        (tmp_path / "workspace" / "HEARTBEAT.md").write_text("- Проверь почту")
        here.llm.respond = lambda _request: DOWN
        await here.app.tasks.scheduling.pair_heartbeat(LOCAL_USER, "main")
        await there.until(START + 1300)
        assert [run.status for run in await there.runs(HEARTBEAT)] == [RunStatus.FAILED] * 2
        assert await said(here) == []
        assert here.app.core.health.problems()["tasks_failed"]
        await here.app.tasks.scheduling.pair_heartbeat(LOCAL_USER, None)
        await there.until(START + 3000)
        assert len(await there.runs()) == 2
        assert "tasks_failed" not in here.app.core.health.problems()
    beat["heartbeat"] = {"intervalSeconds": 60}
    async with timed(tmp_path, mock_clock, start=START + 4000, **beat) as there:
        there.here.llm.respond = lambda _request: text_reply("Nothing.")
        await there.here.app.tasks.scheduling.pair_heartbeat(LOCAL_USER, "main")
        await there.until(START + 4000 + 185)
        runs = (await there.runs(HEARTBEAT))[2:]
        assert [run.status for run in runs] == [RunStatus.SILENT] * 3
        assert [round(from_iso(run.due) - START) for run in runs] == [4060, 4120, 4180]


# -- restarts ----------------------------------------------------------------------------------------------------------


def spawned(here: World, run: str = "r1", **more: Any) -> Run:
    now = iso(here.app.core.clock.now())
    made = Run(
        id=run,
        user=LOCAL_USER,
        task=TaskName("dig"),
        kind=RunKind.SPAWNED,
        due=now,
        status=RunStatus.RUNNING,
        message="Dig",
        model="stub/model",
        started_at=now,
        notify="main",
    )
    return attrs.evolve(made, **more)


async def test_an_end_that_the_chat_knows_is_not_repeated(tmp_path: Path) -> None:
    """Killed between the notice with the result, in the chat's log, and the run's record."""
    async with world(tmp_path) as here:
        await open_chat(here)
        run = spawned(here)
        await here.app.core.writer.run(run_edits.begin, run)
        over = attrs.evolve(run, status=RunStatus.DONE)
        text = "The subagent dig has ended (done).\n\nНайдено: 42."
        await here.app.core.writer.run(messages.append, [notice_message(over, here.chat, text, run.started_at)])
    async with world(tmp_path) as here:
        asked = len(here.llm.requests)
        await at_rest(here)
        (found,) = await here.app.tasks.scheduling.runs(LOCAL_USER)
        assert (found.status, found.error, found.attempt) == (RunStatus.DONE, None, 1)
        assert "Найдено: 42." in found.result
        assert len(await said(here)) == 1
        assert len(here.llm.requests) == asked


async def test_whoever_spawned_it_is_told_that_it_was_interrupted_after_it_delivered(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await here.app.core.writer.run(run_edits.begin, spawned(here, delivered=1, inject_into="main"))
    async with world(tmp_path) as here:
        told = [message.content for message in await said(here)]
        assert told == ["The subagent dig was interrupted because Klaw stopped; what it had delivered stays."]
        assert [run.status for run in await here.app.tasks.scheduling.runs(LOCAL_USER)] == [RunStatus.INTERRUPTED]


async def test_interrupted_twice_is_told_and_ends_there(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await here.app.core.writer.run(run_edits.begin, spawned(here, attempt=2))
    for _ in range(2):
        async with world(tmp_path) as here:
            assert [run.status for run in await here.app.tasks.scheduling.runs(LOCAL_USER)] == [RunStatus.INTERRUPTED]
            (told,) = await said(here)
            assert "stopped twice" in told.content


async def test_a_stop_lets_runs_end_and_begins_what_waited_after_the_start(tmp_path: Path) -> None:
    one = {"subagents": {"maxConcurrent": 1}}
    async with world(tmp_path, **one) as here:
        await open_chat(here)
        gate = trio.Event()
        here.llm.replies.append(Reply(steps=(Wait(gate), Text("First."))))
        for name in ("first", "second"):
            await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": name, "message": "x", "injectInto": "main"})
        await here.llm.wait_for_requests(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.app.core.supervisor.stop, "subagents.scheduler", "shutdown")
            await until(lambda: here.app.core.supervisor.state("subagents.scheduler") is ActorState.STOPPING)
            gate.set()
        assert [message.content for message in await said(here)] == ["First."]
        assert {run.task: run.status for run in await here.app.tasks.scheduling.runs(LOCAL_USER)} == {
            "first": RunStatus.DONE,
            "second": RunStatus.RUNNING,
        }
    async with world(tmp_path, **one) as here:
        here.llm.replies.append(text_reply("Second."))
        await here.reply(1, kind=MessageKind.SCHEDULED)
        assert [message.content for message in await said(here)] == ["First.", "Second."]


async def test_a_crash_of_the_scheduler_interrupts_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        here.llm.replies += [Reply(steps=(Hang(),)), text_reply("Found.")]
        await here.app.tasks.scheduling.spawn(LOCAL_USER, {"name": "dig", "message": "x", "injectInto": "main"})
        await here.llm.wait_for_requests(2)
        here.app.tasks.scheduler.mailbox.tell("no message at all")  # type: ignore[arg-type]
        assert (await here.reply(1, kind=MessageKind.SCHEDULED)).content == "Found."
        second, first = await here.app.tasks.scheduling.runs(LOCAL_USER)
        assert (first.status, second.attempt) == (RunStatus.INTERRUPTED, 2)
        assert (await ended(here, second.id)).status is RunStatus.DONE
        assert crashes(here) == 1
        assert state_of(here) is ActorState.RUNNING
