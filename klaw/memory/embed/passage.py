"""What of a message is embedded. Pure. ``RECIPE`` is part of the id under which vectors are stored, so another recipe
re-embeds everything like another model, and no vector is compared with a query that was calibrated for another."""

import attrs

from klaw.domain import tokens

RECIPE = 2
"""1, of Klaw 0.1, was the message alone. A number that was used once never gets another meaning."""
CONTEXT_CHARACTERS = 100
"""The end of the previous message that is read: an answer refers to what was said last. Each token costs time; 160
characters bring 0.4 points of recall@400 more on LoCoMo, for up to 17 more tokens."""
MAX_TOKENS_IN_CONTEXT = 100
"""A longer message says itself what it is about."""


@attrs.frozen
class PassageText:
    """A text to embed and what the model reads before it."""

    text: str
    context: str = ""
    """Read with the text, so that "Yes, on Friday" means something; the vector is that of the text's own tokens."""


def passage(content: str, previous: str | None) -> PassageText:
    """What is embedded for a message, after the nearest earlier one of its session that is searched."""
    if not previous or tokens.estimate(content) > MAX_TOKENS_IN_CONTEXT:
        return PassageText(content)
    return PassageText(content, previous[-CONTEXT_CHARACTERS:])


def vectors_id(model_id: str) -> str:
    """The id that vectors are stored under: two with one id may be compared."""
    return f"{model_id}/{RECIPE}"
