"""An answer without text and calls costs like any other: what the provider counted is in usage and in the limits."""

from collections.abc import Callable

import attrs
import pytest

from klaw.domain.usage import UsageSum
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderMalformed, ProviderTimeout
from klaw.llm.providers.dialect import EmptyAnswer
from klaw.llm.types import ChatMessage, Completion, Model, Request, Route, Usage
from tests.support.scripted import Scripted, TestClock, client
from tests.support.stores import START

REQUEST = Request(model="m", messages=(ChatMessage(role="user", content="hi"),), max_tokens=50)
COUNTED, SECOND = Usage(prompt_tokens=100, completion_tokens=10), Usage(prompt_tokens=70, completion_tokens=5)
Answer = Callable[[Request], str | Completion]


def empty(usage: Usage | None) -> Answer:
    def answer(_request: Request) -> str:
        raise EmptyAnswer("the model gave only thinking and no answer (finish reason: length)", usage)

    return answer


def late(_request: Request) -> str:
    raise ProviderTimeout("late")


def whole(_request: Request) -> Completion:
    return Completion(text="yes", usage=SECOND, model="p1/m")


async def spent(*answers: Answer) -> tuple[Meter, int, Exception | None]:
    """What a call of a chain of models costs: the meter, the day's tokens, and the error."""
    llm = client(clock=TestClock(START), tokens_a_day=1_000_000)
    meter = llm.meter()
    first, *others = [
        Model(
            provider=Scripted(answer),
            name=f"p{place}/m",
            model="m",
            context_tokens=1000,
            max_output_tokens=50,
            tools=True,
            images=True,
        )
        for place, answer in enumerate(answers)
    ]
    route = Route(**attrs.asdict(first, recurse=False), stand_ins=tuple(others))
    try:
        await meter.stream(route, REQUEST, lambda _delta: None)
    except (ProviderMalformed, ProviderTimeout) as error:
        return meter, llm.budget.report().unpriced_tokens, error
    return meter, llm.budget.report().unpriced_tokens, None


def told(meter: Meter) -> dict[str, tuple[int, int]]:
    return {each["model"]: (each["prompt_tokens"], each["completion_tokens"]) for each in meter.record()["models"]}


async def test_what_the_provider_counted_is_counted() -> None:
    meter, of_day, error = await spent(empty(COUNTED))
    assert isinstance(error, EmptyAnswer)
    assert told(meter) == {"p0/m": (100, 10)}
    assert of_day == 110


async def test_without_a_count_it_is_estimated() -> None:
    meter, of_day, _ = await spent(empty(None))
    assert meter.spent.calls == 1
    assert of_day == meter.spent.prompt_tokens + meter.spent.completion_tokens > 0


async def test_the_model_that_stands_in_hides_nothing() -> None:
    meter, of_day, error = await spent(empty(COUNTED), whole)
    assert error is None
    assert told(meter) == {"p0/m": (100, 10), "p1/m": (70, 5)}
    assert of_day == 185


async def test_all_that_gave_nothing_are_counted_once() -> None:
    meter, of_day, error = await spent(empty(COUNTED), late, empty(SECOND))
    assert isinstance(error, EmptyAnswer)
    assert told(meter) == {"p0/m": (100, 10), "p2/m": (70, 5)}
    assert of_day == 185


@pytest.mark.parametrize("answers", [(late,), (late, late)])
async def test_what_never_came_costs_nothing(answers: tuple[Answer, ...]) -> None:
    meter, of_day, _ = await spent(*answers)
    assert (meter.spent, of_day) == (UsageSum(), 0)
