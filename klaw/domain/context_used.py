"""What a chat that is bound to knowledge bases was answered from, for the turn's receipt, and without the texts for the
answer's metadata. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import attrs

from klaw.convert import JOURNAL, OMIT
from klaw.domain.knowledge import BaseId, Place, SourceId, UsedPassage
from klaw.domain.text import plural

KEY = "context_used"

_TEXTS = ("text", "sparql", "iri")
_NAMES = ("name", "heading")

_MOST_TOLD = 3

Follows: TypeAlias = Literal["", "pair", "model"]
"""How the query came from the question: as it is, with the last pair before it, or rewritten by the model."""


@attrs.frozen(kw_only=True)
class Ran:
    """A query that a graph was asked. ``error``: code of what went wrong."""

    source: SourceId
    sparql: str
    rows: int = 0
    error: Annotated[str, OMIT] = ""


@attrs.frozen(kw_only=True)
class ContextUsed:
    query: str = ""
    follows: Annotated[Follows, OMIT] = ""
    bases: tuple[BaseId, ...] = ()
    gone: Annotated[tuple[BaseId, ...], OMIT] = ()
    """Bases of the chat that were deleted, or are no longer shared with its user."""
    passages: tuple[UsedPassage, ...] = ()
    """The best first; all are numbered 0 before the model gets them."""
    sparql: Annotated[tuple[Ran, ...], OMIT] = ()
    nothing: Annotated[str, OMIT] = ""
    """Why no passage was given: ``too_far``, ``no_content``, ``no_passages``, ``no_bases``, ``no_room`` …"""
    weak: Annotated[bool, OMIT] = False
    """No passage fits the question well: perhaps none has the answer."""
    degraded: Annotated[tuple[str, ...], OMIT] = ()
    removed: Annotated[int, OMIT] = 0
    """Invalid citations that were removed from the answer."""
    uncited: Annotated[bool, OMIT] = False
    """The model was given passages, and its answer cites none."""

    @property
    def texts(self) -> dict[int, str]:
        """What an answer may quote: each number's name, headings and text."""
        return {each.number: f"{each.name}\n{each.heading}\n{each.text}" for each in self.passages}

    @property
    def places(self) -> Iterator[Place]:
        return (place for each in self.passages for place in (each, *each.also))

    def written(self) -> dict[str, Any]:
        told: dict[str, Any] = JOURNAL.write(self)
        return told

    def without_texts(self) -> "ContextUsed":
        passages = tuple(attrs.evolve(each, text="", sparql="") for each in self.passages)
        return attrs.evolve(self, passages=passages, sparql=())


def read(told: Mapping[str, Any]) -> ContextUsed | None:
    """What a receipt, or the metadata of an answer, says of it. None: the chat was not bound, or it is malformed."""
    try:
        return JOURNAL.read(told[KEY], ContextUsed) if KEY in told else None
    except ValueError:
        return None


def blank(
    receipt: Mapping[str, Any], gone: Callable[[Mapping[str, Any]], bool], *, names: bool = False
) -> dict[str, Any]:
    """A receipt without the texts of what is gone, and without places there; with ``names`` without these, too."""
    used = receipt.get(KEY)
    if not isinstance(used, dict):
        return {**receipt}
    parts = {
        name: [_blank(each, gone, (*_TEXTS, *_NAMES) if names else _TEXTS) for each in used[name]]
        for name in ("passages", "sparql")
        if name in used
    }
    return {**receipt, KEY: {**used, **parts}}


def _blank(each: Mapping[str, Any], gone: Callable[[Mapping[str, Any]], bool], what: Sequence[str]) -> dict[str, Any]:
    texts = {text: "" for text in what if gone(each) and text in each}
    also = {"also": [place for place in each["also"] if not gone(place)]} if "also" in each else {}
    return {**each, **texts, **also}


def place_of(used: UsedPassage) -> str:
    """Where a passage stands, in one line: its name, pages and headings."""
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
