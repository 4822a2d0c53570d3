"""What a search shows of a message: the part with the matches, and where in it they are. Pure.

The matches are positions, not markup: how they look is the surface's affair.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise

import attrs

from klaw.memory.recall.excerpt import excerpt
from klaw.store.tokenizer import READ_WHOLE_CHARACTERS, forms, forms_in, is_lone

SNIPPET_TOKENS = 80


@attrs.frozen
class Snippet:
    """A piece of a message, in one line."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """First character and the one after the last of each match, in order, apart from each other."""


def snippet(content: str, wanted: Collection[str], max_tokens: int = SNIPPET_TOKENS) -> Snippet:
    """The part of a message with the most of the wanted words, and their places in it.

    Args:
        content: of the message; any length.
        wanted: index forms (stems) of the query's words.
        max_tokens: estimated, of the snippet.
    """
    text = " ".join(excerpt(content, _all_forms(content, wanted), max_tokens).split())
    return Snippet(text, tuple(_merged(_matches(text, wanted))))


def forms_there(content: str, wanted: Collection[str]) -> set[str]:
    """Which of the query's forms a text has; a character of a script without spaces also as the beginning of one."""
    there = forms_in(content, wanted)
    lone = {form for form in wanted if is_lone(form)} - there
    if lone:
        begins = {form[: len(each)] for _, _, form in forms(content[:READ_WHOLE_CHARACTERS]) for each in lone}
        there |= lone & begins
    return there


def _all_forms(content: str, wanted: Collection[str]) -> Collection[str]:
    """With the pairs that begin with a wanted character of a script without spaces: it matches as a prefix."""
    lone = tuple(form for form in wanted if is_lone(form))
    if not lone:
        return wanted
    pairs = {form for _, _, form in forms(content[:READ_WHOLE_CHARACTERS]) if form.startswith(lone)}
    return {*wanted, *pairs}


def _matches(text: str, wanted: Collection[str]) -> Iterator[tuple[int, int]]:
    lone = tuple(form for form in wanted if is_lone(form))
    tokens = [*forms(text), (len(text), len(text), "")]
    for (begin, end, form), (following, _, _) in pairwise(tokens):
        if form in wanted:
            yield begin, end
        elif lone and form.startswith(lone):
            yield begin, min(end, following)  # of a pair its first character, where the next pair begins after it


def _merged(marks: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Marks that overlap or touch as one: the pairs of a run."""
    last: tuple[int, int] | None = None
    for begin, end in marks:
        if last is not None and begin <= last[1]:
            last = (last[0], max(last[1], end))
            continue
        if last is not None:
            yield last
        last = (begin, end)
    if last is not None:
        yield last
