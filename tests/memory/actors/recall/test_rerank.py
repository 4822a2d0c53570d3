"""A provider's reranker within recall: it orders what the gate let pass, in time or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.actor.clock import FixedClock, SystemClock
from klaw.config.load import read_settings
from klaw.context.explain import describe_candidate
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.search import RecallOutcome
from klaw.llm import service
from klaw.llm.client import LlmClient, without_server
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import CandidateReranker, Recall
from klaw.store.kinds import messages
from klaw.store.search.chat_search import ChatScope
from klaw.store.store import Store
from tests.support.llm_server import Cut, Hang, LlmServer, Pause, Raw, Recorded, Reply, error_reply, serve_llm
from tests.support.memory.endpoints import answer, asked, json_reply, spoiled
from tests.support.stores import START, new, running_store
from tests.support.waiting import HANG_S, until

MAIN = chat_id(LOCAL_USER, "main")
SAID = [
    "The code of the garden gate is 4711.",
    "Код от калитки в саду: 4711.",
    "We painted the garden gate green.",
    "Калитку в саду покрасили зелёным.",
    "The bread was good today.",
]
ASKED = "What is the code of the garden gate?"
SPROSIL = "Какой код от калитки в саду?"


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with serve_llm() as running:
            running.respond = answer
            yield running


def by(*scores: float) -> Any:
    """A service that gives these scores, whatever it is sent."""

    def respond(request: Recorded) -> Reply:
        count = len(request.body["documents"])
        results = [{"index": at, "relevance_score": score} for at, score in enumerate(scores[:count])]
        return json_reply({"results": results})

    return respond


@attrs.frozen
class Here:
    store: Store
    recall: Recall
    llm: LlmClient

    async def ask(self, question: str, **more: Any) -> RecallOutcome:
        return await self.recall.search(question, ChatScope(chat=MAIN, first_seq=1, end_seq=1 << 40), **more)


@asynccontextmanager
async def running(
    root: Path, url: str, *, budget_ms: int = 60_000, candidates: int = 30, said: list[str] = SAID, **model: Any
) -> AsyncIterator[Here]:
    config = read_settings(
        {
            "providers": {"cloud": {"baseUrl": url, "maxRetries": 0, "models": {"r/x": model}}},
            "autoRag": {
                "timeBudgetMs": budget_ms,
                "rerank": {"provider": "cloud", "model": "r/x", "candidates": candidates},
            },
        }
    )
    llm = without_server(config, SystemClock())
    reranker = CandidateReranker(
        endpoint=llm.router.endpoint(*config.endpoints["rerank"], "rerank"), candidates=candidates, llm=llm
    )
    async with running_store(root) as store:
        await store.writer.run(messages.append, [new(text, at=START + 60 * at) for at, text in enumerate(said)])
        embedder = Embedder(SystemClock(), enabled=False)
        recall = Recall(store.readers, embedder, config.auto_rag, FixedClock(START + 9_999), reranker=reranker)
        yield Here(store, recall, llm)
        await llm.router.aclose()


def order(recalled: RecallOutcome) -> list[int]:
    return [each.message.seq for each in recalled.candidates if each.rerank is not None]


@pytest.mark.parametrize(("path", "wanted"), [("/v1", "/v1/rerank"), ("", "/rerank"), ("/v1/", "/v1/rerank")])
async def test_what_passed_the_gate_is_sent_where_the_address_says(
    tmp_path: Path, server: LlmServer, path: str, wanted: str
) -> None:
    async with running(tmp_path, f"http://127.0.0.1:{server.port}{path}") as here:
        found = await here.ask(ASKED)
    (request,) = server.requests
    passed = [each.message.content for each in found.candidates if each.rerank is not None]
    assert request.path == wanted
    assert request.body["query"] == ASKED
    assert request.body["model"] == "r/x"
    assert request.body["top_n"] == len(request.body["documents"])
    assert sorted(request.body["documents"]) == sorted(passed)
    assert SAID[4] not in request.body["documents"]
    assert found.degraded == ()
    assert "rerank" in found.timings_ms


@pytest.mark.parametrize("question", [ASKED, SPROSIL])
async def test_its_scores_order_them_and_negative_ones_too(tmp_path: Path, server: LlmServer, question: str) -> None:
    async with running(tmp_path, server.url) as here:
        plain = await here.ask(question)
        server.respond = by(-9.0, -3.5, -7.0, -8.0)
        turned = await here.ask(question)
    own = [each.message.seq for each in plain.candidates if each.passed]
    assert len(own) >= 2
    assert order(turned)[0] == turned_first(server)
    assert [each.rerank for each in turned.candidates if each.rerank is not None] == sorted(
        (each.rerank for each in turned.candidates if each.rerank is not None), reverse=True
    )
    assert {each.message.seq: each.decision for each in turned.candidates} == {
        each.message.seq: each.decision for each in plain.candidates
    }
    assert describe_candidate(turned.candidates[0])["rerank"] == -3.5


def turned_first(server: LlmServer) -> int:
    """Seq of the document that was sent second."""
    return SAID.index(server.requests[-1].body["documents"][1]) + 1


async def test_those_that_are_not_sent_or_not_scored_follow_in_the_own_order(tmp_path: Path, server: LlmServer) -> None:
    said = [f"The code of the garden gate number {number} is {4000 + number}." for number in range(8)]
    async with running(tmp_path, server.url, candidates=3, said=said) as here:
        server.respond = lambda _request: error_reply(500)
        own = [each.message.seq for each in (await here.ask(ASKED)).candidates]
        server.respond = lambda _request: json_reply({"results": [{"index": 2, "relevance_score": 0.1}]})
        found = [each.message.seq for each in (await here.ask(ASKED)).candidates]
    assert len(server.requests[-1].body["documents"]) == 3
    assert found == [own[2], own[0], own[1], *own[3:]]


@pytest.mark.parametrize("question", ["ok", "ну ладно, спасибо", "Write a haiku about the sea", "bread"])
async def test_nothing_is_sent_when_the_gate_lets_nothing_or_one_pass(
    tmp_path: Path, server: LlmServer, question: str
) -> None:
    async with running(tmp_path, server.url) as here:
        assert (await here.ask(question)).degraded == ()
    assert server.requests == []


async def test_long_messages_are_sent_shortened(tmp_path: Path, server: LlmServer) -> None:
    filler = "Об этом мы говорили очень долго и подробно. " * 200
    said = [f"{filler}Код от калитки в саду 4711. {filler}", "Код от калитки в саду другой."]
    async with running(tmp_path, server.url, said=said) as here:
        assert (await here.ask(SPROSIL)).degraded == ()
        assert (await here.ask(f"{SPROSIL} {filler}")).degraded == ()
    short, long = server.requests
    assert max(len(text) for text in short.body["documents"]) < 800
    assert any("4711" in text for text in short.body["documents"])
    assert len(long.body["query"]) < 400


FAILURES: dict[str, Any] = {
    "error": lambda _request: error_reply(500),
    "no_key": lambda _request: error_reply(401),
    "cut": lambda _request: Reply(before_head=(Cut(),)),
    "huge": lambda _request: Reply(body=b'"' + b"x" * (5 << 20) + b'"', content_type="application/json"),
    "not_json": lambda _request: Reply(body=b"<html>", content_type="text/html"),
    "no_results": spoiled(lambda said: {"data": said["results"]}),
    "unknown_index": spoiled(lambda said: {"results": [{**each, "index": 99} for each in said["results"]]}),
    "one_twice": spoiled(lambda said: {"results": said["results"] * 2}),
    "no_number": spoiled(lambda said: {"results": [{**each, "relevance_score": "high"} for each in said["results"]]}),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_own_order_stays_when_it_fails(tmp_path: Path, server: LlmServer, failure: str) -> None:
    async with running(tmp_path, server.url) as here:
        await here.ask(ASKED)
        server.respond = FAILURES[failure]
        failed = await here.ask(ASKED)
        server.respond = answer
        again = await here.ask(ASKED)
    assert (failed.degraded, again.degraded) == (("rerank_failed",), ())
    assert order(failed) == []
    assert order(again)
    assert {each.message.seq for each in failed.kept} == {each.message.seq for each in again.kept}


@pytest.mark.parametrize("slow", ["silent", "endless"])
async def test_the_own_order_stays_when_it_is_late_and_it_is_left_alone_for_a_while(
    tmp_path: Path, server: LlmServer, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BREAK", service.Backoff(0.05, 0.05))
    drops = [step for _ in range(10_000) for step in (Raw(b" "), Pause(0.01))]
    silent, endless = Reply(before_head=(Hang(),)), Reply(content_type="application/json", steps=drops)
    async with running(tmp_path, server.url, budget_ms=1_000) as here:
        server.respond = lambda _request: silent if slow == "silent" else endless
        said = [(await here.ask(ASKED)).degraded for _ in range(service.FAILURES_TO_OPEN)]
        assert set(said) == {("rerank_late",)}
        (text,) = here.llm.router.problems().values()
        assert "is paused after several failures" in text
        assert "did not answer within" in text
        await server.requests[-1].gone.wait()
        server.respond = answer
        await until(lambda: _recovered(here))
        assert here.llm.router.problems() == {}


async def _recovered(here: Here) -> bool:
    return not (await here.ask(ASKED)).degraded


async def test_a_dead_address(tmp_path: Path, server: LlmServer) -> None:
    server.stop()
    async with running(tmp_path, server.url) as here:
        said = [(await here.ask(ASKED)).degraded for _ in range(service.FAILURES_TO_OPEN + 1)]
        assert set(said) == {("rerank_failed",)}
        assert list(here.llm.router.problems()) == ["llm:cloud/r/x (rerank)"]


async def test_it_is_counted_in_its_turn(tmp_path: Path, server: LlmServer) -> None:
    async with running(tmp_path, server.url, inputPrice=1, outputPrice=0) as here:
        meter = here.llm.meter()
        await here.ask(ASKED, meter=meter)
    assert meter.spent.calls == len(asked(server, "/rerank"))
    assert (meter.spent.prompt_tokens, meter.spent.cost_nano) == (40, 40_000)
    assert [each["model"] for each in meter.record()["models"]] == ["cloud/r/x"]
