"""Results of tasks and subagents reach the person who asked: live, on resume, after a restart, and through SIGKILL."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from klaw.actor.clock import iso
from klaw.app.app import running
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.names import LOCAL_USER
from klaw.domain.task import Run
from klaw.store.kinds import runs
from klaw.store.store import read_offline
from tests.support.plugins.models import models_dir
from tests.support.programs.drill import drill
from tests.support.server import Server, served, write_home
from tests.support.talking import Talk, talking
from tests.support.waiting import until


async def test_run_drill_of_three_rounds():
    """tools/run_drill.py, as by hand but shorter: three kills in the middle of runs."""
    report = await drill("run_drill.py", "--rounds", "3")
    assert report["kills"] == 3
    assert report["runs"] > 0


# -- a real subagent on the local model --------------------------------------------------------------------------------


async def _plan(home: Path, tasks: Mapping[str, float]) -> None:
    """Make one-shots that fire so many seconds from now; the server does not run, and nothing of them fires here."""
    config, _ = parse(json.dumps({"embedding": {"enabled": False}, "routing": {"default": "stub/x"}} | _STUB), {})
    async with running(config, Paths.resolve(home, {})) as app:
        for name, seconds in tasks.items():
            raw = {
                "name": name,
                "message": "Say hello in one short sentence. Поздоровайся.",
                "at": iso(app.core.clock.now() + seconds),
                "injectInto": "main",
            }
            await app.tasks.scheduling.add(LOCAL_USER, raw)


_STUB: dict[str, Any] = {"providers": {"stub": {"baseUrl": "http://127.0.0.1:9/v1"}}}


async def _delivered(server: Server, task: str) -> str:
    """Wait, without a client, until the task's run has delivered; what it said."""

    def over() -> list[Run]:
        found = read_offline(server.database, runs.newest, LOCAL_USER, limit=10)
        return [run for run in found if run.task == task and run.status.over]

    done = await until(over)
    assert (done[0].status, done[0].delivered) == ("done", 1), done
    return done[0].result


async def _answered(talk: Talk) -> int:
    """Wait for the first answer in the chat: its seq."""
    return (await talk.until(lambda: [each.seq for each in talk.entries if each.is_answer]))[0]


async def _seen(talk: Talk, count: int) -> list[tuple[int, str]]:
    """Wait until so many messages of tasks arrived."""

    def said() -> list[tuple[int, str]]:
        entries = [(each.seq, each.content) for each in talk.entries if each.kind == "scheduled"]
        return entries if len(entries) >= count else []

    return await talk.until(said)


async def test_a_local_subagents_answer_arrives_live_on_resume_and_after_restarts(tmp_path: Path) -> None:
    models = models_dir()
    if not (models / "smollm2-135m-instruct" / "model.gguf").exists():
        pytest.skip("needs the model smollm2-135m-instruct: klaw models pull")
    home = write_home(
        tmp_path,
        models=models,
        embedding={"enabled": False},
        routing={"default": "local/smollm2-135m-instruct"},
        localModel={"contextTokens": 2048, "threads": 1},
        context={"replyReserveTokens": 40},
    )
    async with served(home) as server:
        async with talking(server.url) as talk:
            await talk.send("Hello! Привет!")
            head = await _answered(talk)
        await server.terminate()

        # It fires while the client is there.
        await _plan(home, {"live": 6.0})
        await server.start()
        async with talking(server.url, {"main": head}) as talk:
            (live,) = await _seen(talk, 1)
            assert live == (head + 1, await _delivered(server, "live"))
            assert live[1].strip()

        # It fires while nobody is there: it arrives on resume, once.
        await server.terminate()
        await _plan(home, {"away": 4.0})
        await server.start()
        away = await _delivered(server, "away")
        async with talking(server.url, {"main": live[0]}) as talk:
            assert await _seen(talk, 1) == [(live[0] + 1, away)]

        # Its moment passes while the server is down; and everything is there after a kill.
        await server.terminate()
        await _plan(home, {"down": 4.0})
        fires_at = time.time() + 4.0
        await until(lambda: time.time() > fires_at)
        await server.start()
        down = await _delivered(server, "down")
        await server.kill()
        await server.start()
        async with talking(server.url, {"main": head}) as talk:
            assert [text for _, text in await _seen(talk, 3)] == [live[1], away, down]
            assert len({each.id for each in talk.entries}) == len(talk.entries)
