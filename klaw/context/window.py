"""Fitting the sliding window: the newest whole exchanges that the budget and the message limit allow. Pure."""

from collections.abc import Sequence

from klaw.domain import tokens
from klaw.domain.message import Message, MessageKind, Role

TOOLS_SHARE = 0.5
"""Tool calls and results of earlier turns take at most this share of the window; exchanges beyond it are shown without
them, so that one long result does not push out what was said."""


def is_tool(message: Message) -> bool:
    """Whether a message is a tool call or a tool's result."""
    return message.type in (MessageKind.TOOL_CALL, MessageKind.TOOL_RESULT)


def exchanges(history: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Cut a dialogue into exchanges: user messages with all that answers them.

    Trimming in these units never splits a tool call from its result, nor a question from its answer; also not where a
    further question came in while tools ran.
    """
    last_of_turn = {message.metadata.get("turn"): index for index, message in enumerate(history)}
    cut: list[list[Message]] = []
    ends = -1
    """Index of the last message of the turns that the exchange has tool messages of."""
    for index, message in enumerate(history):
        asks = message.role is Role.USER and (index == 0 or history[index - 1].role is not Role.USER)
        if (asks and index > ends) or not cut:
            cut.append([])
        cut[-1].append(message)
        if is_tool(message):
            ends = max(ends, last_of_turn[message.metadata.get("turn")])
    return [tuple(exchange) for exchange in cut]


def cost(messages: Sequence[Message]) -> int:
    """Estimated tokens of messages in a request."""
    return sum(message.tokens + tokens.PER_MESSAGE for message in messages)


def fit(
    history: Sequence[Message], *, has_older: bool, max_messages: int, max_tokens: int, max_exchanges: int | None = None
) -> tuple[Message, ...]:
    """The newest exchanges that fit, oldest first; of some of them perhaps without their tool messages.

    Args:
        has_older: the segment has more before the history, so that the first exchange may be incomplete: it is left out
            then, unless it is the only one.
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
