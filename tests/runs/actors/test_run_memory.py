"""Runs know what chats know of their user, and claim no more than they did."""

from pathlib import Path

import pytest

from klaw.domain.fact import FactSource, Origin
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import RunStatus
from klaw.store.kinds import core_memory
from tests.runs.actors.test_scheduler import add, ended, open_chat
from tests.support.chats_world import World, world
from tests.support.llm_server import Tool, text_reply, tool_reply


async def keep(here: World, text: str, category: str, importance: int, user: UserId = LOCAL_USER) -> str:
    saved, _ = await here.app.memory.facts.save(
        user, text, category=category, importance=importance, source=FactSource.TOOL, origin=Origin.USER
    )
    return str(saved.id)


async def test_core_memory_and_standing_facts_stand_in_a_run(tmp_path: Path) -> None:
    """Identity facts and those of importance 90 and more, of its own user, as in chats."""
    async with world(tmp_path) as here:
        await open_chat(here)
        await here.app.core.writer.run(
            core_memory.change, LOCAL_USER, "user", "name", "Анна", "2026-01-01T00:00:00.000Z"
        )
        identity = await keep(here, "Анна родилась в Твери.", "identity", 50)
        important = await keep(here, "Anna is allergic to peanuts.", "health", 95)
        await keep(here, "Anna likes tea.", "preference", 60)
        await keep(here, "Boris is a doctor.", "identity", 99, UserId("boris"))
        await add(here)
        here.llm.replies.append(text_reply("A quiet day."))
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert run.status is RunStatus.DONE
        system = here.llm.requests[-1].messages[0]["content"]
        for told in ("name: Анна", "Анна родилась в Твери.", "Anna is allergic to peanuts."):
            assert told in system
        assert "tea" not in system
        assert "Boris" not in system
        shown = {each["id"]: each["because"] for each in run.details["facts"]["shown"]}
        assert shown == {identity: "identity", important: "importance"}
        assert "Твери" not in str(run.details)
        # The chat's own prompt says the same.
        here.llm.replies.append(text_reply("Hi again."))
        await here.send("hello again")
        await here.turn(2)
        chat = here.llm.requests[-1].messages[0]["content"]
        block = chat[chat.index("What you know about the user:") :]
        assert block in system


@pytest.mark.parametrize(
    ("claim", "note"), [("I've saved that for you.", "Nothing was saved"), ("Я это запомнил.", "Ничего не было")]
)
async def test_a_run_that_claims_to_have_saved_is_told_once_and_then_noted(
    tmp_path: Path, claim: str, note: str
) -> None:
    async with world(tmp_path, tools_for_model=True) as here:
        await open_chat(here)
        await add(here, injectInto="main")
        here.llm.replies += [text_reply(claim), text_reply(claim)]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert "no tool has done so" in here.llm.requests[-1].last_user
        assert (run.result or "").startswith(claim)
        assert note in (run.result or "")
        assert run.details["save_claim"] == "noted"
        # Told once, it saves after all.
        saving = tool_reply(Tool("a", "memory_save", '{"text": "The code of the gate is 4815."}'))
        here.llm.replies += [text_reply(claim), saving, text_reply(claim)]
        run = await ended(here, (await here.app.tasks.scheduling.run_now(LOCAL_USER, "day")).id)
        assert run.result == claim
        assert run.details["save_claim"] == "corrected"
