"""/tasks, /runs, /cancel and /heartbeat in a chat, with the real scheduler and store."""

from pathlib import Path

import pytest

from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import RunStatus
from tests.runs.actors.test_scheduler import add, ended
from tests.support.chats_world import world
from tests.support.llm_server import Hang, Reply, text_reply


async def test_tasks_are_listed_with_their_next_fire_and_last_run(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        assert await here.command("/tasks") == "There are no tasks; `klaw schedule add` makes one."
        assert await here.command("/runs", 2) == "There are no runs."
        await add(here, injectInto="main")
        await add(here, "off", enabled=False, injectInto="Дача")
        await here.app.tasks.scheduling.add(UserId("anna"), {"name": "annas", "message": "x", "every": "1h"})
        here.llm.replies.append(text_reply("The day was fine."))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert run.status is RunStatus.DONE
        head, day, off = (await here.command("/tasks", 3)).splitlines()
        assert head == "Tasks:"
        assert day.startswith("  day: cron 0 9 * * * Europe/Berlin; next 20")
        assert " 09:00 +0" in day
        assert day.endswith("; last run done")
        assert off.startswith("  off: cron 0 9 * * * Europe/Berlin; disabled; there is no chat ")
        head, line = (await here.command("/runs", 4)).splitlines()
        assert head == "Runs, the newest first:"
        assert line.split()[:3] == [run.id, "day", "done"]
        assert await here.command("/runs off", 5) == "There are no runs of off."
        assert (await here.command("/runs ../x", 6)).startswith("a task name has 1 to 64")
        assert await here.command("/runs annas", 7) == "There are no runs of annas."


async def test_a_run_is_cancelled_by_its_task_or_its_id(tmp_path: Path) -> None:
    async with world(tmp_path, subagents={"maxConcurrent": 1}) as here:
        assert await here.command("/cancel") == "No run is in progress."
        await add(here, "first")
        await add(here, "second")
        here.llm.replies += [Reply(steps=(Hang(),)), Reply(steps=(Hang(),))]
        first = await here.app.tasks.scheduling.run_now(LOCAL_USER, "first")
        second = await here.app.tasks.scheduling.run_now(LOCAL_USER, "second")
        assert await here.app.tasks.scheduling.runs(UserId("anna")) == []
        which = (await here.command("/cancel", 2)).splitlines()
        assert which[0] == "Which one? Give its id:"
        assert [line.split()[:3] for line in which[1:]] == [
            [first.id, "first", "running"],
            [second.id, "second", "waiting"],
        ]
        assert (await here.command("/cancel третий", 3)).startswith("No such run is in progress. These are:")
        assert await here.command("/cancel second", 4) == f"The run {second.id} of second is being ended."
        assert (await ended(here, second.id)).status is RunStatus.CANCELLED
        assert await here.command(f"/cancel {first.id}", 5) == f"The run {first.id} of first is being ended."
        assert (await ended(here, first.id)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("interval_s", [0, 1800])
async def test_the_heartbeat_is_paired_with_the_chat(tmp_path: Path, interval_s: int) -> None:
    async with world(tmp_path, heartbeat={"intervalSeconds": interval_s}) as here:
        said = await here.command("/heartbeat")
        tasks = await here.app.tasks.scheduling.tasks(LOCAL_USER)
        listed = await here.command("/tasks", 2)
        if interval_s:
            assert [(task["name"], task["inject_into"]) for task in tasks] == [("heartbeat", "main")]
            assert "Every 30 min I go through HEARTBEAT.md" in said
            assert "heartbeat: every 30m; next 20" in listed
        else:
            assert "Heartbeats are off, so nothing was changed" in said
            assert tasks == []
            assert "There are no tasks" in listed
        assert "/heartbeat off" in await here.command("/heartbeat вкл", 3)
        assert "in no chat" in await here.command("/heartbeat OFF", 4)
        assert await here.app.tasks.scheduling.tasks(LOCAL_USER) == []
        assert "in no chat" in await here.command("/heartbeat off", 5)
