"""Marks of answers: which hold, which are taken out, what is left alone."""

import pytest

from klaw.knowledge.citations import check, without_marks

PASSAGES = {
    1: "Аренда.pdf\nОплата\nАрендатор платит до 5-го числа каж-\nдого месяца; ставка — 1,5 % в день.",
    2: "lease.pdf\nDeposit\nThe tenant shall pay the deposit within ten days of signing this agreement.",
}
PAID = "платит до 5-го числа каждого месяца"


@pytest.mark.parametrize(
    ("answer", "text", "cited", "removed"),
    [
        ("Платят до 5-го [1].", "Платят до 5-го [1].", {1}, 0),
        ("Так [3]. И так [1, 3].", "Так. И так [1].", {1}, 2),
        ("By numbers [1-3], [1;2], [1][2].", "By numbers [1][2], [1][2], [1][2].", {1, 2}, 1),
        ("Other forms 【2†source】 and [^1].", "Other forms [2] and [1].", {1, 2}, 0),
        ("- [7] a thing\n- another [0]", "- a thing\n- another", set(), 2),
        ("In [2024] and in [100] nothing is meant [2].", "In [2024] and in [100] nothing is meant [2].", {2}, 0),
        ("No marks at all", "No marks at all", set(), 0),
    ],
)
def test_only_what_was_given_is_cited(answer: str, text: str, cited: set[int], removed: int) -> None:
    checked = check(answer, PASSAGES)
    assert (checked.text, checked.cited, checked.removed) == (text, cited, removed)


@pytest.mark.parametrize(
    "kept",
    [
        "see `list[3]` there",
        "```python\nx = rows[3]\n```\nand so on",
        "~~~\nx[9]\n~~~",
        "```\nan open fence: x[3]",
        "[3](https://example.org/x) and ![4](picture.png)",
        "[the text][3]\n\n[3]: https://example.org",
        "a note[^1]\n\n[^1]: [3] is only mentioned here",
    ],
)
def test_code_links_and_definitions_are_left_alone(kept: str) -> None:
    assert check(kept, PASSAGES).text == kept


@pytest.mark.parametrize(
    ("answer", "holds"),
    [
        (f"Сказано: «{PAID}» [1].", True),
        (f"Сказано: «{PAID.upper()}» [1].", True),
        ("Сказано: «ставка - 1,5 % в день» [1].", True),
        ("Сказано: «ставка — 15 % каждый день» [1].", False),
        ("Сказано: «платит до 10-го числа каждого месяца» [1].", False),
        (f"Сказано: «{PAID}» [2].", False),
        (f"Сказано: „{PAID}“ (см. договор) [1].", True),
        ('According to [2], "the **tenant** shall pay … within ten days of signing".', True),
        ("It says “within ten days of signing … the tenant shall pay” [2].", False),
        ('The clause "a deposit" is there [2].', True),  # too short to be a quotation
        ("«Это название совсем другой книги о море»\n\nА оплата описана в договоре [1].", True),  # not beside it
        (f"В двух местах: «{PAID}» [1][2].", True),
    ],
)
def test_what_is_quoted_beside_a_mark_stands_in_the_passage(answer: str, holds: bool) -> None:
    checked = check(answer, PASSAGES)
    assert (checked.removed == 0) is holds
    assert ("[" in checked.text) is holds


def test_marks_of_earlier_answers_are_not_shown_again() -> None:
    assert without_marks("Да [1]. И `x[1]` [2, 3]!") == "Да. И `x[1]`!"
    assert without_marks("nothing") == "nothing"


@pytest.mark.parametrize(
    "hostile",
    ["[" * 100_000, "`" * 100_000, "```\n" * 30_000, "«" * 100_000, "[1" + ",1" * 50_000, "【1" * 50_000,
     '"a ' * 50_000, "[1] " * 20_000 + '"one two three four five six" ' * 2_000],
)  # fmt: skip
def test_a_hostile_answer_costs_little(hostile: str) -> None:
    assert check(hostile, PASSAGES).text
