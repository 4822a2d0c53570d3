"""What of a question says what to look for."""

import pytest

from klaw.knowledge.search import plain_question


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("What did Netflix pay? Answer in millions.", "What did Netflix pay?"),
        ("Which counties are there? Write the answer in list format.", "Which counties are there?"),
        ("Assume that you are an analyst. How large is the debt? Round to one place.", "How large is the debt?"),
        ("Кто подписал договор? Ответь одним словом.", "Кто подписал договор?"),
        ("Сколько стоит аренда? Пожалуйста, округли до рублей.", "Сколько стоит аренда?"),
        ("Ты — юрист. Что сказано о собаках?", "Что сказано о собаках?"),
        ("Сравни тарифы. Дай ответ списком.", "Сравни тарифы."),
        ("What was the FY2018 margin, and in FY19?", "What was the 2018 margin, and in 2019?"),
    ],
)
def test_how_to_answer_is_left_out(text: str, plain: str) -> None:
    assert plain_question(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "Answer in one word.",
        "Ответь кратко.",
        "Show me the list of parts. What do they cost?",
        "Дай список глав. Кто их написал?",
        "You are an analyst; here is the question: what is the debt?",
        "Write to Anna. The lease ends in May.",
        "",
    ],
)
def test_what_is_asked_stays(text: str) -> None:
    assert plain_question(text) == text
