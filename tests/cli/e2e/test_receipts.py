"""Receipts and replay through the real command line, with a running server and without one."""

import json
from pathlib import Path
from typing import Any

from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import Server, run_klaw, served, write_home
from tests.support.talking import Talk, talking

TALK = [
    "Код калитки в саду tulip47, его знает Анна",
    "My sister Anna is allergic to peanuts and to walnuts",
    "Код калитки в саду tulip47, его знает Анна!",
    "Я купил новую калитку для сада, зелёную",
    "The garden gate squeaks, the code lock works",
    "В саду расцвели пионы и ландыши",
    "Завтра поедем на дачу, погода хорошая",
    "It rains again today, we stay at home",
]
QUESTION = "Какой код у калитки в саду?"


async def tell(talk: Talk, server: Server, *texts: str) -> str:
    """Say it all, wait for the vectors, and ask; the id of the turn that answered."""
    for text in texts:
        await talk.ask(text)
    await server.status_when(has_vectors)
    turn = (await talk.ask(QUESTION)).turn
    await server.status_when(has_vectors)
    return turn


def has_vectors(status: dict[str, Any]) -> bool:
    return status["embedder"]["state"] == "ready" and not status["embedder"]["waiting"]


async def klaw(home: Path, *command: str) -> str:
    code, out, error = await run_klaw(*command, "--home", str(home))
    assert code in (0, 3), error  # 3: not all vectors are there yet
    return out


async def klaw_json(home: Path, *command: str) -> dict[str, Any]:
    return dict(json.loads(await klaw(home, *command, "--json")))


async def test_receipts_and_replay_with_a_server_and_without_one(tmp_path, embedding_model_dir):
    """The receipt gives the reasons; one message is explained; the replay agrees with what the turn did, in text and
    numbers, the same beside the server and after its end; nothing that was said is in the log."""
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("ок")
        home = write_home(
            tmp_path / "home",
            llm=llm.url,
            models=embedding_model_dir.parent,
            context={"slidingWindow": 2},
            autoRag={"topK": 1, "timeBudgetMs": 5000},
        )
        async with served(home) as server:
            async with talking(server.url) as talk:
                turn = await tell(talk, server, *TALK)

            shown = await klaw(home, "receipt", turn)
            assert "settings  topK 1, maxTokens 400, relevanceThreshold 0.5, timeBudgetMs 5000" in shown
            assert "message 5 is newer and says the same" in shown
            assert "place 2, topK is 1" in shown
            recall = (await klaw_json(home, "receipt", turn))["receipt"]["recall"]
            assert recall["kept"] == [5]
            cut = next(each["seq"] for each in recall["candidates"] if each["decision"] == "over_top_k")

            beside = {
                "why": await klaw_json(home, "receipt", turn, "--why", str(cut)),
                "repeated": await klaw_json(home, "receipt", turn, "--why", "main#1"),
                "replay": await klaw_json(home, "recall-replay", "--chat", "main", "--set", "autoRag.topK=2"),
            }
            assert beside["why"]["why"]["text"][-1].endswith("with autoRag.topK 2 it would have come in.")
            assert beside["repeated"]["why"]["candidate"]["repeated_by"] == 5
            asked = beside["replay"]["changes"][-1]
            assert (asked["turn"], asked["question"]) == (turn, QUESTION)
            assert (asked["kept_then"], asked["before"]["kept"]) == ([5], [5])
            assert (asked["after"]["kept"], [each["seq"] for each in asked["more"]]) == (sorted([5, cut]), [cut])
            assert beside["replay"]["totals"]["after"]["recalled"] > beside["replay"]["totals"]["before"]["recalled"]

            await server.terminate()
            assert await klaw_json(home, "receipt", turn, "--why", str(cut)) == beside["why"]
            assert await klaw_json(home, "receipt", turn, "--why", "main#1") == beside["repeated"]
            replayed = await klaw_json(home, "recall-replay", "--chat", "main", "--set", "autoRag.topK=2")
            assert replayed["changes"] == beside["replay"]["changes"]

            text = await klaw(home, "recall-replay", "--turn", turn, "--set", "autoRag.topK=2")
            assert f"? {QUESTION}" in text
            assert f"+ {cut}" in text
            private = await klaw(home, "recall-replay", "--turn", turn, "--set", "autoRag.topK=2", "--no-text")
            assert f"+ {cut}" in private
            assert "калитк" not in private
            off = await klaw_json(home, "recall-replay", "--turn", turn, "--set", "autoRag.enabled=false")
            assert (off["totals"]["after"]["recalled"], off["changes"][0]["less"][0]["seq"]) == (0, 5)
            for setting, said in (
                ("autoRag.topk=2", "klaw: autoRag.topk: unknown key; did you mean topK?"),
                ("autoRag.minMessageTokens=1", "klaw: autoRag.minMessageTokens: decides which messages get a vector"),
            ):
                code, _, error = await run_klaw("recall-replay", "--set", setting, "--home", str(home))
                assert (code, error.startswith(said)) == (2, True), error
            assert "tulip47" not in server.stderr


async def test_a_message_that_was_not_considered_is_searched_for_again(tmp_path, embedding_model_dir):
    """Beyond the 50 best: the place in a deeper search, of the server's and of the command's own."""
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("ок")
        home = write_home(
            tmp_path / "home",
            llm=llm.url,
            models=embedding_model_dir.parent,
            context={"slidingWindow": 2},
            autoRag={"timeBudgetMs": 5000},
        )
        async with served(home) as server:
            async with talking(server.url) as talk:
                told = [f"Код калитки номер {number} в саду будет {4000 + number}" for number in range(60)]
                turn = await tell(talk, server, "Совсем о другом: расписание электричек на воскресенье", *told)
            recall = (await klaw_json(home, "receipt", turn))["receipt"]["recall"]
            assert len(recall["candidates"]) == 50
            assert recall["found"] > 50
            considered = {each["seq"] for each in recall["candidates"]}
            left_out = next(seq for seq in range(1, 120, 2) if seq not in considered)
            beside = (await klaw_json(home, "receipt", turn, "--why", str(left_out)))["why"]
            assert beside["as"] == "not_found"
            assert beside["searched_now"]["place"] > 1
            text = await klaw(home, "receipt", turn, "--why", str(left_out))
            assert "searched now, as for that answer" in text
            await server.terminate()
            offline = (await klaw_json(home, "receipt", turn, "--why", str(left_out)))["why"]
            assert offline == beside
