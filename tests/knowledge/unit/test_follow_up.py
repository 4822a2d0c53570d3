"""Which questions refer to what was said before, and with what they are searched."""

import pytest

from klaw.knowledge.follow_up import Pair, meant, query_of, refers


@pytest.mark.parametrize(
    "question",
    [
        "tell me more about the second",
        "Why?",
        "what about penalties?",
        "When does it end?",
        "And the last one?",
        "go on",
        "tell me more",
        "Is that so?",
        "Who signed them?",
        "а что насчёт второго?",
        "А подробнее?",
        "И сроки?",
        "Расскажи подробнее о нём",
        "Сроки?",
        "а третий?",
        "Как насчёт 2-го пункта?",
        "Почему?",
        "А когда она заканчивается?",
        "Кто его подписал?",
        "расскажи ещё",
    ],
)
def test_questions_that_refer(question: str) -> None:
    assert refers(question)


@pytest.mark.parametrize(
    "question",
    [
        "Thanks, that helps!",
        "Great, thank you",
        "What is the deposit in the lease agreement of 2024?",
        "Compare Python and Rust for embedded systems",
        "hello",
        "спасибо, понятно",
        "ок",
        "привет",
        "Хорошо, это помогло, спасибо",
        "Какой срок аренды указан в договоре с Ивановым?",
        "Сколько дней отпуска положено сотрудникам за год работы в компании?",
        "Напиши о том, что изменилось в налоговом законодательстве России за последний год",
    ],
)
def test_questions_that_stand_for_themselves_and_small_talk(question: str) -> None:
    assert not refers(question)


LIST = "Есть три штрафа:\n\n1. За просрочку 1 %.\n2. За порчу имущества,\n   по оценке.\n3. За шум.\n\nЭто всё."


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("а что насчёт второго?", "За порчу имущества, по оценке."),
        ("tell me more about the first", "За просрочку 1 %."),
        ("а последний?", "За шум."),
        ("расскажи про пункт 3", "За шум."),
        ("подробнее о 2-м", "За порчу имущества, по оценке."),
        ("what about the 3rd?", "За шум."),
        ("а девятый?", "Есть три штрафа: 1. За просрочку"),
        ("почему?", "Есть три штрафа: 1. За просрочку"),
    ],
)
def test_the_part_of_the_answer_that_is_meant(question: str, part: str) -> None:
    assert meant(question, LIST).startswith(part)


def test_a_follow_up_is_searched_with_the_last_pair() -> None:
    query = query_of("а что насчёт второго?", Pair("Какие есть штрафы?", LIST))
    assert query == "Какие есть штрафы?\nЗа порчу имущества, по оценке.\nа что насчёт второго?"
    assert len(query_of("why?", Pair("x" * 9_000, "y" * 9_000))) < 1_000
