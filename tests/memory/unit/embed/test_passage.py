"""What of a message is embedded, and the id under which its vector is stored."""

import pytest

from klaw.memory.embed.passage import CONTEXT_CHARACTERS, RECIPE, RECIPES, PassageText, passage, vectors_id


def test_the_recipes() -> None:
    assert passage("Да, в пятницу.", "Ты придёшь?", 1) == PassageText("Да, в пятницу.")
    assert passage("Да, в пятницу.", "Ты придёшь?", 2) == PassageText("Да, в пятницу.", "Ты придёшь?")
    assert passage("Yes.", None, 2) == PassageText("Yes.")
    assert passage("Yes.", "x" * 100_000 + "?", 2) == PassageText("Yes.", "x" * (CONTEXT_CHARACTERS - 1) + "?")


def test_a_long_message_needs_no_context() -> None:
    text = "a long story " * 40
    assert passage(text, "Tell me!", 2) == PassageText(text)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_has_an_id_of_its_own(recipe: int) -> None:
    others = {vectors_id("m@1+abc", each) for each in RECIPES if each != recipe}
    assert vectors_id("m@1+abc", recipe) not in others


def test_the_recipe_in_use_is_one_of_them_and_the_first_keeps_the_models_id() -> None:
    assert RECIPE in RECIPES
    assert vectors_id("m@1+abc", 1) == "m@1+abc"
    assert passage("text", "before") == passage("text", "before", RECIPE)
