"""The size of a request, and adapting it to another model. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from klaw.domain import tokens
from klaw.domain.message import ECHO
from klaw.domain.text import one_line, quoted
from klaw.llm.errors import ContextTooLong
from klaw.llm.types import ChatMessage, Echo, Model, Request, ToolCall, ToolDescription

IMAGE_TOKENS = 1_600
"""The largest images of the providers that say so; smaller ones cost less."""
SCHEMA_WANTED = "Answer with one JSON value and nothing else. It must fit this JSON schema:"
NO_IMAGE = "[an image that this model cannot see]"


def fitted(request: Request, model: Model, *, stands_in: bool) -> Request:
    """The request as a model of its route can take it. ``stands_in``: it is not the route's first model.

    Raises:
        ContextTooLong: it surely does not fit into a model that stands in.
    """
    own = tuple(
        attrs.evolve(each, echo=None) if each.echo is not None and each.echo.model != model.name else each
        for each in request.messages
    )
    request = attrs.evolve(request, messages=own)
    if stands_in:
        if not model.tools and (request.tools or any(message.role == "tool" for message in request.messages)):
            request = without_tools(request)
        if not model.images and any(message.images for message in request.messages):
            request = without_images(request)
        if request_tokens(request.messages) > model.context_tokens:
            raise ContextTooLong("the prompt is too long for the model that stands in", status=400, retryable=False)
        most = request.max_tokens if request.max_tokens is not None else model.max_output_tokens
        request = attrs.evolve(request, model=model.model, max_tokens=min(most, model.max_output_tokens))
    return request if model.json_schema else schema_in_prompt(request)


def without_tools(request: Request) -> Request:
    """The request for a model that cannot call tools: calls and results so far become plain text."""
    return attrs.evolve(request, messages=rounds_as_text(request.messages), tools=(), stable_messages=0)


def rounds_as_text(
    messages: Sequence[ChatMessage], keep: Callable[[ChatMessage], bool] = lambda _message: False
) -> tuple[ChatMessage, ...]:
    """The messages with calls and results as plain text. ``keep``: whether the calls of a message stay calls."""
    plain: list[ChatMessage] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    kept = {call.id for message in messages if message.tool_calls and keep(message) for call in message.tool_calls}
    for message in messages:
        if message.tool_call_id in kept or (message.tool_calls and message.tool_calls[0].id in kept):
            plain.append(message)
        elif message.role == "tool":
            name = names.get(message.tool_call_id or "", "a tool")
            _join(plain, ChatMessage(role="user", content=f"Result of {one_line(name)}:\n{quoted(message.content)}"))
        elif message.tool_calls:
            used = (f"I use {call.name} with {call.arguments}" for call in message.tool_calls)
            content = "\n".join([message.content, *used]).strip()
            _join(plain, ChatMessage(role="assistant", content=content))
        else:
            plain.append(message)
    return tuple(plain)


def _join(plain: list[ChatMessage], told: ChatMessage) -> None:
    """Templates that know no tools want the roles to alternate."""
    if plain and plain[-1].role == told.role and not plain[-1].images and not plain[-1].tool_calls:
        before = plain.pop()
        told = attrs.evolve(before, content=f"{before.content}\n{told.content}")
    plain.append(told)


def system_as_user(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages for a template without system messages: they become the beginning of the first user message."""
    told = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    if not others or others[0].role != "user":
        return (ChatMessage(role="user", content="\n\n".join(told)), *others)
    return (attrs.evolve(others[0], content="\n\n".join([*told, others[0].content])), *others[1:])


def without_images(request: Request) -> Request:
    """The request for a model that takes no images: each becomes a note."""
    return attrs.evolve(request, messages=images_as_text(request.messages))


def images_as_text(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages with a note in place of each image."""
    return tuple(
        attrs.evolve(
            message, content="\n".join(filter(None, [message.content, *[NO_IMAGE] * len(message.images)])), images=()
        )
        for message in messages
    )


def schema_in_prompt(request: Request) -> Request:
    """The request for an API that takes no JSON schema: the prompt asks for it."""
    if request.json_schema is None:
        return request
    wanted = f"{SCHEMA_WANTED}\n{json.dumps(dict(request.json_schema.schema), ensure_ascii=False)}"
    last = request.messages[-1]
    asked = attrs.evolve(last, content=f"{last.content}\n\n{wanted}")
    return attrs.evolve(request, messages=(*request.messages[:-1], asked), json_schema=None)


def call_tokens(calls: Sequence[ToolCall]) -> int:
    return sum(tokens.estimate(call.name + call.arguments) + tokens.PER_MESSAGE for call in calls)


def echo_of(metadata: Mapping[str, Any]) -> Echo | None:
    """What goes back with a stored message."""
    kept = metadata.get(ECHO)
    if not isinstance(kept, dict):
        return None
    model, message, calls = kept.get("model"), kept.get("message"), kept.get("calls")
    if not isinstance(model, str) or not isinstance(message, dict) or not isinstance(calls, list):
        return None
    return Echo(model=model, message=message, calls=tuple(call if isinstance(call, dict) else {} for call in calls))


def echo_tokens(echo: Echo | None) -> int:
    if echo is None:
        return 0
    return tokens.estimate(json.dumps([echo.message, echo.calls], ensure_ascii=False))


def message_tokens(message: ChatMessage) -> int:
    beside = IMAGE_TOKENS * len(message.images) + echo_tokens(message.echo)
    return tokens.estimate(message.content) + call_tokens(message.tool_calls) + beside + tokens.PER_MESSAGE


def request_tokens(messages: Sequence[ChatMessage]) -> int:
    return sum(map(message_tokens, messages))


PER_TOOL = 8


def tools_tokens(tools: Sequence[ToolDescription]) -> int:
    return sum(
        tokens.estimate(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False)) + PER_TOOL
        for tool in tools
    )
