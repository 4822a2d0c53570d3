"""What the reranker is shown of topics, and what is chosen when it does not answer. Pure."""

from collections.abc import Sequence

from klaw.domain import tokens
from klaw.domain.message import Message
from klaw.domain.quoting import one_line
from klaw.domain.topic import Topic
from klaw.memory.topics.answers import shorten
from klaw.memory.topics.texts import minute, render

MAX_LOADS = 3
LOAD_S = 30.0
WHOLE_S = 60.0
FALLBACK_TOPICS = 5
LONG_CHARS = 25_000
"""Of a longer topic an excerpt is given, not all of it."""
MAX_EXCERPT_CHARS = 4_000
MAX_LINE_CHARS = 600


def line(topic: Topic, cosine: float | None) -> str:
    """One candidate."""
    near = "-" if cosine is None else f"{cosine:.2f}"
    size = f"{topic.messages} messages, {topic.chars} characters{', long' if topic.chars > LONG_CHARS else ''}"
    summary = shorten(one_line(topic.summary), MAX_LINE_CHARS)
    return f"#{topic.id} [{near}] {minute(topic.first_at)} to {minute(topic.last_at)}, {size}: {summary}"


def fitting(lines: Sequence[str], max_tokens: int) -> int:
    """How many of the first lines fit, one at least."""
    left, count = max_tokens, 0
    for each in lines:
        left -= tokens.estimate(each) + 1
        if left < 0:
            break
        count += 1
    return max(1, count)


def content(topic: Topic, messages: Sequence[Message], max_tokens: int) -> str:
    """A topic's messages as the reranker reads them; of a long one as much as fits, each message shortened."""
    shown, count = render(messages, max_tokens)
    rest = f"\n[{len(messages) - count} more messages]" if count < len(messages) else ""
    return f"Topic #{topic.id}:\n{shown}{rest}"


def fallback(order: Sequence[int], loaded: Sequence[int]) -> list[int]:
    """Without an answer: what it loaded, else the best that were found.

    Args:
        order: the candidates, the best first.
        loaded: those whose contents it asked for, in order.
    """
    known = set(order)
    chosen = [topic for topic in dict.fromkeys(loaded) if topic in known]
    return (chosen or list(order))[:FALLBACK_TOPICS]


def excerpt(messages: Sequence[Message]) -> str:
    """Of a long topic when the reranker gave no excerpt: its beginning and its end."""
    text = "\n".join(f"{message.role.value}: {message.content}" for message in messages)
    if len(text) <= MAX_EXCERPT_CHARS:
        return text
    half = MAX_EXCERPT_CHARS // 2 - 4
    return f"{text[:half]}\n[…]\n{text[-half:]}"
