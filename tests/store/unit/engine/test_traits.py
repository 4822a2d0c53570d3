"""What is told of a message beside its words, English and Russian."""

import pytest

from klaw.store.engine.traits import ASKS, FIRST_PERSON, NAME, NUMBER, READ_CHARACTERS, SHORT, TIME, traits_of


@pytest.mark.parametrize(
    ("trait", "texts"),
    [
        (
            TIME,
            [
                "We met yesterday in the park",
                "two weeks ago",
                "see you at 7 pm",
                "it began at 18:30",
                "back in 2019",
                "Встретились вчера в парке",
                "две недели назад",
                "в прошлом году",
                "поеду в июле",
                "в среду вечером",
                "a lovely evening",
                "we move in May",
                "since may 5",
                "летом было жарко",
                "десять лет вместе",
                "скоро увидимся",
            ],
        ),
        (
            NUMBER,
            [
                "I have three cats",
                "it cost 20 euros",
                "У меня две кошки",
                "пятнадцать? нет, 15",
                "семь котов",
                "нас трёх",
            ],
        ),
        (
            NAME,
            ["I met Olga there", "we flew to Rome", "Anna: we saw Boris", "Вчера приходила Ольга", "в Казани дождь"],
        ),
        (FIRST_PERSON, ["I bought it", "that's my house", "Это мой дом", "меня там не было", "it’s what we’ve done"]),
        (ASKS, ["Where is it?", "Где он?", "在哪里？"]),
        (SHORT, ["Yes, on Friday", "Да, в пятницу вечером увидимся", "Anna: sure, see you on Friday then", "👍"]),
    ],
)
def test_what_has_it(trait: int, texts: list[str]) -> None:
    assert [text for text in texts if not traits_of(text) & trait] == []


@pytest.mark.parametrize(
    ("trait", "texts"),
    [
        (
            TIME,
            [
                "The cat sleeps on the sofa",
                "Кошка спит на диване",
                "in room 301",
                "even so, it may be a lasting peace",
                "это не годится",
                "самолёт летит",
                "скорее всего, он среди друзей",
            ],
        ),
        (NUMBER, ["The cat sleeps on the sofa", "Кошка спит на диване", "Моя семья дома", "Туда не стоит ходить"]),
        (NAME, ["The cat sleeps. It snores", "Кошка спит. Она храпит!", "Olga: the cat sleeps", "I think I know"]),
        (FIRST_PERSON, ["She bought it in Miami", "Она купила это", "твой дом"]),
        (ASKS, ["He asked where it is.", "Он спросил, где это."]),
        (SHORT, ["She bought a bicycle because the old one broke", "昨天我们在北京吃了烤鸭，今天又去了长城。" * 3]),
    ],
)
def test_what_has_it_not(trait: int, texts: list[str]) -> None:
    assert [text for text in texts if traits_of(text) & trait] == []


@pytest.mark.parametrize("text", ["", ":", "\0", "?" * 10_000, "a" * 100_000, "Anna: " * 5_000, "\ud800", "9" * 50_000])
def test_any_text_has_traits_that_fit_into_a_byte(text: str) -> None:
    assert 0 <= traits_of(text) < 128


def test_a_long_text_is_judged_by_its_beginning_and_is_never_short() -> None:
    assert traits_of("Yes." + " " * READ_CHARACTERS + "Where?") & (ASKS | SHORT) == 0
