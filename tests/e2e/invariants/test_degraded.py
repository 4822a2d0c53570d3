"""Without a part of it Klaw goes on, says so everywhere, and recovers by itself."""

import json
import threading

import trio

from klaw.memory.embed import worker
from tests.support.inside import inside, kept
from tests.support.llm_server import echo_reply, error_reply, serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import HANG_S

TALK = (
    "The wifi password of the summer house is tangerine-42.",
    "Пароль от вайфая на даче — мандарин-42.",
    "The bread was good today.",
    "Хлеб сегодня был хороший.",
)
QUESTIONS = (("What is the wifi password of the summer house?", 1), ("Какой пароль от вайфая на даче?", 3))


async def test_degraded_to_full_text_without_a_model(tmp_path):
    """No model folder: welcome frame, status, receipt and log say so, and full text still recalls."""
    models = tmp_path / "no models"
    models.mkdir()
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url, models=models, context={"slidingWindow": 2})
        async with served(home) as server:
            async with talking(server.url) as talk:
                await talk.until(lambda: "no_embeddings" in talk.degraded)
                for text in TALK:
                    await talk.ask(text)
                for question, wanted in QUESTIONS:
                    receipt = await talk.ask(question)
                    assert receipt.receipt["recall"]["degraded"] == ["embedding_no_model"]
                    assert wanted in receipt.receipt["recall"]["kept"]
                    assert TALK[wanted // 2] in str(llm.requests[-1].messages)
                status = await talk.client.call("health")
            async with talking(server.url) as late:
                degraded = {each.code: each.text for each in late.client.welcome.degraded}
            code, out, _ = await run_klaw("status", "--home", str(home), "--json")
            assert code == 3
            events = server.events("embedder_state")
    assert list(degraded) == ["no_embeddings"]
    assert "full-text" in degraded["no_embeddings"]
    assert "klaw models pull" in degraded["no_embeddings"]
    assert status["state"] == "degraded"
    assert [each["code"] for each in status["degraded"]] == ["no_embeddings"]
    assert json.loads(out)["embedder"]["state"] == "no_model"
    assert events[-1]["state"] == "no_model"


async def test_degraded_recovers_when_the_model_appears(tmp_path, embedding_model_dir, monkeypatch):
    """The embedder finds the pulled model without a restart; what was said before gets its vectors."""
    monkeypatch.setattr(worker, "RECHECK_MODEL_S", 0.05)
    models = tmp_path / "models"
    models.mkdir()
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url, models=models, context={"slidingWindow": 2})
        async with inside(home) as here:
            for text in TALK:
                await here.ask(text)
            await here.until(lambda: here.app.memory.embedder.status.state == "no_model")
            assert "no_embeddings" in here.app.core.health.problems()
            (models / embedding_model_dir.name).symlink_to(embedding_model_dir)
            await here.until(lambda: here.app.memory.embedder.status.state == "ready")
            await here.embedded()
            assert here.app.core.health.problems() == {}
            assert here.app.memory.embedder.status.embedded > 0
            turn = await here.ask(QUESTIONS[0][0])
            assert turn.receipt["recall"]["degraded"] == []
            assert 1 in kept(turn)
            assert any("vector_rank" in each for each in turn.receipt["recall"]["candidates"])
            told = await here.until(lambda: [n for n in here.notices if n.details.get("state") == "recovered"])
            assert told[0].code in ("no_embeddings", "embeddings_loading")


async def test_degraded_model_of_the_wrong_dimension_is_named(tmp_path, embedding_model_dir):
    """A model folder whose manifest and weights disagree: full text only, with the reason, and no crash."""
    folder = tmp_path / "models" / embedding_model_dir.name
    folder.mkdir(parents=True)
    for file in embedding_model_dir.iterdir():
        if file.name != "manifest.json":
            (folder / file.name).hardlink_to(file)  # ONNX Runtime refuses weights outside the folder
    manifest = json.loads((embedding_model_dir / "manifest.json").read_text())
    manifest["embedding"]["dimension"] = 123
    (folder / "manifest.json").write_text(json.dumps(manifest))
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url, models=folder.parent, context={"slidingWindow": 2})
        async with served(home) as server, talking(server.url) as talk:
            await talk.until(lambda: "no_embeddings" in talk.degraded)
            for text in TALK:
                await talk.ask(text)
            receipt = await talk.ask(QUESTIONS[0][0])
            status = await talk.client.call("health")
            assert receipt.receipt["recall"]["degraded"] == ["embedding_no_model"]
            assert 1 in receipt.receipt["recall"]["kept"]
            (problem,) = status["degraded"]
            assert "123" in problem["text"]
            assert "384" in problem["text"]
            assert server.events("actor_crashed") == []


async def test_degraded_to_full_text_while_another_model_embeds_anew(tmp_path, embedding_model_dir, monkeypatch):
    """Status and receipts say how much is done, full text recalls meanwhile, and then the vectors are back."""
    held = threading.Event()
    embed = worker.Worker._read_passages

    def hold(worker, texts):
        assert held.wait(HANG_S)
        return embed(worker, texts)

    other = write_tiny_model(tmp_path / "other", embedding_model_dir)
    window = {"slidingWindow": 2}
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url, models=embedding_model_dir.parent, context=window)
        async with inside(home) as here:
            for text in TALK:
                await here.ask(text)
            await here.embedded()
        monkeypatch.setattr(worker.Worker, "_read_passages", hold)
        write_home(home, llm=llm.url, models=tmp_path, context=window, embedding={"path": str(other)})
        async with inside(home) as here:
            try:
                await here.until(lambda: "reembedding" in here.app.core.health.problems())
                assert here.app.core.health.problems()["reembedding"].startswith("full text only, 0 % re-embedded")
                turn = await here.ask(QUESTIONS[1][0])
                assert turn.receipt["recall"]["degraded"] == ["reembedding:0%"]
                assert QUESTIONS[1][1] in kept(turn)
                assert all("vector_rank" not in each for each in turn.receipt["recall"]["candidates"])
            finally:
                held.set()
            await here.until(lambda: here.app.memory.embedder.status.state == "ready")
            assert here.app.core.health.problems() == {}
            turn = await here.ask(QUESTIONS[0][0])
            assert turn.receipt["recall"]["degraded"] == []
            assert any(each["vector_rank"] is not None for each in turn.receipt["recall"]["candidates"])


async def test_llm_down_keeps_the_message_and_retry_answers_it(tmp_path):
    """An error frame with its code; the message stays; /retry after the LLM is back answers it, and so does a new
    message."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm="http://127.0.0.1:9/v1")
        async with served(home) as server:
            async with talking(server.url) as talk:
                await talk.send("Is anybody there? Есть кто?")
                (error,) = await talk.until(lambda: talk.errors)
                assert (error.code, error.chat) == ("llm_unreachable", "main")
                assert error.turn is not None
                assert error.retryable
                await talk.send("/retry")
                await talk.until(lambda: len(talk.errors) == 2)
                assert [m.content for m in await talk.history() if m.role == "user" and m.kind == "text"] == [
                    "Is anybody there? Есть кто?"
                ]
            await server.terminate()
        config = json.loads((home / "config" / "engine.yaml").read_text())
        config["providers"]["stub"]["baseUrl"] = llm.url
        (home / "config" / "engine.yaml").write_text(json.dumps(config))
        llm.respond = lambda _request: error_reply(503)
        async with served(home) as server, talking(server.url, {"main": 0}) as talk:
            error = await talk.until(lambda: talk.errors)
            assert error[0].code == "llm_refused"
            llm.respond = echo_reply
            await talk.send("/retry")
            receipt = await talk.settled(1)
            assert await talk.answer_to(receipt) == "echo: Is anybody there? Есть кто?"

            llm.respond = lambda _request: error_reply(500)
            seq = await talk.send("And now?")
            await talk.until(lambda: len(talk.errors) == 2)
            llm.respond = lambda _request: text_reply("both are answered")
            last = await talk.send("Ау?")
            receipt = await talk.settled(last)
            assert (receipt.first_seq, receipt.last_seq) == (seq, last)
            with trio.fail_after(HANG_S):
                assert await talk.answer_to(receipt) == "both are answered"
