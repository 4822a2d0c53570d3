"""A loop of a small model is stopped and shown once; what is repeated on purpose is not touched."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.llm.repetition import RepetitionStop


def written(text: str, step: int = 4) -> tuple[str, bool]:
    """What is shown of a text that comes in pieces, and whether it was stopped."""
    stop = RepetitionStop()
    shown = ""
    for place in range(0, len(text), step):
        shown += stop.feed(text[place : place + step])
        if stop.looped:
            break
    return shown + stop.end(), stop.looped


SHIPS = ("Anna", "Boris", "Clara", "Dora", "Emil", "Fyodor", "Greta")
LOOPS = {
    "a sentence": ("Hello! ", "I'm glad you're here. ", "Hello! I'm glad you're here."),
    "предложение": ("Привет! ", "Я рад, что ты здесь. ", "Привет! Я рад, что ты здесь."),
    "two sentences": ("Well. ", "I'm here to help you. Just ask me. ", "Well. I'm here to help you. Just ask me."),
    "a line": ("Ideas:\n", "- a good book to read\n", "Ideas:\n- a good book to read"),
    "a numbered line": ("Идеи:\n", "1. Прочитать хорошую книгу дома\n", "Идеи:\n1. Прочитать хорошую книгу дома"),
    "a word": ("It is ", "very ", "It is very"),
    "слово": ("Это ", "очень, ", "Это очень,"),
    "a paragraph": ("", "".join(f"The sea is wide, and ship {name} is small upon it. " for name in SHIPS), ""),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 4, 37])
@pytest.mark.parametrize("case", LOOPS)
def test_a_loop_is_stopped_and_shown_once(case: str, step: int) -> None:
    before, piece, once = LOOPS[case]
    shown, looped = written(before + piece * 400, step)
    assert looped
    if once:
        assert shown.rstrip() == once
    assert (before + piece).startswith(shown[: len(before + piece)])
    assert len(shown) <= len(before + piece) + 40


def test_numbers_that_go_on_do_not_hide_a_loop() -> None:
    shown, looped = written("".join(f"{number}. I'm glad that you are here with me.\n" for number in range(1, 90)))
    assert (looped, shown.rstrip()) == (True, "1. I'm glad that you are here with me.")


@pytest.mark.parametrize(
    "pair",
    [
        ("Here is what I can do for you. ", "However, it is not so easy. "),
        ("Вот что я могу для тебя. ", "Но это не так просто. "),
    ],
)
def test_two_sentences_that_take_turns_are_stopped(pair: tuple[str, str]) -> None:
    text = "".join(pair[int(turn)] for turn in "0110100110010110" * 4)
    shown, looped = written(text)
    assert looped
    assert len(shown) < 7 * len(pair[0])


def test_white_space_does_not_hide_a_loop() -> None:
    gaps = (" ", "\n", "\n\n", "  \n")
    shown, looped = written("".join(f"I'm here to help you create your own music.{gaps[at % 4]}" for at in range(40)))
    assert (looped, shown.rstrip()) == (True, "I'm here to help you create your own music.")


@pytest.mark.parametrize(
    "phrases",
    [
        ("I'm glad you're here.", "I'm here to help you.", "You can ask me anything you want."),
        ("Я рад, что ты здесь.", "Я здесь, чтобы помочь.", "Ты можешь спросить меня обо всём."),
    ],
)
def test_phrases_that_go_round_are_stopped(phrases: tuple[str, ...]) -> None:
    chance = random.Random(4)
    text = " ".join(chance.choice(phrases) for _ in range(400))
    shown, looped = written(text)
    assert looped
    assert len(shown) < 1500


THINGS = ("bread", "milk", "eggs", "flour", "sugar", "salt", "butter", "cheese", "apples", "pears", "plums", "rice")
LEGITIMATE = {
    "a list": "".join(f"{number}. Buy {thing} at the market\n" for number, thing in enumerate(
        THINGS, 1)),
    "short items": "".join(f"{day}: отдых\n" for day in ("Пн", "Вт", "Ср", "Чт", "Пт", "Сб", "Вс")) + "Да: да\n" * 5,
    "a table": "| day | open |\n|-----|------|\n" + "".join(f"| {number} | yes |\n" for number in range(1, 32)),
    "a table of the same": "| вид | да | нет |\n|---|---|---|\n" + "| да | да | нет |\n" * 20,
    "an empty form": "| name | date | sign |\n" + "|      |      |      |\n" * 40,
    "separators": "Title\n" + "=" * 200 + "\nText\n" + "-" * 200 + "\n" + "* " * 100 + "\n" + "_" * 300,
    "code": "Here it is:\n```python\n" + "".join(
        f"def test_{name}():\n    result = call()\n    assert result is not None\n    assert result.ok\n\n"
        for name in ("one", "two", "three", "four", "five", "six", "seven")) + "```\nThat is all.",
    "an array": "```c\nint zeros[] = {" + "0, " * 256 + "0};\n```\n",
    "html": "```html\n" + "".join(
        f'<option value="{number}">Option number {number} of the list</option>\n' for number in range(30)) + "```",
    "a refrain": "\n\n".join(
        f"{verse}\nO sing with me, the night is long,\nO sing with me, a simple song,"
        "\nThe sea, the sea, the rolling sea,\nIs calling, calling you and me." for verse in (
            "The boats come in at break of day,\nwith silver fish from out the bay.",
            "The lamps are lit along the quay,\nthe children ask for one more tea.",
            "The captain sleeps, his pipe gone cold,\nhe dreams of islands made of gold.",
            "And when the morning bell has rung,\nthis song of ours will still be sung.",
        )),
    "припев": "\n\n".join(
        f"{verse}\nЭх, дороги, пыль да туман,\nХолода, тревоги да степной бурьян.\nЭх, дороги." for verse in (
            "Выходила на берег рано поутру,\nрасстилались туманы тихо по двору.",
            "А над крышей летели в ряд журавли,\nпровожали их люди с края земли.",
            "Пели девушки песню под окном опять,\nи никто не хотел в этот вечер спать.",
        )),
    "a song that repeats its refrain": "All night long.\n" + "Row, row, row your boat, gently down the stream.\n" * 3,
    "na na na": "Then everybody sings: " + "na, " * 40 + "hey!",
    "a quiz": "".join(f"{at}. This one is {'true' if at % 3 else 'false'}.\n" for at in range(1, 20)),
    "bottles": "".join(f"{at} green bottles hanging on the wall,\n{at} green bottles hanging on the wall,\n"
        f"and if one green bottle should fall from there,\n" for at in range(9, 3, -1)),
    "blues": "I woke up this morning, my dog was gone.\n" * 2 + "The rain came down and the night was long.\n"
        + "I went to the station, there was no train.\n" * 2 + "So I sat on the platform out in the rain.\n",
    "laughing": "Ха" * 60 + "! " + "ha " * 60,
    "a revised letter": 2 * (
        "Dear Mr Brown, the heating in our flat has been out of order since Monday, and the children are cold. "
        "Please send somebody this week; we are at home every evening after six, and on Saturday all day long. "
        "If that cannot be done, tell us whom we may call ourselves, and who pays for it. Yours, Anna.\n\nRevised:\n\n"
    ),
    "a timetable": "".join(f"{hour}:00 train to Minsk, platform {hour % 5 + 1}\n" for hour in range(6, 13)),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 5, 400])
@pytest.mark.parametrize("case", LEGITIMATE)
def test_what_is_repeated_on_purpose_passes(case: str, step: int) -> None:
    assert written(LEGITIMATE[case], step) == (LEGITIMATE[case], False)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["a", "да ", "I'm here. ", "1", "\n", "|", "```\n", "я"]), max_size=120), st.integers(1, 9)
)
def test_what_is_shown_is_always_the_beginning(parts: list[str], step: int) -> None:
    text = "".join(parts)
    shown, looped = written(text, step)
    assert text.startswith(shown)
    assert looped or shown == text
