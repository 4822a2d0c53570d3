"""Tools with the built-in model, through a real server process: llama.cpp keeps it to the schema of an answer or calls.

What is asserted is the protocol. What a model of this size asks for by itself, and makes of a result, is another
matter: so the question shows it the call.
"""

import json
from pathlib import Path

import pytest

from klaw.gateway.frames import Tool as ToolFrame
from tests.e2e.talking import talking
from tests.support.models import models_dir
from tests.support.server import served, write_home

pytest.importorskip("xllamacpp")

MODEL = "smollm2-135m-instruct"
OTHERS = ["file_*", "schedule_*", "skill_*", "subagent_*", "send_message", "memory_*", "history_*"]
"""Tools that are not offered: on two cores their descriptions take half a minute to read."""


def home_of_the_local_model(tmp_path: Path) -> Path:
    home = write_home(
        tmp_path,
        models=models_dir(),
        embedding={"enabled": False},
        routing={"default": f"local/{MODEL}"},
        localModel={"tools": "schema", "parallel": 1},
        processing={"maxToolCallRounds": 1},
        tools={"disabled": OTHERS},
    )
    path = home / "config" / "engine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "llm": {"temperature": 0, "maxReplyTokens": 100}}))
    return home


def call_of(zone: str) -> str:
    return json.dumps({"reply": {"calls": [{"name": "current_time", "arguments": {"zone": zone}}]}})


CONVERSATIONS = [
    pytest.param("What day is it in New York? Use a tool:", "America/New_York", id="english"),
    pytest.param("Какой сегодня день в Москве? Вызови инструмент:", "Europe/Moscow", id="русский"),
]


@pytest.mark.usefixtures("local_llm_dir")
@pytest.mark.parametrize(("question", "zone"), CONVERSATIONS)
async def test_a_conversation_with_tools_on_the_local_model(tmp_path: Path, question: str, zone: str) -> None:
    """It calls the tool, which runs, and an answer is stored after its result."""
    async with served(home_of_the_local_model(tmp_path)) as server:
        async with talking(server.url, {"main": 0}) as talk:
            receipt = await talk.ask(f"{question} {call_of(zone)}")
            answer = await talk.answer_to(receipt)
            tools = receipt.receipt["tools"]
            assert (tools["offered"], tools["rounds"]) == (1, 1)
            assert {call["name"] for call in tools["calls"]} == {"current_time"}
            frames = [(event.name, event.state) for event in talk.events if isinstance(event, ToolFrame)]
            assert ("current_time", "started") in frames
            assert ("current_time", "done") in frames
            turn = [entry for entry in talk.entries if entry.turn == receipt.turn]
            kinds = [(entry.role, entry.kind) for entry in turn]
            assert kinds == [
                ("assistant", "tool_call"),
                *[("tool", "tool_result")] * len(tools["calls"]),
                ("assistant", "text"),
            ]
            assert any(f"({zone})" in entry.content for entry in turn[1:-1])
            assert answer.strip()
            assert receipt.usage["calls"] == 2
        await server.terminate()
        logged = "".join(path.read_text() for path in server.data.rglob("*.jsonl"))
        assert zone in logged
