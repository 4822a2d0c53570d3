"""What of a message is embedded: the one place that decides it. Pure.

``RECIPE`` is part of the id under which vectors are stored, so another recipe re-embeds everything like another model,
and no vector of one recipe is ever compared with a query that was calibrated for another.
"""

from collections.abc import Callable, Mapping

import attrs

from klaw.domain import tokens

RECIPE = 2
"""The recipe in use; a key of ``RECIPES``. A number that was used once never gets another meaning."""

CONTEXT_CHARACTERS = 100
"""Only the end of the previous message is read: what was said last is what an answer refers to. Each token costs time;
160 characters bring 0.4 points of recall@400 more on LoCoMo, for up to 17 more tokens."""
MAX_TOKENS_IN_CONTEXT = 100
"""A longer message says by itself what it is about."""


@attrs.frozen
class PassageText:
    """A text to embed and what the model reads before it."""

    text: str
    context: str = ""
    """Read with the text, so that "Yes, on Friday" means something; the vector is that of the text's own tokens."""


def _alone(content: str, _previous: str | None) -> PassageText:
    return PassageText(content)


def _in_context(content: str, previous: str | None) -> PassageText:
    if not previous or tokens.estimate(content) > MAX_TOKENS_IN_CONTEXT:
        return PassageText(content)
    return PassageText(content, previous[-CONTEXT_CHARACTERS:])


RECIPES: Mapping[int, Callable[[str, str | None], PassageText]] = {1: _alone, 2: _in_context}
"""1: the message alone. 2: read after the end of the one before it."""


def passage(content: str, previous: str | None, recipe: int = RECIPE) -> PassageText:
    """What is embedded for a message.

    Args:
        previous: of the nearest earlier message of the same session that is searched, if there is one.
    """
    return RECIPES[recipe](content, previous)


def vectors_id(model_id: str, recipe: int = RECIPE) -> str:
    """The id that vectors are stored under: two with one id may be compared.

    Recipe 1 adds nothing to the model's id: that is what databases of Klaw 0.1 hold.
    """
    return model_id if recipe == 1 else f"{model_id}/{recipe}"
