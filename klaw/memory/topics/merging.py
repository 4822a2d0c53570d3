"""Which topics may be merged. Pure."""

from collections.abc import Sequence

import attrs

from klaw.domain.topic import Topic

MIN_COSINE = 0.85
MAX_CANDIDATES = 10
MAX_MERGED_CHARS = 50_000
"""A topic that swallows everything finds nothing."""


@attrs.frozen
class Like:
    """A topic that is like another."""

    topic: Topic
    cosine: float


def candidates(new: Topic, found: Sequence[Like]) -> list[Like]:
    """The topics that a new one may be merged with, the most alike first.

    They are of its user and its chat, near enough, and small enough together.
    """
    fitting = [
        like
        for like in found
        if like.topic.id != new.id
        and (like.topic.user, like.topic.chat) == (new.user, new.chat)
        and like.cosine >= MIN_COSINE
        and not like.topic.general
        and like.topic.chars + new.chars <= MAX_MERGED_CHARS
    ]
    return sorted(fitting, key=lambda like: (-like.cosine, like.topic.id))[:MAX_CANDIDATES]
