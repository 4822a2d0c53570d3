"""What was made of a message by tools goes with it: links are followed, since nothing of it says the same words."""

import json
from pathlib import Path

import pytest

from klaw.domain.events import MessageStored
from klaw.domain.names import LOCAL_USER
from klaw.store.kinds import core_memory, facts, messages, tasks
from klaw.toolbox.spec import Permission, ToolContext, tool
from tests.support.chats_world import World, world
from tests.support.facts import fact
from tests.support.forgetting import holding
from tests.support.llm_server import Recorded, Reply, Tool, text_reply, tool_reply
from tests.support.reindexing import differing, digests_of
from tests.support.reindexing import run as reindexed
from tests.support.stores import new

CANARY = "Kanarienvogel8842"
LONG = 40_000
SAID = {
    "english": f"My sister {CANARY} comes on Friday, keep that in mind please.",
    "russian": f"Сестра {CANARY} приедет в пятницу, имей в виду.",
}
OF_RUN = f"Find a train for {CANARY}"


@tool(permission=Permission.READ)
async def look_up(_context: ToolContext, name: str) -> str:
    """Look somebody up."""
    return f"{name} " * (LONG // 10)


def calls() -> list[Tool]:
    given = [
        ("memory_save", {"text": f"The sister is called {CANARY}.", "category": "person"}),
        ("memory_core_update", {"section": "people", "key": "sister", "value": CANARY}),
        ("schedule_add", {"name": "remind", "message": f"Ask for {CANARY}", "at": "2060-01-01T09:00Z"}),
        ("remind", {"when": "2060-01-01 9:00", "text": f"Call {CANARY}"}),
        ("file_write", {"path": "notes/guests.md", "content": f"- {CANARY}\n"}),
        ("file_write", {"path": "notes/list.md", "content": f"- {CANARY} too\n", "mode": "append"}),
        ("send_message", {"chat": "home", "text": f"{CANARY} is coming"}),
        ("subagent_spawn", {"name": "train", "message": OF_RUN}),
        ("look_up", {"name": CANARY}),
    ]
    return [Tool(f"c{number}", name, json.dumps(values)) for number, (name, values) in enumerate(given)]


def respond(request: Recorded) -> Reply:
    if OF_RUN in request.last_user:
        return text_reply(f"{CANARY} takes the one at nine.")
    if any(message["role"] == "tool" for message in request.messages):
        return text_reply(f"Noted, {CANARY} it is.")
    return tool_reply(*calls()) if CANARY in request.last_user else text_reply("Good.")


async def talked(w: World, text: str) -> None:
    """A turn that calls all tools, and one that has nothing to do with it."""
    w.app.tools.executor.toolbox.register(look_up)
    w.llm.respond = respond
    store = w.app.core.store
    await store.writer.run(messages.append, [new("hello", chat="home")])
    await store.writer.run(facts.put, fact("The dog likes the park", user=LOCAL_USER), "new")
    await store.writer.run(core_memory.change, LOCAL_USER, "people", "dog", "Rex", "2026-11-22T00:00:00.000Z")
    notes = w.app.core.paths.workspace / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "list.md").write_text("- somebody else\n")
    await w.send(text)
    await w.turn(1)
    await w.watcher.until(
        lambda events: next(
            (each for each in events if isinstance(each, MessageStored) and "has ended" in each.message.content), None
        )
    )
    await w.send("And what about the dog?")
    await w.turn(2)
    (secret,) = [each for each in await w.app.chats.after(w.chat, 0, 500) if each.content == text]
    assert secret.seq == 1


@pytest.mark.parametrize("language", SAID)
async def test_all_that_tools_made_of_a_message_goes_with_it(tmp_path: Path, language: str) -> None:
    async with world(tmp_path, tools_for_model=True) as w:
        await talked(w, SAID[language])
        where = holding(tmp_path, CANARY)
        kinds = ("conversations/", "memory/", "runs/", "core_memory.json", "notes/guests.md", "tool-output/")
        assert all(any(kind in name for name in where) for kind in kinds), where
        shown = await w.command(f"/forget #1 {'с фактами' if language == 'russian' else 'with facts'}")
        for thing in (
            "main#1  user",
            "tool call main#2  assistant  ",
            "memory_save {",
            "answer main#",
            "answer home#2",
            f" of train: “{OF_RUN}”",
            f"“The sister is called {CANARY}.”",
            f"core memory people, sister: “{CANARY}”",
            f"task remind: “Ask for {CANARY}”",
            f"task reminder-1: “Call {CANARY}”",
            f"file notes/guests.md: “- {CANARY}”",
            "file tool-output/look_up-",
        ):
            assert thing in shown.partition("Kept")[0], thing
        assert "file notes/list.md" in shown.partition("Kept")[2]
        answer = await w.command("/forget yes", 2)
        assert "STILL there, made of it:\n  file notes/list.md" in answer
        left = holding(tmp_path, CANARY)
        assert set(left) <= {"workspace/notes/list.md"} | {f"data/{name}" for name in ("klaw.db-wal", "klaw.db")}
        await w.app.memory.forgetter.compact_files(vacuum=True)
        assert set(holding(tmp_path, CANARY)) == {"workspace/notes/list.md"}
        # What has nothing to do with it is there.
        store = w.app.core.store
        assert [each.text for each in await store.readers.run(facts.of_user, LOCAL_USER)] == ["The dog likes the park"]
        assert json.loads((w.app.core.paths.data_dir / "core_memory.json").read_text()) == {"people": {"dog": "Rex"}}
        assert await store.readers.run(tasks.of_user, LOCAL_USER) == []
        assert "And what about the dog?" in [each.content for each in await w.app.chats.after(w.chat, 0, 500)]
        data = w.app.core.paths.data_dir
    before = digests_of(data / "klaw.db")
    assert differing(reindexed(data)) == set()
    assert digests_of(data / "klaw.db") == before
    assert set(holding(tmp_path, CANARY)) == {"workspace/notes/list.md"}


async def test_what_was_kept_on_purpose_stays_and_is_shown(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True) as w:
        await talked(w, SAID["english"])
        shown = await w.command("/forget #1")
        going, _, kept = shown.partition("Kept; “with facts”")
        assert "tool call main#2" in going
        for thing in (
            f"“The sister is called {CANARY}.”",
            "core memory people, sister",
            "task remind",
            "file notes/guests.md",
        ):
            assert thing in kept
            assert thing not in going
        answer = await w.command("/forget yes", 2)
        assert "Nothing else of yours" not in answer
        (kept_fact,) = [each for each in await w.app.core.readers.run(facts.of_user, LOCAL_USER) if CANARY in each.text]
        for thing in (f"fact {kept_fact.id}", "core memory people, sister", "task remind", "file notes/guests.md"):
            assert thing in answer
        assert CANARY not in answer
        assert not any(CANARY in each.content for each in await w.app.chats.after(w.chat, 0, 500))
        assert not list(w.app.core.paths.workspace.glob("tool-output/*"))
        assert [each.name for each in await w.app.core.readers.run(tasks.of_user, LOCAL_USER)] == [
            "remind",
            "reminder-1",
        ]
