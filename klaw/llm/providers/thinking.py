"""Tells a model's thinking from its answer where both come as one text. Pure."""

import re
from collections.abc import Iterator, Sequence

from klaw.llm.types import Delta, ReasoningDelta, TakenBack, TextDelta

_TAGS = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")},
    **{f"<{name}>": f"</{name}>" for name in ("longcat_think", "mm:think", "antThinking", "scratchpad", "reflection")},
    "<THINK>": "</THINK>",
    "◁think▷": "◁/think▷",
    "[THINK]": "[/THINK]",
    "<|think|>": "<|/think|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
}
"""The beginnings of thinking in the templates of models, with their ends."""
_ENDS = tuple(_TAGS.values())
_SIGNS = frozenset(end[0] for end in _ENDS)
MAX_TAG = 24

_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant[^<]{0,80})?<\|channel\|>\s*(\w+)(?:(?!<\|message\|>).){0,160}<\|message\|>", re.DOTALL
)
"""gpt-oss: the channel ``final`` is the answer, all others are thinking."""
_CHANNEL_BEGINS = ("<|start|>assistant", "<|channel|>")
_CHANNEL_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_NEXT = ("<|start|>", *_CHANNEL_BEGINS[1:])
"""Where the end of a channel is missing."""
MAX_CHANNEL = 260
_QUOTES = "`'\"“‘«("
_SENTENCE = ".!?…:;)]}。！？"


class ThinkSplitter:
    """Feed it text as it arrives, cut anywhere. Only what could be a part of a tag is held back.

    Thinking stands at the very start. The opening tag may be missing, because it stood at the end of the prompt: then
    all before the first closing one was thinking, and is taken back, or held back if the model ``holds`` so usually.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self.holds = holds
        self.unopened = False
        self.calls = False
        """The answer calls tools, so it need not say anything."""
        self._held = ""
        self._ends: Sequence[str] | None = None
        """While it thinks: what ends it."""
        self._answers = False
        self._channels = False
        self._thought = False
        self._watches = True
        """The closing tag of thinking that nothing opened may come."""
        self._said: list[str] = []

    def feed(self, text: str, *, last: bool = False) -> Iterator[Delta]:
        """The result must be exhausted before the next call."""
        self._held += text
        while self._held:
            before = self._held, self._answers, self._ends
            if self._ends is not None:
                yield from self._think(self._ends)
            elif self._answers:
                yield from self._answer(last=last)
            else:
                self._begin(last=last)
            if (self._held, self._answers, self._ends) == before:
                return

    def end(self) -> Iterator[Delta]:
        yield from self.feed("", last=True)
        held, self._held = self._held, ""
        if self._ends is not None:
            if held:
                yield ReasoningDelta(held)
        elif text := ("".join(self._said) if self.holds else "") + (
            "" if self._thought and not self._answers else held
        ):
            yield TextDelta(text)

    def _begin(self, *, last: bool) -> None:
        """Nothing but white space, and perhaps a part of an opening tag, so far."""
        bare = self._held.lstrip()
        if (channel := _CHANNEL.match(bare)) is not None:
            self._held, self._channels = bare[channel.end() :], True
            if channel[1] == "final":
                self._answers, self._watches = True, False
            else:
                self._ends = (*_CHANNEL_ENDS, *_NEXT)
        elif tag := next((tag for tag in _TAGS if bare.startswith(tag)), None):
            self._held, self._ends = bare[len(tag) :], (_TAGS[tag],)
        elif last or not _may_open(bare):
            self._answers = bool(bare)
            self._held = bare if self._thought else self._held

    def _think(self, ends: Sequence[str]) -> Iterator[Delta]:
        found = _first(self._held, ends)
        keep = found[0] if found is not None else len(self._held) - _begun(self._held, ends)
        thought, self._held = self._held[:keep], self._held[keep:]
        if found is not None:
            self._held = self._held if found[1] in _NEXT else self._held[len(found[1]) :]
            self._ends, self._thought, self._watches = None, True, False
            self.holds = False
        if thought:
            yield ReasoningDelta(thought)

    def _answer(self, *, last: bool) -> Iterator[Delta]:
        ends = _CHANNEL_ENDS if self._channels else _ENDS if self._watches else ()
        found = _first(self._held, ends)
        if found is None:
            keep = len(self._held) if last else len(self._held) - _begun(self._held, ends)
            yield from self._say(keep)
            return
        at, tag = found
        rest = self._held[at + len(tag) :]
        if self._channels:
            yield from self._say(at)
            self._held, self._answers, self._thought = rest, False, True
            return
        if not rest.strip() and not last:
            return  # what follows decides
        said = "".join(self._said)
        if not _closes(said + self._held[:at], rest[:1]):
            self._watches = False
            yield from self._say(at + len(tag))
        elif not rest.strip() and not self.calls:  # nothing follows, so what stands before it must be the answer
            yield from self._say(at)
            self._held = ""
        else:
            self.unopened = bool((said + self._held[:at]).strip())
            if said:
                yield ReasoningDelta(said) if self.holds else TakenBack(said)
            if at:
                yield ReasoningDelta(self._held[:at])
            self._held, self._answers, self._thought = rest, False, True
            self._watches = self.holds = False

    def _say(self, length: int) -> Iterator[Delta]:
        said, self._held = self._held[:length], self._held[length:]
        if said:
            if self._watches or self.holds:
                self._said.append(said)
            if not self.holds:
                yield TextDelta(said)


def _may_open(bare: str) -> bool:
    begins = (*_TAGS, *_CHANNEL_BEGINS)
    return any(each.startswith(bare) for each in begins) or (
        bare.startswith(_CHANNEL_BEGINS) and len(bare) < MAX_CHANNEL and "<|message|>" not in bare
    )


def _first(text: str, tags: Sequence[str]) -> tuple[int, str] | None:
    return min(((at, tag) for tag in tags if (at := text.find(tag)) >= 0), default=None)


def _begun(text: str, tags: Sequence[str]) -> int:
    tail = text[-MAX_TAG:]
    begins = (tail[at:] for at, sign in enumerate(tail) if sign in _SIGNS)
    return next((len(begun) for begun in begins if any(tag.startswith(begun) for tag in tags)), 0)


def _closes(before: str, after: str) -> bool:
    """Whether a closing tag ends thinking, and is not only mentioned. ``after`` is the next character."""
    if not before.strip():
        return True
    if any(opening in before for opening in _TAGS) or before.count("`") % 2 or before[-1] in _QUOTES:
        return False
    bare = before.rstrip(" ")
    return bare[-1:] in f"\n{_SENTENCE}" or after in "\r\n" or not (before[-1].isspace() or after.isspace())
