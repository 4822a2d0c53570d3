"""Log lines say whose work it was: user, chat, turn and run are bound where that work begins."""

from pathlib import Path
from typing import Any

import structlog

from klaw.domain.names import LOCAL_USER
from tests.runs.actors.test_scheduler import add, ended
from tests.support.chats_world import world
from tests.support.llm_server import text_reply


async def test_lines_of_turns_and_runs_name_them_and_not_who_started_their_actor(
    tmp_path: Path, log_events: list[dict[str, Any]]
) -> None:
    async with world(tmp_path) as here:
        here.llm.replies += [text_reply("Hi."), text_reply("Done.")]
        with structlog.contextvars.bound_contextvars(connection="c1"):
            await here.send("hello")
        turn = (await here.turn(1)).turn
        await add(here)
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
    of_turn, of_run = (
        next(event for event in log_events if event["event"] == f"{name}_ended") for name in ("turn", "run")
    )
    bound = {"user": LOCAL_USER, "chat": here.chat, "turn": turn}
    assert of_turn == {"event": "turn_ended", "log_level": "info", "status": "done", "code": None, **bound}
    assert (of_run["user"], of_run["run"], of_run["status"]) == (LOCAL_USER, run.id, "done")
    assert {"chat", "turn", "connection", "dropped_fields"}.isdisjoint(of_run)
