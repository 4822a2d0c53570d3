"""How large a request's messages are, and making room in them. Pure."""

from collections.abc import Sequence

import attrs

from klaw.context.shorten import shorten
from klaw.domain import tokens
from klaw.llm.types import ChatMessage, ToolCall

LEAST_RESULT_TOKENS = 48
"""A shortened tool result keeps at least so much: its beginning and its end."""


def call_tokens(calls: Sequence[ToolCall]) -> int:
    """Estimated tokens of tool calls: their names and arguments are part of the prompt."""
    return sum(tokens.estimate(call.name + call.arguments) + tokens.PER_MESSAGE for call in calls)


def message_tokens(message: ChatMessage) -> int:
    return tokens.estimate(message.content) + call_tokens(message.tool_calls) + tokens.PER_MESSAGE


def request_tokens(messages: Sequence[ChatMessage]) -> int:
    """Estimated tokens of a request's messages."""
    return sum(map(message_tokens, messages))


def make_room(messages: Sequence[ChatMessage], first: int, max_tokens: int) -> tuple[ChatMessage, ...]:
    """Shorten tool results, the oldest first, until the messages fit; the newest results are the last to suffer.

    Args:
        messages: of one request.
        first: index of the first message that may be touched.
        max_tokens: estimated tokens that all of them may take. When shortening does not suffice the result is longer.
    """
    fitted = list(messages)
    over = request_tokens(fitted) - max_tokens
    for index in range(first, len(fitted)):
        if over <= 0:
            break
        message = fitted[index]
        if message.role == "tool":
            had = tokens.estimate(message.content)
            content = shorten(message.content, max(LEAST_RESULT_TOKENS, had - over))
            fitted[index] = attrs.evolve(message, content=content)
            over -= had - tokens.estimate(content)
    return tuple(fitted)
