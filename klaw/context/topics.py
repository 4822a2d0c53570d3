"""Chosen topics in a prompt: each with its summary and so much of what was said as its share of the budget holds. Pure.
Every text is one line behind a mark of Klaw's, so none can pass for another message or topic, or end the record."""

from collections.abc import Mapping, Sequence

import attrs

from klaw.context.request import shorten
from klaw.domain import tokens
from klaw.domain.message import Message
from klaw.domain.names import ChatId, name_of
from klaw.domain.text import TOPICS_HEADER as HEADER
from klaw.domain.text import minute, one_line
from klaw.domain.topic import ChosenTopics, Fate, TopicCandidate, TopicId

GAP = "  […]"
MAX_MESSAGE_CHARS = 1_500
"""A longer message is shown by its beginning and its end."""
_READ_CHARS = 4 * MAX_MESSAGE_CHARS
MIN_LOG_TOKENS = 24
"""With less room than this a topic is its summary alone."""


@attrs.frozen(kw_only=True)
class Present:
    rowids: frozenset[int]
    summarised: tuple[ChatId, int, int] | None = None
    """The chat, the first and the last message number that the shown summaries cover."""


@attrs.frozen(kw_only=True)
class TopicInPrompt:
    candidate: TopicCandidate
    lines: tuple[str, ...]
    kept: tuple[int, ...]
    """Places of the messages that are shown."""
    present: int
    summary: bool
    """Whether its summary is shown: a summary of the chat does not tell it already."""
    excerpt: bool

    @property
    def id(self) -> TopicId:
        return self.candidate.topic.id

    @property
    def tokens(self) -> int:
        return _cost(self.lines)

    @property
    def whole(self) -> tuple[int, ...]:
        """Row ids of the messages that are shown in full."""
        return self._rowids(long=False)

    @property
    def part(self) -> tuple[int, ...]:
        """Row ids of the messages that are shortened."""
        return self._rowids(long=True)

    @property
    def left_out(self) -> int:
        return len(self.candidate.messages) - self.present - len(self.kept)

    def _rowids(self, *, long: bool) -> tuple[int, ...]:
        kept = (self.candidate.messages[place] for place in self.kept)
        return tuple(each.rowid for each in kept if _is_long(each) is long)


@attrs.frozen(kw_only=True)
class PackedTopics:
    shown: tuple[TopicInPrompt, ...] = ()
    fates: Mapping[TopicId, Fate] = attrs.Factory(dict)

    @property
    def text(self) -> str:
        return "\n".join([HEADER, *(line for each in self.shown for line in each.lines)]) if self.shown else ""

    @property
    def tokens(self) -> int:
        return _cost([HEADER]) + sum(each.tokens for each in self.shown) if self.shown else 0

    @property
    def whole(self) -> frozenset[int]:
        return frozenset(rowid for each in self.shown for rowid in each.whole)


NO_TOPICS = PackedTopics()


def pack(chosen: ChosenTopics | None, present: Present, max_tokens: int) -> PackedTopics:
    """Put chosen topics into a budget, the most useful first. Each may take half of what is left, the last one all. Of
    one that does not fit, the messages that have most to do with the question are shown, with a mark where others are
    missing. Messages that the prompt shows anyway are left out."""
    mine = chosen.chosen if chosen is not None else ()
    left = max_tokens - _cost([HEADER])
    shown: list[TopicInPrompt] = []
    fates: dict[TopicId, Fate] = {}
    for number, candidate in enumerate(mine, 1):
        if _there(candidate, present) == len(candidate.messages):
            fates[candidate.topic.id] = Fate.IN_CONTEXT
            continue
        made = _fit(candidate, present, left, left // 2 if number < len(mine) else left)
        fates[candidate.topic.id] = Fate.OVER_BUDGET if made is None else Fate.CHOSEN
        if made is not None:
            shown.append(made)
            left -= made.tokens
    return PackedTopics(shown=tuple(shown), fates=fates)


def without(packed: PackedTopics, present: Present) -> PackedTopics:
    """What is left when the prompt shows more without the topics than before; it never takes more tokens."""
    fates, shown = dict(packed.fates), []
    for each in packed.shown:
        candidate = each.candidate
        if _there(candidate, present) == len(candidate.messages):
            fates[each.id] = Fate.IN_CONTEXT
        elif each.excerpt:
            shown.append(each)
        else:
            kept = [place for place in each.kept if candidate.messages[place].rowid not in present.rowids]
            if kept or each.summary:
                shown.append(_shown(candidate, present, kept))
            else:
                fates[each.id] = Fate.OVER_BUDGET
    return PackedTopics(shown=tuple(shown), fates=fates)


def _fit(candidate: TopicCandidate, present: Present, left: int, share: int) -> TopicInPrompt | None:
    places = [at for at, message in enumerate(candidate.messages) if message.rowid not in present.rowids]
    smallest = _cost([_head(candidate, present, len(places) - 1)])  # the longest that it may be, for what is cut
    room = min(left, max(share, smallest))
    if candidate.excerpt and (lines := _excerpt(candidate.excerpt, room - smallest)):
        made = _shown(candidate, present, [])
        return attrs.evolve(made, lines=(*made.lines, *lines), excerpt=True)
    if _is_within(candidate, places, room) and (whole := _shown(candidate, present, places)).tokens <= room:
        return whole
    if smallest > room:
        return None
    kept = _fitting(candidate, places, room - smallest)
    return _shown(candidate, present, kept) if kept or not _is_summarised(candidate, present) else None


def _shown(candidate: TopicCandidate, present: Present, kept: Sequence[int]) -> TopicInPrompt:
    lines = [_head(candidate, present, len(kept))]
    expected = 0
    for at in (*kept, len(candidate.messages)) if kept else ():
        if any(message.rowid not in present.rowids for message in candidate.messages[expected:at]):
            lines.append(GAP)
        if at < len(candidate.messages):
            lines.append(_said(candidate.messages[at]))
        expected = at + 1
    return TopicInPrompt(
        candidate=candidate,
        lines=tuple(lines),
        kept=tuple(kept),
        present=_there(candidate, present),
        summary=not _is_summarised(candidate, present),
        excerpt=False,
    )


def _head(candidate: TopicCandidate, present: Present, count: int) -> str:
    topic, wanted = candidate.topic, len(candidate.messages) - _there(candidate, present)
    said = f"{minute(topic.first_at)} to {minute(topic.last_at)}, chat {one_line(name_of(topic.chat))}"
    cut = f", {count} of {wanted} messages" if count < wanted else ""
    return f"[topic, {said}{cut}]" + ("" if _is_summarised(candidate, present) else f" {one_line(topic.summary)}")


def _there(candidate: TopicCandidate, present: Present) -> int:
    return sum(message.rowid in present.rowids for message in candidate.messages)


def _is_summarised(candidate: TopicCandidate, present: Present) -> bool:
    if present.summarised is None:
        return False
    chat, first, last = present.summarised
    return candidate.topic.chat == chat and all(first <= message.seq <= last for message in candidate.messages)


def _is_within(candidate: TopicCandidate, places: Sequence[int], room: int) -> bool:
    """Whether these messages fit. Reads no more than that takes: this runs on the event loop."""
    for at in places:
        room -= _cost([_said(candidate.messages[at])])
        if room < 0:
            return False
    return True


def _fitting(candidate: TopicCandidate, places: Sequence[int], room: int) -> list[int]:
    """Places of the messages that are shown, in order: those that are worth most, each counting a little for the one
    after it, its answer. Each may cost a mark of a gap before it; the last one also behind it."""
    if room < MIN_LOG_TOKENS:
        return []
    gap = _cost([GAP])
    left, kept = room - gap, []
    worths = candidate.worths or (0.0,) * len(candidate.messages)
    for at in sorted(places, key=lambda at: (-worths[at] - (worths[at - 1] / 2 if at else 0.0), at)):
        message = candidate.messages[at]
        if message.tokens > left and len(message.content) <= MAX_MESSAGE_CHARS:
            continue  # without reading it: there may be hundreds
        cost = _cost([_said(message)]) + gap
        if cost <= left:
            left -= cost
            kept.append(at)
    return sorted(kept)


def _excerpt(text: str, room: int) -> list[str]:
    if room < MIN_LOG_TOKENS:
        return []
    line = f"  [excerpt] {one_line(shorten(one_line(text), room - 8))}"
    return [line] if _cost([line]) <= room else []


def _is_long(message: Message) -> bool:
    text = message.content
    return len(text) > MAX_MESSAGE_CHARS and (len(text) > _READ_CHARS or len(one_line(text)) > MAX_MESSAGE_CHARS)


def _said(message: Message) -> str:
    text = message.content
    if _is_long(message):
        half = MAX_MESSAGE_CHARS // 2
        line = f"{one_line(text[: 2 * half])[:half]} […] {one_line(text[-2 * half :])[-half:]}"
    else:
        line = one_line(text)
    return f"  [{message.role.value}] {line}"


def _cost(lines: Sequence[str]) -> int:
    return sum(tokens.estimate(line) + 1 for line in lines)
