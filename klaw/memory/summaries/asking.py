"""One summary by the model: its prompts in turn, its answers judged, one further attempt each.

A slot is held for one call at a time, and only while nobody who waits for an answer wants it."""

import json
import re
from collections.abc import Callable, Sequence

import attrs

from klaw.actor.supervisor import Vitals
from klaw.domain import tokens
from klaw.domain.text import clean_output
from klaw.errors import NoSummary
from klaw.llm.client import TokenCorrection
from klaw.llm.errors import ProviderMalformed
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.types import ChatMessage, Completion, JsonSchema, Route, Usage
from klaw.memory.background_llm import Asker
from klaw.memory.summaries import rendering

ANSWER_FACTOR = 2
"""The model may write so many times the tokens that a summary may have: what is too long is cut at a sentence's end."""

TOLERANCE = 1.25
"""A summary may be so much longer than was asked for."""
REFUSAL_CHARS = 300
"""A longer text that begins like a refusal says something nevertheless."""

_FENCE = re.compile(r"\A```[a-zA-Z]*\n(.*?)\n?```\Z", re.DOTALL)
_REFUSAL = re.compile(
    r"\A\W*(?:i(?:['’]m| am) (?:sorry|unable|not able)|sorry\b|i (?:can(?:no|['’])t|cannot|won['’]t|will not)"
    r"|i apologi[sz]e|as an ai\b|unfortunately,? i (?:can|am)"
    r"|(?:извин|прости(?:те)?\b|к сожалению,? я|я не (?:могу|буду|в состоянии)|не могу (?:помочь|выполнить)))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？](?=\s|\Z)|\n")
_AGAIN = {"empty": rendering.EMPTY_AGAIN, "too_long": rendering.TOO_LONG_AGAIN, "refused": rendering.REFUSED_AGAIN}


def judge(answer: str, max_tokens: int, *, last: bool) -> str:
    """Take a summary out of an answer, of ``max_tokens`` (estimated) if it is not the ``last`` attempt; then what is
    too long is cut. Raises NoSummary."""
    text = _unwrapped(clean_output(answer).strip())
    if not any(character.isalnum() for character in text):
        raise NoSummary("empty")
    if len(text) <= REFUSAL_CHARS and _REFUSAL.match(text):
        raise NoSummary("refused")
    limit = int(max_tokens * TOLERANCE)
    if not last and tokens.estimate(text) > limit:
        raise NoSummary("too_long")
    return cut(text, limit)


def _unwrapped(text: str) -> str:
    """The text inside of a code fence, or of a JSON object with one text, which some models answer with."""
    fenced = _FENCE.match(text)
    inner = fenced.group(1).strip() if fenced else text
    if not inner.startswith(('{"', "{ ", "{\n", "[{", '["')):
        return inner
    try:
        value = json.loads(inner)
    except (ValueError, RecursionError):
        return ""  # half a JSON value
    texts = [each for each in value.values() if isinstance(each, str)] if isinstance(value, dict) else []
    return clean_output(texts[0]).strip() if len(texts) == 1 else ""


def cut(text: str, max_tokens: int) -> str:
    """The beginning of a text, up to the end of a sentence where there is one in its second half."""
    estimated = tokens.estimate(text)
    if estimated <= max_tokens:
        return text
    size = max(1, int(len(text) * max_tokens / estimated))
    while size > 1 and tokens.estimate(text[:size]) > max_tokens:
        size = int(size * 0.9)
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, size) if found.end() > size // 2]
    return text[: ends[-1] if ends else size].rstrip()


@attrs.define(kw_only=True)
class SummaryModel:
    """Calls of one model for one summary; counts what they used."""

    asker: Asker
    route: Route
    correction: TokenCorrection
    vitals: Vitals
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
        """One call, after those that somebody waits for. Raises ProviderError: no answer."""
        estimated = request_tokens(messages)
        ratio = max(1.0, self.correction.of(self.route.name))
        completion = await self.asker.call(
            self.route,
            messages,
            schema=schema,
            max_tokens=max(16, min(self.route.max_output_tokens, int(max_tokens * ratio))),
            vitals=self.vitals,
        )
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
        try:
            return self._judge(await self.ask(prompt(""), max_tokens * ANSWER_FACTOR), max_tokens, last=False)
        except ProviderMalformed:
            code = "empty"  # an answer without any text, or none at all
        except NoSummary as error:
            code = error.code
        return self._judge(await self.ask(prompt(_AGAIN[code]), max_tokens * ANSWER_FACTOR), max_tokens, last=True)

    def _judge(self, completion: Completion, max_tokens: int, *, last: bool) -> str:
        text = judge(completion.text, max_tokens, last=last)
        if completion.finish_reason != "length":
            return text
        if not last:
            raise NoSummary("too_long")
        return cut(text, max(1, tokens.estimate(text) - 1))  # torn in the middle of a sentence
