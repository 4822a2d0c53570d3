"""Fitting the sliding window: the newest whole exchanges that the budget and the message limit allow. Pure."""

from collections.abc import Sequence

from klaw.domain import tokens
from klaw.domain.message import Message, Role


def exchanges(history: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Cut a dialogue into exchanges: user messages with all that answers them.

    Trimming in these units never splits a tool call from its result, nor a question from its answer.
    """
    cut: list[list[Message]] = []
    for index, message in enumerate(history):
        begins = message.role is Role.USER and (index == 0 or history[index - 1].role is not Role.USER)
        if begins or not cut:
            cut.append([])
        cut[-1].append(message)
    return [tuple(exchange) for exchange in cut]


def cost(messages: Sequence[Message]) -> int:
    """Estimated tokens of messages in a request."""
    return sum(message.tokens + tokens.PER_MESSAGE for message in messages)


def fit(history: Sequence[Message], *, has_older: bool, max_messages: int, max_tokens: int) -> tuple[Message, ...]:
    """The newest exchanges that fit, oldest first.

    Args:
        history: the newest messages of the segment's dialogue, oldest first.
        has_older: the segment has more before them, so that the first exchange may be incomplete: it is left out then,
            unless it is the only one.
        max_messages: ``context.slidingWindow``.
        max_tokens: estimated tokens that the window may take.
    """
    units = exchanges(history)
    if has_older and len(units) > 1:
        units = units[1:]
    chosen: list[tuple[Message, ...]] = []
    messages_left, tokens_left = max_messages, max_tokens
    for unit in reversed(units):
        messages_left -= len(unit)
        tokens_left -= cost(unit)
        if messages_left < 0 or tokens_left < 0:
            break
        chosen.append(unit)
    return tuple(message for unit in reversed(chosen) for message in unit)
