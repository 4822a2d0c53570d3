"""Making a request fit for another model than it was made for. Pure."""

import json
from collections.abc import Sequence

import attrs

from klaw.domain import tokens
from klaw.domain.text import one_line, quoted
from klaw.llm.errors import ContextTooLong
from klaw.llm.types import ChatMessage, Model, Request

IMAGE_TOKENS = 1_600
"""What the largest image costs with the providers that say so; smaller ones cost less."""
SCHEMA_WANTED = "Answer with one JSON value and nothing else. It must fit this JSON schema:"
NO_IMAGE = "[an image that this model cannot see]"


def fitted(request: Request, model: Model, *, stands_in: bool) -> Request:
    """The request as a model of its route can take it.

    Args:
        request: made for the route's first model.
        model: who is asked.
        stands_in: it is another one.

    Raises:
        ContextTooLong: it surely does not fit into a model that stands in.
    """
    if stands_in:
        if not model.tools and (request.tools or any(message.role == "tool" for message in request.messages)):
            request = without_tools(request)
        if not model.images and any(message.images for message in request.messages):
            request = without_images(request)
        if estimate_tokens(request) > model.context_tokens:
            raise ContextTooLong("the prompt is too long for the model that stands in", status=400, retryable=False)
        most = request.max_tokens if request.max_tokens is not None else model.max_output_tokens
        request = attrs.evolve(request, model=model.model, max_tokens=min(most, model.max_output_tokens))
    return request if model.json_schema else schema_in_prompt(request)


def without_tools(request: Request) -> Request:
    """The request for a model that cannot call tools: calls and results so far become plain text, each a part of what
    the model, or the user, says."""
    return attrs.evolve(request, messages=_rounds_as_text(request.messages), tools=(), stable_messages=0)


def _rounds_as_text(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    plain: list[ChatMessage] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "tool":
            name = names.get(message.tool_call_id or "", "a tool")
            told = ChatMessage(role="user", content=f"Result of {one_line(name)}:\n{quoted(message.content)}")
        elif message.tool_calls:
            used = (f"I use {call.name} with {call.arguments}" for call in message.tool_calls)
            content = "\n".join([message.content, *used]).strip()
            told = ChatMessage(role="assistant", content=content)
        else:
            plain.append(message)
            continue
        if plain and plain[-1].role == told.role and not plain[-1].images:
            # Templates that know no tools want the roles to alternate.
            before = plain.pop()
            told = attrs.evolve(before, content=f"{before.content}\n{told.content}")
        plain.append(told)
    return tuple(plain)


def without_images(request: Request) -> Request:
    """The request for a model that takes no images: each becomes a note."""
    return attrs.evolve(
        request,
        messages=tuple(
            attrs.evolve(
                message,
                content="\n".join(filter(None, [message.content, *[NO_IMAGE] * len(message.images)])),
                images=(),
            )
            for message in request.messages
        ),
    )


def schema_in_prompt(request: Request) -> Request:
    """The request for an API that takes no JSON schema: the prompt's end asks for it."""
    if request.json_schema is None:
        return request
    wanted = f"{SCHEMA_WANTED}\n{json.dumps(dict(request.json_schema.schema), ensure_ascii=False)}"
    last = request.messages[-1]
    asked = attrs.evolve(last, content=f"{last.content}\n\n{wanted}")
    return attrs.evolve(request, messages=(*request.messages[:-1], asked), json_schema=None)


def estimate_tokens(request: Request) -> int:
    """About how many tokens the prompt takes; schemas of tools are left out."""
    return sum(
        tokens.estimate(message.content)
        + sum(tokens.estimate(call.arguments) for call in message.tool_calls)
        + IMAGE_TOKENS * len(message.images)
        + tokens.PER_MESSAGE
        for message in request.messages
    )


def tools_tokens(request: Request) -> int:
    """About how many tokens the offered tools take."""
    return sum(tokens.estimate(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.tools)
