"""Which things a question names, in Russian and English alike."""

import pytest

from klaw.knowledge.graph.matching import form, matches, needle, read_question
from klaw.knowledge.graph.sparql import Blank, Iri, Literal


def rows(*labels: str) -> list[dict[str, object]]:
    return [{"e": Iri(f"http://x/{label.replace(' ', '_')}"), "l": Literal(label, "en")} for label in labels]


def named(question: str, *labels: str, also: str = "") -> list[str]:
    return [match.label for match in matches(rows(*labels), read_question(question, also), 10)]


@pytest.mark.parametrize(
    ("question", "label"),
    [
        ("Where was Marie Curie born?", "Marie Curie"),
        ("tell me about cities", "City"),
        ("Кто написал роман Толстого?", "Лев Толстой"),
        ("рост Королёва", "Сергей Королёв"),
        ("рост Королева", "Сергей Королёв"),
        ("Что есть в Варшаве?", "Варшава"),
        ("книги Чехова", "Антон Чехов"),
        ("東京の人口は？", "東京"),
    ],
)
def test_a_thing_is_found_by_any_form_of_its_name(question: str, label: str) -> None:
    assert named(question, label, "Quite another thing") == [label]


def test_more_of_a_label_is_better_and_what_hardly_fits_is_left_out() -> None:
    assert named("Where was Marie Curie born?", "Marie Curie", "Marie", "Marie Curie High School of Arts") == [
        "Marie Curie",
        "Marie",
    ]
    assert named("Curie", "A History of the Curie Family in Paris and Warsaw") == []


def test_small_talk_names_nothing() -> None:
    assert not read_question("ok, thanks a lot!").weights
    assert not read_question("ну ладно, спасибо").weights


def test_words_of_the_dialogue_before_count_half() -> None:
    found = matches(rows("Warsaw", "Paris"), read_question("And the population of Paris?", "Tell me about Warsaw"), 10)
    assert [match.label for match in found] == ["Paris"] or found[0].label == "Paris"
    assert [match.label for match in matches(rows("Warsaw"), read_question("and now?", "Tell me about Warsaw"), 1)] == [
        "Warsaw"
    ]


@pytest.mark.parametrize(
    "words",
    [
        "hope hoping hoped hopes",
        "city cities",
        "university universities",
        "Варшава Варшаве Варшавы Варшавой",
        "Королёв Королёва Королева Королёвым",
        "Чехов Чехова Чеховым",
        "книга книги книгу",
        "Zürich",
    ],
)
def test_the_needle_of_a_word_is_in_all_its_forms(words: str) -> None:
    """So that an endpoint, which knows no stems, gives all labels that may fit."""
    each = words.split()
    assert len({form(word) for word in each}) == 1
    for asked in each:
        for label in each:
            assert needle(asked) in label.casefold().replace("ё", "е")


def test_labels_without_a_name_are_told_apart_by_the_label() -> None:
    found = matches([{"e": Blank("b1"), "l": Literal("Depot North", "en")}], read_question("the north depot"), 5)
    assert [(match.iri, match.label) for match in found] == [("", "Depot North")]


def test_what_is_no_label_of_a_valid_thing_is_passed_over() -> None:
    odd = [
        {},
        {"e": Iri("http://x/> . DROP ALL"), "l": Literal("Warsaw")},
        {"e": Iri("http://x"), "l": Iri("http://warsaw")},
        {"e": Literal("Warsaw"), "l": Literal("Warsaw")},
    ]
    assert matches(odd, read_question("Warsaw"), 5) == []


def test_the_order_depends_on_nothing_but_the_labels() -> None:
    many = rows("Warsaw", "Warsaw University", "University of Warsaw", "Warsaw Uprising", "Old Warsaw")
    asked = read_question("Warsaw")
    assert matches(many, asked, 3) == matches(reversed(many), asked, 3)


def test_a_question_of_any_length_is_read() -> None:
    asked = read_question("Warsaw " + "слово words " * 100_000)
    assert len(asked.weights) <= 12
