"""A provider's embedding model: the embedder over a real store and a real HTTP server, which is right, slow, down or
lies."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.load import read_settings
from klaw.errors import EmbeddingUnavailable
from klaw.llm import service
from klaw.llm.budget import DailyBudget
from klaw.llm.client import LlmClient, without_server
from klaw.memory.embed import remote, worker
from klaw.memory.embed.embedder import Embedder, EmbedderState, OfflineEmbedder
from klaw.memory.embed.remote import TEXTS_IN_REQUEST, RemoteModel, remote_of
from klaw.memory.embed.worker import Worker
from klaw.memory.recall.pipeline import Account
from klaw.store.engine import vector_model
from klaw.store.kinds import messages, usage
from klaw.store.kinds.usage import UsageFilters
from klaw.store.search import vectors
from klaw.store.store import Store
from tests.support.llm_server import Cut, Hang, LlmServer, Pause, Raw, Recorded, Reply, Wait, error_reply, serve_llm
from tests.support.memory.endpoints import DIMENSION, answer, asked, embedded, json_reply, spoiled
from tests.support.stores import new, running_store
from tests.support.waiting import HANG_S, until

KEY = "sk-canary-77aa"
PRICED = {"inputPrice": 2, "outputPrice": 0}
TEXTS = [
    "The wifi password of the summer house is tangerine-42.",
    "Пароль от вайфая на даче — мандарин-42, запиши его.",
    "My sister Anna is allergic to peanuts and walnuts.",
    "Моя сестра Аня не переносит арахис и грецкий орех.",
]
PROBLEM = "embeddings_failing"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is tried again by itself."""
    monkeypatch.setattr(worker, "RECHECK_MODEL_S", 0.05)
    monkeypatch.setattr(worker, "FAILED_BATCH_PAUSE_S", 0.0)
    monkeypatch.setattr(service, "BREAK", service.Backoff(0.05, 0.05))


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with serve_llm() as running:
            running.respond = answer
            yield running


@attrs.frozen
class Here:
    """An embedder that works with a provider's model."""

    store: Store
    embedder: Embedder
    remote: RemoteModel

    async def say(self, *texts: str) -> None:
        await self.store.writer.run(messages.append, [new(text) for text in texts])
        self.embedder.nudge()

    async def caught_up(self) -> None:
        await until(lambda: self.embedder.status.state is EmbedderState.READY)
        await self.embedder.wait_idle()

    async def until_embedded(self, count: int) -> None:
        await until(lambda: self.embedder.status.embedded == count)

    async def vector(self, text: str) -> np.ndarray:
        return np.frombuffer(await self.embedder.query(text), "<f4")


@asynccontextmanager
async def running(
    root: Path, server: LlmServer, *, store: Store | None = None, models: dict[str, Any] | None = None, **embedding: Any
) -> AsyncIterator[Here]:
    if store is None:
        async with running_store(root) as made, running(root, server, store=made, models=models, **embedding) as here:
            yield here
            return
    provider = {"baseUrl": server.url, "apiKey": KEY, "maxRetries": 0, "timeoutSeconds": 20, "models": models or {}}
    config = read_settings(
        {"providers": {"cloud": provider}, "embedding": {"provider": "cloud", "model": "m/x", **embedding}}
    )
    llm = without_server(config, SystemClock())
    found = remote_of(config, llm, root / "models", SystemClock(), store.writer)
    assert found is not None
    embedder = Embedder(SystemClock(), enabled=True)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        work = Worker(
            embedder=embedder,
            config=config.embedding,
            folder=root / "nothing",
            min_tokens=10,
            writer=store.writer,
            readers=store.readers,
            remote=found,
        )
        await supervisor.start(work.spec())
        try:
            yield Here(store, embedder, found)
        finally:
            await supervisor.stop(worker.ACTOR_NAME, "test is over")
            await llm.router.aclose()


async def test_messages_and_questions_get_unit_vectors(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server) as here:
        await here.say(*TEXTS)
        await here.until_embedded(4)
        assert await here.store.readers.run(vector_model.current) == (f"cloud/m/x@{DIMENSION}/2", DIMENSION)
        for question, wanted in (("Какой пароль на даче?", 2), ("Who is allergic to walnuts?", 3)):
            near = await here.vector(question)
            assert np.linalg.norm(near) == pytest.approx(1.0, abs=1e-5)
            stored = [np.frombuffer(await here.store.readers.run(vectors.read, row), "<f4") for row in (1, 2, 3, 4)]
            assert int(np.argmax([near @ each for each in stored])) + 1 == wanted
        assert 0.0 <= here.embedder.random_cosine < 0.5
        assert here.remote.problems() == {}
    sent = asked(server, "/v1/embeddings")
    assert {request.headers["authorization"] for request in sent} == {f"Bearer {KEY}"}
    assert {request.body["model"] for request in sent} == {"m/x"}
    assert max(len(request.body["input"]) for request in sent) <= TEXTS_IN_REQUEST
    assert not any("dimensions" in request.body for request in sent)


async def test_a_message_is_sent_after_the_end_of_the_one_before_it(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        await here.say(*TEXTS[:2])
        await here.until_embedded(2)
    texts = [text for request in asked(server, "/embeddings") for text in request.body["input"]]
    assert f"{TEXTS[0]}\n{TEXTS[1]}" in texts


async def test_long_and_empty_texts(tmp_path: Path, server: LlmServer) -> None:
    """A long one goes in parts, and its vector is of all of them."""
    long = " ".join(f"слово{number} word{number}" for number in range(400))
    async with running(tmp_path, server) as here:
        await here.caught_up()
        before = len(server.requests)
        whole = np.frombuffer(await here.embedder.passage(long), "<f4")
        parts = [text for request in server.requests[before:] for text in request.body["input"]]
        assert len(parts) > 5
        assert "".join(parts) == long
        assert max(map(len, parts)) <= 1_300
        assert np.linalg.norm(whole) == pytest.approx(1.0, abs=1e-5)
        await here.embedder.query("")
        assert server.requests[-1].body["input"] == ["-"]


async def test_prefixes_and_dimensions_are_sent_and_name_the_vectors(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server, dimensions=32, queryPrefix="q: ", passagePrefix="п: ") as here:
        await here.say(TEXTS[0])
        await here.until_embedded(1)
        await here.embedder.query("Где ключ?")
        name, dimension = await here.store.readers.run(vector_model.current) or ("", 0)
    assert dimension == 32
    assert name.startswith("cloud/m/x@32+")
    assert server.requests[-1].body == {"model": "m/x", "input": ["q: Где ключ?"], "dimensions": 32}
    assert any(f"п: {TEXTS[0]}" in request.body["input"] for request in server.requests)


async def test_what_was_measured_is_kept(tmp_path: Path, server: LlmServer) -> None:
    async with running_store(tmp_path) as store:
        async with running(tmp_path, server, store=store) as here:
            await here.caught_up()
            first, measured = here.embedder.random_cosine, len(server.requests)
        async with running(tmp_path, server, store=store) as here:
            await here.caught_up()
            assert here.embedder.random_cosine == first
    assert measured > 5
    assert len(server.requests) == measured + 1


async def test_another_model_of_the_provider_embeds_anew(tmp_path: Path, server: LlmServer) -> None:
    async with running_store(tmp_path) as store:
        async with running(tmp_path, server, store=store) as here:
            await here.say(*TEXTS)
            await here.until_embedded(4)
        async with running(tmp_path, server, store=store, model="other", dimensions=48) as here:
            await until(lambda: here.embedder.status.state is EmbedderState.READY)
            await here.until_embedded(4)
            assert await store.readers.run(vector_model.current) == ("cloud/other@48/2", 48)


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "too_few": lambda said: said["data"].pop(),
    "no_data": lambda _said: {"object": "list"},
    "a_list": lambda _said: [1, 2],
    "other_dimension": lambda said: {"data": [{**each, "embedding": [1.0, 0.0, 0.0]} for each in said["data"]]},
    "no_index": lambda said: {"data": [{"embedding": each["embedding"]} for each in said["data"]]},
    "one_index": lambda said: {"data": [{**each, "index": 0} for each in (said["data"] * 2)]},
}
BROKEN: dict[str, Reply] = {
    "error": error_reply(500),
    "no_key": error_reply(401),
    "no_model": error_reply(404),
    "not_json": Reply(body=b"<html>", content_type="text/html"),
    "bad_json": Reply(body=b'{"data": [', content_type="application/json"),
    "huge": Reply(body=b'{"data": "' + b"x" * (5 << 20) + b'"}', content_type="application/json"),
    "cut": Reply(before_head=(Cut(),)),
    "nested": Reply(body=b"[" * 100_000, content_type="application/json"),
}


@pytest.mark.parametrize("failure", [*LIES, *BROKEN])
async def test_failures_in_between_lose_nothing_and_end_by_themselves(
    tmp_path: Path, server: LlmServer, failure: str
) -> None:
    """Messages wait, a question goes on without a vector, status says why; then all is made up for."""
    async with running(tmp_path, server) as here:
        await here.say(*TEXTS[:2])
        await here.until_embedded(2)
        server.respond = spoiled(LIES[failure]) if failure in LIES else lambda _request: BROKEN[failure]
        await here.say(*TEXTS[2:])
        await until(lambda: PROBLEM in here.remote.problems())
        account = Account(HANG_S)
        await account.embed(here.embedder, TEXTS[3])
        assert (account.reading, account.degraded) == (None, ["embedding_failed"])
        (text,) = here.remote.problems().values()
        assert "cloud/m/x at http://127.0.0.1" in text
        assert KEY not in text
        assert here.embedder.status.embedded == 2
        server.respond = answer
        await here.until_embedded(4)
        await until(lambda: not here.remote.problems())
        await here.embedder.query("Кто не ест орехи?")


async def test_a_provider_that_is_down_at_the_start_is_found_later(tmp_path: Path, server: LlmServer) -> None:
    server.respond = lambda _request: error_reply(503)
    async with running(tmp_path, server) as here:
        await here.say(*TEXTS)
        await until(lambda: here.embedder.status.state is EmbedderState.NO_MODEL)
        assert "status 503" in here.embedder.problems()["no_embeddings"]
        with pytest.raises(EmbeddingUnavailable, match="no_model"):
            await here.embedder.query("Какой пароль?")
        server.respond = answer
        await here.until_embedded(4)
        assert here.embedder.problems() == {}


async def test_a_dead_address_is_left_alone_for_a_while(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        server.stop()
        await here.say(*TEXTS)
        breaker = here.remote.endpoint.service.breaker
        await until(lambda: breaker.failures >= service.FAILURES_TO_OPEN)
        await until(lambda: "failed several times" in str(here.remote.trouble) or "refused" in str(here.remote.trouble))
        assert here.embedder.status.state is EmbedderState.READY
        assert here.embedder.status.waiting == 4


async def test_a_text_that_is_refused_holds_up_no_other(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again much later; one that the model cannot compute too."""

    def respond(request: Recorded) -> Reply:
        if any("tangerine" in text for text in request.body["input"]):
            return error_reply(400, "invalid_request_error")
        said = embedded(request)
        for each in said["data"]:
            if "walnuts" in request.body["input"][each["index"]]:
                each["embedding"][0] = float("nan")
        return json_reply(said)

    server.respond = respond
    async with running(tmp_path, server) as here:
        await here.say(*[text for text in TEXTS for _ in range(2)])
        await here.until_embedded(2)  # the others are refused, or are sent after the end of one that is
        await here.embedder.wait_idle()
        assert here.remote.problems() == {}
        server.respond = answer
        here.embedder.nudge()
        await here.embedder.wait_idle()
        assert here.embedder.status.embedded == 2
        monkeypatch.setattr(worker, "FAILED_ROWS_PAUSE_S", 0.0)
        here.embedder.nudge()
        await here.until_embedded(8)


@pytest.mark.parametrize("number", [0.0, 1e300])
async def test_a_vector_without_a_length_is_none(tmp_path: Path, server: LlmServer, number: float) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        server.respond = lambda _request: json_reply({"data": [{"index": 0, "embedding": [number] * DIMENSION}]})
        with pytest.raises(EmbeddingUnavailable, match="failed"):
            await here.embedder.query("Какой пароль?")
        assert here.embedder.status.state is EmbedderState.READY


async def test_a_late_answer_holds_up_neither_the_reply_nor_other_questions(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        monkeypatch.setattr(remote, "QUERY_S", HANG_S)
        hanging = Reply(before_head=(Hang(),))
        server.respond = lambda request: hanging if "поздно" in request.body["input"][0] else answer(request)
        account, before = Account(0.2), len(server.requests)
        await account.embed(here.embedder, "поздно")
        assert (account.reading, account.degraded) == (None, ["embedding_late"])
        assert len(await here.vector("Where is the key?")) == DIMENSION
        assert len(server.requests) == before + 2


async def test_an_endless_answer_is_given_up(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        monkeypatch.setattr(remote, "QUERY_S", 0.3)
        drops = [step for _ in range(10_000) for step in (Raw(b" "), Pause(0.01))]
        server.replies.append(Reply(content_type="application/json", steps=drops))
        with pytest.raises(EmbeddingUnavailable, match="failed"):
            await here.embedder.query("Какой пароль?")
        assert "did not answer within 0.3 s" in str(here.remote.trouble)
        with trio.fail_after(HANG_S):
            await server.requests[-1].gone.wait()
        await here.embedder.query("Какой пароль?")
        assert here.remote.trouble is None


async def test_what_is_spent_is_noted_where_the_price_is_known(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "QUERY_S", HANG_S)
    async with running_store(tmp_path) as store:
        async with running(tmp_path, server, store=store, models={"m/x": PRICED}) as here:
            await here.say(*TEXTS)
            await here.until_embedded(4)
            gate, arrived = trio.Event(), len(server.requests) + 1
            server.respond = lambda request: attrs.evolve(answer(request), before_head=(Wait(gate),))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.embedder.query, "Какой пароль?")
                await server.wait_for_requests(arrived)
                await here.remote.note_spending(at_once=True)  # a question that is under way is in the next note
                gate.set()
            calls = len(server.requests)
            with trio.CancelScope() as scope:  # a stop in the middle of a note loses nothing
                scope.cancel()
                await here.remote.note_spending(at_once=True)
        (group,) = await store.readers.run(usage.groups, UsageFilters(), "source")
        assert (group.key, group.spent.calls) == ("embedding", calls)
        counted = sum(embedded(request)["usage"]["prompt_tokens"] for request in server.requests)
        assert group.spent.prompt_tokens == counted
        assert group.spent.cost_nano == counted * 2_000
        async with running(tmp_path, server, store=store) as here:
            await here.caught_up()
        assert await store.readers.run(usage.groups, UsageFilters(), "source") == [group]


async def test_a_question_that_came_too_late_is_counted_by_an_estimate(
    tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more, but the provider charges for it."""
    monkeypatch.setattr(remote, "QUERY_S", HANG_S)
    async with running(tmp_path, server, models={"m/x": PRICED}) as here:
        await here.caught_up()
        here.remote.meter.take()
        server.respond = lambda _request: Reply(before_head=(Hang(),))
        arrived = len(server.requests) + 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.embedder.query, "Какой пароль?")
            await server.wait_for_requests(arrived)
            nursery.cancel_scope.cancel()
        spent = here.remote.meter.spent
        assert (spent.calls, spent.estimated_calls) == (1, 1)
        assert spent.cost_nano > 0


async def test_nothing_is_sent_over_the_daily_budget(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server, models={"m/x": PRICED}) as here:
        await here.caught_up()
        sent = len(server.requests)
        budget = DailyBudget(0.000001, None, 1.0, SystemClock())
        here.remote.llm = attrs.evolve(here.remote.llm, budget=budget)
        here.remote.meter = here.remote.llm.meter()
        await here.say(*TEXTS)
        await until(lambda: "llm.dailyBudget" in str(here.remote.problems().get(PROBLEM)))
        assert len(server.requests) == sent
        assert isinstance(here.remote.llm, LlmClient)


async def test_a_command_without_a_server_asks_the_same_model(tmp_path: Path, server: LlmServer) -> None:
    async with running_store(tmp_path) as store, running(tmp_path, server, store=store) as here:
        await here.say(*TEXTS)
        await here.until_embedded(4)
        config = attrs.evolve(
            read_settings({"providers": {"cloud": {"baseUrl": server.url}}}), embedding=here.remote.config
        )
        offline = OfflineEmbedder(store.readers, config, tmp_path / "nothing", SystemClock(), here.remote)
        assert await offline.prepare() is None
        assert await offline.query("Какой пароль?") == await here.embedder.query("Какой пароль?")
        server.respond = lambda _request: error_reply(503)
        down = OfflineEmbedder(store.readers, config, tmp_path / "nothing", SystemClock(), here.remote)
        assert await down.prepare() == "no_model"


async def test_answers_that_hold_what_was_said_reach_no_log(
    tmp_path: Path, server: LlmServer, log_events: list[dict[str, Any]]
) -> None:
    async with running(tmp_path, server) as here:
        await here.caught_up()
        server.respond = lambda request: error_reply(500, message=" ".join(request.body["input"]))
        await here.say(*TEXTS)
        await until(lambda: PROBLEM in here.remote.problems())
        assert "tangerine" not in json.dumps(here.remote.problems())
    assert "tangerine" not in json.dumps(log_events, default=str)
