"""``fetch`` is about nobody else's data, and on whose behalf the operator asks."""

from functools import partial
from typing import Any

import pytest
import trio

from klaw.app.app import App
from klaw.cli.admin_call import RefusedByServer, call
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from tests.conftest import CANARY
from tests.support.admin import ANNA, BORIS, Commands, fail_a_turn, parts_of, served


async def asked(app: App, caller: Caller, name: str, **args: Any) -> dict[str, Any]:
    return await perform(read(operations()[name], args), caller, parts_of(app))


async def test_fetch_shows_what_is_the_users_own_and_nothing_else(app: App) -> None:
    await fail_a_turn(app, ANNA, "main", f"тайна {CANARY}")
    anna, boris = Caller(user=ANNA), Caller(user=BORIS)
    fact = (await asked(app, anna, "fact_add", fields={"text": f"Знает {CANARY}"}))["fact"]["id"]
    person = (await asked(app, anna, "person_add", fields={"name": "Мира"}))["person"]["id"]
    own = ("main#1", "anna:main#1", "anna-main", f"fact:{fact}", f"fact:{fact[:8]}", f"person:{person}", "person:Мира")
    for what in (*own, fact, "file:MEMORY.md", "topic:1", "topic:x", "fact:", "person:", "#", "main#0"):
        with pytest.raises(OperationError) as caught:
            await asked(app, boris, "fetch", what=what)
        assert CANARY not in str(caught.value)
    told = [await asked(app, anna, "fetch", what=what) for what in own]
    assert [each["kind"] for each in told] == ["message"] * 3 + ["fact"] * 2 + ["person"] * 2
    assert told[0] == told[1] == told[2]
    assert [each["content"] for each in told[0]["messages"]] == [f"тайна {CANARY}"]
    assert told[3]["fact"]["text"] == f"Знает {CANARY}"


async def test_the_operator_asks_on_behalf_of_a_user(app: App, commands: Commands) -> None:
    """With that user's rights only; what a program saves is named after it."""

    async def ask(command: str, whom: Any, **args: Any) -> dict[str, Any]:
        return await trio.to_thread.run_sync(partial(call, app.core.paths, command, asker=whom, **args))

    program = {"user": "anna", "client": "mcp:desk"}
    async with served(app, commands):
        fact = (await ask("fact_add", program, fields={"text": "Любит чай"}))["fact"]
        assert (fact["user"], fact["client"], fact["origin"]) == ("anna", "mcp:desk", "tool")
        edited = (await ask("fact_edit", {"user": "anna"}, fact=fact["id"], fields={"text": "Любит кофе"}))["fact"]
        assert (edited["client"], edited["origin"]) == (None, "user")
        assert (await ask("fact_list", program))["count"] == 1
        for command, args in (("status", {}), ("fact_list", {"user": "boris"})):
            with pytest.raises(RefusedByServer) as caught:
                await ask(command, program, **args)
            assert caught.value.code == "forbidden"
        for wrong in ("anna", {}, {"user": "a b"}, {"user": "anna", "operator": True}, {"user": "anna", "client": ""}):
            with pytest.raises(RefusedByServer, match="as") as caught:
                await ask("fact_list", wrong)
            assert caught.value.code == "bad_args"
