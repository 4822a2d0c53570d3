"""What a program asks of a model, in the words of each API; what an API has no word for is refused by name."""

import json
from typing import Any

import pytest

from klaw.llm.errors import ProviderRefused
from klaw.llm.providers.anthropic import AnthropicDialect
from klaw.llm.providers.dialect import Dialect
from klaw.llm.providers.ollama import OllamaDialect
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.types import ChatMessage, JsonSchema, ModelOptions, Request, Thinking, ToolDescription, is_offered_as

TOOLS = tuple(ToolDescription(name=name, description="d", parameters={"type": "object"}) for name in ("search", "t"))
PLACE = {"type": "object", "properties": {"city": {"type": "string"}}}
DIALECTS: dict[str, Dialect] = {"openai": OpenAiDialect(), "anthropic": AnthropicDialect(), "ollama": OllamaDialect()}


def body(dialect: str, **changes: Any) -> dict[str, Any]:
    request = Request(model="m", messages=(ChatMessage(role="user", content="Где кот?"),), **changes)
    made: dict[str, Any] = json.loads(DIALECTS[dialect].body(request, {}))
    return made


def test_a_tool_that_must_be_called() -> None:
    named = {"tools": TOOLS, "tool_choice": "search"}
    assert body("openai", **named)["tool_choice"] == {"type": "function", "function": {"name": "search"}}
    made = body("anthropic", **named, thinking=Thinking(level="high", tokens=8192), parallel_calls=False)
    assert made["tool_choice"] == {"type": "tool", "name": "search", "disable_parallel_tool_use": True}
    assert made["thinking"] == {"type": "disabled"}  # that API takes only one of them
    assert body("openai", tools=TOOLS, tool_choice="required")["tool_choice"] == "required"
    assert body("anthropic", tools=TOOLS, tool_choice="required")["tool_choice"]["type"] == "any"
    for dialect in DIALECTS:
        assert "tool_choice" not in body(dialect, tools=TOOLS)
        assert "parallel_tool_calls" not in body(dialect, tools=TOOLS)


def test_the_form_of_an_answer() -> None:
    loose, anything = (
        JsonSchema(name="place", schema=PLACE, strict=False),
        JsonSchema(name="a", schema={}, strict=False),
    )
    form = body("openai", json_schema=loose)["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": False}}
    assert body("openai", json_schema=anything)["response_format"] == {"type": "json_object"}
    assert body("ollama", json_schema=loose)["format"] == PLACE
    assert body("ollama", json_schema=anything)["format"] == "json"
    made = body("anthropic", json_schema=loose)  # its schemas are strict: the prompt asks for others
    assert "output_config" not in made
    assert json.dumps(PLACE) in made["messages"][0]["content"][0]["text"]
    strict = body("anthropic", json_schema=JsonSchema(name="place", schema=PLACE))
    assert strict["output_config"]["format"]["schema"] == PLACE


def test_how_an_answer_is_sampled() -> None:
    wanted = {"stop": ["END"], "top_p": 0.5}
    assert body("openai", sampling={**wanted, "seed": 7, "logit_bias": {"50": -100}}).items() >= {"seed": 7}.items()
    made = body("anthropic", sampling=wanted)
    assert (made["stop_sequences"], made["top_p"]) == (["END"], 0.5)
    assert body("ollama", sampling={**wanted, "seed": 7})["options"] == {**wanted, "seed": 7}


@pytest.mark.parametrize(
    ("dialect", "name"), [("anthropic", "seed"), ("anthropic", "logit_bias"), ("ollama", "logit_bias")]
)
def test_what_an_api_has_no_word_for_is_refused_by_name(dialect: str, name: str) -> None:
    with pytest.raises(ProviderRefused, match=name) as refused:
        body(dialect, sampling={name: {"1": 1}})
    assert (refused.value.status, refused.value.retryable) == (400, False)


def test_tools_of_a_program_that_have_a_taken_name_get_a_prefix() -> None:
    asked = ModelOptions(tools=TOOLS)
    assert {name: tool.name for name, tool in asked.offered({"search"}).items()} == {
        "client_search": "search",
        "t": "t",
    }
    assert [*ModelOptions(tools=TOOLS, tool_choice="t").offered()] == ["t"]
    assert ModelOptions(tools=TOOLS, tool_choice="none").offered() == {}


def test_no_two_tools_of_a_program_are_offered_under_one_name() -> None:
    own = ("search", "client_search", "client1_search", "a" * 64)
    asked = ModelOptions(tools=tuple(ToolDescription(name=name, description="", parameters={}) for name in own))
    offered = {name: tool.name for name, tool in asked.offered({"search", "a" * 64}).items()}
    assert offered == {
        "client2_search": "search",
        "client_search": "client_search",
        "client1_search": "client1_search",
        f"client_{'a' * 57}": "a" * 64,
    }
    assert all(is_offered_as(name, told) for told, name in offered.items())
    assert not is_offered_as("search", "client2_searching")
