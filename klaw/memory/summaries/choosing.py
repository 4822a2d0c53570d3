"""Which messages are summarised next, and which summaries make room. Pure.

The unit is the exchange (``context.request.exchanges``): a question is never torn from its answer, nor a call from its
result. The newest exchange is never taken."""

from collections.abc import Sequence

import attrs

from klaw.config.memory import SummariesConfig
from klaw.context.request import cost, exchanges, is_tool
from klaw.domain import tokens
from klaw.domain.message import Message
from klaw.domain.summary import Summary

KEPT_SHARE = 0.5
"""A summary is followed by so much of the threshold in messages, so that not every turn needs another one."""
PART_SHARE = 0.5
"""One summary may have this share of ``summaries.maxTokens``; at least two stand side by side before one is evicted."""
ROLL_SHARE = 0.6
"""A summary that fills less than this share of its part is made again together with what follows it."""
LABEL_TOKENS = 8
CATCH_UP_ROOMS = 4
"""Of a segment that was never summarised at most so many prompts' worth of messages, the newest, are summarised."""


@attrs.frozen(kw_only=True)
class Rules:
    config: SummariesConfig
    sliding_window: int

    @property
    def part_tokens(self) -> int:
        return max(1, int(self.config.max_tokens * PART_SHARE))

    def threshold(self, usable: int) -> int:
        """Estimated tokens of uncovered messages from which on there is something to do."""
        return max(1, int(usable * self.config.threshold_fraction))


@attrs.frozen(kw_only=True)
class SummaryChunk:
    messages: tuple[Message, ...]
    """Whole exchanges, oldest first."""
    base: Summary | None
    """The summary that is made again together with them."""

    @property
    def first_seq(self) -> int:
        return self.messages[0].seq if self.base is None else self.base.first_seq

    @property
    def last_seq(self) -> int:
        return self.messages[-1].seq


def is_due(history: Sequence[Message], usable: int, rules: Rules) -> bool:
    """Whether the uncovered part of a segment is too large. ``usable``: see ``Budget.usable``."""
    return cost(history) > rules.threshold(usable) or _left_out(history, rules) > rules.config.left_out_tokens


def _left_out(history: Sequence[Message], rules: Rules) -> int:
    said = [message for message in history if not is_tool(message)]
    return cost(said[: -rules.sliding_window])


def choose(
    history: Sequence[Message],
    live: Sequence[Summary],
    *,
    usable: int,
    room: int,
    rules: Rules,
    cut: bool,
    follows: bool,
) -> SummaryChunk | None:
    """The oldest exchanges that one prompt holds. None when nothing is due, or nothing can be taken.

    ``history``: the uncovered part of the segment; ``live``: its summaries; both oldest first. ``room``: estimated
    tokens of messages in a prompt; one exchange that is larger is taken by itself. ``cut``: older uncovered messages
    are not in ``history``, so its first exchange may be torn. ``follows``: ``history`` begins right after the newest
    summary."""
    if not is_due(history, usable, rules):
        return None
    units = exchanges(history)
    if cut and len(units) > 1:
        units = units[1:]
    free = units[: len(units) - _kept(units, usable, rules)]
    recent = _catch_up(free, room)
    follows = follows and not cut and len(recent) == len(free)
    taken: list[Message] = []
    left = room
    for unit in recent:
        left -= weight(unit)
        if left < 0 and taken:
            break
        taken += unit
    if not taken:
        return None
    newest = live[-1] if live and follows else None
    base = newest if newest is not None and newest.tokens < rules.part_tokens * ROLL_SHARE else None
    return SummaryChunk(messages=tuple(taken), base=base)


def weight(messages: Sequence[Message]) -> int:
    return sum(message.tokens + LABEL_TOKENS for message in messages)


def _kept(units: Sequence[tuple[Message, ...]], usable: int, rules: Rules) -> int:
    tokens_left, said_left, kept = int(rules.threshold(usable) * KEPT_SHARE), rules.sliding_window, 0
    for unit in reversed(units):
        tokens_left -= cost(unit)
        said_left -= sum(not is_tool(message) for message in unit)
        if kept and (tokens_left < 0 or said_left < 0):
            break
        kept += 1
    return kept


def _catch_up(units: Sequence[tuple[Message, ...]], room: int) -> Sequence[tuple[Message, ...]]:
    """Without the oldest of very many. A huge one is no reason to pass it over."""
    left, recent = room * CATCH_UP_ROOMS, 0
    for unit in reversed(units):
        left -= min(weight(unit), room)
        if left < 0 and recent:
            break
        recent += 1
    return units[len(units) - recent :]


def evicted(live: Sequence[Summary], base: Summary | None, new_tokens: int, rules: Rules) -> tuple[int, ...]:
    """Numbers of the oldest of the ``live`` summaries that make room for a new one, which replaces ``base``."""
    others = [summary for summary in live if base is None or summary.number != base.number]
    total = new_tokens + sum(summary.tokens for summary in others)
    gone = []
    for summary in others:
        if total <= rules.config.max_tokens:
            break
        total -= summary.tokens
        gone.append(summary.number)
    return tuple(gone)


def joined(summaries: Sequence[Summary]) -> str:
    return "\n\n".join(summary.text for summary in summaries)


def words_for(part_tokens: int, sample: str) -> int:
    """How many words a summary may have in the language of a text: about 6.5 characters each, space included."""
    estimated = tokens.estimate(sample[:20_000])
    characters = part_tokens * (
        min(len(sample), 20_000) / estimated if estimated else tokens.LATIN_CHARACTERS_PER_TOKEN
    )
    return max(10, int(characters / 6.5))
