"""Temporary chats: nothing is made of them, nobody finds them from outside, and a day later no byte of them is left."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.actor.clock import iso
from klaw.chats.requests import Submit
from klaw.domain.attachment import NamedFile
from klaw.domain.message import TEMPORARY_S
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.forget.forget import LOOK_EVERY_S
from klaw.store.kinds import chats, core_memory, facts, messages, topics
from klaw.store.kinds.variants.replace import Wish
from klaw.store.search.history_search import HistoryFilters
from tests.support.chats_world import World, world
from tests.support.facts import fact
from tests.support.forgetting import holding
from tests.support.llm_server import Tool, text_reply, tool_reply
from tests.support.processes import SCRIPT, start_silent
from tests.support.scripted import TestClock
from tests.support.stores import START, new
from tests.support.waiting import until

NAME = "chat-1aaaaaaa"
CHAT = chat_id(LOCAL_USER, NAME)
AT = iso(START)


async def begin(w: World, name: str = NAME) -> None:
    assert await w.app.core.writer.run(chats.begin_temporary, LOCAL_USER, chat_id(LOCAL_USER, name), AT)


async def found(w: World, text: str, **filters: Any) -> list[str]:
    page = await w.app.memory.search.search(text, HistoryFilters(user=LOCAL_USER, **filters))
    return [each.snippet for each in page.results]


async def test_only_the_chat_itself_knows_what_was_said_in_it(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True, topics={"enabled": True}) as w:
        run, read = w.app.core.writer.run, w.app.core.readers.run
        await run(facts.put, fact("The user lives in Tver.", id="f1", user=LOCAL_USER, importance=95), "new")
        await run(core_memory.change, LOCAL_USER, "user", "name", "Maria", AT)
        await w.send("The door code is 4815, says the caretaker", chat="other")
        await w.turn(1)
        await begin(w)
        search = Tool("c1", "memory_search", json.dumps({"query": "door code Tver"}))
        w.llm.replies += [tool_reply(search), text_reply("I see")]
        await w.send("My secret door is green", chat=NAME)
        await w.turn(2)
        asked = w.llm.requests[-1].body
        assert "Maria" not in json.dumps(asked)
        assert "Tver" not in json.dumps(asked["messages"]).replace("door code Tver", "")
        assert "4815" not in json.dumps(asked)
        offered = {each["function"]["name"] for each in asked["tools"]}
        assert {"memory_search", "current_time"} <= offered
        assert offered.isdisjoint(
            {"memory_save", "memory_core_update", "memory_core_get", "file_write", "send_message", "task_add"}
        )

        workspace = w.app.core.paths.workspace
        (workspace / "memory").mkdir(parents=True)
        for name in ("MEMORY.md", "memory/doors.md", "plan.md"):
            (workspace / name).write_text("The door code is 4815")
        reads = [("file_read", {"path": name}) for name in ("MEMORY.md", "memory/doors.md", "./memory.MD", "plan.md")]
        reads += [("file_glob", {"pattern": "**/*.md"}), ("file_list", {})]
        calls = [Tool(f"r{number}", name, json.dumps(given)) for number, (name, given) in enumerate(reads)]
        w.llm.replies += [tool_reply(*calls), text_reply("I see")]
        await w.send("What is in the files?", chat=NAME)
        await w.turn(3)
        told = [each["content"] for each in w.llm.requests[-1].body["messages"] if each["role"] == "tool"][
            -len(reads) :
        ]
        assert ["4815" in each for each in told] == [False, False, False, True, False, False]
        assert "plan.md" in told[4]
        assert "MEMORY" not in told[4] + told[5]
        assert "doors" not in told[4]

        assert "green" not in str(await found(w, "secret door green"))
        assert "green" in str(await found(w, "secret door green", chat=CHAT))
        assert [each.chat for each in await read(topics.unarchived, LOCAL_USER, 0, 50)].count(CHAT) == 0
        assert await read(chats.last_used, [LOCAL_USER]) == (LOCAL_USER, chat_id(LOCAL_USER, "other"))
        inside = Tool("c2", "history_search", json.dumps({"query": "secret door", "chat": NAME}))
        w.llm.replies += [tool_reply(inside), text_reply("No")]
        await w.send("What do you know?", chat="other")
        await w.turn(4)
        assert "searched only from inside" in json.dumps(w.llm.requests[-1].body)

        kept = await run(chats.keep, LOCAL_USER, CHAT, AT)
        assert not kept.temporary
        assert "green" in str(await found(w, "secret door green"))
        assert CHAT in {each.chat for each in await read(topics.unarchived, LOCAL_USER, 0, 50)}


async def test_a_chat_with_messages_cannot_become_temporary(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.app.core.writer.run(messages.append, [new("hello", chat="main")])
        assert not await w.app.core.writer.run(chats.begin_temporary, LOCAL_USER, w.chat, AT)
        await begin(w)
        await w.app.core.writer.run(messages.append, [new("hello", chat=NAME)])
        await begin(w)  # as a repeated request does


async def test_who_goes_on_in_a_forgotten_temporary_chat_is_still_in_one(tmp_path: Path) -> None:
    clock = TestClock(START)
    async with world(tmp_path, clock=clock) as w:
        forgetter, read = w.app.memory.forgetter, w.app.core.readers.run
        await begin(w)
        assert await forgetter.expire() == LOOK_EVERY_S  # nothing was said: nothing to forget
        await w.send("The first secret of the green door", chat=NAME)
        await w.turn(1)
        clock.at += TEMPORARY_S - 60
        assert 0 < await forgetter.expire() <= 60
        assert len(await read(chats.listed, LOCAL_USER, 9)) == 1
        clock.at += 60
        assert await forgetter.expire() == LOOK_EVERY_S
        assert await read(chats.listed, LOCAL_USER, 9) == []
        await w.send("The second secret of the green door", chat=NAME)
        await w.turn(2)
        (chat,) = await read(chats.listed, LOCAL_USER, 9)
        assert (chat.temporary, chat.title) == (True, "The second secret of the green door")
        clock.at += TEMPORARY_S
        await forgetter.expire()
        assert await read(chats.temporary) == []


async def test_what_other_chats_say_too_stays_there(tmp_path: Path) -> None:
    """Nothing comes out of a temporary chat: whoever says the same elsewhere did not say it because of that."""
    clock, said = TestClock(START), "The second law of thermodynamics says that heat flows to the colder body."
    async with world(tmp_path, clock=clock) as w:
        run, read = w.app.core.writer.run, w.app.core.readers.run
        await begin(w)
        w.llm.replies += [text_reply(said), text_reply(said)]
        await w.send("Explain the second law to me, please", chat=NAME)
        await w.turn(1)
        await w.send("What does the second law say? And why?", chat="other")
        await w.turn(2)
        await run(facts.put, fact(said, id="f1", user=LOCAL_USER), "new")
        clock.at += TEMPORARY_S + 60
        await w.app.memory.forgetter.expire()
        assert await read(chats.temporary) == []
        (answer,) = [each.content for each in await w.app.chats.after(chat_id(LOCAL_USER, "other"), 1, 9)]
        assert answer == said
        assert [each.text for each in await read(facts.of_user, LOCAL_USER)] == [said]
    assert len(holding(tmp_path / "data" / "conversations", said)) == 1


WORDS = (
    "amber",
    "birch",
    "copper",
    "дуб",
    "ежевика",
    "жёлудь",
    "фонарь",
    "river",
    "stone",
    "кленовый",
    "thunder",
    "лестница",
    "harbour",
    "июньский",
)


def secrets_of(seed: int) -> list[str]:
    """Words that stand nowhere else."""
    chance = random.Random(f"{seed} secrets")
    return [f"{chance.choice(('secret', 'тайна'))}-{chance.getrandbits(80):020x}" for _ in range(10)]


CHILD = """
import sys
import time
from pathlib import Path
import trio
from tests.chats.actors.test_temporary_chats import fill
trio.run(fill, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
"""
STEPS = 6


async def fill(home: Path, seed: int, stop_after: int) -> None:
    """Talk in a temporary chat and in another one, then forget the first. After so many steps, of ``STEPS``, the
    process makes the file ``now`` and does nothing more; after the last one it goes on."""
    chance, clock, secrets = random.Random(seed), TestClock(START), secrets_of(seed)
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == stop_after:
            (home / "now").touch()
            if steps < STEPS:
                await trio.sleep_forever()

    async with world(home, clock=clock, tools_for_model=True) as w:
        await begin(w)
        for number in range(1, 5):
            said = f"{' '.join(chance.choices(WORDS, k=chance.randint(4, 12)))} {secrets[number - 1]}"
            name = chance.choice(("memory_save", "memory_core_update", "file_write", "task_add", "memory_search"))
            given = {"text": said, "query": said, "section": said, "path": "memory/notes.md", "content": said}
            w.llm.replies += [tool_reply(Tool(f"c{number}", name, json.dumps(given))), text_reply(said.upper())]
            await w.send(said, id=f"q{number}", chat=NAME)
            await w.turn(number)
            await step()
        data = f"{secrets[4]} {' '.join(WORDS)}".encode()
        kept = await w.app.core.attachments.take(LOCAL_USER, f"{secrets[5]}.txt", lambda: io.BytesIO(data))
        file = NamedFile(sha256=kept.sha256, name=f"{secrets[6]}.txt")
        await w.app.chats.send(LOCAL_USER, NAME, "q5", "see the file", (file,))
        await w.turn(5)
        await w.app.chats.send(LOCAL_USER, NAME, "q6", f"/people {secrets[8]}")
        edited = Submit(id="q7", text=f"another {secrets[9]}")
        await w.app.chats.vary(LOCAL_USER, NAME, Wish(which="q5", edits=True), edited)
        await w.turn(6)
        run = w.app.core.writer.run
        await run(chats.rename, LOCAL_USER, CHAT, secrets[7], AT)
        await run(messages.append, [new("something that stays: the cat sleeps", chat="main", at=clock.at)])
        await step()
        clock.at += TEMPORARY_S + 1
        await step()
        await w.app.memory.forgetter.expire()
        await trio.sleep_forever()


async def killed(home: Path, seed: int, stop_after: int) -> None:
    process = await start_silent([*SCRIPT, CHILD, str(home), str(seed), str(stop_after)])

    def stands() -> bool:
        assert process.returncode is None
        return (home / "now").exists()

    await until(stands)
    await trio.sleep(random.Random(seed).random() * 0.3 if stop_after == STEPS else 0)  # anywhere in the forgetting
    process.kill()
    await process.wait()


@pytest.mark.parametrize("seed", range(6))
async def test_no_byte_is_left_a_day_later(tmp_path: Path, seed: int) -> None:
    stop_after = (1, 3, 5, STEPS, STEPS, STEPS)[seed]
    secrets = secrets_of(seed)
    await killed(tmp_path, seed, stop_after)
    if stop_after < STEPS:
        assert holding(tmp_path, *secrets), "the test would find them"
    async with world(tmp_path, clock=TestClock(START + 2 * TEMPORARY_S)) as w:
        forgetter, read = w.app.memory.forgetter, w.app.core.readers.run

        async def is_done() -> bool:
            return await forgetter.expire() == LOOK_EVERY_S

        await until(is_done)
        await forgetter.compact_files(vacuum=True)  # what the process that forgets does by and by
        assert await read(chats.temporary) == []
        assert holding(tmp_path, *secrets) == {}
        assert [each.name for each in await read(chats.listed, LOCAL_USER, 9)] == ["main"] * (stop_after >= 5)
        assert await read(facts.of_user, LOCAL_USER) == []
