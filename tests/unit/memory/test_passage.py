"""What of a message is embedded, and the id under which its vector is stored."""

import pytest

from klaw.memory.passage import PREVIOUS_CHARACTERS, RECIPE, RECIPES, passage_text, vectors_id


def test_the_recipes() -> None:
    assert passage_text("Да, в пятницу.", "Ты придёшь?", 1) == "Да, в пятницу."
    assert passage_text("Да, в пятницу.", "Ты придёшь?", 2) == "Ты придёшь?\nДа, в пятницу."
    assert passage_text("Yes.", None, 2) == "Yes."
    assert passage_text("Yes.", "x" * 100_000 + "?", 2) == "x" * (PREVIOUS_CHARACTERS - 1) + "?\nYes."


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_has_an_id_of_its_own(recipe: int) -> None:
    others = {vectors_id("m@1+abc", each) for each in RECIPES if each != recipe}
    assert vectors_id("m@1+abc", recipe) not in others


def test_the_recipe_in_use_is_one_of_them_and_the_first_keeps_the_models_id() -> None:
    assert RECIPE in RECIPES
    assert vectors_id("m@1+abc", 1) == "m@1+abc"
    assert passage_text("text", "before") == passage_text("text", "before", RECIPE)
