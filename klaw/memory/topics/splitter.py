"""From a user's messages without a topic to drafts of topics. Messages are cut into sessions and those into chunks; a
model divides a chunk, and every message of it gets a home: clamp, overlap, coverage, size.

A session is what a user said, in all chats, without a pause; after one, or at a number of messages, it is stale. A
chunk is what of a stale session was said in one chat: a topic never mixes chats. Messages are counted 1 … n within
their chunk; whatever the model answers, each number ends in exactly one group.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from klaw.domain.message import Message
from klaw.domain.names import ChatId
from klaw.domain.text import tagged
from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.errors import BadAnswer
from klaw.llm.ask_json import Text, Whole
from klaw.memory.background_llm import Asker
from klaw.memory.topics.texts import general_summary, has_words, part_summary, render, shorten
from klaw.store.kinds.topics import UnarchivedMessage

ChunkKey: TypeAlias = tuple[ChatId, int]
"""Chat and row id of the first message: the same as long as the chunk waits."""


@attrs.frozen(kw_only=True)
class TopicChunk:
    chat: ChatId
    rowids: tuple[int, ...]
    speaks: bool
    """Somebody said something in it; else there is nothing to ask a model about."""

    @property
    def key(self) -> ChunkKey:
        return self.chat, self.rowids[0]


@attrs.frozen(kw_only=True)
class Cut:
    """The chunks of a page of messages, the oldest first, and when the session that is not stale yet was last used."""

    chunks: tuple[TopicChunk, ...]
    open_since: float | None


def cut(rows: Sequence[UnarchivedMessage], now: float, pause_s: float, max_messages: int, *, more: bool) -> Cut:
    """Cut messages without a topic into the chunks of the sessions that are over. ``more``: the last one goes on."""
    chunks: list[TopicChunk] = []
    open_since = None
    for session in _sessions(rows, pause_s):
        is_last = session[-1] is rows[-1]
        closed = not is_last or (not more and _apart(session[-1].created_s, now) >= pause_s)
        for start in range(0, len(session), max_messages):
            piece = session[start : start + max_messages]
            if closed or len(piece) == max_messages:
                chunks += _by_chat(piece)
            elif not more:
                open_since = piece[-1].created_s
    return Cut(chunks=tuple(chunks), open_since=open_since)


def _sessions(rows: Sequence[UnarchivedMessage], pause_s: float) -> list[list[UnarchivedMessage]]:
    sessions: list[list[UnarchivedMessage]] = [[rows[0]]] if rows else []
    for before, row in pairwise(rows):
        if _apart(before.created_s, row.created_s) >= pause_s:
            sessions.append([])
        sessions[-1].append(row)
    return sessions


def _apart(one: float, other: float) -> float:
    """A clock that was set back must not keep a session open until it has caught up."""
    return abs(other - one)


def _by_chat(rows: Sequence[UnarchivedMessage]) -> list[TopicChunk]:
    of: dict[ChatId, list[UnarchivedMessage]] = {}
    for row in rows:
        of.setdefault(row.chat, []).append(row)
    return [
        TopicChunk(chat=chat, rowids=tuple(row.rowid for row in own), speaks=any(row.said for row in own))
        for chat, own in of.items()
    ]


PROMPT = "topics_split"


@attrs.frozen
class AnsweredTopic:
    """A topic as the model names it, with its first and its last message."""

    summary: Text
    start_msg_id: Whole
    end_msg_id: Whole


@attrs.frozen
class Split:
    topics: tuple[AnsweredTopic, ...]


@attrs.frozen
class MessageGroup:
    """Messages, in ascending order, that become one topic. No summary: the model named no topic for them."""

    summary: str | None
    members: tuple[int, ...]


def place(pieces: Sequence[AnsweredTopic], count: int) -> list[MessageGroup]:
    """Give each of ``count`` messages its group; the groups are in the order of their first messages. Numbers beyond
    the chunk are clamped to it; a piece that lies wholly outside is left out. Where pieces overlap, the one that begins
    earlier wins (of two that begin together the one named first), and the other keeps its rest."""
    inside = []
    for piece in pieces:
        low, high = sorted((piece.start_msg_id, piece.end_msg_id))
        if high >= 1 and low <= count:
            inside.append((max(low, 1), min(high, count), piece.summary))
    groups: list[MessageGroup] = []
    free: list[int] = []
    upto = 0
    for low, high, summary in sorted(inside, key=lambda each: each[0]):  # stable
        first = max(low, upto + 1)
        if first > high:
            continue
        free += range(upto + 1, first)
        groups.append(MessageGroup(summary, tuple(range(first, high + 1))))
        upto = high
    free += range(upto + 1, count + 1)
    if free:
        groups.append(MessageGroup(None, tuple(free)))
    return sorted(groups, key=lambda group: group.members[0])


def by_size(members: Sequence[int], sizes: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    """Cut a group into parts of about the same size, none over a limit unless it is one message."""
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
class DraftTopic:
    summary: str
    general: bool
    messages: tuple[Message, ...]


@attrs.frozen(kw_only=True)
class Division:
    drafts: tuple[DraftTopic, ...]
    handled: int
    uncovered: int
    refused: bool
    """There was no usable answer, so all is one general conversation."""


async def divide(asker: Asker, messages: Sequence[Message], *, speaks: bool, threshold_chars: int) -> Division:
    """Divide the messages of a chunk; a topic over ``threshold_chars`` is divided again. If nobody ``speaks``, no model
    is asked. Raises ProviderError or ConfigError when it cannot be asked now."""
    if not speaks:
        return _general(messages, threshold_chars, refused=False)
    shown, handled = render(messages, asker.room("topics", PROMPT))
    messages = messages[:handled]
    pieces = await _ask(asker, shown)
    if pieces is None:
        return _general(messages, threshold_chars, refused=True)
    groups = place(pieces, handled)
    drafts: list[DraftTopic] = []
    for group in groups:
        drafts += await _fitting(asker, group, messages, threshold_chars)
    uncovered = sum(len(group.members) for group in groups if group.summary is None)
    return Division(drafts=tuple(drafts), handled=handled, uncovered=uncovered, refused=False)


async def _ask(asker: Asker, shown: str) -> list[AnsweredTopic] | None:
    return await asker.ask("topics", PROMPT, tagged("conversation", shown), "topics", Split, pieces_of)


def pieces_of(split: Split) -> list[AnsweredTopic]:
    """Raises BadAnswer: there are none, or a summary is empty."""
    if not split.topics:
        raise BadAnswer("the list of topics is empty")
    if not all(has_words(topic.summary) for topic in split.topics):
        raise BadAnswer("a summary is empty")
    return [attrs.evolve(topic, summary=shorten(topic.summary, MAX_SUMMARY_CHARS)) for topic in split.topics]


def _general(messages: Sequence[Message], threshold_chars: int, *, refused: bool) -> Division:
    group = MessageGroup(None, tuple(range(1, len(messages) + 1)))
    drafts = _by_size(group, messages, threshold_chars)
    return Division(
        drafts=tuple(drafts), handled=len(messages), uncovered=len(messages) if refused else 0, refused=refused
    )


async def _fitting(
    asker: Asker, group: MessageGroup, messages: Sequence[Message], threshold_chars: int
) -> list[DraftTopic]:
    """A group as one topic or, when it is too large, as several: by the model, else by their size."""
    own = [messages[member - 1] for member in group.members]
    whole = _by_size(group, messages, threshold_chars)
    if len(own) == 1 or group.summary is None or sum(len(each.content) for each in own) <= threshold_chars:
        return whole
    shown, handled = render(own, asker.room("topics", PROMPT))
    pieces = await _ask(asker, shown) if handled == len(own) else None
    if pieces is None:
        return whole
    drafts: list[DraftTopic] = []
    for part in place(pieces, len(own)):
        # What the parts left over stays under the summary of the whole.
        drafts += _by_size(MessageGroup(part.summary or group.summary, part.members), own, threshold_chars)
    return drafts


def _by_size(group: MessageGroup, messages: Sequence[Message], threshold_chars: int) -> list[DraftTopic]:
    parts = by_size(group.members, [len(each.content) for each in messages], threshold_chars)
    summary = general_summary(messages) if group.summary is None else group.summary
    return [
        DraftTopic(
            part_summary(summary, number, len(parts), messages) if len(parts) > 1 else summary,
            group.summary is None,
            tuple(messages[member - 1] for member in part),
        )
        for number, part in enumerate(parts, 1)
    ]
