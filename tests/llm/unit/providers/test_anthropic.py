"""The messages API: bodies out, events in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderNetworkError, ProviderRefused, RateLimited
from klaw.llm.providers.anthropic import NO_BEGINNING, AnthropicAssembly, AnthropicDialect
from klaw.llm.providers.dialect import MAX_TOOL_CALLS
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    Image,
    JsonSchema,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCall,
    ToolDescription,
    Usage,
)

CACHED = {"cache_control": {"type": "ephemeral"}}
CALL = ToolCall(id="1", name="search", arguments='{"q": "кот"}')


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def body(*messages: ChatMessage, extra: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    request = Request(model="claude", messages=messages, **changes)
    made: dict[str, Any] = json.loads(AnthropicDialect().body(request, extra or {}))
    return made


def user(content: str = "hi", **changes: Any) -> ChatMessage:
    return ChatMessage(role="user", content=content, **changes)


def test_a_request_has_every_part() -> None:
    tools = [ToolDescription(name=name, description="d", parameters={"type": "object"}) for name in ("search", "t")]
    made = body(
        ChatMessage(role="system", content="Ты Klaw.\n\nFrom earlier: x", stable_chars=8),
        user("Где кот?"),
        ChatMessage(role="assistant", content="Ищу.", tool_calls=(CALL,)),
        ChatMessage(role="tool", content="на окне", tool_call_id="1"),
        tools=tuple(tools),
        temperature=1.5,
        max_tokens=5,
        stable_messages=4,
    )
    assert made == {
        "model": "claude",
        "max_tokens": 5,
        "stream": True,
        "temperature": 1.0,
        "system": [text("Ты Klaw.") | CACHED, text("\n\nFrom earlier: x")],
        "messages": [
            {"role": "user", "content": [text("Где кот?")]},
            {
                "role": "assistant",
                "content": [text("Ищу."), {"type": "tool_use", "id": "1", "name": "search", "input": {"q": "кот"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": [text("на окне")]} | CACHED],
            },
        ],
        "tools": [
            {"name": "search", "description": "d", "input_schema": {"type": "object"}},
            {"name": "t", "description": "d", "input_schema": {"type": "object"}} | CACHED,
        ],
    }


def test_at_most_four_marks_are_set() -> None:
    """More is an error of the API."""
    tool = ToolDescription(name="t", description="d", parameters={"type": "object"})
    system = ChatMessage(role="system", content="a b", stable_chars=1)
    made = body(system, *[user(str(n)) for n in range(9)], tools=(tool,) * 9, stable_messages=5)
    assert json.dumps(made).count("cache_control") == 3


def test_a_limit_is_always_sent_and_a_temperature_only_on_demand() -> None:
    made = body(user())
    assert made["max_tokens"] == 4096
    assert not {"temperature", "system", "tools", "tool_choice", "output_config"} & set(made)


def test_calls_in_the_history_bring_their_tools_back_but_may_not_be_made() -> None:
    """The API refuses or answers nothing otherwise."""
    made = body(
        user(),
        ChatMessage(role="assistant", content="", tool_calls=(CALL,)),
        ChatMessage(role="tool", content="", tool_call_id="1"),
    )
    assert made["tools"] == [{"name": "search", "input_schema": {"type": "object"}}]
    assert made["tool_choice"] == {"type": "none"}
    assert made["messages"][-1]["content"] == [{"type": "tool_result", "tool_use_id": "1", "content": []}]


def test_neighbours_of_one_role_are_one_message_and_a_user_begins() -> None:
    made = body(ChatMessage(role="assistant", content="Да."), user("a"), user("  "), user("b"))
    assert made["messages"] == [
        {"role": "user", "content": [text(NO_BEGINNING)]},
        {"role": "assistant", "content": [text("Да.")]},
        {"role": "user", "content": [text("a"), text("b")]},
    ]


def test_images_stand_before_the_text() -> None:
    made = body(user("Что это?", images=(Image(data=b"\x89PNG", media_type="image/png"),)))
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert made["messages"][0]["content"] == [{"type": "image", "source": source}, text("Что это?")]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"x"'])
def test_broken_arguments_of_an_earlier_call_become_an_object(arguments: str) -> None:
    call = ToolCall(id="1", name="t", arguments=arguments)
    made = body(user(), ChatMessage(role="assistant", content="", tool_calls=(call,)))
    assert made["messages"][1]["content"][0]["input"] == {"arguments": arguments}


def test_extra_members_replace_and_remove() -> None:
    made = body(user(), temperature=0.5, extra={"temperature": None, "thinking": {"type": "disabled"}})
    assert "temperature" not in made
    assert made["thinking"] == {"type": "disabled"}


def test_the_schema_of_an_answer_goes_out_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = body(user(), json_schema=JsonSchema(name="x", schema=schema))
    assert made["output_config"] == {"format": {"type": "json_schema", "schema": schema}}


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("https://llm.example.com/anthropic", "https://llm.example.com/anthropic/v1/messages"),
        ("https://llm.example.com/v1/", "https://llm.example.com/v1/messages"),
    ],
)
def test_the_address_may_come_with_or_without_its_version(base: str | None, url: str) -> None:
    assert AnthropicDialect().url(base) == url


def assemble(*events: object) -> tuple[list[Delta], Completion]:
    assembly = AnthropicAssembly(lambda: "made-id")
    deltas = [delta for one in events for delta in assembly.feed(one)]
    deltas += assembly.finish()
    return deltas, assembly.completion()


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}


def test_usage_is_gathered_from_all_events() -> None:
    begin = {
        "type": "message_start",
        "message": {
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 1,
                "cache_creation": {"ephemeral_5m_input_tokens": 20},
                "service_tier": "standard",
            }
        },
    }
    _, completion = assemble(begin, start(0, type="text", text="да"), STOP, {"type": "message_stop"})
    assert completion == Completion(
        text="да", usage=Usage(prompt_tokens=130, completion_tokens=4, cached_tokens=100, cache_write_tokens=20)
    )


def test_blocks_of_unknown_kinds_are_skipped() -> None:
    """New events and blocks may come at any time, also ones with an input of their own."""
    deltas, completion = assemble(
        {"type": "ping"},
        {"type": "new_event", "x": 1},
        start(0, type="redacted_thinking", data="x"),
        start(1, type="server_tool_use", id="s", name="web", input={}),
        piece(1, type="input_json_delta", partial_json='{"q"'),
        start(2, type="thinking", thinking="", signature=""),
        piece(2, type="thinking_delta", thinking="hm"),
        piece(2, type="signature_delta", signature="abc"),
        start(3, type="text", text=""),
        piece(3, type="text_delta", text="да"),
        piece(3, type="citations_delta", citation={}),
        STOP,
    )
    assert deltas == [ReasoningDelta("hm"), TextDelta("да")]
    assert (completion.text, completion.tool_calls) == ("да", ())


def test_a_whole_answer() -> None:
    whole = {
        "type": "message",
        "content": [text("да"), {"type": "tool_use", "id": "1", "name": "t", "input": {"q": "я"}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    assembly = AnthropicAssembly(str)
    assert list(assembly.feed_whole(json.dumps(whole).encode())) == [TextDelta("да")]
    assert assembly.completion() == Completion(
        text="да",
        tool_calls=(ToolCall(id="1", name="t", arguments='{"q": "я"}'),),
        finish_reason="tool_calls",
        usage=Usage(prompt_tokens=3, completion_tokens=2),
    )


@pytest.mark.parametrize(
    ("reason", "known"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "content_filter"), ("pause_turn", "pause_turn"),
     ("A Sentence", "other")],
)  # fmt: skip
def test_reasons_for_the_end(reason: str, known: str) -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    assert assemble(start(0, type="text", text="x"), end)[1].finish_reason == known


def test_an_answer_without_any_end_is_cut_off() -> None:
    with pytest.raises(ProviderNetworkError, match="cut off"):
        assemble(start(0, type="text", text="half"))


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("overloaded_error", 529, True),
        ("api_error", 500, True),
        ("invalid_request_error", 400, False),
        ("?", 500, True),
    ],
)
def test_errors_in_the_stream(kind: str, status: int, retryable: bool) -> None:
    with pytest.raises(ProviderRefused) as caught:
        assemble({"type": "error", "error": {"type": kind, "message": "SECRET"}})
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(RateLimited):
        assemble({"type": "error", "error": {"type": "rate_limit_error"}})


def test_endless_tool_calls_are_capped() -> None:
    _, completion = assemble(
        *[start(n, type="tool_use", id=str(n), name="t") for n in range(MAX_TOOL_CALLS + 1)],
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert len(completion.tool_calls) == MAX_TOOL_CALLS


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        "x",
        {"type": "message_start", "message": "x"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": None, "content_block": {}},
        {"type": "content_block_delta", "index": 0, "delta": []},
        start(0, type="text", text=5),
        piece(0, type="text_delta", text={}),
        piece(0, type="input_json_delta", partial_json=5),
        {"type": "message_delta", "delta": "x"},
    ],
)
def test_broken_events_are_malformed(broken: object) -> None:
    with pytest.raises(ProviderMalformed):
        list(AnthropicAssembly(str).feed(broken))


WORDS = ["type", "index", "content_block", "delta", "message", "usage", "text", "thinking", "partial_json", "id",
         "name", "input", "stop_reason", "error", "content", "input_tokens", "output_tokens"]  # fmt: skip
KINDS = ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error",
         "text", "tool_use", "thinking", "text_delta", "input_json_delta", "thinking_delta"]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(KINDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@given(st.lists(json_values, max_size=4))
def test_whatever_comes_is_an_answer_or_a_provider_error(events: list[object]) -> None:
    """No JSON value of any shape raises anything but a ProviderError."""
    try:
        deltas, completion = assemble(*events)
    except ProviderError:
        return
    assert completion.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
