"""Which queries ask for nothing, English and Russian."""

from datetime import date

import pytest

from klaw.memory.recall.query import read_query

TODAY = date(2026, 11, 22)


def asked(text: str) -> tuple[str, ...]:
    return read_query(text, now=1_790_000_000, latest=TODAY).words


@pytest.mark.parametrize(
    "text",
    ["have a nice day", "make it shorter", "good job!", "sing me a song", "I don't know", "my bad", "you rock",
     "can you elaborate?", "how are you doing today?", "what do you mean?", "what's the weather like?", "never mind",
     "I'm tired", "oh my god", "merry Christmas!", "what's 17 * 23?", "2+2", "15 % of 80",
     "боже мой", "добрый день, коллега", "как дела?", "сделай короче", "не знаю", "хорошего дня", "ты уверен?",
     "повтори, пожалуйста", "что нового?",
     "рад слышать", "с днём рождения!", "попробуй ещё раз", "сколько будет 2+2?"],
)  # fmt: skip
def test_what_asks_for_nothing(text: str) -> None:
    assert asked(text) == ()


@pytest.mark.parametrize(
    "text",
    ["What is my job?", "When is our holiday?", "Kazan", "the gate code", "Do you remember my plan?", "pizza tonight?",
     "my address", "by when must I give notice", "for whom is the present", "имя кошки", "наш врач", "день переезда",
     "у кого собака", "Tell me about Kazan", "Where does Anna work?", "What do you know about Rex?",
     "What time did Anna arrive?",
     "What did we talk about last week?", "When is my birthday?", "How much is 2 + 2 tickets for Anna?",
     "Где я работаю?", "Казань", "код калитки", "Какие у меня планы на завтра?", "расскажи про Казань",
     "Когда у сестры день рождения?", "Что ты знаешь про Рекса?", "Сколько времени Анна была в пути?"],
)  # fmt: skip
def test_what_asks_for_something(text: str) -> None:
    assert asked(text) != ()


def test_a_time_of_an_event_is_no_command() -> None:
    query = read_query("What time did Anna arrive?", now=0, latest=TODAY)
    assert not query.command
    assert not read_query("Счёт был 24-10?", now=0, latest=TODAY).command
    assert read_query("what time is it?", now=0, latest=TODAY).command
    assert read_query("Сколько сейчас времени?", now=0, latest=TODAY).command
