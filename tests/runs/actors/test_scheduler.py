"""The scheduler with its real parts: store, writer, router, LLM over HTTP, tools; only the LLM's words are scripted."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.actor.clock import iso
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import HEARTBEAT, At, Run, RunKind, RunStatus, Task, TaskName
from klaw.errors import NoSuchTask, NotStarted, TaskError, TaskExists
from klaw.store.kinds import run_edits, tasks
from tests.support.chats_world import World, world
from tests.support.llm_server import Hang, Reply, Text, Tool, Wait, text_reply, tool_reply
from tests.support.runs.timing import at_rest
from tests.support.waiting import until

DAILY = {"cron": "0 9 * * *", "zone": "Europe/Berlin"}


async def ended(here: World, run: str, user: UserId = LOCAL_USER) -> Run:
    async def over() -> Run | None:
        found = await here.app.tasks.scheduling.run(user, run)
        return found if found and found.status.over and run not in here.app.tasks.scheduler.live else None

    return await until(over)


async def runs_of(here: World, task: str, count: int) -> list[Run]:
    """The task's runs when there are so many, and all are over; newest first."""

    async def over() -> list[Run]:
        found = await here.app.tasks.scheduling.runs(LOCAL_USER, task=task)
        return found if len(found) >= count and all(run.status.over for run in found) else []

    return await until(over)


async def open_chat(here: World) -> None:
    here.llm.replies.append(text_reply("Hi."))
    await here.send("hello")
    await here.turn(1)


async def add(here: World, name: str = "day", message: str = "Sum up the day", **more: Any) -> None:
    trigger = {} if {"at", "every", "cron"} & set(more) else DAILY
    await here.app.tasks.scheduling.add(LOCAL_USER, {"name": name, "message": message, **trigger, **more})


def transcript(tmp_path: Path, folder: str) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "data" / "conversations" / folder).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "answer"), [("Sum up the day", "A quiet day."), ("Подведи итоги дня", "Спокойный день.")]
)
async def test_the_final_text_is_delivered(tmp_path: Path, message: str, answer: str) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await add(here, message=message, injectInto="main")
        here.llm.replies.append(text_reply(answer))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.kind, run.delivered, run.result) == (RunStatus.DONE, RunKind.MANUAL, 1, answer)
        assert (run.prompt_tokens, run.completion_tokens) == (11, 7)
        said = await here.reply(1, kind=MessageKind.SCHEDULED)
        assert (said.content, said.role, said.chat) == (answer, Role.ASSISTANT, here.chat)
        assert said.metadata == {"origin": "scheduled", "task": "day", "run": run.id}
        lines = transcript(tmp_path, "scheduler_day")
        assert [(line["role"], line["content"]) for line in lines] == [("user", message), ("assistant", answer)]
        assert {(line["metadata"]["run"], line["metadata"]["model"]) for line in lines} == {(run.id, "stub/model")}
        # The chat's next turn sees what was delivered.
        here.llm.replies.append(text_reply("Indeed."))
        await here.send("What was that?")
        await here.turn(2)
        assert any(answer in content for content in here.contents())


@pytest.mark.parametrize("answer", ['{"silent": true, "reason": "nothing new"}', '```json\n{"silent": true}\n```'])
async def test_a_silent_answer_is_not_delivered(tmp_path: Path, answer: str) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await add(here, injectInto="main")
        here.llm.replies.append(text_reply(answer))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.delivered) == (RunStatus.SILENT, 0)


async def test_the_tool_delivers_and_then_the_final_text_does_not(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True) as here:
        await open_chat(here)
        await add(here, injectInto="main")
        here.llm.replies += [
            tool_reply(
                Tool("a", "schedule_deliver", '{"text": "First."}'),
                Tool("b", "schedule_deliver", '{"text": "Второе."}', index=1),
            ),
            text_reply("I sent two."),
        ]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.delivered, run.result) == (RunStatus.DONE, 2, "I sent two.")
        said = {(await here.reply(number, kind=MessageKind.SCHEDULED)).content for number in (1, 2)}
        assert said == {"First.", "Второе."}
        kinds = [line["type"] for line in transcript(tmp_path, "scheduler_day")]
        assert kinds == ["text", "tool_call", "tool_result", "tool_result", "text"]
        # What a run is offered: the tool that delivers, and none that makes tasks.
        offered = {tool["function"]["name"] for tool in here.llm.requests[-1].body["tools"]}
        assert "schedule_deliver" in offered
        assert "schedule_add" not in offered


async def test_a_chat_that_does_not_exist_is_an_error_and_the_text_stays(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await add(here, injectInto="nowhere")
        (view,) = await here.app.tasks.scheduling.tasks(LOCAL_USER)
        assert view["warning"] is not None
        assert "nowhere" in view["warning"]
        here.llm.replies.append(text_reply("For nobody."))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.error, run.result) == (RunStatus.FAILED, "no_such_chat", "For nobody.")
        assert here.app.core.health.problems()["tasks_failed"]
        here.llm.replies.append(text_reply("Again."))
        await here.send("hi", chat="nowhere")
        await here.turn(1)
        here.llm.replies.append(text_reply("For somebody."))
        assert (
            await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        ).status is RunStatus.DONE
        assert "tasks_failed" not in here.app.core.health.problems()


async def test_a_task_of_another_user_speaks_in_no_foreign_chat(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)  # local:main
        anna = UserId("anna")
        await here.app.tasks.scheduling.add(anna, {"name": "spy", "message": "Look", "injectInto": "main", **DAILY})
        here.llm.replies.append(text_reply("Secret."))
        run = await here.app.tasks.scheduling.run_now(anna, "spy")
        found = await ended(here, run.id, anna)
        assert found.error == "no_such_chat"
        assert await here.app.tasks.scheduling.run(LOCAL_USER, run.id) is None
        assert await here.app.tasks.scheduling.tasks(LOCAL_USER) == []
        assert not await here.app.tasks.scheduling.cancel(LOCAL_USER, run.id)
        with pytest.raises(NoSuchTask):
            await here.app.tasks.scheduling.run_now(LOCAL_USER, "spy")
        assert (tmp_path / "data" / "conversations" / "scheduler_spy@anna").is_dir()


# -- time --------------------------------------------------------------------------------------------------------------


async def test_a_one_shot_in_the_past_fires_at_once_and_only_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        here.llm.replies.append(text_reply("Wake up!"))
        await add(here, "alarm", "Wake me", at="2026-01-01T07:00+01:00", now=True, injectInto="main")
        (run,) = await runs_of(here, "alarm", 1)
        assert (run.status, run.kind, run.delivered) == (RunStatus.DONE, RunKind.SCHEDULED, 1)
        view = await here.app.tasks.scheduling.edit(LOCAL_USER, "alarm", {"message": "Wake me again"})
        assert view["next_fires"] == []
        await at_rest(here)
        assert len(await here.app.tasks.scheduling.runs(LOCAL_USER)) == 1


async def test_missed_times_fire_once_after_downtime_with_a_note(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
    async with world(tmp_path) as here:
        now = here.app.core.clock.now()
        old = iso(now - 86_400 * 3)
        task = Task(
            user=LOCAL_USER,
            name=TaskName("hourly"),
            trigger=(await _every_hour(here)),
            message="Check",
            inject_into="main",
            created_at=old,
            updated_at=old,
            anchor_at=old,
        )
        here.llm.replies.append(text_reply("Checked."))
        await here.app.core.writer.run(tasks.put, task, "new")
        here.app.tasks.scheduler.nudge()
        (run,) = await runs_of(here, "hourly", 1)
        assert run.note is not None
        assert "skipped" in run.note
        await at_rest(here)
        assert len(await here.app.tasks.scheduling.runs(LOCAL_USER)) == 1
        assert "late" in here.llm.requests[-1].last_user


async def _every_hour(here: World) -> Any:
    await here.app.tasks.scheduling.add(LOCAL_USER, {"name": "x", "message": "x", "every": "1h"})
    return (await here.app.tasks.scheduling.remove(LOCAL_USER, "x")).trigger


async def test_a_task_never_runs_beside_itself_and_two_run_at_most(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"maxConcurrent": 2}, processing={"maxConcurrentLlm": 4}) as here:
        gate = trio.Event()
        for name in ("one", "two", "three"):
            await add(here, name)
        here.llm.replies += [Reply(steps=(Wait(gate), Text("ok"))) for _ in range(4)]
        begun = [await here.app.tasks.scheduling.run_now(LOCAL_USER, name) for name in ("one", "one", "two", "three")]
        scheduler = here.app.tasks.scheduler
        await until(lambda: len(scheduler.live) + len(scheduler.queued) == 4 and len(here.llm.requests) == 2)
        assert {job.run.task for job in scheduler.live.values()} == {"one", "two"}
        assert [job.run.task for job in scheduler.queued] == ["one", "three"]
        gate.set()
        assert [(await ended(here, run.id)).status for run in begun] == [RunStatus.DONE] * 4


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_failing_model_is_recorded_and_told(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"retries": 0}) as here:
        await open_chat(here)
        await add(here, injectInto="main")
        here.llm.replies.append(Reply(status=500, body=b"{}", content_type="application/json"))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.error) == (RunStatus.FAILED, "llm_refused")
        assert "did not succeed" in (await here.reply(1, kind=MessageKind.SCHEDULED)).content


async def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await add(here, timeout=1)
        here.llm.replies.append(Reply(steps=(Hang(),)))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.error) == (RunStatus.TIMED_OUT, "timeout")


async def test_a_run_can_be_cancelled_while_it_runs_and_while_it_waits(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"maxConcurrent": 1}) as here:
        await add(here, "one")
        await add(here, "two")
        here.llm.replies.append(Reply(steps=(Hang(),)))
        first = await here.app.tasks.scheduling.run_now(LOCAL_USER, "one")
        second = await here.app.tasks.scheduling.run_now(LOCAL_USER, "two")
        assert await here.app.tasks.scheduling.cancel(LOCAL_USER, second.id)
        assert await here.app.tasks.scheduling.cancel(LOCAL_USER, first.id)
        for run in (first, second):
            assert (await ended(here, run.id)).status is RunStatus.CANCELLED
        assert not await here.app.tasks.scheduling.cancel(LOCAL_USER, first.id)


async def test_removing_a_task_lets_its_run_end(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        await add(here, injectInto="main")
        gate = trio.Event()
        here.llm.replies.append(Reply(steps=(Wait(gate), Text("Still here."))))
        run = await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        await here.app.tasks.scheduling.remove(LOCAL_USER, "day")
        gate.set()
        assert (await ended(here, run.id)).status is RunStatus.DONE
        assert (await here.reply(1, kind=MessageKind.SCHEDULED)).content == "Still here."


async def test_an_interrupted_spawn_is_tried_again_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        run = Run(
            id="r1",
            user=LOCAL_USER,
            task=TaskName("dig"),
            kind=RunKind.SPAWNED,
            due=iso(here.app.core.clock.now()),
            status=RunStatus.RUNNING,
            message="Dig",
            model="stub/model",
            started_at=iso(here.app.core.clock.now()),
            notify="main",
        )
        await here.app.core.writer.run(run_edits.begin, run)  # as if the process had died right after
    async with world(tmp_path) as here:
        here.llm.replies.append(text_reply("Dug."))
        second, first = await runs_of(here, "dig", 2)
        assert (first.status, second.status, second.attempt) == (RunStatus.INTERRUPTED, RunStatus.DONE, 2)
        assert "Dug." in (await here.reply(1, kind=MessageKind.SCHEDULED)).content
    async with world(tmp_path) as here:
        await at_rest(here)
        assert len(await here.app.tasks.scheduling.runs(LOCAL_USER)) == 2


async def test_what_was_delivered_before_the_interruption_is_not_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await open_chat(here)
        now = iso(here.app.core.clock.now())
        await add(here, "once", at="2026-01-01T00:00Z", now=True, enabled=False)
        task = await here.app.core.readers.run(tasks.get, LOCAL_USER, "once")
        assert task is not None
        assert isinstance(task.trigger, At)
        run = Run(
            id="r2",
            user=LOCAL_USER,
            task=task.name,
            kind=RunKind.SCHEDULED,
            due=task.trigger.instant,
            status=RunStatus.RUNNING,
            message="Once",
            model="stub/model",
            inject_into="main",
            started_at=now,
        )
        await here.app.core.writer.run(run_edits.begin, run)
        from klaw.domain.task import delivery_message

        said = attrs.evolve(run, delivered=1)
        await here.app.core.writer.run(
            run_edits.save, said, delivery=delivery_message(said, 1, here.chat, "Done.", now)
        )
        await here.app.tasks.scheduling.enable(LOCAL_USER, "once", True, now=True)
    async with world(tmp_path) as here:
        (found,) = [run for run in await runs_of(here, "once", 1) if run.id == "r2"]
        assert (found.status, found.delivered, found.result) == (RunStatus.INTERRUPTED, 1, "Done.")


# -- subagents ---------------------------------------------------------------------------------------------------------


async def test_a_chat_spawns_a_subagent_and_is_told_of_its_end(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True) as here:
        arguments = json.dumps({"name": "research", "message": "Find it"})
        # The chat's answer and the subagent's may be asked for in either order.
        here.llm.replies += [tool_reply(Tool("a", "subagent_spawn", arguments)), *[text_reply("Found: 42.")] * 2]
        await here.send("Find it in the background")
        await here.turn(1)
        notice = await here.reply(1, kind=MessageKind.SCHEDULED)
        assert "research has ended (done)" in notice.content
        assert "Found: 42." in notice.content
        assert notice.metadata["origin"] == "notice"


async def test_depth_and_number_of_subagents_are_limited(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"maxSpawned": 1, "maxDepth": 1}) as here:
        here.llm.replies.append(Reply(steps=(Hang(),)))
        scheduling = here.app.tasks.scheduling
        run = await scheduling.spawn(LOCAL_USER, {"name": "a", "message": "x"})
        with pytest.raises(NotStarted, match="maxSpawned"):
            await scheduling.spawn(LOCAL_USER, {"name": "b", "message": "x"})
        with pytest.raises(NotStarted, match="maxDepth"):
            await scheduling.spawn(LOCAL_USER, {"name": "b", "message": "x"}, depth=2)
        await scheduling.cancel(LOCAL_USER, run.id)
        await ended(here, run.id)
        await add(here, "day")
        with pytest.raises(NotStarted, match="name of a task"):
            await scheduling.spawn(LOCAL_USER, {"name": "day", "message": "x"})


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_the_daily_limit_refuses_and_tells_once(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"dailyTokens": 100}) as here:
        await open_chat(here)
        await add(here, message="word " * 400, injectInto="main")
        for _ in range(2):
            with pytest.raises(NotStarted, match="100 tokens"):
                await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")
        runs = await here.app.tasks.scheduling.runs(LOCAL_USER)
        assert [(run.status, run.error) for run in runs] == [(RunStatus.REFUSED, "limit_user_tokens")] * 2
        assert "was not run" in (await here.reply(1, kind=MessageKind.SCHEDULED)).content
        assert [run.details.get("told") for run in runs] == [None, True]
        assert len(here.llm.requests) == 1


async def test_the_limit_of_a_run_ends_it_before_the_call_that_would_pass_it(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True, subagents={"maxTokens": 4000}) as here:
        await add(here)
        looping = tool_reply(Tool("a", "current_time", "{}"), usage=(2500, 900))
        here.llm.replies += [looping, looping, looping]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert (run.status, run.error) == (RunStatus.FAILED, "limit_run_tokens")
        assert run.prompt_tokens + run.completion_tokens <= 4000


# -- heartbeat ---------------------------------------------------------------------------------------------------------


async def test_the_heartbeat_asks_nobody_while_its_list_is_blank(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True, heartbeat={"intervalSeconds": 60}) as here:
        await open_chat(here)
        scheduling, asked = here.app.tasks.scheduling, len(here.llm.requests)
        task = await scheduling.pair_heartbeat(LOCAL_USER, "main")
        old = iso(here.app.core.clock.now() - 3600)
        for text in (None, "", "# Heartbeat\n\n<!-- nothing -->\n- [ ]\n"):
            if text is not None:
                (tmp_path / "workspace").mkdir(exist_ok=True)
                (tmp_path / "workspace" / "HEARTBEAT.md").write_text(text)
            await here.app.core.writer.run(tasks.put, attrs.evolve(task, anchor_at=old), "existing")
            here.app.tasks.scheduler.nudge()
            await at_rest(here)
            with pytest.raises(NotStarted):
                await scheduling.run_now(LOCAL_USER, HEARTBEAT)
        assert len(here.llm.requests) == asked
        assert await scheduling.runs(LOCAL_USER) == []


async def test_the_heartbeat_delivers_only_through_the_tool(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True, heartbeat={"intervalSeconds": 60}) as here:
        await open_chat(here)
        (tmp_path / "workspace").mkdir(exist_ok=True)
        (tmp_path / "workspace" / "HEARTBEAT.md").write_text("- Напомни про чай")
        task = await here.app.tasks.scheduling.pair_heartbeat(LOCAL_USER, "main")
        here.llm.replies += [text_reply("Nothing to do.")]
        await here.app.core.writer.run(
            tasks.put, attrs.evolve(task, anchor_at=iso(here.app.core.clock.now() - 61)), "existing"
        )
        here.app.tasks.scheduler.nudge()
        (run,) = await runs_of(here, HEARTBEAT, 1)
        assert (run.status, run.kind, run.delivered) == (RunStatus.SILENT, RunKind.HEARTBEAT, 0)
        here.llm.replies += [tool_reply(Tool("a", "schedule_deliver", '{"text": "Чай!"}')), text_reply("Delivered.")]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, HEARTBEAT)).id)
        assert run.delivered == 1
        assert (await here.reply(1, kind=MessageKind.SCHEDULED)).content == "Чай!"


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"name": "../etc"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": "heartbeat"}, "name"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "0 0 9 * * * 2026"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"zone": "Mars/Phobos"}, "zone"),
        ({"cron": None, "zone": None, "at": "2020-01-01T00:00Z"}, "at"),
        ({"message": "x" * 102_400}, "message"),
        ({"injectInto": "anna:main"}, "injectInto"),
        ({"model": "nobody/model"}, "model"),
    ],
)
async def test_wrong_fields_are_named(tmp_path: Path, raw: dict[str, Any], field: str) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(TaskError) as caught:
            await here.app.tasks.scheduling.add(LOCAL_USER, {"name": "day", "message": "x", **DAILY, **raw})
        assert [problem.path for problem in caught.value.problems] == [field]
        assert await here.app.tasks.scheduling.tasks(LOCAL_USER) == []


async def test_a_second_task_of_one_name_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await add(here)
        with pytest.raises(TaskExists):
            await add(here, message="Other")
        assert [each["message"] for each in await here.app.tasks.scheduling.tasks(LOCAL_USER)] == ["Sum up the day"]
        with pytest.raises(NoSuchTask):
            await here.app.tasks.scheduling.remove(LOCAL_USER, "other")
