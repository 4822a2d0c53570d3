"""Tool rounds inside a turn, with the real store and LLM client and a scripted LLM server."""

import json
from pathlib import Path
from typing import Annotated, Any

import trio

from klaw.agent.conversation import LAST_ROUND
from klaw.app.app import recover_chats
from klaw.context.repair import INTERRUPTED
from klaw.domain.events import TextStreamed, ToolUsed
from klaw.domain.message import Message, MessageKind, Role, TurnStatus
from klaw.domain.names import LOCAL_USER
from klaw.toolbox.spec import Permission, ToolContext, tool
from tests.support.chats_world import World, world
from tests.support.llm_server import Reply, Text, Tool, error_reply, text_reply, tool_reply
from tests.support.waiting import HANG_S


def tool_world(tmp_path: Path, **sections: Any) -> Any:
    return world(tmp_path, tools_for_model=True, **sections)


@tool(permission=Permission.READ)
async def add(_context: ToolContext, a: Annotated[int, "first"], b: Annotated[int, "second"]) -> int:
    """Add two numbers."""
    return a + b


class Gate:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.open = trio.Event()
        self.cancelled = False

        @tool(permission=Permission.READ, name="gate")
        async def gate(_context: ToolContext) -> str:
            """Wait."""
            self.entered.set()
            try:
                await self.open.wait()
            except trio.Cancelled:
                self.cancelled = True
                raise
            return "opened"

        self.spec = gate


def calls(*pairs: tuple[str, Any]) -> Reply:
    """An answer that calls tools by name with arguments."""
    return tool_reply(*[Tool(f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(pairs)])


async def rows(w: World) -> list[Message]:
    return await w.app.chats.after(w.chat, 0, 200)


def shape(messages: list[Message]) -> list[tuple[str, str]]:
    return [(m.role.value, m.type.value) for m in messages]


async def test_a_turn_calls_tools_and_answers_with_their_results(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        w.app.tools.executor.toolbox.register(add)
        first = Reply(
            steps=(Text("Считаю. "), Tool("c1", "add", '{"a": 2, "b": 3}'), Tool("c2", "add", '{"a": "x"}', index=1)),
            finish_reason="tool_calls",
        )
        w.llm.replies += [first, text_reply("Пять.")]
        await w.send("Сколько будет 2+3?")
        ended = await w.turn(1)
        stored = await rows(w)
        assert shape(stored) == [
            ("user", "text"),
            ("assistant", "tool_call"),
            ("tool", "tool_result"),
            ("tool", "tool_result"),
            ("assistant", "text"),
        ]
        assert stored[1].content == "Считаю. "
        assert [call["arguments"] for call in stored[1].metadata["calls"]] == ['{"a": 2, "b": 3}', '{"a": "x"}']
        results = {message.metadata["call"]: message for message in stored[2:4]}
        assert (results["c1"].content, results["c1"].metadata["error"]) == ("5", False)
        assert results["c2"].metadata == {"turn": ended.turn, "call": "c2", "name": "add", "error": True}
        assert "a: must be a whole number" in results["c2"].content
        # The model saw the calls and, in their order, the results.
        asked, again = w.llm.requests
        offered = [each["function"]["name"] for each in asked.body["tools"]]
        assert {"add", "current_time"} <= set(offered)
        assert offered == sorted(offered)
        assert again.body["tools"] == asked.body["tools"]
        sent = again.messages[-3:]
        assert [call["id"] for call in sent[0]["tool_calls"]] == ["c1", "c2"]
        assert [(m["role"], m["tool_call_id"]) for m in sent[1:]] == [("tool", "c1"), ("tool", "c2")]
        used = [(e.call, e.state) for e in w.watcher.events if isinstance(e, ToolUsed)]
        assert sorted(used) == [("c1", "done"), ("c1", "started"), ("c2", "failed"), ("c2", "started")]
        shown = {e.call: e.what for e in w.watcher.events if isinstance(e, ToolUsed) and e.state == "started"}
        assert shown == {"c1": "a: 2, b: 3", "c2": "x"}
        pieces = [(e.offset, e.text) for e in w.watcher.events if isinstance(e, TextStreamed)]
        assert pieces == [(0, "Считаю. "), (0, "Пять.")]
        record = await w.receipt()
        assert [record.usage[each] for each in ("calls", "prompt_tokens", "completion_tokens")] == [2, 22, 14]
        assert record.receipt["tools"]["rounds"] == 1
        assert [(each["name"], each["state"]) for each in record.receipt["tools"]["calls"]] == [
            ("add", "done"),
            ("add", "failed"),
        ]
        assert next(layer["tokens"] for layer in record.receipt["layers"] if layer["name"] == "tools") > 20


async def test_the_next_turn_sees_the_calls_of_the_one_before(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        w.app.tools.executor.toolbox.register(add)
        w.llm.replies += [calls(("add", {"a": 2, "b": 3})), text_reply("Five."), text_reply("As I said: five.")]
        await w.send("How much is 2+3?")
        await w.turn(1)
        await w.send("How much was it?")
        await w.turn(2)
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[2] == {"role": "tool", "content": "5", "tool_call_id": "call_0"}
        # The stable part of the request is byte for byte the same.
        assert w.llm.requests[-1].body["tools"] == w.llm.requests[0].body["tools"]
        assert w.llm.requests[-1].messages[0] == w.llm.requests[0].messages[0]


async def test_a_model_without_tools_is_offered_none_and_shown_none(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        w.app.tools.executor.toolbox.register(add)
        w.llm.replies += [calls(("add", {"a": 2, "b": 3})), text_reply("Five.")]
        await w.send("How much is 2+3?")
        await w.turn(1)
    async with world(tmp_path) as w:
        await w.send("And now?")
        await w.turn(1)
        assert "tools" not in w.llm.requests[-1].body
        assert w.contents() == ["How much is 2+3?", "Five.", "And now?"]


async def test_rounds_are_limited_and_the_last_call_has_no_tools(tmp_path: Path) -> None:
    async with tool_world(tmp_path, processing={"maxToolCallRounds": 2}) as w:
        w.app.tools.executor.toolbox.register(add)
        w.llm.replies += [calls(("add", {"a": 1, "b": n})) for n in range(2)]
        w.llm.replies.append(text_reply("Enough."))
        await w.send("count")
        await w.turn(1)
        assert [("tools" in request.body) for request in w.llm.requests] == [True, True, False]
        assert w.llm.requests[-1].messages[-1]["content"].endswith(LAST_ROUND)
        ids = [c["id"] for m in w.llm.requests[-1].messages for c in m.get("tool_calls", [])]
        assert len(set(ids)) == 2  # the server used the same id twice
        stored = await rows(w)
        assert LAST_ROUND not in "".join(message.content for message in stored)
        assert stored[-1].content == "Enough."


async def test_stop_in_the_middle_of_a_round_cancels_the_tools_and_repairs(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        gate = Gate()
        w.app.tools.executor.toolbox.register(add, gate.spec)
        w.llm.replies.append(calls(("add", {"a": 1, "b": 1}), ("gate", {})))
        await w.send("wait for it")
        with trio.fail_after(HANG_S):
            await gate.entered.wait()
        await w.reply(kind=MessageKind.TOOL_RESULT, role=Role.TOOL)
        assert await w.app.chats.stop(LOCAL_USER, "main")
        assert gate.cancelled
        assert (await w.receipt()).status is TurnStatus.STOPPED
        assert [c["state"] for c in (await w.receipt()).receipt["tools"]["calls"]] == ["done", "interrupted"]
        assert shape(await rows(w)) == [("user", "text"), ("assistant", "tool_call"), ("tool", "tool_result")]
        await w.send("go on")
        await w.turn(2)
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
        assert [m["content"] for m in sent[2:4]] == ["2", INTERRUPTED]


async def test_a_failed_turn_goes_on_with_its_rounds(tmp_path: Path) -> None:
    """The tools that ran are not run again: their results stand behind the question."""
    async with tool_world(tmp_path) as w:
        w.app.tools.executor.toolbox.register(add)
        w.llm.replies += [calls(("add", {"a": 2, "b": 2})), error_reply(500)]
        await w.send("2+2?")
        assert (await w.turn(1)).status is TurnStatus.FAILED
        w.llm.replies.append(text_reply("Four."))
        await w.command("/retry")
        assert (await w.turn(2)).status is TurnStatus.DONE
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
        assert (await w.receipt()).receipt["tools"]["earlier_rounds"] == 1
        await w.send("thanks")
        await w.turn(3)
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_question_during_a_round_belongs_to_the_next_turn(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        gate = Gate()
        w.app.tools.executor.toolbox.register(gate.spec)
        w.llm.replies += [calls(("gate", {})), text_reply("It opened."), text_reply("You too.")]
        await w.send("open the gate")
        with trio.fail_after(HANG_S):
            await gate.entered.wait()
        await w.send("and have a nice day")
        gate.open.set()
        await w.turn(2)
        assert w.contents(1) == ["open the gate", None, "opened"]
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[-1]["content"] == "and have a nice day"


async def test_a_tool_does_not_hold_a_slot(tmp_path: Path) -> None:
    async with tool_world(tmp_path, processing={"maxConcurrentLlm": 1}) as w:
        gate = Gate()
        w.app.tools.executor.toolbox.register(gate.spec)
        w.llm.replies.append(calls(("gate", {})))
        await w.send("open the gate")
        with trio.fail_after(HANG_S):
            await gate.entered.wait()
        assert w.app.llm.slots.report().busy == 0
        await w.send("hello", chat="other")
        assert (await w.turn(1)).chat.endswith("other")
        gate.open.set()
        await w.turn(2)
        assert w.app.llm.slots.report().busy == 0


async def test_a_prompt_that_proves_too_long_after_a_round_is_shortened(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:

        @tool(permission=Permission.READ)
        async def flood(_context: ToolContext) -> str:
            """Say much."""
            return "many words " * 1000

        w.app.tools.executor.toolbox.register(flood)
        too_long = error_reply(400, code="context_length_exceeded")
        w.llm.replies += [calls(("flood", {})), too_long, text_reply("Short.")]
        await w.send("say much")
        assert (await w.turn(1)).status is TurnStatus.DONE
        refused, sent = (len(request.messages[-1]["content"]) for request in w.llm.requests[1:])
        assert sent < refused * 0.8


async def test_long_output_goes_to_a_file_of_the_workspace(tmp_path: Path) -> None:
    async with tool_world(tmp_path, tools={"maxOutputChars": 1000}) as w:

        @tool(permission=Permission.READ)
        async def flood(_context: ToolContext) -> str:
            """Say much."""
            return "слово\x00" * 1000

        w.app.tools.executor.toolbox.register(flood)
        w.llm.replies += [calls(("flood", {})), text_reply("ok")]
        await w.send("say much")
        await w.turn(1)
        result = await w.reply(kind=MessageKind.TOOL_RESULT, role=Role.TOOL)
        assert "first 1000 of 6000 characters" in result.content
        (file,) = (w.app.core.paths.workspace / "tool-output").iterdir()
        assert f"tool-output/{file.name}" in result.content
        assert file.read_text() == "слово\ufffd" * 1000


async def test_a_turn_that_was_interrupted_in_a_round_is_answered_at_start(tmp_path: Path) -> None:
    """As after a crash: the call is stored, its turn is not."""
    async with tool_world(tmp_path) as w:
        gate = Gate()
        w.app.tools.executor.toolbox.register(gate.spec)
        w.llm.replies.append(calls(("gate", {})))
        await w.send("open the gate")
        with trio.fail_after(HANG_S):
            await gate.entered.wait()
        (handle,) = w.app.chats._handles.values()
        assert handle.turn is not None
        handle.turn.scope.cancel(reason="the test plays a crash")
        await handle.turn.over.wait()
        w.llm.replies.append(text_reply("I do not know whether it opened."))
        await recover_chats(w.app)
        assert (await w.reply()).content == "I do not know whether it opened."
        sent = [m for m in w.llm.requests[-1].messages if m["role"] != "system"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
        assert sent[-1]["content"] == INTERRUPTED
