"""How services are asked to think, and what is learned when one refuses to."""

import json

import pytest

from klaw.llm.providers.adapt import Habits, echo_of, fitted, learned, stored_echo
from klaw.llm.providers.anthropic import THINKING, AnthropicDialect
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.providers.thinking_members import LEAST_BUDGET, is_known_thinker, most_tokens
from klaw.llm.types import ChatMessage, Echo, Model, Request, Thinking, ToolCall, ToolDescription

ASK = ChatMessage(role="user", content="Сколько будет 2+2?")
CALLED = ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="a", name="t", arguments="{}"),))
RESULT = ChatMessage(role="tool", content="4", tool_call_id="a")
TOOL = ToolDescription(name="t", description="", parameters={"type": "object"})


def with_echo(**message):
    return ChatMessage(
        role="assistant", content="", tool_calls=CALLED.tool_calls, echo=Echo(model="p/m", message=message)
    )


def request(level, *messages, model="m", tokens=8192, **more):
    thinking = Thinking(level=level, tokens=tokens)
    return Request(model=model, messages=messages or (ASK,), max_tokens=1024 + tokens, thinking=thinking, **more)


def members(asked, url):
    """What a body has beside that of a model that is not known to think."""
    dialect = OpenAiDialect(url)
    body = json.loads(dialect.body(asked, {}))
    plain = json.loads(dialect.body(Request(model="m", messages=asked.messages), {}))
    return {key: value for key, value in body.items() if key not in {*plain, "max_tokens", "tools"}}


@pytest.mark.parametrize(
    ("url", "level", "wanted"),
    [
        ("https://api.openai.com/v1", "high", {"reasoning_effort": "high"}),
        ("https://api.openai.com/v1", "off", {"reasoning_effort": "none"}),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "low", {"reasoning_effort": "low"}),
        ("https://openrouter.ai/api/v1", "medium", {"reasoning": {"effort": "medium"}}),
        ("https://openrouter.ai/api/v1", "off", {"reasoning": {"enabled": False}}),
        ("https://api.deepseek.com/v1", "low", {"thinking": {"type": "enabled"}}),
        ("https://api.z.ai/api/paas/v4", "off", {"thinking": {"type": "disabled"}}),
        (
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            "medium",
            {"enable_thinking": True, "thinking_budget": 8192},
        ),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "off", {"enable_thinking": False}),
        (
            "http://127.0.0.1:8080/v1",
            "high",
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "high"}, "reasoning_effort": "high"},
        ),
        (
            "http://127.0.0.1:11434/v1",
            "off",
            {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none"},
        ),
        ("https://notdeepseek.com/v1", None, {}),
        ("https://api.deepseek.com/v1", None, {}),
    ],
)
def test_each_service_is_asked_in_its_own_words(url, level, wanted):
    assert members(request(level), url) == wanted


def test_a_model_that_is_not_known_to_think_is_asked_nothing():
    for url in ("https://api.openai.com/v1", "https://openrouter.ai/api/v1", "http://127.0.0.1:8080/v1"):
        body = json.loads(OpenAiDialect(url).body(Request(model="m", messages=(ASK,)), {}))
        assert set(body) == {"model", "messages", "stream", "stream_options"}
    body = json.loads(AnthropicDialect().body(Request(model="m", messages=(ASK,)), {}))
    assert "thinking" not in body


@pytest.mark.parametrize(
    ("url", "model"),
    [("https://api.deepseek.com/v1", "deepseek-chat"), ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5")],
)
def test_thinking_is_off_where_what_was_thought_before_a_call_is_lost(url, model):
    """And wanted back: in the turn that goes on, not in those before it."""
    off = members(request("off", model=model), url)
    lost = request("high", ASK, CALLED, RESULT, model=model)
    assert members(lost, url) == off
    assert members(request(None, ASK, CALLED, RESULT, model=model), url) == off
    there = request("high", ASK, with_echo(reasoning_content="Add."), RESULT, model=model)
    assert members(there, url) != off
    earlier = request("high", ASK, CALLED, RESULT, ChatMessage(role="assistant", content="4"), ASK, model=model)
    assert members(earlier, url) != off


# -- Anthropic ---------------------------------------------------------------------------------------------------------

SIGNED = {"type": "thinking", "thinking": "Add.", "signature": "s"}


def anthropic(asked, **extra):
    return json.loads(AnthropicDialect().body(asked, extra))


def test_a_budget_of_anthropic_leaves_room_for_the_answer():
    body = anthropic(request("medium", temperature=0.5))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 6912}
    assert body["max_tokens"] == 9216
    assert "temperature" not in body
    assert "output_config" not in body


@pytest.mark.parametrize("most", [1, 100, 1366, 1367, 5000])
def test_a_budget_is_never_too_small_and_never_all(most):
    asked = Request(model="m", messages=(ASK,), max_tokens=most, thinking=Thinking(level="high", tokens=100_000))
    thinking = anthropic(asked)["thinking"]
    if most < 1366:
        assert thinking == {"type": "disabled"}
    else:
        assert LEAST_BUDGET <= thinking["budget_tokens"] < most


@pytest.mark.parametrize(
    "model", ["claude-opus-4-6", "claude-sonnet-5", "claude-haiku-5-1", "claude-opus-4-7-20260416"]
)
def test_newer_models_of_anthropic_find_out_themselves(model):
    body = anthropic(request("low", model=model, temperature=0.5))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "low"}
    assert "temperature" not in body


@pytest.mark.parametrize("model", ["claude-sonnet-4-20250514", "claude-opus-4-5", "claude-3-7-sonnet-latest", "other"])
def test_older_ones_get_a_budget(model):
    assert anthropic(request("low", model=model))["thinking"]["type"] == "enabled"


def test_off_is_said_and_the_temperature_stays():
    body = anthropic(request("off", temperature=0.5))
    assert (body["thinking"], body["temperature"]) == ({"type": "disabled"}, 0.5)
    assert "thinking" not in anthropic(request(None))


def test_anthropic_thinks_only_in_a_turn_that_began_so():
    signed = with_echo(**{THINKING: [SIGNED]})
    assert anthropic(request("high", ASK, CALLED, RESULT))["thinking"] == {"type": "disabled"}
    assert anthropic(request("high", ASK, signed, RESULT))["thinking"]["type"] == "enabled"
    assert anthropic(request("high", ASK, signed, RESULT, CALLED, RESULT))["thinking"]["type"] == "enabled"
    later = request("high", ASK, CALLED, RESULT, ChatMessage(role="assistant", content="4"), ASK)
    assert anthropic(later)["thinking"]["type"] == "enabled"


def test_thinking_between_calls_keeps_its_place():
    other = {"type": "redacted_thinking", "data": "x"}
    said = with_echo(**{THINKING: [SIGNED, "I look.", other, None]})
    content = anthropic(request("high", ASK, said, RESULT))["messages"][1]["content"]
    assert content[:3] == [SIGNED, {"type": "text", "text": "I look."}, other]
    assert content[3]["type"] == "tool_use"
    assert len(content) == 4


# -- limits ------------------------------------------------------------------------------------------------------------


def test_thinking_has_room_of_its_own():
    most = {"context_tokens": 200_000, "output_tokens": None, "answer_tokens": 1024}
    assert [most_tokens(level, **most) for level in ("off", "low", "medium", "high", None)] == [
        0,
        2048,
        8192,
        24576,
        8192,
    ]
    assert most_tokens("high", context_tokens=8192, output_tokens=None, answer_tokens=1024) == 2048
    assert most_tokens("high", context_tokens=200_000, output_tokens=4096, answer_tokens=1024) == 3072
    assert most_tokens("high", context_tokens=200_000, output_tokens=512, answer_tokens=1024) == 0


def test_a_request_is_fitted_to_what_its_model_may_think():
    model = Model(
        provider=None, name="p/m", model="m", context_tokens=9000, max_output_tokens=500, tools=True,
        thinking=Thinking(level="low", tokens=2048),
    )  # fmt: skip
    asked = Request(model="m", messages=(ASK,), max_tokens=500)
    assert fitted(asked, model, stands_in=False).max_tokens == 2548
    limited = Request(model="m", messages=(ASK,), max_tokens=500, most_tokens=700)
    assert fitted(limited, model, stands_in=False).max_tokens == 700
    assert fitted(asked, model, stands_in=True).thinking == model.thinking


@pytest.mark.parametrize(
    "name", ["deepseek-r1", "qwen3:8b", "openai/o3-mini", "gpt-5", "gpt-oss:20b", "claude-sonnet-4-5", "glm-4.6"]
)
def test_thinkers_are_known_by_their_names(name):
    assert is_known_thinker(name)


@pytest.mark.parametrize("name", ["gpt-4o", "llama3.2", "qwen2.5:7b", "qwen3-coder", "claude-3-5-haiku", "smollm2"])
def test_others_are_not(name):
    assert not is_known_thinker(name)


# -- refusals ----------------------------------------------------------------------------------------------------------


def after(text, asked, fields, known=None):
    return learned(known or Habits(), asked, status=400, text=text, fields=frozenset(fields))


EFFORT = ("model", "messages", "reasoning_effort", "tools")


def test_another_effort_is_taken_from_the_refusal():
    text = "Unsupported value: 'none' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low'."
    habits = after(f"{text} reasoning_effort", request("off"), EFFORT)
    assert habits.members(request("off")) == {"reasoning_effort": "minimal"}
    assert habits.members(request("high")) == {}
    again = after(f"{text} reasoning_effort", request("off"), EFFORT, habits)
    assert again.without == {"reasoning_effort"}


@pytest.mark.parametrize(
    "text",
    [
        '"llama3.2" does not support thinking',
        "Unrecognized request argument supplied: reasoning_effort",
        "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.",
    ],
)
def test_a_refused_parameter_is_left_out_and_tools_stay(text):
    habits = after(text, request("low", tools=(TOOL,)), EFFORT)
    assert (habits.without, habits.tools) == ({"reasoning_effort"}, True)


def test_mandatory_thinking_is_not_asked_to_be_off():
    text = "Reasoning is mandatory for this endpoint and cannot be disabled."
    assert after(text, request("off"), ("model", "messages", "reasoning")).without == {"reasoning"}


def test_the_form_of_anthropic_is_learned():
    fields = ("model", "messages", "max_tokens", "thinking")
    text = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
    habits = after(text, request("low"), fields)
    assert anthropic(habits.fitted(request("low")))["thinking"]["type"] == "adaptive"
    text = "adaptive thinking is not supported on this model"
    habits = after(text, request("low"), (*fields, "output_config"))
    assert anthropic(habits.fitted(request("low", model="claude-opus-4-6")))["thinking"]["type"] == "enabled"
    assert after(text, request("low"), fields, habits).without == {"thinking"}


def test_what_is_missing_in_the_history_takes_no_parameter_away():
    text = "The `reasoning_content` in the thinking mode must be passed back to the API."
    asked = request("low", ASK, CALLED, RESULT, tools=(TOOL,))
    habits = after(text, asked, ("model", "messages", "thinking", "tools"))
    assert (habits.without, habits.rounds) == (frozenset(), 1)


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_only_signatures_of_calls_are_stored():
    echo = Echo(
        model="p/m",
        message={"reasoning_content": "Add.", THINKING: [SIGNED], "signature": "s"},
        calls=(
            {"extra_content": {"google": {"thought_signature": "c2ln", "thought": "Add."}}, "reasoning": "Add."},
            {},
        ),
    )
    kept = stored_echo(echo)
    assert kept == {
        "model": "p/m",
        "message": {},
        "calls": [{"extra_content": {"google": {"thought_signature": "c2ln"}}}, {}],
    }
    assert stored_echo(Echo(model="p/m", message={"reasoning_content": "Add."}, calls=({},))) is None
    assert stored_echo(None) is None
    old = {"echo": {"model": "p/m", "message": {"reasoning_content": "Add."}, "calls": list(echo.calls)}}
    assert echo_of(old) == Echo(model="p/m", calls=tuple(kept["calls"]))
    assert echo_of({"echo": {"model": "p/m", "message": {"reasoning_content": "Add."}, "calls": []}}) is None
