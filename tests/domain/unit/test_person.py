"""People: what may be one, when names are the same, and when a text names somebody."""

import attrs
import pytest

from klaw.domain.names import UserId
from klaw.domain.person import (
    MAX_ALIASES,
    MAX_NAME,
    MAX_RELATION,
    Finder,
    Person,
    PersonId,
    PersonSource,
    aliases_of,
    check,
    merged,
    normal_name,
    person_name,
    relation_text,
    words_of,
)
from klaw.errors import InvalidValue

AT = "2026-11-21T10:00:00.000Z"
ANYA = Person(
    id=PersonId("p1"),
    user=UserId("local"),
    name="Аня",
    source=PersonSource.USER,
    said_at=AT,
    created_at=AT,
    updated_at=AT,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  Аня ", "Аня"),
        ("Anna\n  Petrova", "Anna Petrova"),
        ("\x1b[31mAnna\x1b[0m", "Anna"),
        ("Ан\x07на", "Анна"),
        ("O'Neil", "O'Neil"),
        ("李", "李"),
    ],
)
def test_a_name_is_one_clean_line(given: str, kept: str) -> None:
    assert person_name(given) == kept


@pytest.mark.parametrize(
    "bad", ["", " ", "…", "42", "\x07", "x" * (MAX_NAME + 1), "The user", "Я", "ассистент", "Klaw"]
)
def test_what_is_no_name(bad: str) -> None:
    with pytest.raises(InvalidValue, match=r"^name: "):
        person_name(bad)


def test_a_secret_is_never_quoted_in_an_error() -> None:
    with pytest.raises(InvalidValue) as caught:
        person_name("secret" * 40)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Алёна", "АЛЕНА"), ("Anna  Petrova", "anna petrova"), ("Anna-Maria", "Anna Maria"), ("Ａnna", "Anna")],
)
def test_names_that_are_the_same(one: str, other: str) -> None:
    assert normal_name(one) == normal_name(other)


def test_aliases_are_kept_once_and_without_the_name() -> None:
    assert aliases_of("Аня", ["аня", "Анна", "АННА", " Анечка "]) == ("Анна", "Анечка")
    with pytest.raises(InvalidValue, match=r"^aliases: "):
        aliases_of("Аня", [f"alias {chr(97 + each)}" for each in range(MAX_ALIASES + 1)])
    with pytest.raises(InvalidValue, match=r"^aliases: "):
        aliases_of("Аня", [""])


def test_limits() -> None:
    assert relation_text("  моя\nсестра ") == "моя сестра"
    with pytest.raises(InvalidValue, match=r"^relation: "):
        relation_text("x" * (MAX_RELATION + 1))
    check(ANYA)
    for field, value in (("id", ""), ("id", "a b"), ("name", " Аня"), ("aliases", ("аня",)), ("relation", "a\nb")):
        with pytest.raises(InvalidValue, match=rf"^{field}: "):
            check(attrs.evolve(ANYA, **{field: value}))
    with pytest.raises(InvalidValue, match=r"^merged_into: "):
        check(attrs.evolve(ANYA, merged_into=ANYA.id))


def test_a_merged_person_has_the_names_of_both() -> None:
    other = attrs.evolve(ANYA, id=PersonId("p2"), name="Anna", aliases=("Аня", "Annie"), relation="sister")
    both = merged(ANYA, other)
    assert (both.id, both.name, both.aliases, both.relation) == ("p1", "Аня", ("Anna", "Annie"), "sister")
    many = attrs.evolve(other, aliases=tuple(f"alias {chr(97 + each)}" for each in range(MAX_ALIASES)))
    assert len(merged(ANYA, many).aliases) == MAX_ALIASES
    check(merged(ANYA, many))


NAMED = [
    ("Аня", ["Аня звонила", "спроси у Ани", "с АНЕЙ", "ане подарок", "«Аню»,"], ["аняня", "Таня", "Аней1"]),
    ("Люба", ["Любе сорок", "у Любы"], ["я люблю чай", "он любит кошек"]),
    ("Вера", ["Вере", "с Верой"], ["я верю тебе", "проверка"]),
    ("Андрей", ["Андрею", "об Андрее", "с Андреем"], ["Андреевич"]),
    ("Павел", ["Павла", "Павлу"], ["павлин"]),
    ("Игорь", ["Игоря нет", "с Игорем"], ["игорный дом"]),
    ("Мария", ["Марию", "о Марии"], ["марина"]),
    ("Пётр Семёнов", ["Петру Семенову", "Петр  Семёнов"], ["Пётр ушёл", "Семёнов"]),
    ("Достоевский", ["Достоевского"], ["достойно"]),
    ("Anna", ["anna's cat", "ask ANNA.", "Anna"], ["Annabel", "Hannah", "Savanna"]),
    ("Ann-Marie O'Neil", ["ann marie o'neil"], ["Ann Marie"]),
    ("Li", ["Li called"], ["Lisa", "i like it"]),
]


@pytest.mark.parametrize(("name", "named", "others"), NAMED)
def test_a_text_names_somebody(name: str, named: list[str], others: list[str]) -> None:
    finder = Finder((name,))
    assert [text for text in named if not finder.finds(text)] == []
    assert [text for text in others if finder.finds(text)] == []


@pytest.mark.parametrize(("name", "named", "others"), NAMED)
def test_a_text_without_a_name(name: str, named: list[str], others: list[str]) -> None:
    finder = Finder((name, "Zz"))
    for text in named:
        left = finder.without(f"{text}; and {text}", "[…]")
        assert left.count("[…]") == 2
        assert not finder.finds(left)
    assert [finder.without(text, "[…]") for text in others] == others


def test_only_the_name_goes() -> None:
    finder = Finder(("Анна", "Анна Петрова", "Андрей"))
    assert finder.without("(Анну Петрову ждёт Анна-Мария, Андреи\u0306.)", "*") == "(* ждёт *-Мария, *.)"
    assert finder.without('{"q": "\\nАнна\\tздесь"}', "*") == '{"q": "\\n*\\tздесь"}'
    assert Finder(()).without("Анна", "*") == "Анна"


def test_without_names_nothing_is_found() -> None:
    assert not Finder(()).finds("Anna")
    assert not Finder(("…",)).finds("… and so on")
    assert words_of("Petrova's book").name(["Anna Petrova"])
    assert words_of("спроси у ПЕТРА, мол").name(["Boris", "Пётр Семёнов"])
    assert not words_of("j k").name(["J K"])
    assert not words_of("").name(["Anna", "…"])


def test_many_long_names_are_found_quickly_enough_to_end() -> None:
    finder = Finder(tuple(f"Имя{chr(1072 + each % 32)}ова Фамилия{chr(1072 + each // 32)}ая" for each in range(40)))
    assert not finder.finds("Имя " * 50_000)
