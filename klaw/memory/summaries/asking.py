"""One summary by the model: its prompts in turn, its answers judged, one further attempt each.

A slot is held for one call at a time, and only while nobody who waits for an answer wants it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from klaw.actor.vitals import Vitals
from klaw.context.request import request_tokens
from klaw.domain import tokens
from klaw.errors import KlawError, ProviderMalformed, ProviderTimeout
from klaw.llm.client import Meter
from klaw.llm.provider import Route
from klaw.llm.slots import Priority, Slots
from klaw.llm.types import ChatMessage, Completion, JsonSchema, Request, Usage
from klaw.memory.summaries import rendering
from klaw.memory.summaries.judging import Accepted, Rejected, cut, judge

CALL_S = 900.0
"""A call may take this long; a small machine's own model reads a long prompt for minutes."""
ANSWER_FACTOR = 2
"""The model may write so many times the tokens that a summary may have: what is too long is cut at a sentence's end."""

_AGAIN = {
    "empty": rendering.EMPTY_AGAIN,
    "too_long": rendering.TOO_LONG_AGAIN,
    "refused": rendering.REFUSED_AGAIN,
}


class NoSummary(KlawError):
    """The model gave no summary, twice. ``code`` is ``empty`` or ``refused``."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the model gave no summary ({code})")
        self.code = code


class Correction(Protocol):
    """The part of ``chats.correction.TokenCorrection`` that is used."""

    def of(self, model: str) -> float: ...
    def learn(self, model: str, *, estimated: int, reported: int) -> None: ...
    def overflowed(self, model: str, *, refused: int, usable: int) -> None: ...


@attrs.define(kw_only=True)
class Asker:
    """Calls of one model for one summary; counts what they used."""

    route: Route
    meter: Meter
    slots: Slots
    correction: Correction
    vitals: Vitals
    temperature: float | None
    used: Usage = attrs.Factory(lambda: Usage(prompt_tokens=0, completion_tokens=0))
    model: str = ""
    """Who answered last."""

    async def summarise(self, parts: Sequence[str], *, base: str, earlier: str, max_tokens: int, words: int) -> str:
        """The summary of a transcript that is read in parts, each together with the summary of those before it.

        Raises:
            NoSummary: twice there was none.
            ProviderError: the model could not be asked.
        """
        text = base
        for part in parts:

            def prompt(again: str, part: str = part, so_far: str = text) -> tuple[ChatMessage, ...]:
                return rendering.summary_prompt(part, base=so_far, earlier=earlier, words=words, again=again)

            text = await self._accepted(prompt, max_tokens)
        return text

    async def ask(
        self, messages: tuple[ChatMessage, ...], max_tokens: int, schema: JsonSchema | None = None
    ) -> Completion:
        """One call, after those that somebody waits for.

        Raises:
            ProviderError: no answer.
        """
        estimated = request_tokens(messages)
        ratio = self.correction.of(self.route.name)
        request = Request(
            model=self.route.model,
            messages=messages,
            temperature=self.temperature,
            max_tokens=max(16, min(self.route.max_output_tokens, int(max_tokens * max(1.0, ratio)))),
            json_schema=schema,
        )
        async with self.slots.slot(Priority.BACKGROUND, vitals=self.vitals):
            self.vitals.doing("waiting for the model")
            with trio.move_on_after(CALL_S) as limit:
                completion = await self.meter.stream(self.route, request, lambda _delta: None)
            if limit.cancelled_caught:
                raise ProviderTimeout(f"no summary within {CALL_S:g} s")
        usage = completion.usage or Usage(prompt_tokens=estimated, completion_tokens=tokens.estimate(completion.text))
        self.used = Usage(
            prompt_tokens=self.used.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.used.completion_tokens + usage.completion_tokens,
        )
        self.model = completion.model or self.route.name
        if completion.usage is not None:
            self.correction.learn(self.model, estimated=estimated, reported=completion.usage.prompt_tokens)
        return completion

    async def _accepted(self, prompt: Callable[[str], tuple[ChatMessage, ...]], max_tokens: int) -> str:
        first = await self._first(prompt(""), max_tokens)
        if isinstance(first, Accepted):
            return first.text
        second = self._judge(
            await self.ask(prompt(_AGAIN[first.code]), max_tokens * ANSWER_FACTOR), max_tokens, last=True
        )
        if isinstance(second, Rejected):
            raise NoSummary(second.code)
        return second.text

    async def _first(self, messages: tuple[ChatMessage, ...], max_tokens: int) -> Accepted | Rejected:
        try:
            completion = await self.ask(messages, max_tokens * ANSWER_FACTOR)
        except ProviderMalformed:
            return Rejected("empty")  # an answer without any text, or none at all
        return self._judge(completion, max_tokens, last=False)

    def _judge(self, completion: Completion, max_tokens: int, *, last: bool) -> Accepted | Rejected:
        judged = judge(completion.text, max_tokens, last=last)
        if completion.finish_reason != "length" or isinstance(judged, Rejected):
            return judged
        # Torn in the middle of a sentence.
        whole = cut(judged.text, max(1, tokens.estimate(judged.text) - 1))
        return Accepted(whole, cut=True) if last else Rejected("too_long")
