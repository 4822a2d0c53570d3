"""A run that waits for a place is carried out, however often the server is killed before its turn comes."""

from pathlib import Path

import trio

from tests.cli.e2e.test_schedule_commands import DAILY, Cli
from tests.support.llm_server import Hang, Reply, serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S


async def test_kills_while_a_run_waits_are_no_attempts_of_it(tmp_path: Path) -> None:
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url, subagents={"maxConcurrent": 1, "retries": 0})
        llm.respond = lambda request: text_reply("Готово.") if "swim" in request.last_user else Reply(steps=(Hang(),))
        async with served(home) as server:
            klaw = Cli(home)
            for name in ("dig", "swim"):
                await klaw.good("schedule", "add", name, *DAILY, "--message", f"please {name}")
            first = (await klaw.json("schedule", "run", "dig"))["run"]
            with trio.fail_after(HANG_S):
                await llm.wait_for_requests(1)
            second = (await klaw.json("schedule", "run", "swim"))["run"]
            await server.kill()
            await server.start()
            with trio.fail_after(HANG_S):
                await llm.wait_for_requests(2)  # the first one's second attempt
            assert (await klaw.json("runs", "show", second["id"]))["run"]["status"] == "waiting"
            await server.kill()
            await server.start()
            done = await klaw.ended(second["id"])
            assert (done["status"], done["attempt"], done["result"]) == ("done", 1, "Готово.")
            tried = [run for run in (await klaw.json("runs"))["runs"] if run["task"] == "dig"]
            assert sorted((run["attempt"], run["status"]) for run in tried) == [(1, "interrupted"), (2, "interrupted")]
            assert first["id"] in {run["id"] for run in tried}
