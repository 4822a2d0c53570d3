"""/model, /models, /usage and the daily limits in a running server: real store, real HTTP, a scripted provider."""

from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.domain.message import Role, TurnStatus
from klaw.domain.usage import NANO
from klaw.store.kinds import usage
from klaw.store.kinds.usage import UsageFilters
from tests.support.chats_world import World, world
from tests.support.llm_server import Cut, Reply, Text, Wait, error_reply, text_reply

PRICED = {"big": {"inputPrice": 1000, "outputPrice": 10_000, "contextTokens": 20_000, "tools": True}}
"""A thousandth of a dollar for a token of the prompt, a hundredth for one of the answer."""

NO_TOOLS = {"disabled": ["*"]}
"""Their list is part of each prompt, and grows; where pennies are counted there are none."""


def priced(**more: Any) -> dict[str, Any]:
    """Sections for a chat with the model that has prices."""
    return {"routing": {"default": "stub/big"}, "llm": {"maxReplyTokens": 20, **more}}


async def spent_today(w: World) -> Any:
    return await w.app.core.readers.run(usage.total, UsageFilters(since=w.app.llm.budget.today()))


# -- cost ------------------------------------------------------------------------------------------------------------


async def test_a_turn_keeps_its_tokens_and_cost(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        w.llm.replies.append(text_reply("да", usage=(100, 30)))
        await w.send("сколько это стоит?")
        await w.turn(1)
        kept = (await w.receipt()).usage
        assert (kept["calls"], kept["prompt_tokens"], kept["completion_tokens"]) == (1, 100, 30)
        assert kept["cost_nano"] == round(0.4 * NANO)
        assert [part["model"] for part in kept["models"]] == ["stub/big"]
        told = await w.command("/usage")
        assert "1 call, 100 tokens in, 30 out, $0.4000." in told
        assert (await spent_today(w)).cost_nano == kept["cost_nano"]


async def test_usage_before_anything_was_said(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "This chat: nothing." in await w.command("/usage")


async def test_an_unknown_price_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.send("hi")
        await w.turn(1)
        assert "11 tokens in, 7 out, price unknown" in await w.command("/usage")


async def test_a_provider_that_does_not_count_is_estimated(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        w.llm.replies.append(text_reply("слово " * 20, usage=None))
        await w.send("hi")
        await w.turn(1)
        kept = (await w.receipt()).usage
        assert kept["estimated_calls"] == 1
        assert 40 <= kept["completion_tokens"] <= 80
        assert "out, partly estimated, " in await w.command("/usage")


async def test_a_stopped_and_a_torn_answer_count(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        w.llm.replies.append(Reply(steps=(Text("half of the answer"), Wait(trio.Event()))))
        await w.send("one")
        await w.watcher.until(lambda events: [e for e in events if type(e).__name__ == "TextStreamed"])
        await w.app.chats.stop("local", "main")
        assert (await w.receipt()).usage["estimated_calls"] == 1
        w.llm.replies.append(Reply(steps=(Text("torn"), Cut())))
        await w.send("two")
        await w.turn(2)
        record = await w.receipt()
        assert (record.status, record.usage["estimated_calls"]) == (TurnStatus.FAILED, 1)
        assert w.app.llm.budget.report().spent_nano == (await spent_today(w)).cost_nano > 0


async def test_a_refused_call_costs_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(dailyBudget=1), models=PRICED) as w:
        w.llm.replies.append(error_reply(500))
        await w.send("hi")
        await w.turn(1)
        assert (await w.receipt()).usage == {}
        report = w.app.llm.budget.report()
        assert (report.spent_nano, report.reserved_nano) == (0, 0)


# -- the daily limits ------------------------------------------------------------------------------------------------


async def test_over_budget_a_turn_is_refused_before_the_call_and_its_message_waits(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(dailyBudget=2), models=PRICED, tools=NO_TOOLS) as w:
        w.llm.replies.append(text_reply("dear", usage=(1000, 95)))  # 1.95 dollars
        await w.send("первый")
        await w.turn(1)
        await w.send("второй")
        ended = await w.turn(2)
        assert (ended.status, ended.code) == (TurnStatus.FAILED, "llm_over_budget")
        assert ended.text is not None
        for words in ("daily budget of $2.00", "llm.dailyBudget", "more than is left", "00:00 UTC", "/retry"):
            assert words in ended.text
        assert len(w.llm.requests) == 1
        warning = await w.reply(1, role=Role.SYSTEM)
        assert "The daily LLM budget is running low." in warning.content
        assert "budget_used_up" in w.app.core.health.problems()
        assert "used up" in await w.command("/status")
    # Raised, and after a restart: what was spent is remembered, and the message is answered.
    async with world(tmp_path, **priced(dailyBudget=4), models=PRICED, tools=NO_TOOLS) as w:
        assert w.app.llm.budget.report().spent_nano == round(1.95 * NANO)
        assert await w.command("/retry") == "Trying again."
        await w.turn(1)
        assert w.contents()[-1] == "второй"
        assert not [e for e in await w.app.chats.after(w.chat, 0, 99) if e.metadata.get("budget")][1:]
    async with world(tmp_path, **priced(dailyBudget=1.5), models=PRICED, tools=NO_TOOLS) as w:
        await w.send("третий")
        assert (await w.turn(1)).code == "llm_over_budget"


async def test_chats_that_ask_together_do_not_pass_the_limit_together(tmp_path: Path) -> None:
    async with world(
        tmp_path, **priced(dailyBudget=0.9), models=PRICED, tools=NO_TOOLS, processing={"maxConcurrentLlm": 8}
    ) as w:
        gate = trio.Event()
        w.llm.respond = lambda _request: Reply(steps=(Wait(gate), Text("ok")), usage=(20, 20))
        for number in range(8):
            await w.send("сколько?", chat=f"chat{number}")
        ended = [await w.turn(number) for number in range(1, 6)]
        assert {each.code for each in ended} == {"llm_over_budget"}
        gate.set()
        await w.turn(8)
        assert 1 <= len(w.llm.requests) <= 3
        report = w.app.llm.budget.report()
        assert report.spent_nano <= round(0.9 * NANO)
        assert report.reserved_nano == 0
        assert report.spent_nano == (await spent_today(w)).cost_nano


async def test_tokens_are_limited_where_prices_are_not_known(tmp_path: Path) -> None:
    async with world(tmp_path, llm={"dailyTokens": 200, "maxReplyTokens": 20}) as w:
        w.llm.replies.append(text_reply("ok", usage=(190, 5)))
        await w.send("one")
        await w.turn(1)
        await w.send("two")
        ended = await w.turn(2)
        assert ended.code == "llm_over_budget"
        assert "daily budget of 200 tokens (llm.dailyTokens)" in (ended.text or "")


# -- /model ------------------------------------------------------------------------------------------------------------


async def test_a_chosen_model_is_used_kept_and_given_back(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        assert "stub/big: 20,000 tokens of context, $1000 in, $10000 out, tools (the default" in await w.command(
            "/model"
        )
        assert "This chat now uses stub/other" in await w.command("/model stub/other", 2)
        await w.send("hi")
        await w.turn(1)
        await w.send("hi", chat="another")
        await w.turn(2)
        assert [request.body["model"] for request in w.llm.requests] == ["other", "big"]
    (tmp_path / "data" / "klaw.db").unlink()  # the logs are the truth
    async with world(tmp_path, **priced(), models=PRICED) as w:
        assert "chosen for this chat" in await w.command("/model")
        assert "stub/big" in await w.command("/model default", 2)
        await w.send("again")
        await w.turn(1)
        assert w.llm.requests[0].body["model"] == "big"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nobody/gpt", "There is no provider 'nobody'; known are local, stub."),
        ("big", "A model is named provider/model. Did you mean stub/big?"),
        ("stub/", "A model is named provider/model."),
        ("stab/big", "Did you mean stub/big?"),
        ("local/smollm2-135m-instruct", "The built-in model is not running"),
        ("самую умную модель", "has no spaces"),
        ("модель", "A model is named provider/model."),
        ("stub/" + "x" * 300, "at most 200 characters"),
    ],
)
async def test_a_wrong_name_changes_nothing_and_is_explained(tmp_path: Path, wanted: str, said: str) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        answer = await w.command(f"/model {wanted}")
        assert said in answer
        assert "The model stays as it is" in answer
        session = await w.app.chats.session("local", "main")
        assert session is not None
        assert session.model is None


async def test_models_are_listed_with_what_is_known(tmp_path: Path) -> None:
    async with world(tmp_path, **priced(), models=PRICED) as w:
        await w.command("/model stub/другая")
        lines = (await w.command("/models", 2)).splitlines()
        assert lines[1] == "  stub/big: 20,000 tokens of context, $1000 in, $10000 out, tools  <- default"
        assert lines[2] == "  stub/другая: context length unknown, free  <- this chat"


async def test_a_chosen_provider_that_is_gone_is_explained(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.command("/model stub/other")
    other = {"providers": {"neu": {"baseUrl": "http://127.0.0.1:9/v1"}}, "routing": {"default": "neu/m"}}
    async with world(tmp_path, only=other) as w:
        await w.send("hi")
        ended = await w.turn(1)
        assert ended.code == "config"
        assert "/model: names a provider that is not configured; known are local, neu" in (ended.text or "")


async def test_corrections_of_token_estimates_survive_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for number in (1, 2):
            w.llm.replies.append(text_reply("ok", usage=(5000, 5)))
            await w.send("hi")
            await w.turn(number)
        assert w.app.llm.correction.of("stub/model") > 1
    async with world(tmp_path) as w:
        assert w.app.llm.correction.of("stub/model") > 1
