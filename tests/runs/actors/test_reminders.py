"""Reminders with the real scheduler and store: the text itself comes, on time and once, and no model is asked."""

import json
from pathlib import Path

import pytest
from trio.testing import MockClock

import klaw.runs.scheduler as scheduler_module
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER, ChatId, chat_id
from klaw.domain.task import RunStatus
from klaw.errors import NoSuchTask, TaskError
from klaw.runs import service
from klaw.store.kinds import messages
from tests.runs.unit.test_when import NOW
from tests.support.chats_world import World
from tests.support.llm_server import Hang, Reply, Tool, text_reply, tool_reply
from tests.support.runs.timing import Timed, open_chat, timed

HOUR = 3600.0
ZONE = "Europe/Berlin"


async def said(here: World, chat: ChatId | None = None) -> list[str]:
    """What tasks and reminders said in a chat, the oldest first."""
    found = await here.app.core.readers.run(messages.after, chat or here.chat, 0, 100)
    return [each.content for each in found if each.type is MessageKind.SCHEDULED]


def call(name: str, **arguments: str) -> Reply:
    return tool_reply(Tool(id="c1", name=name, arguments=json.dumps(arguments)))


async def begin(there: Timed, zone: str = ZONE) -> None:
    """Open the chat, and say where the user lives."""
    await open_chat(there.here)
    assert await there.here.command(f"/zone {zone}") == f"Your time zone is {zone}."


async def test_a_reminder_comes_on_time_and_asks_no_model(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=NOW) as there:
        here = there.here
        await begin(there)
        asked = len(here.llm.requests)
        told = await here.command("/remind tomorrow 9:00 water the <b>roses</b>", 2)
        assert told == "I'll remind you: Tomorrow, Friday 27 November, 09:00"
        told = await here.command("/remind завтра в 9:30 полить розы", 3)
        assert told == "Напомню: Завтра, пятница, 27 ноября, 09:30"
        assert "reminder-1" in await here.command("/tasks", 4)
        await there.until(NOW + 22 * HOUR)
        assert await said(here) == []
        await there.until(NOW + 24 * HOUR)
        assert await said(here) == ["⏰ Reminder: water the <b>roses</b>", "⏰ Напоминание: полить розы"]
        first, second = await there.runs()
        assert (first.status, first.delivered, first.task) == (RunStatus.DONE, 1, "reminder-1")
        assert (second.prompt_tokens, second.details) == (0, {"reminder": True})
        assert len(here.llm.requests) == asked
        assert here.app.tasks.scheduler.failing == {}


async def test_one_that_was_missed_comes_at_the_next_start_with_its_time(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=NOW) as there:
        await begin(there)
        await there.here.command("/remind in 20 minutes turn off the oven", 2)
        await there.here.command("/remind every day at 11 stretch", 3)
    async with timed(tmp_path, mock_clock, start=NOW + 50 * HOUR) as there:
        await there.rest()
        oven, stretch = await said(there.here)
        assert oven.startswith("⏰ Reminder (Thursday 26 November, 10:35; late, because Klaw was not running")
        assert oven.endswith("): turn off the oven")
        assert stretch.startswith("⏰ Reminder (Today, Saturday 28 November, 11:00; late")
        await there.until(NOW + 74 * HOUR)
        assert (await said(there.here))[2:] == ["⏰ Reminder: stretch"]
    async with timed(tmp_path, mock_clock, start=NOW + 75 * HOUR) as there:
        await there.rest()
        assert len(await said(there.here)) == 3


async def test_it_does_not_wait_for_runs_of_models(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=NOW, subagents={"maxConcurrent": 1}) as there:
        here = there.here
        await begin(there)
        here.llm.replies.append(Reply(steps=(Hang(),)))
        await here.app.tasks.scheduling.add(LOCAL_USER, {"name": "long", "message": "x", "every": "30m"})
        await here.command("/remind in 31 minutes tea", 2)
        await there.passes(1801)
        await here.llm.wait_for_requests(2)
        await there.passes(61)
        await here.reply(kind=MessageKind.SCHEDULED)
        assert await said(here) == ["⏰ Reminder: tea"]
        for live in here.app.tasks.scheduler.unfinished:
            here.app.tasks.scheduler.cancel(LOCAL_USER, live.run.id)


async def test_it_waits_until_the_clock_is_set(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "SYNCHRONIZED", tmp_path / "synchronized")
    async with timed(tmp_path, mock_clock, start=NOW) as there:
        await begin(there)
        await there.here.command("/remind tomorrow 9:00 water the roses", 2)
    async with timed(tmp_path, mock_clock, start=1000.0) as there:
        await there.until(1000.0 + HOUR)
        assert await said(there.here) == []
        with pytest.raises(TaskError, match=r"the clock says 1970-01-01 .* set the clock first"):
            await there.here.app.tasks.scheduling.remind(LOCAL_USER, "in 20 minutes tea")
        there.clock.set_by(NOW + 23 * HOUR - there.now())
        await there.passes(61)
        await there.rest()
        assert [text[:34] for text in await said(there.here)] == ["⏰ Reminder (Today, Friday 27 Novem"]


async def test_it_is_snoozed_edited_and_removed_like_a_task(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REMINDER_KEPT_S", 2 * HOUR)
    async with timed(tmp_path, mock_clock, start=NOW) as there:
        here, scheduling = there.here, there.here.app.tasks.scheduling
        await begin(there)
        assert await here.command("/snooze 10m", 2) == "no reminder was delivered lately"
        await here.command("/remind in 20 minutes tea", 3)
        await scheduling.edit(LOCAL_USER, "reminder-1", {"when": "in 40 minutes", "message": "green tea"})
        await there.until(NOW + 2500)
        assert await said(here) == ["⏰ Reminder: green tea"]
        assert (await here.command("/snooze 20 minutes", 4)).startswith(
            "I'll remind you: Today, Thursday 26 November, 11:1"
        )
        await there.until(NOW + 4000)
        assert await said(here) == ["⏰ Reminder: green tea"] * 2
        made = await scheduling.snooze(LOCAL_USER, "tomorrow at 8", "reminder-1")
        assert made["task"]["name"] == "reminder-3"
        await scheduling.remove(LOCAL_USER, "reminder-3")
        with pytest.raises(NoSuchTask):
            await scheduling.snooze(LOCAL_USER, "tomorrow at 8", "reminder-3")
        await scheduling.undo(LOCAL_USER, "reminder-3")
        run = await scheduling.run_now(LOCAL_USER, "reminder-3")
        assert (run.status, run.result) == (RunStatus.DONE, "⏰ Reminder: green tea")
        await there.until(NOW + 26 * HOUR)
        await here.command("/remind tomorrow 9:00 water", 5)
        assert [task["name"] for task in await scheduling.tasks(LOCAL_USER)] == ["reminder-4"], "the old ones are gone"


async def test_in_place_of_a_chat_that_is_gone_it_comes_where_one_is(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=NOW) as there:
        scheduling = there.here.app.tasks.scheduling
        await scheduling.remind(LOCAL_USER, "in 20 minutes tea", chat="Дача")
        await there.until(NOW + 1300)
        assert await said(there.here, chat_id(LOCAL_USER, "Дача")) == ["⏰ Reminder: tea"], "nobody said anything yet"
        await begin(there)
        made = await scheduling.remind(LOCAL_USER, "in 20 minutes cake", chat="nowhere")
        assert made["task"]["warning"] is None
        await there.until(NOW + 3000)
        assert await said(there.here) == ["⏰ Reminder: cake"]


async def test_its_clock_is_the_one_of_the_person(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(
        tmp_path, mock_clock, start=NOW, subagents={"zone": "America/New_York"}, tools_for_model=True
    ) as there:
        here = there.here
        scheduling = here.app.tasks.scheduling
        await begin(there, "Asia/Tokyo")
        made = await scheduling.remind(LOCAL_USER, "at 9:00 breakfast")
        assert made["task"]["next_fires"] == ["2026-11-27T09:00:00+09:00"]
        assert made["told"] == "I'll remind you: Tomorrow, Friday 27 November, 09:00"
        await scheduling.add(LOCAL_USER, {"name": "once", "message": "x", "at": "2026-11-27T10:00"})
        await here.command("/zone Europe/Berlin", 2)
        (once,) = [each for each in await scheduling.tasks(LOCAL_USER) if each["name"] == "once"]
        assert once["zone"] == "Asia/Tokyo", "it keeps the zone it was made in"
        assert (await scheduling.preview(LOCAL_USER, {"when": "tomorrow 9:00"}))["zone"] == "Europe/Berlin"
        assert (await here.command("/zone Nowhere", 3)).startswith("there is no time zone of this name")
        here.llm.replies += [call("current_time"), text_reply("It is late.")]
        await here.send("What time is it?")
        await here.turn(2)
        assert "Thursday, 2026-11-26T10:15" in here.contents()[-1]
        assert "(Europe/Berlin)" in here.contents()[-1]


async def test_a_model_sets_one_with_its_tool(tmp_path: Path, mock_clock: MockClock) -> None:
    async with timed(tmp_path, mock_clock, start=NOW, tools_for_model=True) as there:
        here = there.here
        await begin(there)
        here.llm.replies += [call("remind", when="завтра в 9", text="Полить розы"), text_reply("Напомню.")]
        await here.send("Напомни завтра в 9 полить розы")
        await here.turn(2)
        assert "Напомню: Завтра, пятница, 27 ноября, 09:00" in here.contents()[-1]
        assert (await here.reply(2, role=Role.ASSISTANT)).content == "Напомню."
        here.llm.replies += [call("remind", when="soon", text="tea"), text_reply("When?")]
        await here.send("And tea soon")
        await here.turn(3)
        assert "no time was understood" in here.contents()[-1]
        await there.until(NOW + 24 * HOUR)
        assert await said(here) == ["⏰ Напоминание: Полить розы"]
