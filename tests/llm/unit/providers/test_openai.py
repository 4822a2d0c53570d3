"""The chat completions format: bodies out, chunks in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderNetworkError, ProviderRefused
from klaw.llm.providers.dialect import MAX_REPLY_BYTES, MAX_TOOL_CALLS
from klaw.llm.providers.openai import OpenAiAssembly, OpenAiDialect
from klaw.llm.providers.refusals import error_code, refused
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCall,
    ToolDescription,
    Usage,
)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def assemble(*chunks: object) -> tuple[list[Delta], Completion]:
    assembly = OpenAiAssembly(lambda: "made-id")
    deltas = [delta for one in chunks for delta in assembly.feed(one)]
    deltas += assembly.finish()
    return deltas, assembly.completion()


def test_a_request_has_every_part() -> None:
    request = Request(
        model="m/x",
        messages=(
            ChatMessage(role="system", content="Ты помощник"),
            ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="1", name="t", arguments="{}"),)),
            ChatMessage(role="tool", content="result", tool_call_id="1"),
        ),
        tools=(ToolDescription(name="t", description="d", parameters={"type": "object"}),),
        temperature=0.0,
        max_tokens=5,
    )
    body = json.loads(OpenAiDialect().body(request, {"extra": 1, "stream_options": None}))
    assert body == {
        "model": "m/x",
        "stream": True,
        "temperature": 0.0,
        "max_tokens": 5,
        "extra": 1,
        "messages": [
            {"role": "system", "content": "Ты помощник"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "result", "tool_call_id": "1"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}
        ],
    }


def test_lone_surrogates_in_a_request_do_not_break_it() -> None:
    body = OpenAiDialect().body(Request(model="m", messages=(ChatMessage(role="user", content="a\ud800b"),)), {})
    assert json.loads(body)["messages"][0]["content"] == "a?b"


def test_text_and_usage_are_put_together() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    deltas, completion = assemble(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "При"}),
        chunk({"content": "вет"}),
        chunk(finish="stop"),
        {"choices": [], "usage": usage},
    )
    assert deltas == [TextDelta("При"), TextDelta("вет")]
    assert completion == Completion(
        text="Привет", finish_reason="stop", usage=Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)
    )


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_no_part_of_the_text(key: str) -> None:
    deltas, completion = assemble(chunk({key: "hm"}), chunk({"content": "ok"}, "stop"))
    assert deltas == [ReasoningDelta("hm"), TextDelta("ok")]
    assert completion.text == "ok"


def test_tool_calls_are_put_together_by_index() -> None:
    """Interleaved parts, repeated names, a later id, no id at all."""
    _, completion = assemble(
        chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "two", "arguments": '{"q":'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "one"}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"name": "two", "arguments": '"я"}'}}]}),
        chunk(finish="tool_calls"),
    )
    assert completion.tool_calls == (
        ToolCall(id="made-id", name="one", arguments="{}"),
        ToolCall(id="b", name="two", arguments='{"q":"я"}'),
    )


def test_tool_calls_without_an_index_are_told_apart_by_id() -> None:
    _, completion = assemble(
        chunk({"tool_calls": [{"id": "a", "function": {"name": "one", "arguments": {"x": 1}}}]}),
        chunk({"tool_calls": [{"id": "b", "function": {"name": "two", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"function": {"arguments": "}"}}]}, "tool_calls"),
    )
    assert [(call.id, call.arguments) for call in completion.tool_calls] == [("a", '{"x": 1}'), ("b", "{}")]


def test_surrogates_of_a_provider_are_replaced() -> None:
    _, completion = assemble(chunk({"content": "\ud83d\ude00 \ud800"}, "stop"))
    assert completion.text == "😀 �"


def test_an_answer_without_any_end_is_cut_off() -> None:
    with pytest.raises(ProviderNetworkError, match="cut off"):
        assemble(chunk({"content": "half"}))


def test_done_without_finish_reason_is_an_end() -> None:
    assembly = OpenAiAssembly(str)
    list(assembly.feed_event(json.dumps(chunk({"content": "x"}))))
    list(assembly.feed_event(" [DONE] "))
    list(assembly.finish())
    assert assembly.completion().finish_reason == "stop"


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_answer_is_an_error(text: str) -> None:
    with pytest.raises(ProviderMalformed, match="empty answer"):
        assemble(chunk({"content": text}, "stop"))


def test_only_thinking_is_an_error_that_says_so() -> None:
    with pytest.raises(ProviderMalformed, match=r"used up all output tokens for thinking"):
        assemble(chunk({"content": "<think>hm"}, "length"))


def test_a_call_without_a_name_is_handed_on() -> None:
    """26.C1: a call that goes wrong never ends the turn: the model is told."""
    _, completion = assemble(chunk({"tool_calls": [{"index": 0, "id": "a"}]}, "tool_calls"))
    assert completion.tool_calls == (ToolCall(id="a", name="", arguments="{}"),)


@pytest.mark.parametrize("part", ["content", "reasoning", "arguments"])
def test_the_whole_reply_is_capped(part: str) -> None:
    """Text, thinking and arguments count against one cap."""
    big = "я" * (MAX_REPLY_BYTES // 8)
    call = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": big}}]}
    delta = call if part == "arguments" else {part: big}
    assembly = OpenAiAssembly(str)
    with pytest.raises(ProviderMalformed, match="longer than"):  # noqa: PT012 - the fifth quarter is too much
        for _ in range(5):
            list(assembly.feed(chunk(delta)))


def test_endless_tool_calls_are_capped() -> None:
    calls = [{"index": n, "function": {"name": "f"}} for n in range(MAX_TOOL_CALLS + 1)]
    _, completion = assemble(chunk({"tool_calls": calls}, "tool_calls"))
    assert len(completion.tool_calls) == MAX_TOOL_CALLS


@pytest.mark.parametrize(
    "broken",
    ["text", [], None, {"choices": "x"}, {"choices": ["x"]}, {"choices": [{"delta": "x"}]}, chunk({"content": 5})],
)
def test_broken_chunks_are_malformed(broken: object) -> None:
    with pytest.raises(ProviderMalformed):
        list(OpenAiAssembly(str).feed(broken))


@pytest.mark.parametrize("data", ["{", "nonsense SECRET", "[" * 100_000, "1" * 10_000])
def test_no_json_is_malformed_and_not_quoted(data: str) -> None:
    with pytest.raises(ProviderMalformed) as caught:
        list(OpenAiAssembly(str).feed_event(data))
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_error_in_the_stream_keeps_its_code_only() -> None:
    with pytest.raises(ProviderRefused) as caught:
        list(OpenAiAssembly(str).feed({"error": {"code": 429, "type": "rate_limited", "message": "SECRET prompt"}}))
    assert (caught.value.status, caught.value.retryable) == (429, True)
    assert "rate_limited" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_an_error_that_is_a_text_counts_as_a_server_error() -> None:
    with pytest.raises(ProviderRefused) as caught:
        list(OpenAiAssembly(str).feed({"error": "SECRET"}))
    assert caught.value.status == 500
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, None, False),
        (401, "invalid_api_key", False),
        (404, None, False),
        (408, None, True),
        (429, None, True),
        (429, "insufficient_quota", False),
        (500, None, True),
        (503, "overloaded", True),
    ],
)
def test_which_statuses_may_pass(status: int, code: str | None, retryable: bool) -> None:
    assert refused(status, {"error": {"code": code}}).retryable is retryable


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"error": {"code": "model_not_found"}}, "model_not_found"),
        ({"error": {"code": None, "type": "server_error"}}, "server_error"),
        ({"error": {"code": "A sentence with the prompt"}}, None),
        ({"error": {"code": "x" * 65}}, None),
        ({"error": {"code": "a\nb"}}, None),
        ({"error": "text"}, None),
        ([], None),
        (None, None),
    ],
)
def test_only_short_codes_are_kept(payload: object, code: str | None) -> None:
    assert error_code(payload) == code


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "message", "content", "tool_calls", "index", "id", "function", "name", "arguments",
                 "usage", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "error", "finish_reason"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@given(st.lists(json_values, max_size=4))
def test_whatever_comes_is_an_answer_or_a_provider_error(chunks: list[object]) -> None:
    """No JSON value of any shape raises anything but a ProviderError."""
    try:
        deltas, completion = assemble(*chunks)
    except ProviderError:
        return
    assert completion.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
