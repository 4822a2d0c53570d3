"""`klaw chat` in a pipe, end to end: 30 messages, one fact in message 3, and the receipts of questions about it."""

import json

import pytest

from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home

ENGLISH = (
    "Good morning! I am planning the week and could use some company.",
    "On Tuesday the plumber comes to look at the kitchen tap.",
    "My sister Marta is allergic to hazelnuts, so no nut cake for her birthday.",
    "What is Marta allergic to?",
    "The {} shelf in the cellar has to be sorted and cleaned this month.",
)
RUSSIAN = (
    "Доброе утро! Планирую неделю и хочу немного поболтать.",
    "Во вторник придёт сантехник посмотреть кран на кухне.",
    "У моей сестры Марты аллергия на фундук, так что никакого орехового торта на день рождения.",
    "На что у Марты аллергия?",
    "На полке номер {} в подвале надо навести порядок ещё в этом месяце.",
)
FACT_SEQ = 5
"""Message 3: two messages and two answers are before it."""


def _script(texts):
    first, second, fact, question, filler = texts
    return [first, second, fact, *(filler.format(number) for number in range(4, 30)), question]


async def _say(server, chat, lines):
    code, out, errors = await run_klaw(
        "chat", "--url", server.url, "--chat", chat, stdin="\n".join(lines).encode() + b"\n"
    )
    assert (code, errors) == (0, "")
    return out.splitlines()


async def _receipt(server, chat):
    code, out, errors = await run_klaw("receipt", "--home", str(server.home), "--chat", chat, "--json")
    assert (code, errors) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("texts", [ENGLISH, RUSSIAN], ids=["english", "russian"])
async def test_chat_of_30_messages_recalls_the_fact_of_message_3(tmp_path, embedding_model_dir, texts):
    """The receipt lists message 3 with its scores, and the model got it; after /new it is not recalled."""
    script, question = _script(texts), texts[3]
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("Noted", ".")
        home = write_home(tmp_path, llm=llm.url, models=embedding_model_dir.parent)
        async with served(home) as server:
            assert await _say(server, "main", script[:-1]) == ["Noted."] * 29
            await server.status_when(lambda now: now["embedder"]["state"] == "ready" and not now["embedder"]["waiting"])
            assert await _say(server, "main", script[-1:]) == ["Noted."]
            receipt = await _receipt(server, "main")
            recall = receipt["receipt"]["recall"]
            assert receipt["last_seq"] == 59
            assert receipt["receipt"]["window"]["first_seq"] > FACT_SEQ
            assert FACT_SEQ in recall["kept"], recall
            found = next(each for each in recall["candidates"] if each["seq"] == FACT_SEQ)
            assert found["score"] > 0
            assert found["decision"] in ("near", "words")
            assert found["text_rank"] is not None
            assert found["bm25"] is not None
            assert recall["degraded"] == [], "the vectors took part"
            assert texts[2] in str(llm.requests[-1].messages), "and the model got it"

            code, text, _ = await run_klaw("receipt", "--home", str(home), "--chat", "main")
            assert code == 0
            assert f"recalled: {FACT_SEQ}" in text

            asked = len(llm.requests)
            filler = [texts[4].format(number) for number in range(40, 52)]
            answers = await _say(server, "main", ["/new", *filler, question])
            assert len(answers) == 1 + 13
            recall = (await _receipt(server, "main"))["receipt"]["recall"]
            assert recall["guard"] == "search"
            assert FACT_SEQ not in recall["kept"]
            assert not [each for each in recall["candidates"] if each["seq"] <= 61], "the older segment is not searched"
            assert all(texts[2] not in str(request.messages) for request in llm.requests[asked:])


@pytest.mark.parametrize("texts", [ENGLISH, RUSSIAN], ids=["english", "russian"])
async def test_chat_without_auto_rag_recalls_nothing(tmp_path, embedding_model_dir, texts):
    """The same conversation with autoRag.enabled false: the fact is out of the window and stays there."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=embedding_model_dir.parent, autoRag={"enabled": False})
        async with served(home) as server:
            assert len(await _say(server, "main", _script(texts))) == 30
            recall = (await _receipt(server, "main"))["receipt"]["recall"]
            assert recall["kept"] == recall["candidates"] == []
            assert texts[2] not in str(llm.requests[-1].messages)


@pytest.mark.parametrize(
    ("question", "text"), [("Summarise this:", "The gate is shut.\n"), ("Перескажи:", "Калитка закрыта.\n")]
)
async def test_one_question_with_a_file(tmp_path, question, text):
    """Asked, answered, stored; a second one goes on in the same chat."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.replies += [text_reply("Gate ", "shut."), text_reply("Да.")]
        first = await run_klaw("chat", "--url", server.url, question, stdin=text.encode())
        second = await run_klaw("chat", "--url", server.url, "Sure?")
        assert first == (0, "Gate shut.\n", "")
        assert second == (0, "Да.\n", "")
        assert f"{question}\n\n{text.strip()}" in str(llm.requests[0].messages[-1]["content"])
        assert "Gate shut." in str(llm.requests[1].messages)
