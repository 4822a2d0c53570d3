"""Settings of a running Klaw change without a restart: what is in effect at once, and what goes on as it began."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from klaw import settings
from klaw.actor.supervisor import ActorState
from klaw.config.describe import show
from klaw.config.edit import UNSET, Draft
from klaw.config.load import load
from klaw.domain.names import LOCAL_USER
from klaw.errors import ConfigError
from klaw.llm.local_model import ACTOR_NAME
from klaw.llm.slots import Priority, Slots
from klaw.settings import change_settings, reload_settings
from klaw.toolbox.spec import ToolContext
from tests.support.chats_world import World, world
from tests.support.llm_server import Reply, Text, Wait, serve_llm, text_reply
from tests.support.programs.mcp_client import program
from tests.support.waiting import until


@asynccontextmanager
async def written(tmp_path: Path, **sections: dict[str, Any]) -> AsyncIterator[World]:
    """A world whose configuration also stands in the file."""
    async with world(tmp_path, **sections) as w:
        core = w.app.core
        core.paths.config_dir.mkdir(mode=0o700)
        core.paths.config_file.write_text(json.dumps(show(core.config), indent=1))
        yield w


async def test_the_next_answer_is_that_of_the_new_model(tmp_path: Path) -> None:
    async with serve_llm() as other, written(tmp_path) as w:
        other.respond = lambda _: text_reply("Я новая.")
        done = await change_settings(
            w.app.core, {"providers.other": {"baseUrl": other.url}, "routing.default": "other/big"}
        )
        assert set(done.changed) == {"providers.other", "routing.default"}
        assert done.restart == ()
        await w.send("Кто ты?")
        assert (await w.reply()).content == "Я новая."
        assert w.llm.requests == []


async def test_an_answer_under_way_ends_as_it_began(tmp_path: Path) -> None:
    go_on = trio.Event()
    async with serve_llm() as other, written(tmp_path) as w:
        w.llm.respond = lambda _: Reply(steps=(Text("one "), Wait(go_on), Text("two")))
        other.respond = lambda _: text_reply("three")
        await w.send("Count.")
        await w.llm.wait_for_requests(1)
        await change_settings(w.app.core, {"providers.stub.baseUrl": other.url})
        go_on.set()
        assert (await w.reply(1)).content == "one two"
        await w.send("Go on.")
        assert (await w.reply(2)).content == "three"


async def test_a_new_key_behind_the_same_reference_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with written(tmp_path) as w:
        key = {"providers.stub.apiKey": "${STUB_KEY}"}
        with pytest.raises(ConfigError, match="must be a reference"):
            await change_settings(w.app.core, {"providers.stub.apiKey": "in-plain-text"})
        await change_settings(w.app.core, key)
        assert "llm:stub" in w.app.core.health.problems()
        for value in ("first", "second"):
            monkeypatch.setenv("STUB_KEY", value)
            await change_settings(w.app.core, key)
            assert w.app.core.health.problems() == {}
            await w.send(value)
            await w.reply(1 if value == "first" else 2)
            assert w.llm.requests[-1].headers["authorization"] == f"Bearer {value}"


async def test_a_provider_that_is_taken_out_is_not_asked_any_more(tmp_path: Path) -> None:
    async with serve_llm() as other, written(tmp_path) as w:
        await change_settings(w.app.core, {"providers.other.baseUrl": other.url})
        await w.command("/model other/big")
        with pytest.raises(ConfigError, match=r"routing\.default: the provider must be"):
            await change_settings(w.app.core, {"providers.stub": UNSET})
        await change_settings(w.app.core, {"providers.other": UNSET})
        assert {each["name"] for each in w.app.llm.router.report()} <= {"stub"}


async def test_summaries_and_topics_are_switched_on_and_off(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        core, supervisor = w.app.core, w.app.core.supervisor

        def run() -> set[str]:
            names = {"memory.archivist", "memory.summarizer"}
            return {each.name for each in supervisor.report() if each.state is ActorState.RUNNING} & names

        assert run() == {"memory.summarizer"}
        await change_settings(core, {"topics.enabled": True, "topics.inject": "auto", "summaries.enabled": False})
        assert run() == {"memory.archivist"}
        assert w.app.memory.chooser is not None
        assert not w.app.memory.summarizer.enabled
        await change_settings(core, core.changing.undo, undo=True)
        assert run() == {"memory.summarizer"}
        assert w.app.memory.chooser is None


async def test_tools_come_and_go(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        toolbox, here = w.app.tools.executor.toolbox, ToolContext(user=LOCAL_USER, chat=None)

        def offered() -> set[str]:
            return {spec.name for spec in toolbox.offered(here)}

        assert not {"web_fetch", "host_exec"} & offered()
        await change_settings(w.app.core, {"tools.web.enabled": True, "tools.exec.enabled": True})
        assert {"web_fetch", "host_exec", "file_read"} <= offered()
        await change_settings(w.app.core, {"tools.disabled": ["file_*", "web_*"]})
        assert not {"web_fetch", "file_read"} & offered()
        await change_settings(w.app.core, {"tools.exec.enabled": False})
        assert "host_exec" not in offered()


async def test_an_mcp_server_is_connected_and_let_go(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        tools = w.app.tools
        await change_settings(w.app.core, {"mcp.servers.notes": program()})
        await until(lambda: any(spec.name == "notes__greet" for spec in tools.executor.toolbox.all()))
        (first,) = tools.mcp
        await change_settings(w.app.core, {"autoRag.topK": 5})
        assert tools.mcp == [first]
        await change_settings(w.app.core, {"mcp.servers.notes.maxTools": 1})
        assert tools.mcp != [first]
        await until(lambda: sum(spec.name.startswith("notes__") for spec in tools.executor.toolbox.all()) == 1)
        await change_settings(w.app.core, {"mcp.servers": UNSET})
        assert tools.mcp == []
        assert not any(spec.name.startswith("notes__") for spec in tools.executor.toolbox.all())


async def test_an_mcp_server_gets_a_new_secret_behind_the_same_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with written(tmp_path) as w:
        monkeypatch.setenv("NOTES_KEY", "first")
        server = {**program(), "env": {"KEY": "${NOTES_KEY}"}}
        await change_settings(w.app.core, {"mcp.servers.notes": server})
        (first,) = w.app.tools.mcp
        await reload_settings(w.app.core)
        assert w.app.tools.mcp == [first]
        monkeypatch.setenv("NOTES_KEY", "second")
        await reload_settings(w.app.core)
        (second,) = w.app.tools.mcp
        assert second is not first
        await until(lambda: any(spec.name == "notes__greet" for spec in w.app.tools.executor.toolbox.all()))


async def test_the_local_model_runs_only_while_a_route_leads_to_it(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        core, built_in = w.app.core, "local/smollm2-135m-instruct"
        assert not core.supervisor.alive(ACTOR_NAME)
        await change_settings(core, {"routing.fallback": [built_in]})
        assert core.supervisor.alive(ACTOR_NAME)
        await change_settings(core, {"autoRag.topK": 5})
        assert core.supervisor.alive(ACTOR_NAME)
        await change_settings(core, {"routing.fallback": []})
        assert not core.supervisor.alive(ACTOR_NAME)
        await change_settings(core, {"routing.tasks.topics": [built_in]})
        assert core.supervisor.alive(ACTOR_NAME)


async def test_a_wrong_file_changes_nothing_until_it_is_mended(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        core = w.app.core
        file, config = core.paths.config_file, core.config
        right = file.read_text()
        file.write_text(right.replace('"topK": 8', '"topK": 0'))
        with pytest.raises(ConfigError, match=r"autoRag\.topK: must be >= 1, got 0"):
            await reload_settings(core)
        assert core.config is config
        assert "topK" in str(core.changing.wrong)
        assert set(core.health.problems()) == {"config_wrong"}
        with pytest.raises(ConfigError, match=r"autoRag\.topK"):
            await change_settings(core, {"autoRag.maxTokens": 50})
        assert core.config_changed()
        file.write_text(right.replace('"topK": 8', '"topK": 9'))
        await reload_settings(core)
        assert core.config.auto_rag.top_k == 9
        assert core.health.problems() == {}
        assert not core.config_changed()


async def test_a_key_that_needs_a_restart_waits_and_others_do_not(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        core = w.app.core
        done = await change_settings(core, {"store.readers": 3, "autoRag.topK": 4})
        assert (done.restart, set(done.changed)) == (("store.readers",), {"store.readers", "autoRag.topK"})
        assert (core.config.store.readers, core.config.auto_rag.top_k) == (2, 4)
        done = await change_settings(core, {"store.readers": 2})
        assert (done.restart, core.changing.waiting) == ((), ())


async def test_two_pages_and_a_hand_edit_at_the_same_time_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with written(tmp_path) as w:
        core = w.app.core
        file, write = core.paths.config_file, Draft.write
        by_hand = iter(("maxPerUser", "mailboxSize"))

        def with_an_editor(draft: Draft) -> bool:
            """Somebody saves the file between the moment in which it is read and that in which it is written."""
            if (key := next(by_hand, None)) is not None:
                tree = json.loads(file.read_text())
                tree["chats"][key] = 77
                file.write_text(json.dumps(tree, indent=1))
            return write(draft)

        monkeypatch.setattr(Draft, "write", with_an_editor)
        async with trio.open_nursery() as pages:
            pages.start_soon(change_settings, core, {"autoRag.topK": 4})
            pages.start_soon(change_settings, core, {"llm.maxReplyTokens": 99})
        for config in (core.config, load(file)[0]):
            assert (config.auto_rag.top_k, config.llm.max_reply_tokens) == (4, 99)
            assert (config.chats.max_per_user, config.chats.mailbox_size) == (77, 77)


async def test_a_part_that_fails_does_not_keep_the_others_from_being_told(tmp_path: Path) -> None:
    async with written(tmp_path) as w:
        core, told = w.app.core, []

        async def fails(_before: object) -> None:
            raise OSError

        async def hears(_before: object) -> None:
            told.append(core.config.auto_rag.top_k)

        core.changing.told += [fails, hears]
        await change_settings(core, {"autoRag.topK": 4})
        assert told == [4]
        assert "config_not_taken_up" in core.health.problems()
        core.changing.told.remove(fails)
        await reload_settings(core)
        assert core.health.problems() == {}


async def test_a_change_comes_to_its_end_when_who_asked_has_gone(tmp_path: Path) -> None:
    """Else the file would say one thing and the parts do another."""
    async with written(tmp_path) as w:
        core, reached, told = w.app.core, trio.Event(), []

        async def slow(_before: object) -> None:
            reached.set()
            await trio.lowlevel.checkpoint()
            told.append(core.config.auto_rag.top_k)

        core.changing.told.insert(0, slow)
        async with trio.open_nursery() as asking:
            asking.start_soon(change_settings, core, {"autoRag.topK": 4})
            await reached.wait()
            asking.cancel_scope.cancel(reason="the client has gone")
        assert told == [4]
        assert not core.changing.lock.locked()
        assert settings.log is not None


async def test_more_slots_let_waiting_calls_go_on_and_fewer_stop_none() -> None:
    slots, entered, leave = Slots(1), [], trio.Event()

    async def call(number: int) -> None:
        async with slots.slot(Priority.INTERACTIVE):
            entered.append(number)
            await leave.wait()

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(call, number)
            await trio.testing.wait_all_tasks_blocked()
        assert entered == [0]
        slots.resize(2)
        await trio.testing.wait_all_tasks_blocked()
        assert entered == [0, 1]
        slots.resize(1)
        assert slots.report().busy == 2
        leave.set()
    assert entered == [0, 1, 2]
    assert slots.report().busy == 0
