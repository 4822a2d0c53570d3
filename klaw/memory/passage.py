"""What of a message is embedded: the one place that decides it. Pure.

``RECIPE`` is part of the id under which vectors are stored, so another recipe re-embeds everything like another model,
and no vector of one recipe is ever compared with a query that was calibrated for another.
"""

from collections.abc import Callable, Mapping

RECIPE = 1
"""The recipe in use; a key of ``RECIPES``. A number that was used once never gets another meaning."""

PREVIOUS_CHARACTERS = 400
"""Of the previous message only its end goes along: what was said last is what an answer refers to."""


def _alone(content: str, _previous: str | None) -> str:
    return content


def _after_previous(content: str, previous: str | None) -> str:
    return f"{previous[-PREVIOUS_CHARACTERS:]}\n{content}" if previous else content


RECIPES: Mapping[int, Callable[[str, str | None], str]] = {1: _alone, 2: _after_previous}
"""1: the message alone. 2: after the end of the one before it, because "Yes, on Friday" says nothing by itself."""


def passage_text(content: str, previous: str | None, recipe: int = RECIPE) -> str:
    """The text whose vector stands for a message.

    Args:
        content: of the message.
        previous: of the nearest earlier message of the same chat and segment that is searched, if there is one.
        recipe: a key of ``RECIPES``.
    """
    return RECIPES[recipe](content, previous)


def vectors_id(model_id: str, recipe: int = RECIPE) -> str:
    """The id that vectors are stored under: two with one id may be compared.

    Recipe 1 adds nothing to the model's id: that is what databases of Klaw 0.1 hold.
    """
    return model_id if recipe == 1 else f"{model_id}/{recipe}"
