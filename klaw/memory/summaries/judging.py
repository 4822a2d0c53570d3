"""Whether a model's answer is a summary. Pure."""

import json
import re

import attrs

from klaw.domain import tokens
from klaw.domain.text import clean_output

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


@attrs.frozen
class Accepted:
    """A summary."""

    text: str
    cut: bool = False
    """It was longer than allowed; the rest is left out."""


@attrs.frozen
class Rejected:
    """The answer is no use."""

    code: str
    """empty, refused or too_long."""


def judge(answer: str, max_tokens: int, *, last: bool) -> Accepted | Rejected:
    """Take a summary out of an answer.

    Args:
        answer: the model's.
        max_tokens: estimated tokens that were asked for.
        last: there is no further attempt, so what is too long is cut.
    """
    text = _unwrapped(clean_output(answer).strip())
    if not any(character.isalnum() for character in text):
        return Rejected("empty")
    if len(text) <= REFUSAL_CHARS and _REFUSAL.match(text):
        return Rejected("refused")
    limit = int(max_tokens * TOLERANCE)
    if tokens.estimate(text) <= limit:
        return Accepted(text)
    return Accepted(cut(text, limit), cut=True) if last else Rejected("too_long")


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
