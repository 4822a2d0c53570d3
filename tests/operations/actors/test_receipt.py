"""What ``receipt`` tells, asked of a real server."""

import json
from typing import Any

import pytest

from klaw.app.app import App
from klaw.operations.operation import OperationError
from tests.conftest import CANARY
from tests.support.admin import ANNA, BORIS, fail_a_turn
from tests.support.asking import ask_operation


async def ask(app: App, name: str, **args: str) -> dict[str, Any]:
    return await ask_operation(name, app, **args)


@pytest.mark.parametrize("chat", ["-main", "anna:../x", "UP:main", "anna:"])
async def test_a_malformed_chat_id_names_its_rule(app: App, chat: str) -> None:
    with pytest.raises(OperationError, match=r"args\.chat: ") as caught:
        await ask(app, "receipt", chat=chat)
    assert caught.value.code == "bad_args"


async def test_receipt_of_a_turn_a_chat_a_user_or_all(app: App) -> None:
    await fail_a_turn(app, ANNA, "main", f"one {CANARY}")
    await fail_a_turn(app, BORIS, "main", "два")
    newest = await ask(app, "receipt")
    of_anna = await ask(app, "receipt", user="anna")
    assert newest["user"] == "boris"
    assert of_anna["user"] == "anna"
    assert await ask(app, "receipt", chat="anna:main") == of_anna
    assert await ask(app, "receipt", turn=of_anna["id"]) == of_anna
    assert of_anna["receipt"]["pending"] == [1]
    assert of_anna["error"]
    assert CANARY not in json.dumps(of_anna, ensure_ascii=False)


async def test_receipt_says_what_does_not_exist(app: App) -> None:
    for given in ({}, {"turn": "x"}, {"chat": "anna:main"}, {"user": "anna"}):
        with pytest.raises(OperationError) as caught:
            await ask(app, "receipt", **given)
        assert caught.value.code == "unknown_turn"
    with pytest.raises(OperationError, match=r"args\.turn: give a turn, or"):
        await ask(app, "receipt", turn="x", user="anna")
    with pytest.raises(OperationError, match=r"args\.user"):
        await ask(app, "receipt", user="Anna")
    with pytest.raises(OperationError, match="there is no such chat"):
        await ask(app, "chats_status", user="anna", chat="nowhere")
