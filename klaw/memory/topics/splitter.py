"""From a chunk of messages to drafts of topics: asks the model, and gives every message a home: clamp, overlap,
coverage, size.

Messages are counted 1 … n within their chunk. Whatever the pieces are, each number ends in exactly one group.
"""

from collections.abc import Sequence
from functools import partial

import attrs

from klaw.domain.message import Message
from klaw.domain.text import tagged
from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.llm.ask_json import BadAnswer, Text, Whole
from klaw.memory.asking import Asker
from klaw.memory.topics.texts import general_summary, has_words, part_summary, render, shorten

PROMPT = "topics_split"


@attrs.frozen
class SplitTopic:
    """A topic as the model names it."""

    summary: Text
    start_msg_id: Whole
    end_msg_id: Whole


@attrs.frozen
class Split:
    """What the model answers."""

    topics: tuple[SplitTopic, ...]


@attrs.frozen
class Piece:
    """A topic as the splitter named it."""

    summary: str
    first: int
    last: int
    """Included."""


@attrs.frozen
class Group:
    """Messages that become one topic."""

    summary: str | None
    """None: what no piece claimed."""
    members: tuple[int, ...]
    """Ascending, never empty."""


@attrs.frozen(kw_only=True)
class Placement:
    """A home for every message."""

    groups: tuple[Group, ...]
    """In the order of their first messages."""
    uncovered: int
    """Messages that no piece claimed."""


def place(pieces: Sequence[Piece], count: int) -> Placement:
    """Give each of ``count`` messages its group.

    Numbers beyond the chunk are clamped to it; a piece that lies wholly outside is left out. Where pieces overlap, the
    one that begins earlier wins (of two that begin together the one named first), and the other keeps its rest.
    """
    inside = []
    for piece in pieces:
        low, high = sorted((piece.first, piece.last))
        if high >= 1 and low <= count:
            inside.append((max(low, 1), min(high, count), piece.summary))
    groups: list[Group] = []
    free: list[int] = []
    upto = 0
    for low, high, summary in sorted(inside, key=lambda each: each[0]):  # stable
        first = max(low, upto + 1)
        if first > high:
            continue
        free += range(upto + 1, first)
        groups.append(Group(summary, tuple(range(first, high + 1))))
        upto = high
    free += range(upto + 1, count + 1)
    if free:
        groups.append(Group(None, tuple(free)))
    return Placement(groups=tuple(sorted(groups, key=lambda group: group.members[0])), uncovered=len(free))


def by_size(members: Sequence[int], sizes: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    """Cut a group into parts of about the same size, none over a limit unless it is one message.

    Args:
        members: numbers from 1.
        sizes: of all messages, by number - 1.
        limit: most of one part.
    """
    total = sum(sizes[member - 1] for member in members)
    target = total / max(1, -(-total // limit))
    parts: list[list[int]] = []
    filled = 0
    for member in members:
        size = sizes[member - 1]
        if not parts or filled + size > limit or filled >= target:
            parts.append([])
            filled = 0
        parts[-1].append(member)
        filled += size
    return [tuple(part) for part in parts]


@attrs.frozen
class Drafted:
    """A topic that is to be."""

    summary: str
    general: bool
    messages: tuple[Message, ...]


@attrs.frozen(kw_only=True)
class Division:
    """What a chunk was divided into."""

    drafts: tuple[Drafted, ...]
    """Every handled message is in one of them."""
    handled: int
    """So many of the first messages; the others did not fit into the model's context."""
    uncovered: int
    """Messages that the model named no topic for."""
    refused: bool
    """There was no usable answer, so all is one general conversation."""


async def divide(asker: Asker, messages: Sequence[Message], *, speaks: bool, threshold_chars: int) -> Division:
    """Divide a chunk.

    Args:
        asker: for the model.
        messages: of one chat, in order; not empty.
        speaks: somebody said something; else no model is asked.
        threshold_chars: a topic over so many characters is divided again.

    Raises:
        ProviderError, ConfigError: the model cannot be asked now; nothing is known.
    """
    if not speaks:
        return _general(messages, threshold_chars, refused=False)
    shown, handled = render(messages, asker.room("topics", PROMPT))
    messages = messages[:handled]
    pieces = await _ask(asker, shown)
    if pieces is None:
        return _general(messages, threshold_chars, refused=True)
    placement = place(pieces, handled)
    drafts: list[Drafted] = []
    for group in placement.groups:
        drafts += await _fitting(asker, group, messages, threshold_chars)
    return Division(drafts=tuple(drafts), handled=handled, uncovered=placement.uncovered, refused=False)


async def _ask(asker: Asker, shown: str) -> list[Piece] | None:
    return await asker.ask("topics", PROMPT, tagged("conversation", shown), "topics", Split, pieces_of)


def pieces_of(split: Split) -> list[Piece]:
    """Pieces of a chunk, with long summaries cut. Raises BadAnswer: there are none, or one has an empty summary."""
    if not split.topics:
        raise BadAnswer("the list of topics is empty")
    if not all(has_words(topic.summary) for topic in split.topics):
        raise BadAnswer("a summary is empty")
    return [
        Piece(shorten(topic.summary, MAX_SUMMARY_CHARS), topic.start_msg_id, topic.end_msg_id) for topic in split.topics
    ]


def _general(messages: Sequence[Message], threshold_chars: int, *, refused: bool) -> Division:
    group = Group(None, tuple(range(1, len(messages) + 1)))
    drafts = _by_size(group, messages, threshold_chars)
    return Division(
        drafts=tuple(drafts), handled=len(messages), uncovered=len(messages) if refused else 0, refused=refused
    )


async def _fitting(asker: Asker, group: Group, messages: Sequence[Message], threshold_chars: int) -> list[Drafted]:
    """A group as one topic or, when it is too large, as several: by the model, else by their size."""
    own = [messages[member - 1] for member in group.members]
    if len(own) == 1 or group.summary is None or sum(len(each.content) for each in own) <= threshold_chars:
        return _by_size(group, messages, threshold_chars)
    shown, handled = render(own, asker.room("topics", PROMPT))
    if handled < len(own):
        return _by_size(group, messages, threshold_chars)
    pieces = await _ask(asker, shown)
    if pieces is None:
        return _by_size(group, messages, threshold_chars)
    drafts: list[Drafted] = []
    for part in place(pieces, len(own)).groups:
        # What the parts left over stays under the summary of the whole.
        drafts += _by_size(Group(part.summary or group.summary, part.members), own, threshold_chars)
    return drafts


def _by_size(group: Group, messages: Sequence[Message], threshold_chars: int) -> list[Drafted]:
    parts = by_size(group.members, [len(each.content) for each in messages], threshold_chars)
    own = partial(_of, messages)
    summary = general_summary(messages) if group.summary is None else group.summary
    if len(parts) == 1:
        return [Drafted(summary, group.summary is None, own(parts[0]))]
    return [
        Drafted(_part(summary, number, len(parts), messages), group.summary is None, own(part))
        for number, part in enumerate(parts, 1)
    ]


def _part(summary: str, number: int, total: int, messages: Sequence[Message]) -> str:
    return part_summary(shorten(summary, MAX_SUMMARY_CHARS - 40), number, total, messages)


def _of(messages: Sequence[Message], members: Sequence[int]) -> tuple[Message, ...]:
    return tuple(messages[member - 1] for member in members)
