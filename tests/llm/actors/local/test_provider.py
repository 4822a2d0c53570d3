"""The local provider follows the process from one incarnation to the next."""

from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.llm.errors import ProviderError, ProviderNetworkError, ProviderTimeout
from klaw.llm.local_model import LocalAddress, LocalModel, LocalProvider, LocalState
from klaw.llm.types import ChatMessage, Completion, Delta, JsonSchema, Request
from tests.support.llm_server import Cut, Hang, LlmServer, Reply, Text, serve_llm, text_reply
from tests.support.waiting import HANG_S

REQUEST = Request(model="m", messages=(ChatMessage(role="user", content="Привет"),))


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with serve_llm() as running:
            yield running


@pytest.fixture
async def model() -> LocalModel:
    return LocalModel()


@pytest.fixture
async def provider(model: LocalModel) -> AsyncIterator[LocalProvider]:
    made = LocalProvider(model, ready_within_s=HANG_S)
    yield made
    await made.aclose()


async def call(provider: LocalProvider) -> Completion:
    return await provider.stream(REQUEST, lambda _delta: None)


async def test_a_call_waits_until_the_model_is_loaded(
    server: LlmServer, model: LocalModel, provider: LocalProvider
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, provider)
        await wait_all_tasks_blocked()
        assert not server.requests
        model.ready(LocalAddress(base_url=server.url, key="k1"))
    assert server.requests[0].headers["authorization"] == "Bearer k1"


@pytest.mark.parametrize("state", [LocalState.MISSING, LocalState.BROKEN, LocalState.STOPPED])
async def test_a_model_that_will_not_come_is_an_error_with_the_reason(
    model: LocalModel, provider: LocalProvider, state: LocalState
) -> None:
    """At once, also for a call that waits already."""
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _waits() -> None:
            with pytest.raises(ProviderError, match="klaw models pull"):
                await call(provider)

        await wait_all_tasks_blocked()
        model.not_ready(state, "run `klaw models pull`")
    with pytest.raises(ProviderError, match="klaw models pull"):
        await call(provider)


async def test_waiting_is_bounded(model: LocalModel) -> None:
    with pytest.raises(ProviderTimeout, match="has not been started"):
        await call(LocalProvider(model, ready_within_s=0.01))


async def test_a_call_goes_to_the_successor_of_a_dead_process(
    server: LlmServer, model: LocalModel, provider: LocalProvider
) -> None:
    """The connection breaks before the first delta; the new process has another key."""
    first, second = LocalAddress(base_url=server.url, key="k1"), LocalAddress(base_url=server.url, key="k2")
    model.ready(first)
    server.replies += [Reply(before_head=(Cut(),)), text_reply("ok")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, provider)
        await server.wait_for_requests(1)
        model.not_ready(LocalState.STARTING, "restarting")
        model.ready(second)
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer k1", "Bearer k2"]


async def test_a_broken_connection_to_a_living_process_is_tried_once_more(
    server: LlmServer, model: LocalModel, provider: LocalProvider
) -> None:
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    server.respond = lambda _request: Reply(before_head=(Cut(),))
    with pytest.raises(ProviderNetworkError):
        await call(provider)
    assert len(server.requests) == 2


async def test_a_torn_answer_is_not_repeated(server: LlmServer, model: LocalModel, provider: LocalProvider) -> None:
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    server.replies.append(Reply(steps=(Text("half"), Cut())))
    with pytest.raises(ProviderNetworkError):
        await call(provider)
    assert len(server.requests) == 1


async def test_a_closed_provider_refuses(server: LlmServer, model: LocalModel, provider: LocalProvider) -> None:
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    await call(provider)
    await provider.aclose()
    with pytest.raises(ProviderNetworkError, match="closed"):
        await call(provider)


@pytest.mark.parametrize("piece", ["I'm glad you're here. ", "Я рад, что ты здесь. "])
async def test_an_answer_that_repeats_itself_is_stopped(
    server: LlmServer, model: LocalModel, provider: LocalProvider, piece: str
) -> None:
    """The process is told, and what is shown and stored holds the sentence once."""
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    words = [Text(f"{word} ") for word in piece.split()]
    server.replies.append(Reply(steps=(Text("Hm. "), *words * 400, Hang())))
    deltas: list[Delta] = []
    done = await provider.stream(REQUEST, deltas.append)
    await server.requests[0].gone.wait()
    assert done.text.rstrip() == f"Hm. {piece}".rstrip()
    assert "".join(delta.text for delta in deltas) == done.text
    assert (done.model, done.finish_reason) == ("local/m", "stop")


@pytest.mark.parametrize("text", ["Да.", "Yes, yes, yes. It is a list:\n1. one\n2. two", "a" * 15])
async def test_an_answer_that_goes_somewhere_is_whole(
    server: LlmServer, model: LocalModel, provider: LocalProvider, text: str
) -> None:
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    server.replies.append(text_reply(*text))
    deltas: list[Delta] = []
    done = await provider.stream(REQUEST, deltas.append)
    assert done.text == text == "".join(delta.text for delta in deltas)
    assert done.usage is not None


async def test_json_is_never_stopped(server: LlmServer, model: LocalModel, provider: LocalProvider) -> None:
    model.ready(LocalAddress(base_url=server.url, key="k1"))
    text = '{"a": ["' + "the same again, " * 200 + '"]}'
    server.replies.append(text_reply(text[:100], text[100:]))
    schema = JsonSchema(name="s", schema={"type": "object"})
    assert (await provider.stream(attrs.evolve(REQUEST, json_schema=schema), lambda _: None)).text == text
