"""Recall with questions and stores that nobody would wish for: real store, real vectors, the whole pipeline."""

from pathlib import Path

import pytest

from klaw.domain import tokens
from klaw.domain.search import RecallOutcome
from tests.support.memory.recalling import recalling

SAID = (
    "Anna is allergic to peanuts, so we never bake with them.",
    "Код от калитки на даче — 4815, не забудь.",
    "我妹妹不能吃花生，她过敏。",
    "うちの猫の名前はミケです。",
    "แมวตัวนี้ชื่อมะลิ อายุสามปี",
    "The train to Kazan leaves at seven in the morning.",
    "Поезд в Казань отходит в семь утра.",
    "👍",
    "SELECT * FROM messages; DROP TABLE messages;",
)

NOTHING_ASKED = {
    "empty": "",
    "space": " \n\t ",
    "one letter": "a",
    "one russian letter": "я",
    "punctuation": "…!? — «»",
    "quotes": "\"\"\"'''``",
    "emoji": "👍🏽🎂👨‍👩‍👧🇩🇪❤️",
    "operators": "^ * - + : ( ) { } <>",
    "words that are operators": "AND OR NOT",
    "nul": "\0\0",
    "surrogates": "\ud800\udfff",
    "zero width": "\u200b\u200d\ufeff\u00ad\u2060",
    "only marks": "\u0301\u0308\u3099\u0e49",
    "bidi controls": "\u202e\u202d\u2066\u2069",
    "private use": "\ue000\U0010ffff",
    "small talk": "ну ладно, ok, thanks, 谢谢, はい",
}

STRANGE = {
    "near operator": "NEAR(peanuts Anna, 2)",
    "prefix operator": "peanuts* ^Anna",
    "minus": "-peanuts Anna",
    "column": "content: peanuts scope: c1 Anna",
    "column set": "{content scope}: peanuts AND Anna",
    "quote": 'Anna"s "peanuts',
    "backslash": "Anna\\ peanuts\\'",
    "nul inside": "Anna\0 peanuts\0",
    "surrogate inside": "Anna \ud83d peanuts",
    "zero width inside": "Anna \u200bpeanuts\ufeff",
    "combining": "A\u0301nna pe\u0308anuts",
    "case": "ANNA PEANUTS",
    "full width": "Ａｎｎａ ｐｅａｎｕｔｓ",
    "right to left": "\u202ewhat must אסור Anna للأكل not eat, peanuts?\u202c",
    "mixed scripts": "Anna 花生 peanuts миндаль アーモンド",
    "long": "Anna peanuts " + "and the something else entirely " * 620,
    "long russian around": "совсем другое " * 8 + "Anna peanuts",
}

ASKED_AND_SAID = {
    "chinese": ("我妹妹对什么过敏？", 3),
    "japanese": ("猫の名前は何ですか？", 4),
    "thai": ("แมวชื่ออะไร", 5),
    "russian": ("Какой код от калитки?", 2),
    "russian operators": ('"калитка" AND NEAR(код, 3) -дача', 2),
    "russian stress and soft hyphen": ("Како\u0301й код от ка\u00adлит\u00adки?", 2),
    "russian with a lone surrogate": ("код \udc00 калитки", 2),
    "english": ("What is Anna allergic to?", 1),
    "sql": ("'; DROP TABLE messages; --", 9),
}


def kept(recalled: RecallOutcome) -> list[int]:
    return [candidate.message.seq for candidate in recalled.kept]


async def test_what_asks_for_nothing_recalls_nothing(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        for name, query in NOTHING_ASKED.items():
            recalled = await here.ask(query)
            assert kept(recalled) == [], name
            assert recalled.degraded == (), name


async def test_strange_questions_find_what_they_ask_for(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        for name, query in STRANGE.items():
            recalled = await here.ask(query)
            assert recalled.degraded == (), name
            assert any(each.message.seq == 1 and each.text_rank for each in recalled.candidates), name
            if "long" not in name:
                assert 1 in kept(recalled), name
        for name, (query, wanted) in ASKED_AND_SAID.items():
            recalled = await here.ask(query)
            assert recalled.degraded == (), name
            assert wanted in kept(recalled), name
        assert len((await here.ask("Anna")).candidates) > 0, "nothing was dropped"


@pytest.mark.parametrize(
    ("sentence", "question"),
    [("Where did we put the spare keys of the barn? ", "keys"), ("Куда мы положили ключи от сарая? ", "ключи"),
     ("谷仓的备用钥匙放在哪里？", "钥匙")],
    ids=["english", "russian", "chinese"],
)  # fmt: skip
async def test_questions_of_20000_characters(
    tmp_path: Path, embedding_model_dir: Path, sentence: str, question: str
) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        (said, *_) = await here.say([sentence + question, *SAID])
        recalled = await here.ask((sentence * 20_000)[:20_000])
        assert recalled.degraded == ()
        assert said.seq in kept(recalled)


async def test_identical_messages_are_both_there(tmp_path: Path, embedding_model_dir: Path) -> None:
    for fact, question in (
        ("The wifi password is tangerine-42.", "What is the wifi password?"),
        ("Пароль от вайфая — мандарин-42.", "Какой пароль от вайфая?"),
    ):
        async with recalling(tmp_path / question[:5], embedding_model_dir) as here:
            await here.say([fact, SAID[5], fact])
            recalled = await here.ask(question)
            assert {1, 3} <= {each.message.seq for each in recalled.candidates}
            assert {1, 3} & set(kept(recalled))


@pytest.mark.parametrize(
    ("filler", "fact", "question"),
    [
        ("The weather was mild and the tram came on time. ", "The safe opens with 90210. ", "What opens the safe?"),
        ("Погода была мягкой, трамвай пришёл вовремя. ", "Сейф открывается кодом 90210. ", "Каким кодом открыть сейф?"),
        ("天气很温和，电车准时到了。", "保险箱的密码是90210。", "保险箱的密码是什么？"),
    ],
    ids=["english", "russian", "chinese"],
)  # fmt: skip
async def test_a_message_of_100000_characters_is_excerpted_around_the_match(
    tmp_path: Path, embedding_model_dir: Path, filler: str, fact: str, question: str
) -> None:
    half = filler * (50_000 // len(filler))
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say([half + fact + half, SAID[0]], embedded=False)
        recalled = await here.ask(question)
        (found,) = [candidate for candidate in recalled.kept if candidate.message.seq == 1]
        assert "90210" in found.text
        assert tokens.estimate(found.text) <= 400
