"""``klaw remind`` with a real server process that is killed: each reminder comes once."""

import trio

from tests.cli.e2e.test_schedule_commands import Cli
from tests.support.llm_server import serve_llm
from tests.support.server import served, write_home
from tests.support.talking import talking


async def test_a_reminder_survives_kill_9_and_comes_exactly_once(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path / "home", llm=llm.url)) as server:
        klaw = Cli(server.home)
        assert await klaw.good("zone", "set", "Asia/Tokyo") == "Your time zone is Asia/Tokyo.\n"
        made = await klaw.json("remind", "in", "3", "seconds", "полить", "розы")
        (task,) = (await klaw.json("schedule", "list"))["tasks"]
        assert (task["name"], task["inject_into"], task["zone"]) == (made["name"], "main", "Asia/Tokyo")
        assert made["told"].startswith("Напомню: Сегодня, ")
        await server.kill()
        await trio.sleep_until(trio.current_time() + 4)  # until its time has passed
        for _ in range(2):
            await server.start()
            async with talking(server.url, {"main": 0}) as talk:
                await talk.until(lambda talk=talk: [each for each in talk.entries if each.task])
                history = await talk.history("main")
                assert [message.content for message in history] == ["⏰ Напоминание: полить розы"]
            await server.kill()
        assert len(llm.requests) == 0


async def test_wrong_times_are_refused_and_tasks_are_made_in_words(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path / "home", llm=llm.url)) as server:
        klaw = Cli(server.home)
        code, _, err = await klaw("remind", "whenever", "you", "like")
        assert code == 2
        assert 'when: no time was understood; write it like "tomorrow 9:00"' in err
        code, _, err = await klaw("remind", "tomorrow", "at", "9")
        assert code == 2
        assert "message" in err
        out = await klaw.good("remind", "--chat", "main", "every day at 8", "stretch")
        assert out.startswith("I'll remind you: ")
        assert "08:00, then every day" in out
        assert "to change it: klaw schedule edit reminder-1 --when" in out
        out = await klaw.good("schedule", "edit", "reminder-1", "--when", "on weekdays at 7:30")
        assert "cron 30 7 * * 1-5" in out
        await klaw.good("schedule", "add", "news", "--when", "every Monday at 8", "--message", "What is new?")
        assert "cron 0 8 * * 1" in await klaw.good("schedule", "list")
        out = await klaw.good("snooze", "--name", "reminder-1", "20", "minutes")
        assert out.startswith("I'll remind you: T")
        assert (await klaw("snooze", "20m"))[0] == 1
