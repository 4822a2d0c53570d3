"""``receipt``, ``why`` and ``forget`` as a user asks them who does not run the server: only about their own data."""

from typing import Any

import pytest

from klaw.app.app import App
from klaw.domain.names import ChatId
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from klaw.store.kinds import turns
from tests.conftest import CANARY
from tests.support.admin import ANNA, BORIS, fail_a_turn


async def ask(app: App, name: str, caller: Caller, **args: Any) -> dict[str, Any]:
    return await perform(read(operations()[name], args), caller, app)


async def test_two_users_see_and_forget_only_what_is_theirs(app: App) -> None:
    anna, boris = Caller(user=ANNA), Caller(user=BORIS)
    await fail_a_turn(app, ANNA, "main", "Моя клубника")
    await fail_a_turn(app, BORIS, "main", f"secret {CANARY}")
    turn = await app.core.readers.run(turns.last, ChatId("boris:main"))
    own = await ask(app, "receipt", anna, why="1", texts=True)
    assert (own["user"], own["why"]["as"], own["texts"]["messages"]) == ("anna", "question", {})
    begins = turn.id[:4]  # ids begin with the time, so both have one that begins so
    assert (await ask(app, "receipt", boris, turn=begins))["id"] == turn.id
    assert (await ask(app, "receipt", anna, turn=begins))["id"] == own["id"]
    assert (await ask(app, "why", anna, message="main#1"))["message"]["chat"] == "anna:main"
    message = (await ask(app, "why", boris, message="main#1"))["message"]["id"]
    fact = (await ask(app, "fact_add", boris, fields={"text": f"Знает {CANARY}"}))["fact"]["id"]

    others = (
        ("receipt", {"turn": turn.id}),
        ("receipt", {"chat": "boris:main"}),
        ("receipt", {"user": "boris"}),
        ("receipt", {"why": "boris:main#1"}),
        ("receipt", {"why": message}),
        ("why", {"message": message}),
        ("why", {"message": "boris:main#1"}),
        ("why", {"message": "1", "chat": "boris:main"}),
        ("why", {"message": "main#1", "user": "boris"}),
        ("recall_never", {"what": message}),
        ("recall_never", {"what": "boris:main#1"}),
        ("recall_again", {"what": "topic:1"}),
        ("forget", {"what": message, "dry_run": False}),
        ("forget", {"what": "boris:main#1", "dry_run": False}),
        ("forget", {"what": f"fact:{fact}", "dry_run": False}),
        ("forget", {"what": "main#1", "user": "boris", "dry_run": False}),
    )
    for name, args in others:
        with pytest.raises(OperationError) as caught:
            await ask(app, name, anna, **args)
        assert CANARY not in str(caught.value), (name, args)
        assert str(turn.id) not in str(caught.value), (name, args)

    before = await ask(app, "forget", boris, what="main#1")
    assert [each["goes"] for each in before["things"]] == [True]
    assert before["held"] == before["aside"] == []  # the files tell what others have
    assert (await ask(app, "forget", boris, what="main#1", dry_run=False))["forgotten"] is True
    assert (await ask(app, "why", anna, message="main#1"))["message"]["seq"] == 1
