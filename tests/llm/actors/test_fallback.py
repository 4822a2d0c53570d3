"""Chains of models and circuit breakers, on Trio's mock clock with providers that fail as told."""

from collections.abc import Callable

import attrs
import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from klaw.actor.threads import Threads
from klaw.llm.errors import (
    ContextTooLong,
    OverQuota,
    ProviderError,
    ProviderMalformed,
    ProviderNetworkError,
    ProviderPaused,
    ProviderRefused,
    ProviderTimeout,
    RateLimited,
)
from klaw.llm.providers.adapt import NO_IMAGE
from klaw.llm.service import BREAK, FAILURES_TO_OPEN, BreakerState, Service
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    Image,
    JsonSchema,
    Model,
    OnDelta,
    Provider,
    ReasoningDelta,
    Request,
    Route,
    TextDelta,
)
from tests.support.scripted import client

Outcome = ProviderError | Delta | trio.Event


class Scripted:
    """A provider: per call a list of deltas, an event to wait for, or an error; else it answers with its name."""

    def __init__(self, name: str, *calls: list[Outcome]) -> None:
        self.name = name
        self.calls = list(calls)
        self.requests: list[Request] = []

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        for outcome in self.calls.pop(0) if self.calls else []:
            if isinstance(outcome, ProviderError):
                raise outcome
            if isinstance(outcome, trio.Event):
                await outcome.wait()
            else:
                on_delta(outcome)
        return Completion(text=self.name, model=f"{self.name}/{request.model}")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@attrs.frozen
class Chain:
    """Models behind one another, asked by the client."""

    route: Route

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        return await client().meter().stream(self.route, request, on_delta)


def chain(first: Model, *others: Model) -> Chain:
    return Chain(Route(**attrs.asdict(first, recurse=False), stand_ins=others))


def service(inner: Provider) -> Service:
    return Service("a", lambda: inner, Threads("secrets", 1))


def link(provider: Scripted, **changes: object) -> Model:
    known = {"context_tokens": 1000, "max_output_tokens": 50, "tools": True, "images": True}
    return Model(**{"provider": provider, "name": f"{provider.name}/m", "model": "m", **known, **changes})  # type: ignore[arg-type]


def ask(text: str = "hi", **changes: object) -> Request:
    messages = (ChatMessage(role="user", content=text, **changes),)  # type: ignore[arg-type]
    return Request(model="m", messages=messages, max_tokens=100)


def refusal(status: int) -> ProviderRefused:
    return ProviderRefused("x", status=status, retryable=status >= 500)


@pytest.mark.parametrize(
    "error",
    [
        ProviderTimeout("x"),
        ProviderNetworkError("x"),
        ProviderMalformed("x"),
        ProviderPaused("x"),
        refusal(401),
        refusal(503),
        RateLimited("x", status=429, retryable=True),
        OverQuota("x", status=402, retryable=False),
        ProviderError("the local model is not there"),
    ],
)
async def test_the_next_one_is_asked_when_nothing_was_said(error: ProviderError) -> None:
    first, second = Scripted("a", [error]), Scripted("b")
    with structlog.testing.capture_logs() as logs:
        completion = await chain(link(first), link(second)).stream(ask(), lambda _delta: None)
    assert completion.model == "b/m"
    assert [entry["event"] for entry in logs] == ["llm_fallback"]


@pytest.mark.parametrize("delta", [TextDelta("x"), ReasoningDelta("x")])
async def test_no_other_one_is_asked_after_the_first_delta(delta: Delta) -> None:
    first, second = Scripted("a", [delta, ProviderNetworkError("x")]), Scripted("b")
    with pytest.raises(ProviderNetworkError):
        await chain(link(first), link(second)).stream(ask(), lambda _delta: None)
    assert not second.requests


async def test_a_prompt_that_is_too_long_is_the_callers_affair() -> None:
    """Without a length from the first model, with its own from one that stands in."""
    long = ContextTooLong("x", status=400, retryable=False)
    first, second = Scripted("a", [long]), Scripted("b")
    with pytest.raises(ContextTooLong) as caught:
        await chain(link(first), link(second)).stream(ask(), lambda _delta: None)
    assert caught.value.context_tokens is None
    assert not second.requests
    for text, sent in (("hi", 1), ("long " * 2000, 0)):
        long = ContextTooLong("x", status=400, retryable=False)
        first, second = Scripted("a", [refusal(500)]), Scripted("b", [long])
        with pytest.raises(ContextTooLong) as caught:
            await chain(link(first), link(second, context_tokens=500)).stream(ask(text), lambda _d: None)
        assert caught.value.context_tokens == 500
        assert len(second.requests) == sent


async def test_when_all_fail_the_first_error_is_told() -> None:
    first, second = Scripted("a", [RateLimited("first", status=429, retryable=True)]), Scripted("b", [refusal(401)])
    with pytest.raises(RateLimited, match="first"):
        await chain(link(first), link(second)).stream(ask(), lambda _delta: None)


async def test_the_request_is_made_fit_for_the_one_that_stands_in() -> None:
    first, second = Scripted("a", [refusal(500)]), Scripted("b")
    asked = chain(
        link(first), link(second, model="small", tools=False, images=False, json_schema=False, max_output_tokens=7)
    )
    request = ask("Что это?", images=(Image(data=b"x", media_type="image/png"),))
    request = attrs.evolve(request, json_schema=JsonSchema(name="n", schema={"type": "object"}))
    await asked.stream(request, lambda _delta: None)
    (sent,) = second.requests
    assert (sent.model, sent.max_tokens, sent.json_schema) == ("small", 7, None)
    assert NO_IMAGE in sent.messages[0].content
    assert first.requests == [request]


async def test_a_model_without_schemas_is_asked_in_words() -> None:
    """Also when it is alone."""
    alone = Scripted("a")
    request = attrs.evolve(ask(), json_schema=JsonSchema(name="n", schema={"type": "object"}))
    await chain(link(alone, json_schema=False)).stream(request, lambda _delta: None)
    (sent,) = alone.requests
    assert sent.json_schema is None
    assert '{"type": "object"}' in sent.messages[-1].content


async def test_a_cancelled_call_asks_nobody_else() -> None:
    first, second = Scripted("a", [trio.Event()]), Scripted("b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chain(link(first), link(second)).stream, ask(), lambda _delta: None)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="/stop")
    assert not second.requests


Failing = Callable[[], ProviderError]


@pytest.mark.parametrize(
    "fail",
    [
        lambda: ProviderTimeout("x"),
        lambda: ProviderNetworkError("x"),
        lambda: refusal(529),
        lambda: RateLimited("x", status=429, retryable=True),
    ],
)
async def test_a_provider_that_is_down_is_left_alone_and_tried_again(fail: Failing, mock_clock: MockClock) -> None:
    inner = Scripted("a", *([fail()] for _ in range(FAILURES_TO_OPEN)))
    guarded = service(inner)
    with structlog.testing.capture_logs():
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(type(fail())):
                await guarded.stream(ask(), lambda _delta: None)
    with pytest.raises(ProviderPaused, match="asked again in 10 s"):
        await guarded.stream(ask(), lambda _delta: None)
    assert len(inner.requests) == FAILURES_TO_OPEN
    assert guarded.breaker.state is BreakerState.OPEN
    mock_clock.jump(BREAK.first_s)
    assert (await guarded.stream(ask(), lambda _delta: None)).text == "a"
    assert guarded.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    "fail",
    [
        lambda: refusal(400),
        lambda: refusal(401),
        lambda: ProviderMalformed("x"),
        lambda: ContextTooLong("x", status=400, retryable=False),
        lambda: OverQuota("x", status=402, retryable=False),
    ],
)
async def test_a_provider_that_refuses_is_not_down(fail: Failing) -> None:
    inner = Scripted("a", *([fail()] for _ in range(FAILURES_TO_OPEN + 1)))
    guarded = service(inner)
    for _ in range(FAILURES_TO_OPEN + 1):
        with pytest.raises(type(fail())):
            await guarded.stream(ask(), lambda _delta: None)
    assert guarded.breaker.state is BreakerState.CLOSED


async def test_one_call_at_a_time_tries_it_and_a_cancelled_one_leaves_room(mock_clock: MockClock) -> None:
    gate = trio.Event()
    inner = Scripted("a", *([ProviderTimeout("x")] for _ in range(FAILURES_TO_OPEN)), [gate])
    guarded = service(inner)
    with structlog.testing.capture_logs():
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(ProviderTimeout):
                await guarded.stream(ask(), lambda _delta: None)
    mock_clock.jump(BREAK.first_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guarded.stream, ask(), lambda _delta: None)
        await wait_all_tasks_blocked()
        with pytest.raises(ProviderPaused, match="after the trial call"):
            await guarded.stream(ask(), lambda _delta: None)
        nursery.cancel_scope.cancel(reason="/stop")
    assert (await guarded.stream(ask(), lambda _delta: None)).text == "a"


async def test_a_chain_goes_past_a_provider_that_is_left_alone() -> None:
    down = Scripted("a", *([ProviderTimeout("x")] for _ in range(FAILURES_TO_OPEN)))
    guarded, second = service(down), Scripted("b")
    asked = chain(attrs.evolve(link(down), provider=guarded), link(second))
    with structlog.testing.capture_logs():
        answers = [(await asked.stream(ask(), lambda _delta: None)).text for _ in range(FAILURES_TO_OPEN + 2)]
    assert answers == ["b"] * (FAILURES_TO_OPEN + 2)
    assert len(down.requests) == FAILURES_TO_OPEN
