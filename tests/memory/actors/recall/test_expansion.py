"""Words that a model adds to a question: they find what the question's own words miss, and never cost anything else."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from klaw.actor.clock import FixedClock, SystemClock
from klaw.config.load import read_settings
from klaw.context.assemble import Guard
from klaw.context.explain import describe_recall
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.search import RecallOutcome
from klaw.llm.client import LlmClient, without_server
from klaw.memory.background_llm import Asker
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.expansion import MAX_WORDS, QuestionExpander
from klaw.memory.recall.recall import Recall
from klaw.store.kinds import messages
from klaw.store.search.chat_search import ChatScope
from tests.support.llm_server import Cut, Hang, LlmServer, Reply, error_reply, serve_llm, text_reply
from tests.support.stores import START, new, running_store
from tests.support.waiting import HANG_S

MAIN = chat_id(LOCAL_USER, "main")
ENGLISH = (
    "Which instruments do I play?",
    "violin",
    ["We play chess at the club.", "I practise the violin every evening.", "The bread was good today."],
)
RUSSIAN = (
    "На каких инструментах я играю?",
    "скрипку",
    ["Мы играем в шахматы в клубе.", "По вечерам я упражняюсь на скрипке.", "Хлеб сегодня был хороший."],
)
LANGUAGES = pytest.mark.parametrize(("asked", "word", "said"), [ENGLISH, RUSSIAN])


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with serve_llm() as running:
            yield running


@attrs.frozen
class Here:
    recall: Recall
    llm: LlmClient

    async def ask(self, question: str, **more: Any) -> RecallOutcome:
        more.setdefault("meter", self.llm.meter())
        return await self.recall.search(question, ChatScope(chat=MAIN, first_seq=1, end_seq=1 << 40), **more)


@asynccontextmanager
async def running(root: Path, url: str, said: list[str]) -> AsyncIterator[Here]:
    config = read_settings(
        {
            "providers": {"cloud": {"baseUrl": url, "maxRetries": 0}},
            "routing": {"default": "cloud/large", "tasks": {"expansion": "cloud/quick"}},
            "autoRag": {"timeBudgetMs": 20_000, "expansion": True},
        }
    )
    llm = without_server(config, SystemClock())
    expander = QuestionExpander(Asker(llm=llm, clock=SystemClock()))
    async with running_store(root) as store:
        await store.writer.run(messages.append, [new(text, at=START + 60 * at) for at, text in enumerate(said)])
        embedder = Embedder(SystemClock(), enabled=False)
        yield Here(Recall(store.readers, embedder, config.auto_rag, FixedClock(START + 9_999), expander=expander), llm)
        await llm.router.aclose()


def adds(*words: str) -> Any:
    """A model that answers with these words."""
    return lambda _request: text_reply(json.dumps({"words": words}, ensure_ascii=False))


def kept(recalled: RecallOutcome) -> list[int]:
    return [each.message.seq for each in recalled.kept]


@LANGUAGES
async def test_what_has_only_the_added_words_is_recalled_and_the_receipt_names_them(
    tmp_path: Path, server: LlmServer, asked: str, word: str, said: list[str]
) -> None:
    server.respond = adds("guitar", word)
    async with running(tmp_path, server.url, said) as here:
        assert kept(await here.ask(asked, meter=None)) == [1]
        found = await here.ask(asked)
    (request,) = server.requests
    assert (request.body["model"], request.last_user) == ("quick", asked)
    assert kept(found) == [1, 2]
    assert found.degraded == ()
    assert found.expansion == ("guitar", word)
    receipt = describe_recall(Guard.SEARCH, found)
    assert receipt["expansion"] == ["guitar", word]
    assert {each["seq"] for each in receipt["candidates"] if each.get("added_words")} == {2}


@LANGUAGES
async def test_added_words_never_open_the_gate(
    tmp_path: Path, server: LlmServer, asked: str, word: str, said: list[str]
) -> None:
    server.respond = adds(word)
    async with running(tmp_path, server.url, said[1:]) as here:
        found = await here.ask(asked)
    assert found.expansion == (word,)
    assert [each.added_words for each in found.candidates if each.message.seq == 1] == [1]
    assert kept(found) == []


async def test_the_words_of_a_model_are_data(tmp_path: Path, server: LlmServer) -> None:
    asked, _, said = ENGLISH
    hostile = ['violin" OR scope:*', "NEAR(a b)", "\x00\x1b[31m", "piano\n\n## Heading", "x" * 5_000, "-", "play"]
    server.respond = adds(*hostile, *(f"cello{number}" for number in range(50)))
    async with running(tmp_path, server.url, said) as here:
        found = await here.ask(asked)
    assert kept(found) == [1, 2]
    assert found.degraded == ()
    assert 1 < len(found.expansion) <= MAX_WORDS
    assert all(word.isalnum() for word in found.expansion)
    assert "play" not in found.expansion


FAILURES: dict[str, Any] = {
    "error": lambda _request: error_reply(500),
    "no_key": lambda _request: error_reply(401),
    "cut": lambda _request: Reply(before_head=(Cut(),)),
    "prose": lambda _request: text_reply("I play the violin, the guitar and the piano."),
    "no_list": lambda _request: text_reply('{"words": 7}'),
}


@pytest.mark.parametrize("failure", FAILURES)
@LANGUAGES
async def test_a_failing_model_costs_nothing(
    tmp_path: Path, server: LlmServer, failure: str, asked: str, word: str, said: list[str]
) -> None:
    server.respond = FAILURES[failure]
    async with running(tmp_path, server.url, said) as here:
        failed, plain = await here.ask(asked), await here.ask(asked, meter=None)
    assert failed.degraded == ("expansion_failed",)
    assert failed.candidates == plain.candidates


@LANGUAGES
async def test_a_late_model_costs_nothing_but_the_budget(
    tmp_path: Path, server: LlmServer, mock_clock: MockClock, asked: str, word: str, said: list[str]
) -> None:
    server.respond = lambda _request: Reply(before_head=(Hang(),))
    found: list[RecallOutcome] = []
    async with running(tmp_path, server.url, said) as here, trio.open_nursery() as nursery:

        async def ask() -> None:
            found.append(await here.ask(asked))

        nursery.start_soon(ask)
        await server.wait_for_requests(1)
        assert found == []
        mock_clock.jump(20.0)
        await server.requests[0].gone.wait()
        plain = await here.ask(asked, meter=None)
    (late,) = found
    assert late.degraded == ("expansion_late",)
    assert late.candidates == plain.candidates


@pytest.mark.parametrize("question", ["ok", "ну ладно, спасибо", "Write a haiku about the sea", "Напиши стих о море"])
async def test_no_model_is_asked_about_small_talk_and_commands(
    tmp_path: Path, server: LlmServer, question: str
) -> None:
    async with running(tmp_path, server.url, ENGLISH[2]) as here:
        await here.ask(question)
    assert server.requests == []


async def test_words_that_are_known_already_are_not_asked_for_again(tmp_path: Path, server: LlmServer) -> None:
    asked, word, said = ENGLISH
    async with running(tmp_path, server.url, said) as here:
        found, without = await here.ask(asked, added=(word,)), await here.ask(asked, added=())
    assert server.requests == []
    assert (kept(found), kept(without)) == ([1, 2], [1])


async def test_it_is_counted_in_its_turn(tmp_path: Path, server: LlmServer) -> None:
    asked, word, said = ENGLISH
    server.respond = adds(word)
    async with running(tmp_path, server.url, said) as here:
        meter = here.llm.meter()
        await here.ask(asked, meter=meter)
    assert (meter.spent.calls, meter.spent.prompt_tokens) == (1, 11)
    assert [each["model"] for each in meter.record()["models"]] == ["cloud/quick"]
