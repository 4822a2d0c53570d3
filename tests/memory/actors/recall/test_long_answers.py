"""What stands in the middle of a long answer is recalled by what it means."""

from pathlib import Path

import pytest

from tests.support.memory.recalling import recalling

TRAVEL = [
    "Start in the old town, where most streets are closed to cars and the cafés open early.",
    "The tram to the harbour runs every ten minutes, and a day ticket costs less than three single rides.",
    "In the afternoon the castle is quieter, because the coaches with visitors leave before four.",
    "Bring a light coat, for the wind on the river is stronger than it looks in the pictures.",
    "The market hall sells cheese, bread and fruit, and the fishmonger at its end grills what you choose.",
    "On Mondays the museums are shut, so keep that day for the hills behind the city.",
    "The path there is well marked, and the inn on the top serves soup until the evening.",
    "A small theatre in the north plays without words, which suits those who do not speak the language.",
]
ROUTE = [
    "Начните со старого города: машинам туда нельзя, а кафе открываются рано.",
    "Трамвай до гавани ходит каждые десять минут, и билет на день дешевле трёх обычных.",
    "После обеда в замке тише, потому что автобусы с гостями уезжают до четырёх.",
    "Возьмите лёгкое пальто: ветер на реке сильнее, чем кажется на снимках.",
    "На крытом рынке продают сыр, хлеб и фрукты, а в конце зала жарят рыбу на выбор.",
    "По понедельникам музеи закрыты, оставьте этот день для холмов за городом.",
    "Тропа туда хорошо размечена, и на вершине до вечера кормят супом.",
    "Маленький театр на севере играет без слов, и язык там знать не нужно.",
]
FACT = "Your nephew gets sick from milk, so order his dessert without cream."
FACT_RU = "Вашему племяннику становится плохо от молока, поэтому десерт ему берите без сливок."
BESIDE = "The tram will be great fun for your nephew."
BESIDE_RU = "Вашему племяннику понравится кататься на трамвае."
"""The question's word stands here too: only the meaning tells which of them it is about."""


def answer(sentences: list[str], fact: str, beside: str = "", characters: int = 3_000) -> str:
    """An answer of about so many characters with the fact in its middle."""
    rounds = characters // (2 * sum(map(len, sentences))) + 1
    half = " ".join(sentences * rounds)[: characters // 2].rsplit(". ", 1)[0] + "."
    return f"{beside} {half} {fact} {half} {beside}"


@pytest.mark.parametrize(
    ("sentences", "fact", "beside", "question"),
    [(TRAVEL, FACT, BESIDE, "Why can my nephew not have a milkshake?"),
     (ROUTE, FACT_RU, BESIDE_RU, "Почему племяннику нельзя сливочное мороженое?")],
)  # fmt: skip
async def test_a_fact_in_the_middle_is_what_is_shown(
    tmp_path: Path, embedding_model_dir: Path, sentences: list[str], fact: str, beside: str, question: str
) -> None:
    async with recalling(tmp_path, embedding_model_dir, top_k=8, max_tokens=200) as here:
        text = answer(sentences, fact, beside)
        assert len(text) > 2_900
        others = [answer(sentences[at:] + sentences[:at], sentences[at]) for at in (2, 4, 6)]
        said = await here.say([*others[:2], text, others[2]])
        found = await here.ask(question)
        (shown,) = (each for each in found.kept if each.message.id == said[2].id)
        assert fact in shown.text
        assert len(shown.text) < len(text) / 2
        assert sum(each.tokens for each in found.kept) <= 200
