"""What calls cost: our arithmetic against the library's own, sums, and counts that make no sense."""

import datetime as dt
import json
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import Usage as TheirUsage
from hypothesis import given
from hypothesis import strategies as st

from klaw.convert import JOURNAL
from klaw.domain.usage import NANO, UsageSum, add, dollars, record
from klaw.llm.prices import FREE, Answers, ListedPrices, Prices, Rate, WantedPrice, answer, spent_of
from klaw.llm.types import Usage

MODELS = (
    ("claude-sonnet-4-5-20250929", None, "anthropic"),
    ("anthropic/claude-sonnet-4.5", "https://openrouter.ai/api/v1", None),
    ("openai/gpt-5", "https://openrouter.ai/api/v1", None),
    ("deepseek-chat", "https://api.deepseek.com/v1", None),
    ("glm-4.6", "https://api.z.ai/api/paas/v4", None),
)
COUNTS = st.integers(0, 400_000)
MOMENTS = st.integers(1_735_689_600, 1_800_000_000).map(lambda at: dt.datetime.fromtimestamp(at, dt.UTC))


def listed(*wanted: tuple[str, str | None, str | None]) -> list[ListedPrices | None]:
    found = answer([WantedPrice(model=model, api_url=url, service=service) for model, url, service in wanted])
    return JOURNAL.read(json.loads(json.dumps(JOURNAL.write(found))), Answers)  # as the child process gives it


@given(which=st.integers(0, len(MODELS) - 1), fresh=COUNTS, cached=COUNTS, written=COUNTS, out=COUNTS, moment=MOMENTS)
def test_a_call_costs_what_the_library_says(
    which: int, fresh: int, cached: int, written: int, out: int, moment: dt.datetime
) -> None:
    model, url, service = MODELS[which]
    found = listed(MODELS[which])[0]
    assert found is not None
    prices = found.prices_at(moment)
    assert prices is not None
    if prices.cache_write is None:
        written = 0
    prompt = fresh + cached + written
    ours = Usage(prompt_tokens=prompt, completion_tokens=out, cached_tokens=cached, cache_write_tokens=written)
    theirs = TheirUsage(input_tokens=prompt, output_tokens=out, cache_read_tokens=cached, cache_write_tokens=written)
    expected = get_snapshot().calc(theirs, model, service, url, moment).total_price
    assert abs(Decimal(spent_of(ours, prices).cost_nano) - expected * NANO) <= Decimal("0.5")


def test_names_are_found_as_providers_write_them() -> None:
    openrouter = "https://openrouter.ai/api/v1"
    dated, free, unknown, own = listed(
        ("openai/gpt-5-2025-08-07", openrouter, None),
        ("qwen/qwen3-coder:free", openrouter, None),
        ("модель/которой-нет", openrouter, None),
        ("llama3", "https://llm.example.com/v1", None),
    )
    assert dated is not None
    assert dated.context_tokens == 400_000
    assert free is not None
    assert free.prices_at(dt.datetime.now(dt.UTC)) == FREE
    assert (unknown, own) == (None, None)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(prompt_tokens=-5, completion_tokens=-1),
        Usage(prompt_tokens=10, completion_tokens=0, cached_tokens=10**30, cache_write_tokens=99),
        Usage(prompt_tokens=10**30, completion_tokens=10**30),
    ],
)
def test_nonsense_counts_stay_plausible(usage: Usage) -> None:
    spent = spent_of(usage, Prices(input=Rate(Decimal(3)), output=Rate(Decimal(15))))
    assert 0 <= spent.cached_tokens + spent.cache_write_tokens <= spent.prompt_tokens <= 10**9
    assert 0 <= spent.cost_nano < 2**63 // 1_000_000  # a million such calls still fit


def test_models_for_embeddings_cost_what_they_read() -> None:
    (found,) = listed(("text-embedding-3-small", "https://api.openai.com/v1", None))
    assert found is not None
    prices = found.prices_at(dt.datetime(2026, 11, 1, tzinfo=dt.UTC))
    assert prices is not None
    assert prices.input.base > 0
    assert prices.output.base == 0


def test_an_unknown_price_is_not_nothing() -> None:
    spent = spent_of(Usage(prompt_tokens=10, completion_tokens=5), None)
    assert (spent.cost_nano, spent.unpriced_calls, spent.unpriced_tokens) == (0, 1, 15)
    assert spent_of(Usage(prompt_tokens=10, completion_tokens=5), FREE).unpriced_calls == 0


SPENT = st.builds(UsageSum, **dict.fromkeys(("calls", "prompt_tokens", "cost_nano", "unpriced_calls"), COUNTS))


@given(st.dictionaries(st.sampled_from(["a/1", "b/2", "в/3"]), SPENT))
def test_a_record_adds_up(by_model: dict[str, UsageSum]) -> None:
    told = record(by_model)
    parts = told.get("models", [])
    assert [part["model"] for part in parts] == list(by_model)
    for name in ("calls", "prompt_tokens", "cost_nano", "unpriced_calls"):
        assert told.get(name, 0) == sum(part[name] for part in parts) == getattr(add(by_model.values()), name)


@pytest.mark.parametrize(
    ("nano", "said"),
    [(0, "$0.00"), (1, "under $0.0001"), (123_400, "$0.0001"), (45_600_000, "$0.0456"), (1_234 * NANO, "$1,234.00")],
)
def test_amounts_in_words(nano: int, said: str) -> None:
    assert dollars(nano) == said
