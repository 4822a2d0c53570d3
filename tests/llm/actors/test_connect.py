"""Trying a model before it is connected: how long it may take, and what it counts as."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.config.schema import EngineConfig
from klaw.config.services import SERVICES
from klaw.llm import connect
from klaw.llm.budget import DailyBudget
from klaw.llm.connect import NotConnected, ServiceConnection, TriedModel, connection_of, look, try_model
from tests.support.llm_server import Hang, Recorded, Reply, Wait, serve_llm, text_reply
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.services.openai import OpenAiService, openai_rows

NAME = "qwen3:8b"


@pytest.fixture
async def ollama() -> AsyncIterator[OllamaService]:
    service = OllamaService(OllamaModel(name=NAME))
    async with serve_llm(service):
        yield service


def to(service: str, url: str, **more: Any) -> ServiceConnection:
    given: dict[str, Any] = {"key": None, "key_env": None, "environ": {}, "secrets": {}, **more}
    return connection_of(EngineConfig(), SERVICES[service], url=url, **given)


async def tried(connection: ServiceConnection, model: str, budget: DailyBudget | None = None) -> TriedModel:
    return await try_model(EngineConfig(), connection, model, await look(connection), budget, asks=True)


@pytest.mark.parametrize("loaded", [False, True])
async def test_a_model_that_says_nothing_is_given_up_soon(
    ollama: OllamaService, monkeypatch: pytest.MonkeyPatch, *, loaded: bool
) -> None:
    """Also one that was in the memory before: it is not being loaded."""
    monkeypatch.setattr(connect, "ANSWER_S", 0.5)
    ollama.replaced["/v1/chat/completions"] = Reply(before_head=(Hang(),))
    if loaded:
        ollama.loaded[NAME] = 4_096
    began = trio.current_time()
    with pytest.raises(NotConnected, match="the model did not answer") as refused:
        await tried(to("ollama", f"{ollama.root}/v1"), NAME)
    assert refused.value.argument == "model"
    assert trio.current_time() - began < connect.LOADING_S / 2


async def test_a_model_that_its_service_is_loading_has_more_time(
    ollama: OllamaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ollama's list of running models shows: it answers only after it was looked at again."""
    monkeypatch.setattr(connect, "ANSWER_S", 0.5)
    looked, respond = trio.Event(), ollama.respond
    ollama.answer = lambda _request: text_reply("Hello", before_head=(Wait(looked),))

    def watched(request: Recorded) -> Reply:
        if request.path == "/api/ps" and NAME in ollama.loaded:
            looked.set()
        return respond(request)

    ollama.respond = watched
    found = await tried(to("ollama", f"{ollama.root}/v1"), NAME)
    assert (found.answer, found.tools) == ("Hello", True)


async def test_what_trying_costs_counts_for_the_day() -> None:
    async with serve_llm(service := OpenAiService(openai_rows("small"), key="sk-1")):
        assert isinstance(service, OpenAiService)
        connection = to("other", service.address, key="sk-1")
        budget = DailyBudget(None, 10_000, 0.8, SystemClock())
        found = await tried(connection, "small", budget)
        assert (found.answer, found.tools, found.cost.chats) == ("ok", False, None)
        spent = budget.report().unpriced_tokens
        assert spent > 0
        used_up = DailyBudget(None, 1, 0.8, SystemClock())
        with pytest.raises(NotConnected, match="daily budget"):
            await tried(connection, "small", used_up)
