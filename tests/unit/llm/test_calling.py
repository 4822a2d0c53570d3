"""The request that asks for tool calls by a schema."""

import json
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.calling import ask_by_schema, reply_schema, tools_text
from klaw.llm.subset import MAX_NODES, Rules, arguments_schema, without_nulls
from klaw.llm.types import ChatMessage, Request, ToolCall, ToolDescription
from klaw.toolbox.spec import Limit, Permission, ToolContext, tool


@attrs.frozen
class Edit:
    search: Annotated[str, "what is there"]
    replace: str = ""


@tool(permission=Permission.READ)
async def patch(
    context: ToolContext,
    path: Annotated[str, "имя файла", Limit(at_least=1, at_most=80)],
    edits: Annotated[list[Edit], Limit(at_least=1)],
    mode: Literal["a", "б"] = "a",
    days: Annotated[int, Limit(at_least=1, at_most=7)] = 1,
    note: Annotated[str, Limit(at_most=100_000)] | None = None,
) -> str:
    """Change parts of a file."""
    return f"{context}{path}{edits}{mode}{days}{note}"


@tool(permission=Permission.READ)
async def now(context: ToolContext) -> str:
    """Tell the time."""
    return str(context)


TOOLS = (now.told, patch.told)


def test_strict_requires_every_member_and_holds_no_bounds() -> None:
    schema = arguments_schema(patch.parameters, Rules.STRICT)
    assert schema is not None
    assert schema["required"] == ["path", "edits", "mode", "days", "note"]
    assert schema["properties"]["path"] == {"type": "string"}
    assert schema["properties"]["mode"] == {"type": ["string", "null"], "enum": ["a", "б", None]}
    assert schema["properties"]["days"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schema["properties"]["edits"]["items"]["required"] == ["search", "replace"]
    text = json.dumps(schema)
    assert not any(word in text for word in ("minLength", "maxLength", "minimum", "minItems", "default", "description"))


def test_llama_keeps_what_its_grammar_can_count() -> None:
    schema = arguments_schema(patch.parameters, Rules.LLAMA)
    assert schema is not None
    assert schema["required"] == ["path", "edits"]
    assert schema["properties"]["path"] == {"type": "string", "minLength": 1, "maxLength": 80}
    assert schema["properties"]["days"] == {"type": "integer", "minimum": 1, "maximum": 7}
    assert schema["properties"]["note"] == {"type": "string"}  # it may be left out
    assert schema["properties"]["edits"]["minItems"] == 1


def test_a_tool_without_parameters_has_no_arguments() -> None:
    assert arguments_schema(now.parameters, Rules.STRICT) is None
    first, _ = reply_schema(TOOLS, Rules.LLAMA)["properties"]["reply"]["anyOf"][1]["properties"]["calls"]["items"][
        "anyOf"
    ]
    assert [*first["properties"]] == ["name"]


FOREIGN: dict[str, tuple[dict[str, Any], Any]] = {
    "a reference": (
        {"$defs": {"a/b": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a~1b"}}, "required": ["x"]},
        {"x": {"type": "string"}},
    ),
    "a choice": (
        {"properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}}, "required": ["x"]},
        {"x": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}},
    ),
    "a constant": ({"properties": {"x": {"const": 1}}, "required": ["x"]}, {"x": {"type": "integer", "enum": [1]}}),
    "a reference to itself": ({"properties": {"x": {"$ref": "#"}}}, None),
    "a reference that turns in a circle": ({"$ref": "#"}, None),
    "a reference to nowhere": ({"properties": {"x": {"$ref": "#/$defs/x"}}}, None),
    "a reference outside": ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, None),
    "anything": ({"properties": {"x": {}}}, None),
    "free members": ({"type": "object", "additionalProperties": True}, None),
    "an object that is free inside": ({"properties": {"x": {"type": "object"}}}, None),
    "all of several": ({"properties": {"x": {"allOf": [{"type": "string"}, {"minLength": 1}]}}}, None),
    "a choice at the top": ({"anyOf": [{"properties": {"x": {"type": "string"}}}]}, None),
    "too much": ({"properties": {f"p{n}": {"type": "string"} for n in range(MAX_NODES + 1)}}, None),
    "nonsense": ({"properties": {"x": 5}, "required": 7}, None),
}


@pytest.mark.parametrize(("parameters", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_schemas_of_others(parameters: dict[str, Any], expected: Any) -> None:
    """What cannot be told in the subset is written as JSON in a text, and the whole schema is shown instead."""
    strict, llama = (arguments_schema(parameters, rules) for rules in (Rules.STRICT, Rules.LLAMA))
    if expected is None:
        assert (strict, llama) == ({"type": "string"}, {"type": "object"})
    else:
        assert strict is not None
        assert strict["properties"] == expected
    text = tools_text([ToolDescription(name="t", description="d", parameters=parameters)], Rules.STRICT)
    assert (json.dumps(parameters, separators=(",", ":")) in text) == (expected is None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "$ref", "required", "additionalProperties"),
        *("minLength", "maximum", "description", "default", "$defs", "x"),
    ]
)
VALUES = st.sampled_from(
    ["object", "array", "string", "integer", "#", "#/$defs/x", "#/properties/x", ["string", "null"]]
)
SCHEMAS = st.recursive(
    VALUES | JSON,
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=15,
).map(lambda schema: schema if isinstance(schema, dict) else {"type": "object", "properties": {"x": schema}})


@given(SCHEMAS, st.sampled_from(Rules), JSON)
def test_no_schema_is_too_odd(schema: dict[str, Any], rules: Rules, value: Any) -> None:
    """MCP servers may send anything."""
    told = ToolDescription(name="t", description="d", parameters=schema)
    json.dumps(reply_schema([told], rules))
    assert tools_text([told], rules) == tools_text([told], rules)
    without_nulls(value, schema)


def test_nulls_that_strict_asked_for_are_left_out() -> None:
    arguments = {"path": "x", "edits": [{"search": "a", "replace": None}], "mode": None, "note": None, "own": None}
    assert without_nulls(arguments, patch.parameters) == {"path": "x", "edits": [{"search": "a"}], "own": None}
    assert without_nulls({"path": None}, patch.parameters) == {"path": None}


def test_the_model_is_told_of_every_parameter() -> None:
    lines = tools_text(TOOLS, Rules.STRICT).splitlines()
    assert "- path (string, minLength 1, maxLength 80): имя файла" in lines
    assert "- edits (list of object, minItems 1)" in lines
    assert "- edits[].search (string): what is there" in lines
    assert '- mode ("a" | "б", optional, default "a")' in lines
    assert "- days (integer, optional, minimum 1, maximum 7, default 1)" in lines
    assert lines[lines.index("## now") + 1] == "Tell the time."


def conversation() -> Request:
    calls = (ToolCall(id="a", name="now", arguments="{}"), ToolCall(id="b", name="patch", arguments='{"path": "кот"}'))
    return Request(
        model="m",
        messages=(
            ChatMessage(role="system", content="You are Klaw.\n\nRecalled: tea", stable_chars=len("You are Klaw.\n\n")),
            ChatMessage(role="user", content="Который час?"),
            ChatMessage(role="assistant", content="Смотрю.", tool_calls=calls),
            ChatMessage(role="tool", content="noon", tool_call_id="a"),
            ChatMessage(role="tool", content="done", tool_call_id="b"),
        ),
        tools=TOOLS,
        stable_messages=5,
    )


def test_the_request_has_no_tools_and_roles_that_alternate() -> None:
    asked = ask_by_schema(conversation(), Rules.STRICT, constrained=True)
    assert asked.tools == ()
    assert [message.role for message in asked.messages] == ["system", "user", "assistant", "user"]
    assert asked.messages[2].content == (
        'Смотрю.\n{"reply":{"calls":[{"name":"now","arguments":{}},{"name":"patch","arguments":{"path":"кот"}}]}}'
    )
    assert asked.messages[3].content == "Result of now:\n> noon\nResult of patch:\n> done"
    assert asked.json_schema is not None
    assert asked.json_schema.schema["properties"]["reply"]["anyOf"][0]["required"] == ["answer"]
    assert asked.stable_messages == 4
    assert ask_by_schema(conversation(), Rules.STRICT, constrained=False).json_schema is None


def test_what_the_model_is_told_is_stable() -> None:
    """In front of what differs from turn to turn, and the same bytes in each round."""
    request = conversation()
    first = ask_by_schema(attrs.evolve(request, messages=request.messages[:2]), Rules.LLAMA, constrained=True)
    second = ask_by_schema(request, Rules.LLAMA, constrained=True)
    assert second.messages[:2] == first.messages[:2]
    system = first.messages[0]
    assert system.content[: system.stable_chars].startswith("You are Klaw.\n\n# Tools")
    assert system.content[: system.stable_chars].endswith(f"{tools_text(TOOLS, Rules.LLAMA)}\n\n")
    assert system.content[system.stable_chars :] == "Recalled: tea"


def test_a_request_without_a_system_message_gets_one() -> None:
    request = Request(model="m", messages=(ChatMessage(role="user", content="?"),), tools=TOOLS, stable_messages=1)
    asked = ask_by_schema(request, Rules.STRICT, constrained=True)
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert asked.stable_messages == 2
