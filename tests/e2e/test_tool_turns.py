"""Tools over real sockets: a WebSocket client, the server process, and an OpenAI-compatible server that calls tools."""

import json
import re

import pytest

from klaw.context.repair import INTERRUPTED
from klaw.wire.frames import Tool as ToolFrame
from tests.support.llm_server import Hang, Recorded, Reply, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home
from tests.support.talking import talking

WAITING_TOOL = REPOSITORY / "tests" / "support" / "waiting_tool"


def home_with_tools(tmp_path, llm):
    return write_home(
        tmp_path,
        llm=llm.url,
        providers={"stub": {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}},
    )


def by_role(request: Recorded):
    return [message for message in request.messages if message["role"] != "system"]


CONVERSATIONS = [
    pytest.param("Какой сегодня день в Москве?", "Сейчас посмотрю. ", "Europe/Moscow", "Сегодня ", id="русский"),
    pytest.param("What day is it in New York?", "Let me look. ", "America/New_York", "Today is ", id="english"),
]


@pytest.mark.parametrize(("question", "before", "zone", "answer"), CONVERSATIONS)
async def test_a_conversation_with_tools(tmp_path, question, before, zone, answer):
    """The model asks for the time, makes a mistake, asks again, and answers; then the chat goes on."""

    def respond(request: Recorded) -> Reply:
        said = by_role(request)
        results = [message["content"] for message in said if message["role"] == "tool"]
        if said[-1]["role"] == "user" and said[-1]["content"] != question:
            return text_reply(f"{len(results)} results before")
        if not results:
            arguments = json.dumps({"zone": "Нигде/Никогда"}, ensure_ascii=False)
            return Reply(steps=(Text(before), Tool("call_0", "current_time", arguments)), finish_reason="tool_calls")
        if len(results) == 1:
            assert "time zone" in results[0]
            return tool_reply(Tool("call_0", "current_time", json.dumps({"zone": zone})))
        return text_reply(answer, results[-1].partition(",")[0])

    async with serve_llm() as llm, served(home_with_tools(tmp_path, llm)) as server:
        llm.respond = respond
        async with talking(server.url, {"main": 0}) as talk:
            receipt = await talk.ask(question)
            final = await talk.answer_to(receipt)
            assert re.fullmatch(re.escape(answer) + r"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day", final)
            frames = [(e.name, e.state) for e in talk.events if isinstance(e, ToolFrame)]
            assert frames == [("current_time", state) for state in ("started", "failed", "started", "done")]
            assert [(e.role, e.kind) for e in talk.entries] == [
                ("user", "text"),
                ("assistant", "tool_call"),
                ("tool", "tool_result"),
                ("assistant", "tool_call"),
                ("tool", "tool_result"),
                ("assistant", "text"),
            ]
            assert talk.entries[1].content == before
            assert receipt.receipt["tools"]["rounds"] == 2
            assert receipt.usage["prompt_tokens"] == 33
        # Another client resumes: every message once, in order.
        async with talking(server.url, {"main": 0}) as talk:
            await talk.until(lambda: len(talk.entries) == 6)
            assert [entry.seq for entry in talk.entries] == [1, 2, 3, 4, 5, 6]
            again = await talk.ask("ok?")
            assert await talk.answer_to(again) == "2 results before"
        # After a restart, from the database, too; the logs hold the calls.
        await server.kill()
        await server.start()
        async with talking(server.url) as talk:
            again = await talk.ask("и теперь?")
            assert await talk.answer_to(again) == "2 results before"
        await server.terminate()
        assert zone not in server.stderr  # arguments are content
        logged = "".join(path.read_text() for path in server.data.rglob("*.jsonl"))
        assert zone in logged


async def test_a_kill_in_the_middle_of_a_tool_is_answered_after_the_restart(tmp_path):
    """The finished call is not run again, the interrupted one is shown as such, and nothing is stored twice."""
    signs = tmp_path / "signs"
    signs.mkdir()
    environ = {"PYTHONPATH": f"{WAITING_TOOL}:{REPOSITORY}", "KLAW_TEST_WAIT": str(signs)}
    async with serve_llm() as llm, served(home_with_tools(tmp_path / "home", llm), environ=environ) as server:
        llm.replies.append(tool_reply(Tool("c_time", "current_time", "{}"), Tool("c_wait", "wait", "{}")))
        async with talking(server.url, {"main": 0}) as talk:
            await talk.send("Жди, пока придёт")
            await talk.until(lambda: [e for e in talk.entries if e.kind == "tool_result"])
            await talk.until(
                lambda: [
                    e for e in talk.events if isinstance(e, ToolFrame) and (e.name, e.state) == ("wait", "started")
                ]
            )
            await server.kill()
            # Once more, in the middle of the next call of the model.
            llm.replies.append(Reply(steps=(Text("half"), Hang())))
            await server.start()
            await llm.wait_for_requests(2)
            await server.kill()
            llm.replies.append(text_reply("Не дождался."))
            await server.start()
            receipt = await talk.settled(1)
            assert await talk.answer_to(receipt) == "Не дождался."
            assert receipt.receipt["tools"]["earlier_rounds"] == 1
            history = await talk.history()
        assert [(m.role, m.kind) for m in history] == [
            ("user", "text"),
            ("assistant", "tool_call"),
            ("tool", "tool_result"),
            ("assistant", "text"),
        ]
        for request in llm.requests[1:3]:
            said = by_role(request)
            assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool"]
            assert said[2]["content"].endswith("+00:00")
            assert said[3] == {"role": "tool", "tool_call_id": "c_wait", "content": INTERRUPTED}
        assert [path.name for path in signs.iterdir()] == ["entered-c_wait"]
        async with talking(server.url) as talk:
            llm.replies.append(text_reply("Да."))
            assert await talk.answer_to(await talk.ask("Точно?")) == "Да."
        said = by_role(llm.requests[-1])
        assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool", "assistant", "user"]
