"""Packing recalled messages into a token budget. Pure."""

from collections.abc import Collection, Sequence

import attrs

from klaw.domain import tokens
from klaw.domain.search import Candidate, Decision
from klaw.memory.recall.excerpt import excerpt

MIN_SHARE_TOKENS = 48
"""A message may always take so many tokens: about two sentences. A longer one is first shown as an excerpt, so that
one cannot crowd out the others."""
_SHORTEST_EXCERPT_TOKENS = 24
LINE_TOKENS = 4
"""What ``[assistant] `` and the line break cost."""


def pack(candidates: Sequence[Candidate], wanted: Collection[str], *, top_k: int, max_tokens: int) -> list[Candidate]:
    """Decide which of the candidates that passed the gate go into the context, and how much of each.

    First each gets its share of the budget: a message that is longer is cut to an excerpt around the query's words, one
    that does not fit is skipped and the next is tried. Then what is left of the budget gives the excerpts more room,
    the best first.

    Args:
        candidates: the best first.
        wanted: index forms (stems) of the query's content words.
        top_k: at most so many are kept.
        max_tokens: at most so many tokens, estimated, are kept.

    Returns:
        All candidates in the same order, with the final decision, text and tokens.
    """
    share = max(MIN_SHARE_TOKENS, max_tokens // top_k)
    left, places = max_tokens, top_k
    packed = []
    for candidate in candidates:
        shown = candidate
        if candidate.passed:
            if places == 0:
                # Its excerpt is not made, that takes time; it would have about this length.
                cut = attrs.evolve(candidate, decision=Decision.OVER_TOP_K, tokens=min(candidate.tokens, share))
                packed.append(cut)
                continue
            if left < _SHORTEST_EXCERPT_TOKENS and candidate.tokens > share:
                short = min(candidate.tokens, share)  # likewise: no excerpt is so short
                packed.append(attrs.evolve(candidate, decision=Decision.OVER_BUDGET, tokens=short, left_tokens=left))
                continue
            shown = _shown(candidate, wanted, share)
            if shown.tokens > left:
                shown = attrs.evolve(shown, decision=Decision.OVER_BUDGET, left_tokens=left)
            else:
                left -= shown.tokens
                places -= 1
        packed.append(shown)
    return _lengthened(packed, wanted, left)


def line_tokens(text: str) -> int:
    """Estimated tokens of a recalled line."""
    return tokens.estimate(text) + LINE_TOKENS


def _lengthened(packed: list[Candidate], wanted: Collection[str], left: int) -> list[Candidate]:
    """Let the kept excerpts use what is left of the budget."""
    for at, candidate in enumerate(packed):
        if left < LINE_TOKENS:
            break
        if candidate.passed and candidate.text != candidate.message.content:
            longer = _shown(candidate, wanted, candidate.tokens + left)
            if longer.tokens <= candidate.tokens + left:
                left -= longer.tokens - candidate.tokens
                packed[at] = longer
    return packed


def _shown(candidate: Candidate, wanted: Collection[str], limit: int) -> Candidate:
    """A candidate with so much of its message that its line has at most ``limit`` tokens."""
    content = candidate.message.content
    if limit < _SHORTEST_EXCERPT_TOKENS:
        return candidate
    text = excerpt(content, wanted, limit - LINE_TOKENS)
    return attrs.evolve(candidate, text=text, tokens=line_tokens(text))
