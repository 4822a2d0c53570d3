"""``klaw schedule``, ``klaw runs`` and what a client sees of them, as a person uses them: a real server process."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import trio

from tests.support.llm_server import Hang, Reply, serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

DAILY = ("--cron", "0 9 * * *", "--zone", "Europe/Berlin")
SUBAGENTS = {"zone": "Europe/Moscow", "retries": 0}


class Cli:
    """``klaw`` on one home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def __call__(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        return await run_klaw(*words, "--home", str(self._home), stdin=stdin)

    async def good(self, *words: str, stdin: bytes = b"") -> str:
        code, out, err = await self(*words, stdin=stdin)
        assert (code, err) == (0, "")
        return out

    async def json(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(await self.good(*words, "--json")))

    async def ended(self, run: str) -> dict[str, Any]:
        with trio.fail_after(HANG_S):
            while True:
                found = (await self.json("runs", "show", run))["run"]
                if found["ended_at"] is not None:
                    return dict(found)


async def test_a_task_from_the_first_command_to_its_result(tmp_path):
    """Made, listed, run, delivered to a client, shown, cancelled, removed; in Russian."""
    async with serve_llm() as llm, served(write_home(tmp_path / "home", llm=llm.url, subagents=SUBAGENTS)) as server:
        klaw = Cli(server.home)
        assert "no tasks" in await klaw.good("schedule", "list")
        async with talking(server.url) as talk:
            await talk.ask("Привет", "Дом")
            asked = "Какая завтра погода?"
            out = await klaw.good(
                "schedule", "add", "weather", *DAILY, "--message", "-", "--inject-into", "Дом", stdin=asked.encode()
            )
            rows = [re.split(r" {2,}", row, maxsplit=1) for row in out.splitlines()]
            assert rows[:2] == [["task", "weather"], ["runs", "cron 0 9 * * * Europe/Berlin"]]
            assert rows[2][0] == "next"
            fires = [row[1] for row in rows[2:5]]
            assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \w{3} 09:00 \+0[12]:00", fire) for fire in fires)
            assert sorted(set(fires)) == fires
            assert rows[5] == ["chat", "дом"] or rows[5] == ["chat", "Дом"]
            llm.replies.append(text_reply("Завтра дождь."))
            run = (await klaw.json("schedule", "run", "weather"))["run"]
            done = await klaw.ended(run["id"])
            assert (done["status"], done["delivered"], done["result"]) == ("done", 1, "Завтра дождь.")
            assert done["message"] == asked
            said = await talk.until(lambda: [each for each in talk.entries if each.kind == "scheduled"])
            assert [(each.role, each.content) for each in said] == [("assistant", "Завтра дождь.")]
        text = await klaw.good("runs", "show", run["id"])
        assert "    Какая завтра погода?" in text
        assert "    Завтра дождь." in text
        table = await klaw.good("schedule", "list")
        assert table.splitlines()[1].split()[0] == "weather"
        assert " done  20" in table

        llm.replies.append(Reply(steps=(Hang(),)))
        run = (await klaw.json("schedule", "run", "weather"))["run"]
        assert await klaw.good("runs", "cancel", run["id"]) == f"The run {run['id']} of weather is being ended.\n"
        assert (await klaw.ended(run["id"]))["status"] == "cancelled"
        code, _, err = await klaw("runs", "cancel", run["id"])
        assert (code, err) == (1, "klaw: this run is over (cancelled)\n")
        out = await klaw.good("schedule", "runs", "weather", "--limit", "1")
        assert out.splitlines()[1].split()[:4] == [run["id"], "weather", "manual", "cancelled"]
        more = out.splitlines()[-1]
        assert more.startswith("more: klaw schedule runs --home=")
        assert "done" in await klaw.good("runs", "--status", "done", "--task", "weather")

        out = await klaw.good("schedule", "edit", "weather", "--every", "2h", "--clear", "inject-into")
        assert "every 2h" in out
        assert "none: see its results with `klaw runs --task" in out
        assert " +03:00\n" in out  # an interval has no zone of its own: subagents.zone
        assert "weather (disabled)" in await klaw.good("schedule", "disable", "weather")
        assert "disabled" in await klaw.good("schedule", "list")
        assert "next" in await klaw.good("schedule", "enable", "weather")
        assert (await klaw.good("schedule", "remove", "weather")).startswith(
            "removed weather; its runs stay: `klaw forget "
        )
        assert "(removed)" in await klaw.good("schedule", "history", "weather")
        back = await klaw.good("schedule", "undo", "weather")
        assert ("every 2h" in back, asked in back) == (True, True)
        assert asked in (await klaw.json("schedule", "list"))["tasks"][0]["message"]
        assert "weather" in await klaw.good("runs")
        assert "дождь" not in server.stderr
        assert "погода" not in server.stderr


BAD = [
    ("path", ["../x", *DAILY, "--message", "m"], ["NAME"]),
    ("slash", ["a/b", *DAILY, "--message", "m"], ["NAME"]),
    ("65 characters", ["a" * 65, *DAILY, "--message", "m"], ["NAME"]),
    ("russian name", ["погода", *DAILY, "--message", "m"], ["NAME"]),
    ("reserved", ["heartbeat", *DAILY, "--message", "m"], ["NAME"]),
    ("4 fields", ["a", "--cron", "0 9 * *", "--message", "m"], ["--cron"]),
    ("7 fields", ["a", "--cron", "0 0 9 * * * *", "--message", "m"], ["--cron"]),
    ("minute 61", ["a", "--cron", "61 * * * *", "--message", "m"], ["--cron"]),
    ("never", ["a", "--cron", "0 0 31 2 *", "--message", "m"], ["--cron"]),
    ("unknown zone", ["a", "--cron", "0 9 * * *", "--zone", "Europe/Атлантида", "--message", "m"], ["--zone"]),
    ("past", ["a", "--at", "2020-01-01T00:00+00:00", "--message", "m"], ["--at"]),
    ("every second", ["a", "--every", "1s", "--message", "m"], ["--every"]),
    ("two triggers", ["a", *DAILY, "--every", "1h", "--message", "m"], ["--cron", "--every"]),
    ("no trigger", ["a", "--message", "m"], ["--cron"]),
    ("no message", ["a", *DAILY], ["--message"]),
    ("empty message", ["a", *DAILY, "--message", " "], ["--message"]),
    ("100 KB", ["a", *DAILY, "--message", "м" * 50_000], ["--message"]),
    ("no file", ["a", *DAILY, "--message", "@/no/such/file"], ["--message"]),
    ("empty option", ["a", *DAILY, "--message", "m", "--model", ""], ["--model"]),
    ("model", ["a", *DAILY, "--message", "m", "--model", "gpt"], ["--model"]),
    ("provider", ["a", *DAILY, "--message", "m", "--model", "nobody/gpt"], ["--model"]),
    ("foreign chat", ["a", *DAILY, "--message", "m", "--inject-into", "anna:main"], ["--inject-into"]),
    ("tokens", ["a", *DAILY, "--message", "m", "--max-tokens", "-1", "--daily-tokens", "x"],
     ["--max-tokens", "--daily-tokens"]),
    ("timeout", ["a", *DAILY, "--message", "m", "--timeout", "2d"], ["--timeout"]),
    ("user", ["a", *DAILY, "--message", "m", "--user", "../anna"], ["--user"]),
    ("many at once", ["A B", "--cron", "* * *", "--zone", "Mars", "--message", "m", "--timeout", "soon"],
     ["NAME", "--cron", "--zone", "--timeout"]),
]  # fmt: skip


async def test_bad_input_is_refused_with_the_field_and_nothing_is_kept(tmp_path):
    async with served(write_home(tmp_path / "home")) as server:
        klaw = Cli(server.home)
        for what, words, fields in BAD:
            code, out, err = await klaw("schedule", "add", *words)
            named = [line.removeprefix("klaw: ").partition(":")[0] for line in err.splitlines()]
            assert (what, code, out, sorted(named)) == (what, 2, "", sorted(fields))
        assert (await klaw.json("schedule", "list"))["tasks"] == []
        await klaw.good("schedule", "add", "day", *DAILY, "--message", "m")
        code, _, err = await klaw("schedule", "add", "day", "--every", "1h", "--message", "n")
        assert (code, err) == (1, "klaw: there is a task of this name already: edit it, or remove it first\n")
        for words in (
            ["edit", "no", "--every", "1h"],
            ["remove", "no"],
            ["enable", "no"],
            ["run", "no"],
            ["run", "../x"],
        ):
            code, _, err = await klaw("schedule", *words)
            assert (code, "task" in err) == (1, True)
        assert (await klaw("schedule", "edit", "day"))[0] == 2
        assert (await klaw("schedule", "edit", "day", "--clear", "message"))[0] == 2
        code, _, err = await klaw("runs", "--status", "odd")
        assert (code, err.startswith("klaw: --status: must be one of running, done, silent,")) == (2, True)
        assert (await klaw("runs", "--limit", "0"))[0] == 2
        assert (await klaw("runs", "show", "no"))[::2] == (1, "klaw: there is no such run\n")
        assert (await klaw("schedule", "list", "--user", "anna"))[1].startswith("no tasks")
        (task,) = (await klaw.json("schedule", "list"))["tasks"]
        assert (task["name"], task["message"]) == ("day", "m")
    for words in (["schedule", "list"], ["schedule", "add", "a", *DAILY, "--message", "m"], ["runs"]):
        code, _, err = await klaw(*words)
        assert (code, "no server is running" in err) == (1, True)


async def test_a_result_for_an_unknown_chat_is_kept_and_the_status_tells_it(tmp_path):
    past = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat(timespec="minutes")
    async with serve_llm() as llm, served(write_home(tmp_path / "home", llm=llm.url, subagents=SUBAGENTS)) as server:
        klaw = Cli(server.home)
        llm.replies.append(text_reply("Nobody hears me."))
        file = tmp_path / "запрос.txt"
        file.write_text("\ufeffСкажи что-нибудь\n", encoding="utf-8")
        out = await klaw.good(
            "schedule", "add", "lost", "--at", past, "--now", "--message", f"@{file}", "--inject-into", "nowhere"
        )
        assert "warning" in out
        assert "there is no chat nowhere yet" in out
        with trio.fail_after(HANG_S):
            while not (found := (await klaw.json("runs", "--status", "failed"))["runs"]):
                pass
        run = await klaw.ended(found[0]["id"])
        assert (run["error"], run["result"], run["message"]) == (
            "no_such_chat", "Nobody hears me.", "Скажи что-нибудь",
        )  # fmt: skip
        status = json.loads((await klaw("status", "--json"))[1])
        assert status["tasks"]["undelivered"] == 1
        assert status["tasks"]["failing"] == [{"user": "local", "task": "lost", "error": "no_such_chat"}]
        _, text, _ = await klaw("status")
        assert "failing: lost of local (no_such_chat)" in text
        assert "results of the last 30 days without a chat to go to: 1;" in text


def _names(node: dict[str, Any]) -> dict[str, str]:
    found = {node["name"]: node.get("state", "")}
    for child in node["children"]:
        found |= _names(child)
    return found


def _promised() -> set[str]:
    """The actors that docs/actors.md says to start always."""
    page = (REPOSITORY / "docs" / "actors.md").read_text("utf-8")
    section = page.partition("## The actors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", section, re.MULTILINE)
    return {name for name, starts in rows if not starts.startswith(("if ", "with the chat", "one for each"))}


async def test_every_actor_is_alive_at_the_start(tmp_path):
    """Nothing is started lazily: what docs/actors.md promises runs before anybody has asked for it."""
    home = write_home(
        tmp_path / "home",
        routing={"default": "local/smollm2-135m-instruct"},
        embedding={"enabled": True},
        heartbeat={"intervalSeconds": 600},
        topics={"enabled": True},
    )
    async with served(home) as server:
        actors = _names((await Cli(server.home).json("actors"))["tree"])
        promised = _promised() | {"memory.embedder", "memory.archivist", "llm.local"}
        assert {"store.writer", "subagents.scheduler", "gateway", "admin.socket"} <= promised
        assert {name: actors.get(name) for name in promised} == dict.fromkeys(promised, "running")
