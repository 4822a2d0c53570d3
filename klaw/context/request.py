"""Making room in a request: shortening messages, and fitting the window of the newest whole exchanges. Pure."""

import json
import math
from collections.abc import Sequence

import attrs

from klaw.domain import tokens
from klaw.domain.message import Message, MessageKind, Role
from klaw.llm.providers.adapt import message_tokens, request_tokens
from klaw.llm.types import ChatMessage, ToolCall

MARK = "\n[… {count} characters left out …] "
"""The tail begins behind it: its first line may be the end of one, and must not pass for a whole one."""


def shorten(text: str, max_tokens: int) -> str:
    """The text, or its head and tail with a mark between them, in at most ``max_tokens``."""
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
    """Shorten tool results, then arguments of calls, the oldest from ``first`` on first, until all fits, if it can."""
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


TOOLS_SHARE = 0.5
"""Tool calls and results of earlier turns take at most this share of the window; exchanges beyond it are shown without
them, so that one long result does not push out what was said."""


def is_tool(message: Message) -> bool:
    return message.type in (MessageKind.TOOL_CALL, MessageKind.TOOL_RESULT)


def exchanges(history: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Cut a dialogue into exchanges: user messages with all that answers them. Trimming in these units never splits a
    tool call from its result, nor a question from its answer, nor a turn in whose tools another question came in."""
    last_of_turn = {message.metadata.get("turn"): index for index, message in enumerate(history)}
    cut: list[list[Message]] = []
    ends = -1  # where the turns end that the exchange has tool messages of
    for index, message in enumerate(history):
        asks = message.role is Role.USER and (index == 0 or history[index - 1].role is not Role.USER)
        if (asks and index > ends) or not cut:
            cut.append([])
        cut[-1].append(message)
        if is_tool(message):
            ends = max(ends, last_of_turn[message.metadata.get("turn")])
    return [tuple(exchange) for exchange in cut]


def cost(messages: Sequence[Message]) -> int:
    return sum(message.tokens + tokens.PER_MESSAGE for message in messages)


def fit(
    history: Sequence[Message], *, has_older: bool, max_messages: int, max_tokens: int, max_exchanges: int | None = None
) -> tuple[Message, ...]:
    """The newest exchanges that fit, oldest first; of some of them perhaps without their tool messages.

    Args:
        has_older: the first exchange may be incomplete: it is left out, unless it is the only one.
        max_messages: ``context.slidingWindow``; tool messages do not count.
        max_exchanges: ``kb.pairs``; None: any number.
    """
    units = exchanges(history)
    if has_older and len(units) > 1:
        units = units[1:]
    chosen: list[tuple[Message, ...]] = []
    messages_left, tokens_left, tools_left = max_messages, max_tokens, int(max_tokens * TOOLS_SHARE)
    for unit in reversed(units if max_exchanges is None else units[len(units) - min(len(units), max_exchanges) :]):
        said = tuple(message for message in unit if not is_tool(message))
        messages_left -= len(said)
        tokens_left -= cost(said)
        if messages_left < 0 or tokens_left < 0:
            break
        tools = cost(unit) - cost(said)
        if tools <= min(tools_left, tokens_left):
            tools_left -= tools
            tokens_left -= tools
            chosen.append(unit)
        else:
            chosen.append(said)
    return tuple(message for unit in reversed(chosen) for message in unit)
