"""``usage`` through the admin socket, and ``klaw usage`` with a server and without one."""

import argparse
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.app.app import App, running
from klaw.cli.main import main
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.domain.message import MessageKind
from klaw.domain.usage import NANO, UsageSum, record
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import perform, read_call
from klaw.store.kinds import messages
from klaw.store.kinds.usage import UsageFilters, total
from tests.support.admin import ANNA, SETTINGS, Commands, parts_of, served
from tests.support.stores import new
from tests.support.turns import record as turn_record
from tests.support.waiting import HANG_S

LIMITED = SETTINGS[:-1] + ", llm: {dailyBudget: 1, dailyTokens: 500}}"


def arguments(home: Path, **values: Any) -> argparse.Namespace:
    return argparse.Namespace(home=str(home), **{"json": False, "days": None, "by": None, "user": None, **values})


def asked(**args: Any) -> Any:
    return read_call("usage", args)


def usage_command(given: argparse.Namespace) -> int:
    options = [f"--{name}={value}" for name in ("days", "by", "user") if (value := getattr(given, name)) is not None]
    return main(["usage", "--home", given.home, *options, *["--json"] * given.json])


def status_command(given: argparse.Namespace) -> int:
    return main(["status", "--home", given.home])


async def work(app: App, user: str, chat: str, **by_model: UsageSum) -> None:
    """A turn of today with its calls; keys are the providers."""
    asked = new("вопрос", user=user, chat=chat, kind=MessageKind.COMMAND, at=app.core.clock.now())
    (appended,) = await app.core.writer.run(messages.append, [asked])
    kept = record({f"{provider}/модель": spent for provider, spent in by_model.items()})
    await app.core.writer.run(messages.append, [], attrs.evolve(turn_record(appended.message), usage=kept))


async def two_users(app: App) -> None:
    await work(
        app, "anna", "дача", cloud=UsageSum(calls=2, prompt_tokens=900, completion_tokens=100, cost_nano=NANO // 4)
    )
    await work(app, "boris", "main", lone=UsageSum(calls=1, prompt_tokens=50, unpriced_calls=1, unpriced_tokens=50))


async def test_sums_by_every_key(app: App, commands: Commands) -> None:
    await two_users(app)
    answer = await commands.run(asked(by="chat"))
    assert [(each["key"], each["calls"], each["cost_usd"]) for each in answer["groups"]] == [
        ("anna:дача", 2, 0.25),
        ("boris:main", 1, 0.0),
    ]
    assert answer["total"]["prompt_tokens"] == 950
    assert [each["key"] for each in (await commands.run(asked(by="model")))["groups"]] == [
        "cloud/модель",
        "lone/модель",
    ]
    assert [each["key"] for each in (await commands.run(asked(by="task")))["groups"]] == [None]
    mine = await commands.run(asked(user="boris"))
    assert mine["total"]["calls"] == 1
    assert [each["key"] for each in mine["groups"]] == [app.llm.budget.today()]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"days": 0}, "args.days: must be 1 to 3660"),
        ({"days": "7"}, "args.days: must be a whole number"),
        ({"by": "week"}, "args.by: must be one of chat, model, day, task"),
        ({"dys": 3}, "did you mean days?"),
    ],
)
def test_a_wrong_request_names_the_field(args: dict[str, Any], said: str) -> None:
    with pytest.raises(OperationError, match="args") as caught:
        read_call("usage", args)
    assert said in str(caught.value)


async def test_a_wrong_user_is_refused(commands: Commands) -> None:
    with pytest.raises(OperationError, match=r"args\.user"):
        await commands.run(asked(user="Анна Ивановна"))


async def test_the_command_with_a_server_and_without_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = parse_config(LIMITED, {})
    with trio.fail_after(HANG_S):
        async with running(config, Paths.resolve(home, {})) as app:
            await two_users(app)
            app.llm.budget.charge(await app.core.readers.run(total, UsageFilters()))

            async def output(command: Any, code: int = 0, **values: Any) -> str:
                assert await trio.to_thread.run_sync(command, arguments(home, **values)) == code
                return capsys.readouterr().out

            async with served(app, Commands(parts_of(app))):
                told = await output(usage_command, by="chat")
                assert "today: $0.2500 of $1.00 and 50 of 500 tokens of unknown price used" in told
                assert json.loads(await output(usage_command, json=True))["budget"]["share"] == 0.25
                assert "3 calls, 950 tokens in, 100 out, $0.2500 + unknown; $0.2500 of $1.00" in await output(
                    status_command, code=3
                )
    assert await trio.to_thread.run_sync(usage_command, arguments(home, by="chat", days=7)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["chat", "calls", "tokens", "in", "cached", "tokens", "out", "cost"]
    assert lines[2].split() == ["anna:дача", "2", "900", "0", "100", "$0.2500"]
    assert lines[3].split() == ["boris:main", "1", "50", "0", "0", "price", "unknown"]
    assert lines[4].split() == ["total", "3", "950", "0", "100", "$0.2500", "+", "unknown"]
    assert lines[5] == "of unknown price: 1 call with 50 tokens"
    assert await trio.to_thread.run_sync(usage_command, arguments(home, user="Не имя")) == 2
    assert "--user: " in capsys.readouterr().err
    assert await trio.to_thread.run_sync(usage_command, arguments(home, user="nobody")) == 0
    assert capsys.readouterr().out.endswith("30 days: nothing\n")


def test_without_a_home_there_is_nothing_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_command(arguments(tmp_path)) == 1
    assert "no server is running" in capsys.readouterr().err


async def test_only_whoever_runs_the_server_may_name_another_user(app: App) -> None:
    await two_users(app)

    async def users(named: str | None, *, operator: bool) -> str:
        caller = Caller(user=ANNA, operator=operator)
        return (await perform(asked(user=named), caller, app))["user"]

    assert (await users("boris", operator=True), await users(None, operator=True)) == ("boris", "anna")
    assert await users("anna", operator=False) == "anna"
    with pytest.raises(OperationError, match="only the operator"):
        await users("boris", operator=False)
