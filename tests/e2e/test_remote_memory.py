"""A server whose vectors and order of recall come from a provider: with it, without it, and when it is back."""

import json

from tests.support.llm_server import Recorded, Reply, echo_reply, error_reply, serve_llm
from tests.support.memory.endpoints import answer, asked
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import until

TALK = (
    "The wifi password of the summer house is tangerine-42.",
    "Пароль от вайфая на даче: мандарин-42.",
    "The wifi of the summer house is slow in the evening.",
    "Вайфай на даче вечером совсем медленный.",
)
QUESTIONS = (("What is the wifi password of the summer house?", 0), ("Какой пароль от вайфая на даче?", 1))
PRICED = {"inputPrice": 1, "outputPrice": 0}


def respond(request: Recorded) -> Reply:
    return echo_reply(request) if "messages" in request.body else answer(request)


def down(request: Recorded) -> Reply:
    return echo_reply(request) if "messages" in request.body else error_reply(503)


async def test_both_from_a_provider(tmp_path):
    async with serve_llm() as llm:
        llm.respond = respond
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"vec": PRICED, "order": PRICED}}
        home = write_home(
            tmp_path,
            llm=llm.url,
            providers={"cloud": {**provider, "apiKey": "${CLOUD_API_KEY}"}},
            embedding={"enabled": True, "provider": "cloud", "model": "vec", "sweepSeconds": 1},
            autoRag={"minMessageTokens": 1, "rerank": {"provider": "cloud", "model": "order"}},
            context={"slidingWindow": 2},
        )
        async with served(home, environ={"CLOUD_API_KEY": "sk-canary-e2e"}) as server:
            async with talking(server.url) as talk:
                for text in TALK:
                    await talk.ask(text)
                await server.status_when(lambda now: now["embedder"]["embedded"] >= 8)
                for question, wanted in QUESTIONS:
                    turn = await talk.ask(question)
                    recall = turn.receipt["recall"]
                    assert recall["degraded"] == []
                    assert 1 + 2 * wanted in recall["kept"]
                    scores = [each["rerank"] for each in recall["candidates"] if "rerank" in each]
                    assert len(scores) > 1
                    assert scores == sorted(scores, reverse=True)
                    assert any("vector_rank" in each for each in recall["candidates"])
                    assert any(each["model"] == "cloud/order" for each in turn.usage["models"])
                assert {each.headers["authorization"] for each in asked(llm, "/rerank")} == {"Bearer sk-canary-e2e"}

                llm.respond = down
                turn = await talk.ask(QUESTIONS[0][0])
                assert set(turn.receipt["recall"]["degraded"]) == {"embedding_failed", "rerank_failed"}
                assert 1 in turn.receipt["recall"]["kept"]
                await talk.until(lambda: "embeddings_failing" in talk.degraded or None)
                status = await server.status_when(lambda now: now["embedder"]["waiting"])
                providers = {each["name"]: each for each in status["llm"]["providers"]}
                assert providers["cloud/vec (embeddings)"]["error_code"] in ("llm_refused", "llm_paused")
                assert providers["cloud/order (rerank)"]["error_code"] == "llm_refused"

                llm.respond = respond
                await server.status_when(lambda now: not now["embedder"]["waiting"])
                await until(lambda: "embeddings_failing" not in talk.degraded)
                health = await talk.client.call("health")
                assert not [each for each in health["degraded"] if "embeddings" in each["code"]]
                turn = await talk.ask(QUESTIONS[1][0])
                assert turn.receipt["recall"]["degraded"] == []
                _, found, _ = await run_klaw("receipt", turn.turn, "--home", str(home))
                assert " reranker " in found
            await server.terminate()
            _, used, _ = await run_klaw("usage", "--by", "source", "--json", "--home", str(home))
            sources = {each["key"]: each for each in json.loads(used)["groups"]}
            assert sources["embedding"]["calls"] > 3
            # Without the server the same model is asked.
            code, out, _ = await run_klaw(
                "search", "пароль вайфая", "--json", "--home", str(home), environ={"CLOUD_API_KEY": "sk-canary-e2e"}
            )
            assert (code, json.loads(out)["degraded"]) == (0, [])
            assert asked(llm, "/embeddings")[-1].body["input"] == ["пароль вайфая"]
            sent = len(llm.requests)
            code, out, _ = await run_klaw("reindex", "--json", "--home", str(home))
            vectors = json.loads(out)["vectors"]
            assert (code, len(llm.requests)) == (0, sent)
            assert vectors["taken_over"] > 8
            log = server.stderr
    assert "sk-canary-e2e" not in log
    assert "tangerine" not in log
