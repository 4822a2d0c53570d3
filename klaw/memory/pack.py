"""Packing recalled messages into a token budget. Pure."""

import math
from collections.abc import Iterable, Sequence

import attrs

from klaw.domain import tokens
from klaw.domain.recall import Candidate, Decision

EXCERPT_SHARE = 0.5
"""A message longer than this share of the budget is shown as an excerpt, so that one cannot fill all of it."""
_SHORTEST_EXCERPT_TOKENS = 24
LINE_TOKENS = 4
"""What ``[assistant] `` and the line break cost."""


def pack(candidates: Sequence[Candidate], words: Iterable[str], *, top_k: int, max_tokens: int) -> list[Candidate]:
    """Decide which of the candidates that passed the gate go into the context.

    An item that does not fit is skipped and the next is tried. A very long message is cut to an excerpt around the
    query's words.

    Args:
        candidates: the best first.
        words: the query's content words, as written.
        top_k: at most so many are kept.
        max_tokens: at most so many tokens, estimated, are kept.

    Returns:
        All candidates in the same order, with the final decision, text and tokens.
    """
    wanted = tuple(words)
    left, places = max_tokens, top_k
    packed = []
    for candidate in candidates:
        if not candidate.passed:
            packed.append(candidate)
            continue
        shown = _shortened(candidate, wanted, math.floor(max_tokens * EXCERPT_SHARE))
        if places == 0:
            shown = attrs.evolve(shown, decision=Decision.OVER_TOP_K)
        elif shown.tokens > left:
            shown = attrs.evolve(shown, decision=Decision.OVER_BUDGET)
        else:
            left -= shown.tokens
            places -= 1
        packed.append(shown)
    return packed


def line_tokens(text: str) -> int:
    """Estimated tokens of a recalled line."""
    return tokens.estimate(text) + LINE_TOKENS


def _shortened(candidate: Candidate, words: Sequence[str], limit: int) -> Candidate:
    if candidate.tokens <= limit or limit < _SHORTEST_EXCERPT_TOKENS:
        return candidate
    text = excerpt(candidate.text, words, limit - LINE_TOKENS)
    return attrs.evolve(candidate, text=text, tokens=line_tokens(text))


def excerpt(text: str, words: Sequence[str], max_tokens: int) -> str:
    """A part of a text of at most ``max_tokens``, around the place with most of the words, on word boundaries.

    The parts left out are marked by ``…``.
    """
    if tokens.estimate(text) <= max_tokens:
        return text
    size = max(1, math.floor(len(text) * max_tokens / tokens.estimate(text)) - 4)
    folded = text.casefold()
    places = sorted(place for word in words if (place := folded.find(word.casefold())) >= 0)
    begin = 0
    if places and len(folded) == len(text):  # casefold may change the length; then the head is shown
        best = max(places, key=lambda place: sum(place <= other < place + size for other in places))
        begin = max(0, min(best - size // 4, len(text) - size))
    end = min(len(text), begin + size)
    if begin > 0:
        space = text.find(" ", begin, begin + 40)
        begin = space + 1 if space >= 0 else begin
    if end < len(text):
        space = text.rfind(" ", max(begin, end - 40), end)
        end = space if space > begin else end
    return ("… " if begin > 0 else "") + text[begin:end].strip() + (" …" if end < len(text) else "")
