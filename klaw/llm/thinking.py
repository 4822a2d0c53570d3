"""Splits ``<think>...</think>`` at the start of an answer from the answer itself, piece by piece. Pure."""

import enum
from collections.abc import Iterator

from klaw.llm.types import Delta, ReasoningDelta, TextDelta

OPEN = "<think>"
CLOSE = "</think>"


class _At(enum.Enum):
    """Where in the answer the splitter stands."""

    START = enum.auto()
    """Nothing but white space and perhaps a part of the opening tag so far."""
    THINKING = enum.auto()
    AFTER = enum.auto()
    """Right behind the closing tag; white space is dropped."""
    ANSWER = enum.auto()


class ThinkSplitter:
    """Feed it text as it arrives. A tag may be cut anywhere; only what could be a part of a tag is held back.

    Only thinking at the very start counts: later tags are what the model says about tags.
    """

    def __init__(self) -> None:
        self._at = _At.START
        self._held = ""

    def feed(self, text: str) -> Iterator[Delta]:
        """Take the next text and give what is certain. The result must be exhausted before the next call."""
        self._held += text
        if self._at is _At.START:
            bare = self._held.lstrip()
            if bare.startswith(OPEN):
                self._at, self._held = _At.THINKING, bare[len(OPEN) :]
            elif not OPEN.startswith(bare):
                self._at = _At.ANSWER
        if self._at is _At.THINKING:
            yield from self._think()
        if self._at is _At.AFTER:
            self._held = self._held.lstrip()
            if self._held:
                self._at = _At.ANSWER
        if self._at is _At.ANSWER:
            yield from self._flush(TextDelta)

    def end(self) -> Iterator[Delta]:
        """The text is over: give what was held back."""
        yield from self._flush(ReasoningDelta if self._at is _At.THINKING else TextDelta)

    def _think(self) -> Iterator[Delta]:
        thought, closed, rest = self._held.partition(CLOSE)
        if closed:
            self._held = thought
            yield from self._flush(ReasoningDelta)
            self._at, self._held = _At.AFTER, rest
            return
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if thought.endswith(CLOSE[:n])), 0)
        tail = thought[len(thought) - keep :]
        self._held = thought[: len(thought) - keep]
        yield from self._flush(ReasoningDelta)
        self._held = tail

    def _flush(self, kind: type[TextDelta] | type[ReasoningDelta]) -> Iterator[Delta]:
        held, self._held = self._held, ""
        if held:
            yield kind(held)
