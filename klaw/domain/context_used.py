"""What a chat that is bound to knowledge bases was answered from: what was looked up, and what of it the model was
given. Pure.

It stands in the turn's receipt; in the answer's own metadata without the texts, so that every client knows what its
marks refer to.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import attrs

from klaw.convert import JOURNAL, OMIT
from klaw.domain.knowledge import BaseId, Place, SourceId, UsedPassage
from klaw.domain.text import plural

KEY = "context_used"
"""In receipts and in the metadata of answers."""

_TEXTS = ("text", "sparql", "iri")
"""Of what an answer was given."""

_MOST_TOLD = 3
"""Other places of a passage that are named."""

Follows: TypeAlias = Literal["", "pair", "model"]
"""How the query came from the question: as it is, with the last pair before it, or rewritten by the model."""


@attrs.frozen(kw_only=True)
class Ran:
    """A query that a graph was asked."""

    source: SourceId
    sparql: str
    rows: int = 0
    error: Annotated[str, OMIT] = ""
    """Code of what went wrong."""


@attrs.frozen(kw_only=True)
class ContextUsed:
    """See the module."""

    query: str = ""
    """What was searched."""
    follows: Annotated[Follows, OMIT] = ""
    bases: tuple[BaseId, ...] = ()
    """Those that were searched."""
    gone: Annotated[tuple[BaseId, ...], OMIT] = ()
    """Bases that the chat is bound to and that were deleted, or are not shared with its user any more."""
    passages: tuple[UsedPassage, ...] = ()
    """The best first; before they are given to the model all are numbered 0."""
    sparql: Annotated[tuple[Ran, ...], OMIT] = ()
    nothing: Annotated[str, OMIT] = ""
    """Code of why no passage was given: ``too_far``, ``no_content``, ``no_passages``, ``no_bases``, ``no_room`` …"""
    degraded: Annotated[tuple[str, ...], OMIT] = ()
    """Codes of what was missing in the search."""
    removed: Annotated[int, OMIT] = 0
    """Marks that did not hold and were taken out of the answer."""
    uncited: Annotated[bool, OMIT] = False
    """The model was given passages, and its answer refers to none of them."""

    @property
    def texts(self) -> dict[int, str]:
        """What each number stands for, with its name and headings: what an answer may quote."""
        return {each.number: f"{each.name}\n{each.heading}\n{each.text}" for each in self.passages}

    @property
    def places(self) -> Iterator[Place]:
        """Where what was given stands, also in further documents."""
        return (place for each in self.passages for place in (each, *each.also))

    def written(self) -> dict[str, Any]:
        """As a receipt has it."""
        told: dict[str, Any] = JOURNAL.write(self)
        return told

    def without_texts(self) -> "ContextUsed":
        """For the answer's metadata."""
        passages = tuple(attrs.evolve(each, text="", sparql="") for each in self.passages)
        return attrs.evolve(self, passages=passages, sparql=())


def read(told: Mapping[str, Any]) -> ContextUsed | None:
    """What a receipt, or the metadata of an answer, says of it. None: the chat was not bound, or it is not readable."""
    try:
        return JOURNAL.read(told[KEY], ContextUsed) if KEY in told else None
    except ValueError:
        return None


def blank(receipt: Mapping[str, Any], gone: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """A receipt without the texts of what is gone, and without places there."""
    used = receipt.get(KEY)
    if not isinstance(used, dict):
        return {**receipt}
    parts = {name: [_blank(each, gone) for each in used[name]] for name in ("passages", "sparql") if name in used}
    return {**receipt, KEY: {**used, **parts}}


def _blank(each: Mapping[str, Any], gone: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    texts = {text: "" for text in _TEXTS if gone(each) and text in each}
    also = {"also": [place for place in each["also"] if not gone(place)]} if "also" in each else {}
    return {**each, **texts, **also}


def place_of(used: UsedPassage) -> str:
    """Where a passage stands, for people and for the model: its name, pages and headings, in one line."""
    also = [_place(each, "") for each in used.also[:_MOST_TOLD]]
    more = len(used.also) - len(also)
    told = [*also, *([f"{plural(more, 'other place')}"] if more else [])]
    return _place(used, used.heading) + (f" (the same: {'; '.join(told)})" if told else "")


def _place(place: Place, heading: str) -> str:
    pages = ""
    if place.first_page is not None:
        last = place.last_page
        pages = f"page {place.first_page}" if last in (None, place.first_page) else f"pages {place.first_page}-{last}"
    return ", ".join(" ".join(part.split()) for part in (place.name, pages, heading) if part.strip())
