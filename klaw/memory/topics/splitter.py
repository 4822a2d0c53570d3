"""From a chunk of messages to drafts of topics: asks the model, and puts its answer right."""

from collections.abc import Sequence
from functools import partial

import attrs

from klaw.domain.message import Message
from klaw.domain.quoting import tagged
from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.llm.types import JsonSchema
from klaw.memory.topics.answers import SPLIT_SCHEMA, BadAnswer, read_split, shorten
from klaw.memory.topics.asking import Asker
from klaw.memory.topics.spans import Group, by_size, place
from klaw.memory.topics.texts import general_summary, part_summary, render

_SCHEMA = JsonSchema(name="topics", schema=SPLIT_SCHEMA)
PROMPT = "topics_split"


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
    try:
        pieces = await asker.ask("topics", PROMPT, _material(shown), _SCHEMA, read_split)
    except BadAnswer:
        return _general(messages, threshold_chars, refused=True)
    placement = place(pieces, handled)
    drafts: list[Drafted] = []
    for group in placement.groups:
        drafts += await _fitting(asker, group, messages, threshold_chars)
    return Division(drafts=tuple(drafts), handled=handled, uncovered=placement.uncovered, refused=False)


def _material(shown: str) -> str:
    return tagged("conversation", shown)


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
    try:
        pieces = await asker.ask("topics", PROMPT, _material(shown), _SCHEMA, read_split)
    except BadAnswer:
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
