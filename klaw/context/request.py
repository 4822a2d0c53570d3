"""Making room in the messages of a request. Pure."""

import json
import math
from collections.abc import Sequence

import attrs

from klaw.domain import tokens
from klaw.llm.providers.adapt import message_tokens, request_tokens
from klaw.llm.types import ChatMessage, ToolCall

MARK = "\n[… {count} characters left out …] "
"""The tail begins behind it: its first line may be the end of one, and must not pass for a whole one."""


def shorten(text: str, max_tokens: int) -> str:
    """The text, or its head and tail with a mark between them, so that it has at most ``max_tokens`` (estimated)."""
    estimated = tokens.estimate(text)
    if estimated <= max_tokens:
        return text
    keep = math.floor(len(text) * max_tokens / estimated) - len(MARK) - 8
    if keep < 2:
        return text[: max(1, max_tokens)]
    head = math.ceil(keep * 2 / 3)
    tail = keep - head
    return text[:head] + MARK.format(count=len(text) - keep) + (text[-tail:] if tail else "")


LEAST_RESULT_TOKENS = 48
"""A shortened result or argument keeps at least so much: its beginning and its end."""


def make_room(messages: Sequence[ChatMessage], first: int, max_tokens: int) -> tuple[ChatMessage, ...]:
    """Shorten tool results, then long arguments of calls, each the oldest first, until the messages of a request fit;
    only from the index ``first`` on. When shortening does not suffice the result is longer."""
    fitted = list(messages)
    over = request_tokens(fitted) - max_tokens
    for shrink in (_shorter_result, _shorter_arguments):
        for index in range(first, len(fitted)):
            if over <= 0:
                return tuple(fitted)
            had = message_tokens(fitted[index])
            fitted[index] = shrink(fitted[index], over)
            over -= had - message_tokens(fitted[index])
    return tuple(fitted)


def _shorter_result(message: ChatMessage, over: int) -> ChatMessage:
    if message.role != "tool":
        return message
    keep = max(LEAST_RESULT_TOKENS, tokens.estimate(message.content) - over)
    return attrs.evolve(message, content=shorten(message.content, keep))


def _shorter_arguments(message: ChatMessage, _over: int) -> ChatMessage:
    return attrs.evolve(message, tool_calls=tuple(map(_shorter_call, message.tool_calls)))


def _shorter_call(call: ToolCall) -> ToolCall:
    """A call whose long texts are shortened; its arguments stay a JSON object of the same shape."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    short = {
        name: shorten(value, LEAST_RESULT_TOKENS) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    return attrs.evolve(call, arguments=json.dumps(short, ensure_ascii=False))
