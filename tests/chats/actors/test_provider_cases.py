# ruff: noqa: E501, ISC004 - an answer is read as one piece
"""26.C1: what providers really send, through the real client and a whole turn: what is stored, shown and sent next."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.events import MessageStored, TextStreamed
from klaw.domain.message import Message, MessageKind, Role, TurnStatus
from klaw.domain.names import LOCAL_USER
from klaw.llm.providers.adapt import Habits, learned
from klaw.llm.types import ChatMessage, Echo, Image, Request, ToolCall, ToolDescription
from klaw.toolbox.spec import Permission, PicturedText, ToolContext, tool
from tests.support.chats_world import World, world
from tests.support.llm_server import Raw, Recorded, Reply, error_reply, event, text_reply
from tests.support.repository import REPOSITORY

CASES = REPOSITORY / "tests/data/cases/provider"
NOTE = "(The answer was cut off: it is as long as answers may be.)"


def raw(*events: bytes) -> Reply:
    return Reply(steps=tuple(map(Raw, events)), finish_reason=None, usage=None, done=False)


def case(name: str) -> Reply:
    return raw((CASES / f"{name}.sse").read_bytes())


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> Reply:
    """An answer of these deltas."""
    told = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    told.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return raw(*map(event, told), b"data: [DONE]\n\n")


def calls(*parts: dict[str, Any], **more: Any) -> Reply:
    return chunks({"role": "assistant", "content": None, **more}, *[{"tool_calls": [part]} for part in parts],
                  finish="tool_calls")  # fmt: skip


def call(own: str | None = "a", name: str = "current_time", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    part = {"index": 0, "function": {"name": name, "arguments": arguments}, **more}
    return part if own is None else {**part, "id": own}


def stored(w: World) -> list[Message]:
    return [each.message for each in w.watcher.events if isinstance(each, MessageStored)]


def shown(w: World) -> str:
    """What a client that obeys ``offset`` shows of the running answer."""
    text = ""
    for each in w.watcher.events:
        if isinstance(each, TextStreamed):
            text = text[: each.offset] + each.text
    return text


async def answered(tmp_path: Path, *replies: Reply) -> tuple[str, str]:
    """What is stored and what is shown of an answer; a round of tools before it."""
    async with world(tmp_path, tools_for_model=True) as w:
        w.llm.replies.extend(replies)
        await w.send("Two and two?")
        ended = await w.turn(1)
        assert ended.status is TurnStatus.DONE, ended.text
        return stored(w)[-1].content, shown(w)


ONE = {"content": "Add them.\n"}
FORMS: dict[str, Reply] = {
    **{
        name: case(name)
        for name in ("content_as_parts", "thinking_without_opening", "thinking_thought_tag", "whole_message_at_the_end")
    },
    "an opening tag that is missing, cut": chunks(ONE, {"content": "</th"}, {"content": "ink>\n\nFo"}, {"content": "ur."}),
    "parts, text and thinking in one": chunks({"content": [{"type": "reasoning", "text": "Add."}, {"type": "text", "text": "Four."}]}),
    "a part alone": chunks({"content": {"type": "text", "text": "Four."}}),
    "parts that are texts": chunks({"content": ["Fo", "ur."]}),
    "output_text": chunks({"content": [{"type": "output_text", "text": "Four."}]}),
    "thought: true": chunks({"content": [{"type": "text", "text": "Add.", "thought": True}, {"text": "Four."}]}),
    "channels": chunks({"content": "<|channel|>analysis<|mess"}, {"content": "age|>Add.<|end|><|start|>assistant"},
                       {"content": "<|channel|>final<|message|>Four.<|return|>"}),
    "reasoning as an object": chunks({"reasoning": {"text": "Add."}}, {"content": "Four."}),
    "only details of reasoning": chunks({"reasoning_details": [{"type": "reasoning.text", "text": "Add."}]}, {"content": "Four."}),
    "a refusal as a part": chunks({"content": [{"type": "refusal", "refusal": "Four."}]}),
    "whole again, as a chat.completion": raw(
        event({"choices": [{"delta": {"content": "Fo"}}]}), event({"choices": [{"delta": {"content": "ur."}}]}),
        event({"object": "chat.completion", "choices": [{"message": {"content": "Four."}, "finish_reason": "stop"}]}),
    ),
    "whole again, as the last delta": raw(
        event({"choices": [{"delta": {"content": "Fo"}}]}), event({"choices": [{"delta": {"content": "ur."}}]}),
        event({"choices": [{"delta": {"content": "Four."}, "finish_reason": "stop"}]}),
    ),
    "only whole": raw(event({"choices": [{"delta": {}, "message": {"content": "Four."}, "finish_reason": "stop"}]})),
    "thought: true of Gemini": chunks({"content": "Add.", "extra_content": {"google": {"thought": True}}}, {"content": "Four."}),
    "the rest is only in the whole": raw(
        event({"choices": [{"delta": {"content": "Fo"}}]}),
        event({"choices": [{"delta": {}, "message": {"content": "Four."}, "finish_reason": "stop"}]}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
async def test_the_answer_is_four(tmp_path: Path, form: str) -> None:
    """Neither stored nor shown is anything but the answer, in whatever form it came."""
    assert await answered(tmp_path, FORMS[form]) == ("Four.", "Four.")


async def test_a_model_that_leaves_out_the_opening_tag_is_remembered(tmp_path: Path) -> None:
    """Its next thinking is not even shown for a moment; its answers without thinking come whole."""
    async with world(tmp_path) as w:
        w.llm.replies.extend([chunks(ONE, {"content": "</think>\n\nFour."})] * 2 + [text_reply("No ", "thinking.")])
        w.llm.replies.append(chunks(ONE, {"content": "</think>\n\nFour."}))
        for number in (1, 2, 3, 4):
            await w.send(f"Question {number}?")
            await w.turn(number)
        texts = [each.text for each in w.watcher.events if isinstance(each, TextStreamed)]
        assert texts == ["Add them.\n", "", "Four.", "Four.", "No thinking.", "Four."]
        said = [each.content for each in stored(w) if each.role is Role.ASSISTANT]
        assert said == ["Four.", "Four.", "No thinking.", "Four."]


@pytest.mark.parametrize(
    ("first", "texts"),
    [
        (chunks(ONE, {"content": "</think>\n\nFour."}), ["Four.", "Five."]),
        (text_reply("Fo", "ur."), ["Four.", "Fi", "ve."]),
        (chunks({"reasoning_content": "Add."}, {"content": "Fo"}, {"content": "ur."}), ["Fo", "ur.", "Fi", "ve."]),
    ],
)
async def test_a_model_that_thinks_by_its_name_is_held_back_at_once(
    tmp_path: Path, first: Reply, texts: list[str]
) -> None:
    """Until it is known not to leave out the tag."""
    async with world(tmp_path, only={"routing": {"default": "stub/qwen3-4b-thinking-2507"}}) as w:
        w.llm.replies.extend([first, text_reply("Fi", "ve.")])
        for number in (1, 2):
            await w.send(f"Question {number}?")
            await w.turn(number)
        assert [each.text for each in w.watcher.events if isinstance(each, TextStreamed)] == texts


async def test_a_refusal_is_the_answer(tmp_path: Path) -> None:
    assert await answered(tmp_path, case("refusal")) == ("I cannot help with that.",) * 2


# -- what goes back -----------------------------------------------------------------------------------------------------

SIGNED = {"google": {"thought_signature": "c2ln"}}


async def test_what_a_provider_wants_back_goes_back(tmp_path: Path) -> None:
    """In the turn; signatures also in the next turn and after a restart; to no other model, and to no reader."""
    models = {name: {"tools": True} for name in ("model", "other")}
    async with world(tmp_path, models=models) as w:
        w.llm.replies.extend([case("signature_to_send_back_gemini"), text_reply("Noon.")])
        w.llm.replies.extend([case("reasoning_to_send_back_deepseek"), text_reply("One.")])
        for number in (1, 2):
            await w.send("What time is it?")
            assert (await w.turn(number)).status is TurnStatus.DONE
        (called,) = [each for each in w.llm.requests[1].messages if each.get("tool_calls")]
        assert called["tool_calls"][0]["extra_content"] == SIGNED
        first, second = [each for each in w.llm.requests[3].messages if each.get("tool_calls")]
        assert first["tool_calls"][0]["extra_content"] == SIGNED
        assert second["reasoning_content"] == "I need the time."
        assert "I need the time." not in str(stored(w))
        assert all("time." not in each.content for each in stored(w) if each.role is not Role.USER)
        told = await w.app.chats.after(w.chat, 0, 50)
    async with world(tmp_path, models=models) as w:
        assert await w.app.chats.after(w.chat, 0, 50) == told
        await w.send("And now?")
        await w.turn(1)
        first, second = [each for each in w.llm.requests[0].messages if each.get("tool_calls")]
        assert first["tool_calls"][0]["extra_content"] == SIGNED
        assert "reasoning_content" not in second
        await w.command("/model stub/other")
        await w.send("And now?")
        await w.turn(2)
        other = json.dumps(w.llm.requests[1].body)
        assert "thought_signature" not in other
        assert "reasoning_content" not in other
        assert w.llm.requests[1].body["model"] == "other"


async def test_reasoning_details_come_in_pieces_and_go_back_whole(tmp_path: Path) -> None:
    pieces = [
        {"type": "reasoning.text", "text": "I need ", "index": 0},
        {"type": "reasoning.text", "text": "the time.", "index": 0, "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "eA==", "index": 1},
    ]
    deltas = [{"reasoning_details": [piece]} for piece in pieces]
    async with world(tmp_path, tools_for_model=True) as w:
        w.llm.replies.append(chunks(*deltas, {"tool_calls": [call()]}, finish="tool_calls"))
        await w.send("What time is it?")
        await w.turn(1)
        (called,) = [each for each in w.llm.requests[1].messages if each.get("tool_calls")]
        assert called["reasoning_details"] == [
            {"type": "reasoning.text", "text": "I need the time.", "index": 0, "signature": "c2ln"},
            pieces[2],
        ]


async def test_a_history_that_a_provider_refuses_never_breaks_the_chat(tmp_path: Path) -> None:
    """It is asked once more with calls and results as text, and the next time at once."""
    async with world(tmp_path, tools_for_model=True) as w:

        def respond(request: Recorded) -> Reply:
            if any(each.get("tool_calls") for each in request.messages):
                return error_reply(400, "invalid_argument", "Function call is missing something in parts")
            return text_reply("Noon.")

        w.llm.respond = respond
        w.llm.replies.append(calls(call()))
        await w.send("What time is it?")
        assert (await w.turn(1)).status is TurnStatus.DONE
        assert len(w.llm.requests) == 3
        assert any("I use current_time" in str(each["content"]) for each in w.llm.requests[2].messages)
        assert w.llm.requests[2].body["tools"]
        await w.send("Thanks")
        assert (await w.turn(2)).status is TurnStatus.DONE
        assert len(w.llm.requests) == 4
        assert (await w.receipt()).receipt["adapted"] == ["earlier_calls"]


# -- calls that go wrong ------------------------------------------------------------------------------------------------

ODD_CALLS: dict[str, tuple[Reply, list[tuple[str, str]]]] = {
    "another index": (
        case("tool_parts_under_another_index"),
        [("current_time", "{}"), ("current_time", '{"zone": "Asia/Tokyo"}')],
    ),
    "a name in pieces": (
        calls(call(name="current_", arguments=""), call(None, name="time", arguments="{}")),
        [("current_time", "{}")],
    ),
    "the name in each part": (
        calls(call(arguments='{"zo'), call(None, arguments='ne": "UTC"}'), call(None, arguments="")),
        [("current_time", '{"zone": "UTC"}')],
    ),
    "a new id in each part": (
        calls(call(arguments='{"zo'), call("b", name="", arguments='ne": "UTC"}')),
        [("current_time", '{"zone": "UTC"}')],
    ),
    "no ids at all": (
        calls(call(None), call(None, arguments='{"zone": "UTC"}')),
        [("current_time", "{}"), ("current_time", '{"zone": "UTC"}')],
    ),
    "an empty object first": (calls(call(), call(None, name="", arguments='{"zone": "UTC"}')),
                              [("current_time", '{"zone": "UTC"}')]),
    "all of it again": (
        calls(call(arguments='{"zone":'), call(None, name="", arguments='"UTC"}'),
              call(None, name="", arguments='{"zone":"UTC"}')),
        [("current_time", '{"zone": "UTC"}')],
    ),
    "an object": (calls(call(arguments={"zone": "UTC"})), [("current_time", '{"zone": "UTC"}')]),
    "the same id twice": (calls(call(arguments='{"zone": "UTC"}'), call(arguments='{"zone": "Asia/Tokyo"}')),
                          [("current_time", '{"zone": "UTC"}'), ("current_time", '{"zone": "Asia/Tokyo"}')]),
    "no function": (calls({"id": "a", "type": "function", "name": "current_time", "arguments": "{}"}),
                    [("current_time", "{}")]),
    "the place of tools before it": (calls(call(name="functions.current_time")), [("current_time", "{}")]),
    "no name": (calls(call(name="")), [("unnamed", "{}")]),
    "no JSON": (calls(call(arguments="zone: UTC")), [("current_time", "{}")]),
    "a number": (calls(call(arguments=5)), [("current_time", "{}")]),
    "before there were tools": (
        chunks({"function_call": {"name": "current_time"}}, {"function_call": {"arguments": "{}"}}, finish="function_call"),
        [("current_time", "{}")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD_CALLS)
async def test_an_odd_call_is_understood_or_the_model_is_told(tmp_path: Path, odd: str) -> None:
    reply, wanted = ODD_CALLS[odd]
    async with world(tmp_path, tools_for_model=True) as w:
        w.llm.replies.extend([reply, text_reply("Done.")])
        await w.send("What time is it?")
        ended = await w.turn(1)
        assert ended.status is TurnStatus.DONE, ended.text
        (called,) = [each for each in stored(w) if each.type is MessageKind.TOOL_CALL]
        assert [(each["name"], each["arguments"]) for each in called.metadata["calls"]] == wanted
        results = [each for each in stored(w) if each.type is MessageKind.TOOL_RESULT]
        assert len(results) == len(wanted)
        assert all(each.metadata["error"] for each in results) == (odd in ("no name", "no JSON", "a number"))


@pytest.mark.parametrize(
    "bad",
    [
        error_reply(400, "tool_use_failed", "Failed to call a function. See 'failed_generation'."),
        error_reply(500, "api_error", "error parsing tool call: raw='{', err=unexpected end of JSON input"),
        chunks(finish="function_call_filter: MALFORMED_FUNCTION_CALL"),
    ],
)
async def test_a_call_that_the_provider_cannot_read_is_told_to_the_model(tmp_path: Path, bad: Reply) -> None:
    async with world(tmp_path, tools_for_model=True) as w:
        w.llm.replies.extend([bad, text_reply("Done.")])
        await w.send("What time is it?")
        assert (await w.turn(1)).status is TurnStatus.DONE
        assert "the call could not be read" in w.llm.requests[1].last_user
        assert stored(w)[-1].content == "Done."


# -- ends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reason", "note"),
    [
        (case("length"), "length", NOTE),
        (chunks({"content": "Half"}, finish="MAX_TOKENS"), "length", NOTE),
        (chunks({"content": "Half"}, finish="content_filter"), "content_filter",
         "(The provider's filter stopped the answer here.)"),
        (chunks({"content": "Половина"}, finish="SAFETY"), "content_filter",
         "(Здесь ответ остановил фильтр провайдера.)"),
        (chunks(finish="content_filter"), "content_filter", "(The provider's filter stopped the answer here.)"),
        (chunks({"content": "Half"}, finish="insufficient_system_resource"), "insufficient_system_resource",
         "(The provider broke the answer off here.)"),
    ],
)  # fmt: skip
async def test_a_cut_answer_says_so(tmp_path: Path, reply: Reply, reason: str, note: str) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(reply)
        await w.send("Tell me all")
        await w.turn(1)
        answer = stored(w)[-1]
        assert answer.content.endswith(note)
        assert answer.content.startswith(("The first half of", "Half", "Полов", note))
        assert answer.metadata["cut"] == reason
        assert (await w.receipt()).receipt["finish_reason"] == reason


@pytest.mark.parametrize("finish", ["stop", "eos", "end_turn", "STOP", "whatever"])
async def test_a_whole_answer_has_no_note(tmp_path: Path, finish: str) -> None:
    assert (await answered(tmp_path, chunks({"content": "All."}, finish=finish)))[0] == "All."


SAID = "Model is overloaded"
ERRORS: dict[str, tuple[Reply, str]] = {
    "a list": (Reply(status=400, body=(CASES / "error_list_400.json").read_bytes(), content_type="application/json"),
               "The model is not there."),
    "an event": (case("error_event"), SAID),
    **{
        f"{number}": (Reply(status=status, body=body, content_type=kind), SAID)
        for number, (status, kind, body) in enumerate(
            [
                (422, "application/json", json.dumps({"detail": [{"loc": ["body", "x"], "msg": SAID}]}).encode()),
                (400, "application/json", json.dumps({"message": SAID}).encode()),
                (400, "application/json", json.dumps({"error": {"message": json.dumps({"error": {"message": SAID}})}}).encode()),
                (400, "application/json", json.dumps({"errors": [{"message": SAID}]}).encode()),
                (400, "application/json", json.dumps({"Message": SAID}).encode()),
                (400, "application/octet-stream", SAID.encode()),
                (400, "text/html", f"<html><title>{SAID}</title></html>".encode()),
                (400, "text/event-stream", f"event: error\ndata: {json.dumps({'error': SAID})}\n\n".encode()),
                (200, "application/json", json.dumps([{"error": {"code": 503, "message": SAID}}]).encode()),
                (200, "application/json", json.dumps({"choices": None, "base_resp": {"status_code": 1, "status_msg": SAID}}).encode()),
                (200, "application/json", json.dumps({"object": "error", "message": SAID, "code": 400}).encode()),
            ]
        )
    },
    "in the stream": (raw(event({"error": {"code": 400, "message": SAID}})), SAID),
    "as llama.cpp does it": (raw(b'error: {"code":500,"message":"' + SAID.encode() + b'"}\n\n'), SAID),
    "in a choice": (raw(event({"choices": [{"error": {"message": SAID}, "finish_reason": "error"}]})), SAID),
    "as a list in the stream": (raw(event([{"error": {"message": SAID}}])), SAID),  # type: ignore[arg-type]
    "outside of events": (raw(event({"choices": [{"delta": {"content": "x"}}]}), b'{"error": "' + SAID.encode() + b'"}\n'),
                          SAID),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
async def test_the_providers_own_words_are_told(tmp_path: Path, kind: str) -> None:
    reply, said = ERRORS[kind]
    async with world(tmp_path) as w:
        w.llm.replies.append(reply)
        await w.send("Hello")
        ended = await w.turn(1)
        assert ended.status is TurnStatus.FAILED
        assert said in str(ended.text)


# -- what models refuse -------------------------------------------------------------------------------------------------

REFUSALS = [
    ("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
     " instead.", {"max_completion_tokens"}),
    ("stream_options", "body.stream_options: Extra inputs are not permitted", set()),
    ("temperature", "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value"
     " is supported.", set()),
    ("tools", "registry.ollama.ai/library/gemma3:4b does not support tools", set()),
    ("tools", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', set()),
    ("tools", "`tool calling` is not supported with this model", set()),
    ("tools", "Function calling is not enabled for this model", set()),
    ("tools", "Unrecognized request argument supplied: tools", set()),
]  # fmt: skip


@pytest.mark.parametrize(("member", "said", "instead"), REFUSALS)
async def test_what_a_model_refuses_is_left_out_and_remembered(
    tmp_path: Path, member: str, said: str, instead: set[str]
) -> None:
    async with world(tmp_path, tools_for_model=True, llm={"temperature": 0.7}) as w:
        w.llm.respond = lambda request: (
            error_reply(400, "invalid_request_error", said) if member in request.body else text_reply("Yes.")
        )
        for number in (1, 2):
            await w.send("Hello?")
            ended = await w.turn(number)
            assert ended.status is TurnStatus.DONE, ended.text
            assert len(w.llm.requests) == number + 1
            assert instead <= w.llm.requests[-1].body.keys()
        assert (await w.receipt()).receipt["adapted"] == [member]
        (report,) = w.app.llm.router.report()
        assert report["adapted"] == {"model": [member]}
        assert report["error"] is None


def test_openrouter_says_404_where_no_model_has_tools() -> None:
    request = Request(
        model="m",
        messages=(ChatMessage(role="user", content="x"),),
        tools=(ToolDescription(name="t", description="", parameters={}),),
        max_tokens=9000,
    )
    fields = frozenset({"max_tokens", "tools", "messages", "temperature"})
    said = "No endpoints found that support tool use. To learn more about provider routing, visit the docs."
    found = learned(Habits(), request, status=404, text=said, fields=fields)
    assert found == Habits(tools=False)
    assert learned(Habits(), request, status=404, text="The model `m` does not exist", fields=fields) is None
    assert learned(Habits(), request, status=401, text=said, fields=fields) is None
    for text, most in (
        ("max_tokens is too large: 9000. This model supports at most 4096 completion tokens", None),
        ("max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens", 8192),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    ):
        found = learned(Habits(), request, status=400, text=text, fields=fields)
        assert found is not None
        assert found.most_tokens == most
    for of_history in (
        "Unexpected role 'user' after role 'tool'",
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
        "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks",
        "Unknown name \"strict\" at 'tools[0].function': Cannot find field.",
    ):
        found = learned(Habits(), request, status=400, text=of_history, fields=fields)
        assert found is None or found.tools
    of_one = "Invalid schema for function 't': unsupported keyword in tools[0].function.parameters"
    assert learned(Habits(), request, status=400, text=of_one, fields=fields) is None


def test_only_calls_of_other_models_become_text_where_that_is_enough() -> None:
    """A chat that comes from another model to one that signs its calls: its own stay calls."""
    own = Echo(model="p/m", calls=({"extra_content": SIGNED},))
    messages = (
        ChatMessage(role="user", content="x"),
        ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="a", name="f", arguments="{}"),)),
        ChatMessage(role="tool", content="1", tool_call_id="a"),
        ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="b", name="f", arguments="{}"),), echo=own),
        ChatMessage(role="tool", content="2", tool_call_id="b"),
    )
    request = Request(model="m", messages=messages)
    said = "Function call is missing a thought_signature in functionCall parts."
    found = learned(Habits(), request, status=400, text=said, fields=frozenset())
    assert found == Habits(rounds=1)
    assert [call.id for message in found.fitted(request).messages for call in message.tool_calls] == ["b"]
    assert learned(found, request, status=400, text=said, fields=frozenset()) == Habits(rounds=2)


# -- pictures -----------------------------------------------------------------------------------------------------------

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
PICTURES = [
    {"images": [{"type": "image_url", "image_url": {"url": URL}}], "content": "Here."},
    {"images": [{"image_url": URL}], "content": "Here."},
    {"content": [{"type": "text", "text": "Here."}, {"type": "image_url", "image_url": {"url": URL}}]},
    {"content": [{"type": "output_image", "b64_json": URL.partition(",")[2]}, {"type": "text", "text": "Here."}]},
]


@pytest.mark.parametrize("delta", [None, *PICTURES])
async def test_pictures_of_an_answer_are_its_attachments(tmp_path: Path, delta: dict[str, Any] | None) -> None:
    """They can be fetched, and a model that sees is given them beside the next question."""
    async with world(tmp_path, models={"model": {"images": True}}) as w:
        w.llm.replies.append(case("images_in_delta") if delta is None else chunks(delta))
        await w.send("Draw a cat")
        assert (await w.turn(1)).status is TurnStatus.DONE
        answer = stored(w)[-1]
        assert answer.content == ("Here is the cat." if delta is None else "Here.")
        (file,) = answer.metadata["files"]
        assert (file["name"], file["type"]) == ("picture-1.png", "image/png")
        kept = await w.app.core.attachments.read(LOCAL_USER, file["sha256"])
        assert kept == (PIXEL[:8] if delta is None else PIXEL)
        await w.send("Make it blue")
        await w.turn(2)
        *_, said, asked = w.llm.requests[1].messages
        assert said["role"] == "assistant"
        assert "[picture picture-1.png]" in said["content"]
        assert [part["type"] for part in asked["content"]] == ["text", "image_url"]


async def test_pictures_of_tools_are_given_to_models_that_see(tmp_path: Path) -> None:
    """26.D4: behind the results, as the user's; to others a line of text. One that refuses them is asked without."""
    image = Image(data=PIXEL, media_type="image/png")

    @tool(permission=Permission.READ)
    async def look(_context: ToolContext) -> PicturedText:
        """Look."""
        return PicturedText(text="[picture 1, image/png]", pictures=(image,))

    models = {"model": {"tools": True, "images": True}, "blind": {"tools": True}}
    async with world(tmp_path, models=models) as w:
        w.app.tools.executor.toolbox.register(look)
        w.llm.replies.extend([calls(call("a", "look"), call("b", "current_time")), text_reply("A pixel.")])
        await w.send("What is there?")
        await w.turn(1)
        *_, first, second, seen = w.llm.requests[1].messages
        assert (first["role"], second["role"], seen["role"]) == ("tool", "tool", "user")
        assert "[This model cannot see pictures.]" not in first["content"]
        assert seen["content"][1]["image_url"]["url"] == URL
        refusal = error_reply(400, "bad", "Invalid image")
        w.llm.replies.extend([calls(call("a", "look")), refusal, text_reply("Nothing.")])
        await w.send("And now?")
        assert (await w.turn(2)).status is TurnStatus.DONE
        assert "image_url" not in json.dumps(w.llm.requests[-1].body)
        await w.command("/model stub/blind")
        w.llm.replies.extend([calls(call("a", "look")), text_reply("Nothing.")])
        await w.send("And now?")
        await w.turn(3)
        assert w.llm.requests[-1].messages[-1]["content"].endswith("[This model cannot see pictures.]")


async def test_an_answer_that_is_only_a_picture(tmp_path: Path) -> None:
    """Also a large one; one that is none, and one that is elsewhere, are told."""
    async with world(tmp_path) as w:
        large = PIXEL + bytes(2_500_000)
        url = f"data:image/png;base64,{base64.b64encode(large).decode()}"
        w.llm.replies.append(chunks({"images": [{"image_url": {"url": url}}]}))
        broken = "data:image/png;base64,AAAA"
        away = "https://pictures.example/cat.png"
        w.llm.replies.append(chunks({"images": [{"image_url": {"url": each}} for each in (broken, away)]}))
        await w.send("Draw a cat")
        assert (await w.turn(1)).status is TurnStatus.DONE
        assert [file["bytes"] for file in stored(w)[-1].metadata["files"]] == [len(large)]
        await w.send("Draw a dog")
        assert (await w.turn(2)).status is TurnStatus.DONE
        assert f"[image]({away})" in stored(w)[-1].content
        assert "(A picture was not kept: its format cannot be shown.)" in stored(w)[-1].content
