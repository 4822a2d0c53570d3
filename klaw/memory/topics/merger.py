"""Whether a new topic goes on with an older one: which may be merged, and what the model says."""

from collections.abc import Sequence

import attrs

from klaw.domain.text import minute, one_line
from klaw.domain.topic import MAX_SUMMARY_CHARS, Topic, TopicCandidate
from klaw.errors import BadAnswer
from klaw.llm.ask_json import Text, Whole
from klaw.memory.background_llm import Asker
from klaw.memory.topics.texts import has_words, shorten

PROMPT = "topics_merge"
MIN_COSINE = 0.85
MAX_CANDIDATES = 10
MAX_MERGED_CHARS = 50_000
"""A topic that swallows everything finds nothing."""


@attrs.frozen(kw_only=True)
class MergeAnswer:
    """What the model answers; ``topic`` is the number of an older one, from 1."""

    should_merge: bool
    reason: Text = ""
    topic: Whole = 0
    merged_summary: Text = ""


@attrs.frozen
class Merge:
    """With which candidate, by its number from 1, a topic is merged, and under which summary."""

    place: int
    summary: str


def candidates(new: Topic, found: Sequence[TopicCandidate]) -> list[TopicCandidate]:
    """The topics that a new one may be merged with, the most alike first: of its user and its chat, near enough, and
    small enough together. ``found``: by vector, scored by cosine."""
    fitting = [
        like
        for like in found
        if like.topic.id != new.id
        and (like.topic.user, like.topic.chat) == (new.user, new.chat)
        and like.score >= MIN_COSINE
        and not like.topic.general
        and like.topic.chars + new.chars <= MAX_MERGED_CHARS
    ]
    return sorted(fitting, key=lambda like: (-like.score, like.topic.id))[:MAX_CANDIDATES]


async def decide(asker: Asker, new: Topic, candidates: Sequence[TopicCandidate]) -> Merge | None:
    """With which candidate the new topic is to be merged; None when with none, or when no answer could be read. Raises
    ProviderError or ConfigError when the model cannot be asked now."""

    def read(answer: MergeAnswer) -> Merge | None:
        return merge_of(answer, len(candidates))

    return await asker.ask("topics", PROMPT, material(new, candidates), "merge", MergeAnswer, read)


def merge_of(answer: MergeAnswer, candidates: int) -> Merge | None:
    """None: with none, or with one that is no candidate. Raises BadAnswer: a merge without a summary."""
    if not answer.should_merge or not 1 <= answer.topic <= candidates:
        return None
    if not has_words(answer.merged_summary):
        raise BadAnswer("merged_summary is empty")
    return Merge(answer.topic, shorten(answer.merged_summary, MAX_SUMMARY_CHARS))


def material(new: Topic, candidates: Sequence[TopicCandidate]) -> str:
    """What the model is shown. Pure."""
    older = [f"{number}. {_line(like.topic)}" for number, like in enumerate(candidates, 1)]
    return "\n".join(["New topic:", _line(new), "", "Older topics:", *older])


def _line(topic: Topic) -> str:
    return f"[{minute(topic.first_at)} to {minute(topic.last_at)}] {one_line(topic.summary)}"
