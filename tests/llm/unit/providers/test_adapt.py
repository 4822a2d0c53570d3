"""Requests for a model that can do less."""

import json

from klaw.llm.providers.adapt import NO_IMAGE, images_as_text, request_tokens, schema_in_prompt, without_tools
from klaw.llm.types import ChatMessage, Image, JsonSchema, Request, ToolCall, ToolDescription

PNG = Image(data=b"x", media_type="image/png")


def test_tool_rounds_become_plain_text_of_alternating_roles() -> None:
    calls = tuple(ToolCall(id=str(n), name=f"t{n}", arguments='{"q": "кот"}') for n in range(2))
    request = Request(
        model="m",
        messages=(
            ChatMessage(role="system", content="s"),
            ChatMessage(role="user", content="Где кот?"),
            ChatMessage(role="assistant", content="Ищу.", tool_calls=calls),
            ChatMessage(role="tool", content="на окне", tool_call_id="0"),
            ChatMessage(role="tool", content="в саду", tool_call_id="1"),
        ),
        tools=(ToolDescription(name="t0", description="", parameters={}),),
        stable_messages=5,
    )
    adapted = without_tools(request)
    assert (adapted.tools, adapted.stable_messages) == ((), 0)
    assert [message.role for message in adapted.messages] == ["system", "user", "assistant", "user"]
    assert not any(message.tool_calls or message.tool_call_id for message in adapted.messages)
    said, results = adapted.messages[2].content, adapted.messages[3].content
    assert said.startswith("Ищу.\n")
    assert "t1" in said
    assert results == "Result of t0:\n> на окне\nResult of t1:\n> в саду"


def test_an_orphaned_result_is_kept_too() -> None:
    request = Request(model="m", messages=(ChatMessage(role="tool", content="x", tool_call_id="gone"),))
    assert without_tools(request).messages == (ChatMessage(role="user", content="Result of a tool:\n> x"),)


def test_images_become_notes() -> None:
    request = Request(model="m", messages=(ChatMessage(role="user", content="Что это?", images=(PNG, PNG)),))
    (message,) = images_as_text(request.messages)
    assert (message.content, message.images) == (f"Что это?\n{NO_IMAGE}\n{NO_IMAGE}", ())


def test_a_schema_goes_to_the_end_of_the_prompt() -> None:
    schema = {"type": "object", "properties": {"имя": {"type": "string"}}}
    request = Request(
        model="m",
        messages=(ChatMessage(role="system", content="s"), ChatMessage(role="user", content="Кто?")),
        json_schema=JsonSchema(name="n", schema=schema),
    )
    adapted = schema_in_prompt(request)
    assert adapted.json_schema is None
    assert adapted.messages[0] == request.messages[0]
    assert adapted.messages[-1].content.startswith("Кто?\n\n")
    assert json.loads(adapted.messages[-1].content.splitlines()[-1]) == schema
    assert schema_in_prompt(adapted) is adapted


def test_the_estimate_counts_texts_arguments_and_images() -> None:
    short = Request(model="m", messages=(ChatMessage(role="user", content="x"),))
    assert 0 < request_tokens(short.messages) < 10
    image = Request(model="m", messages=(ChatMessage(role="user", content="x", images=(PNG,)),))
    assert request_tokens(image.messages) > 1000
