"""A command of the model, the user's permission for it, and its result: a real server process, real clients."""

import json
import shutil

import pytest
import trio

from klaw.client.transcript import READ_S
from klaw.toolbox.host_exec import RISK
from klaw.wire.frames import ApprovalEndedFrame, ApprovalFrame, Approve, Tool
from tests.client.actors.test_chat_command import desk
from tests.support import llm_server
from tests.support.llm_server import serve_llm, text_reply, tool_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S


def home_for(tmp_path, llm, **tools):
    provider = {
        "baseUrl": llm.url, "maxRetries": 0, "timeoutSeconds": 20, "models": {"echo": {"tools": True}}
    }  # fmt: skip
    settings = {"enabled": True, "sandbox": "none", **tools}
    return write_home(tmp_path, llm=llm.url, providers={"stub": provider}, tools={"exec": settings})


def command(text):
    return tool_reply(llm_server.Tool("call_1", "host_exec", json.dumps({"command": text})))


def seen(talk, kind):
    return [event for event in talk.events if isinstance(event, kind)]


async def test_user_allows_a_command_from_a_second_client(tmp_path):
    """One client asks, loses its connection, and another answers; the model gets the output."""
    async with serve_llm() as llm, served(home_for(tmp_path, llm)) as server:
        llm.replies += [command("sh -c 'echo привет > made.txt; cat made.txt'"), text_reply("Готово")]
        async with talking(server.url) as first:
            await first.send("Создай файл / make the file")
            (asked,) = await first.until(lambda: seen(first, ApprovalFrame))
        assert asked.what.startswith(f"[NOT in a sandbox{RISK}] sh -c ")
        assert not list(tmp_path.rglob("made.txt"))
        async with talking(server.url) as second, talking(server.url) as third:
            for talk in (second, third):
                await talk.client.watch("main", 0)
                assert (await talk.until(lambda talk=talk: seen(talk, ApprovalFrame)))[0] == asked
            ended = await second.client.request(Approve(id=asked.id, allow=True))
            assert (ended.id, ended.outcome) == (asked.id, "allowed")
            (told,) = await third.until(lambda: seen(third, ApprovalEndedFrame))
            assert told.outcome == "allowed"
            await third.until(lambda: [entry for entry in third.entries if entry.content == "Готово"])
            assert seen(third, Tool)[-1].state == "done"
        (made,) = list(tmp_path.rglob("made.txt"))
        assert made.read_text() == "привет\n"
        result = llm.requests[1].messages[-1]["content"]
        assert result.startswith("[exit code 0")
        assert result.endswith("\nпривет\n")
        assert "привет" not in server.stderr


@pytest.mark.parametrize(("typed", "happens"), [("да\r", True), ("n\r", False)])
async def test_user_answers_in_klaw_chat(tmp_path, typed, happens):
    """y and n at the terminal, in both languages, go to the question; the line is no message."""
    async with serve_llm() as llm, served(home_for(tmp_path, llm)) as server:
        llm.replies += [command("touch made.txt"), text_reply("It is settled.")]
        async with desk(server) as at:
            await at.see("> ")
            at.type("please\r")
            await at.see("host_exec wants to run, allow it? y/n, until")
            await at.see("made.txt")  # the line may be wrapped before it
            await trio.sleep(READ_S + 0.1)  # a person needs longer to read it; a quicker yes does not count
            at.type(typed)
            await at.see("[allowed]" if happens else "[not allowed]")
            await at.see("It is settled.")
            at.type("/quit\r")
            assert await at.leave() == 0
        assert bool(list(tmp_path.rglob("made.txt"))) is happens
        assert len(llm.requests) == 2


async def test_one_question_without_a_terminal_is_not_allowed_anything(tmp_path):
    """The model is told no, answers, and the person reads why."""
    async with serve_llm() as llm, served(home_for(tmp_path, llm)) as server:
        llm.replies += [command("touch made.txt"), text_reply("Не вышло.")]
        code, out, errors = await run_klaw("chat", "--url", server.url, "Создай файл")
        assert (code, out) == (0, "Не вышло.\n")
        assert "klaw: not allowed, since no terminal is there to ask you: host_exec" in errors
        assert not list(tmp_path.rglob("made.txt"))


async def test_shutdown_does_not_wait_for_an_answer(tmp_path):
    async with serve_llm() as llm, served(home_for(tmp_path, llm)) as server:
        llm.replies += [command("touch made.txt"), text_reply("So it goes")]
        async with talking(server.url) as talk:
            await talk.send("do it")
            await talk.until(lambda: seen(talk, ApprovalFrame))
            with trio.fail_after(HANG_S):
                assert await server.terminate() == 0
        assert not list(tmp_path.rglob("made.txt"))


async def test_sandboxed_command_of_a_real_server(tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: the sandbox is not tested")
    async with serve_llm() as llm, served(home_for(tmp_path, llm, sandbox="bubblewrap", allow=["ls **"])) as server:
        llm.replies += [command(f"ls {tmp_path}/config /etc/shadow"), text_reply("ok")]
        async with talking(server.url) as talk:
            await talk.ask("look")
        result = llm.requests[1].messages[-1]["content"]
        if "bubblewrap does not work here" in result:
            pytest.skip("bubblewrap is not permitted on this machine: the sandbox is not tested")
        assert result.startswith("[exit code 2")
        assert "engine.yaml" not in result
