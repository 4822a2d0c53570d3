"""``klaw receipt --why``: each thing that a turn can have done with a message, of the server and without one."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from klaw.app.app import App, running
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.message import MessageKind, Role, TurnRecord
from klaw.operations.operation import OperationError
from klaw.store.kinds import messages
from tests.conftest import CANARY
from tests.support.admin import SETTINGS
from tests.support.asking import ask_operation, klaw_here
from tests.support.stores import new
from tests.support.turns import record

SETTINGS_THEN = {"topK": 1, "maxTokens": 400, "relevanceThreshold": 0.5, "timeBudgetMs": 150}
CANDIDATES = [
    {"seq": 2, "role": "user", "text_rank": 1, "shared_words": 2, "score": 0.02, "decision": "words", "tokens": 20},
    {
        "seq": 3,
        "role": "user",
        "text_rank": 2,
        "shared_words": 1,
        "score": 0.01,
        "decision": "over_top_k",
        "tokens": 20,
    },
]


async def talk(app: App, **changes: Any) -> TurnRecord:
    """/new, three facts, a command, something else, then a window of two and a question; the turn that answers it."""
    texts = ["", "Код калитки 4711", "Калитка зелёная", f"Пионы {CANARY}", "/status", "Суп с грибами", "дождь", "ветер"]
    kinds = {0: MessageKind.SESSION_BREAK, 4: MessageKind.COMMAND}
    await app.core.writer.run(
        messages.append, [new("до новой беседы", id="before"), new("other", chat="other", id="elsewhere")]
    )
    await app.core.writer.run(
        messages.append,
        [
            new(text, kind=kinds.get(at, MessageKind.TEXT), role=Role.SYSTEM if at == 0 else Role.USER)
            for at, text in enumerate(texts)
        ],
    )
    (asked,) = await app.core.writer.run(messages.append, [new("Какой код у калитки?")])
    recall = {
        "guard": "search",
        "query_words": 2,
        "kept": [3],
        "found": 2,
        "scope": {"first_seq": 2, "end_seq": 8},
        "settings": SETTINGS_THEN,
        "degraded": [],
        "timings_ms": {},
        "candidates": [{**each, "seq": each["seq"] + 1} for each in CANDIDATES],
        **changes,
    }
    window = {"messages": 2, "first_seq": 8, "last_seq": 9, "left_out": 0, "older_in_segment": True}
    receipt = {"version": 2, "pending": [asked.message.seq], "window": window, "recall": recall}
    turn = attrs.evolve(record(asked.message), receipt=receipt)
    await app.core.writer.run(messages.append, [new("later", id="later")], turn)
    return turn


async def why(app: App, turn: TurnRecord, message: str) -> dict[str, Any]:
    return dict((await ask_operation("receipt", app, turn=turn.id, why=message))["why"])


async def test_everything_that_can_become_of_a_message(app: App) -> None:
    turn = await talk(app)
    found = {name: (await why(app, turn, name))["as"] for name in ("before", "other#1", "6", "8", "10", "later")}
    assert found == {
        "before": "other_segment",
        "other#1": "other_chat",
        "6": "not_searched",
        "8": "window",
        "10": "question",
        "later": "later",
    }
    recalled = await why(app, turn, "main#3")
    assert (recalled["as"], recalled["rank"]) == ("recalled", 1)
    assert recalled["text"] == ["It was recalled: words (has 2 of 2 content words).", "It went into the context."]
    cut = await why(app, turn, "4")
    assert cut["as"] == "cut"
    assert cut["text"][1] == "autoRag.topK 1 was full, it was at place 2: with autoRag.topK 2 it would have come in."
    assert CANARY not in repr([found, recalled, cut])


async def test_what_the_receipt_does_not_know_is_searched_for_now(app: App) -> None:
    turn = await talk(app, candidates=[], kept=[])
    again = await why(app, turn, "4")
    assert again["as"] == "not_found"
    assert (again["searched_now"]["place"], again["searched_now"]["text_rank"]) == (2, 2)
    assert "Searched now, it is at place 2 of" in again["text"][1]
    unrelated = await why(app, turn, "7")
    assert unrelated["searched_now"]["place"] is None
    assert "not among" in unrelated["text"][1]


async def test_receipts_of_the_first_version_are_explained(app: App) -> None:
    old = {"id": "x", "created_at": "y", "vector_rank": None, "distance": None, "bm25": -1.0}
    candidates = [{**old, **CANDIDATES[1], "seq": 4}]
    turn = await talk(app, candidates=candidates, kept=[], settings=None)
    receipt = {**turn.receipt, "version": 1, "recall": {**turn.receipt["recall"]}}
    for name in ("scope", "settings", "found"):
        del receipt["recall"][name]
    (asked,) = await app.core.writer.run(messages.append, [new("Ещё раз: код калитки?")])
    first = attrs.evolve(record(asked.message), receipt={**receipt, "pending": [asked.message.seq]})
    await app.core.writer.run(messages.append, [], first)
    cut = await why(app, first, "4")
    assert (cut["as"], cut["text"][1]) == (
        "cut",
        "The receipt is of an earlier version and does not hold the settings of that time.",
    )
    assert (await why(app, first, "5"))["searched_now"] is not None, "the scope is read from window and segment"


@pytest.mark.parametrize(
    ("message", "says"),
    [("999", "there is no such message"), ("main#x", "after # stands the number"), ("", "must have 1 to")],
)
async def test_a_wrong_message_is_named(app: App, message: str, says: str) -> None:
    turn = await talk(app)
    with pytest.raises(OperationError, match=says):
        await why(app, turn, message)


async def test_the_same_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = Paths.resolve(home, {})
    async with running(parse(SETTINGS, {})[0], paths) as app:
        turn = await talk(app, candidates=CANDIDATES[:1], kept=[])
        expected = {name: await why(app, turn, name) for name in ("4", "7", "8", "before", "other#1")}
    before = paths.database.read_bytes()
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(SETTINGS)

    def offline(name: str) -> dict[str, Any]:
        import threading

        codes: list[int] = []
        command = threading.Thread(
            target=lambda: codes.append(klaw_here(home, "receipt", turn.id, "--why", name, "--json"))
        )
        command.start()  # a command runs an event loop of its own
        command.join()
        assert codes == [0]
        return dict(json.loads(capsys.readouterr().out)["why"])

    for name, told in expected.items():
        found = offline(name)
        if told["searched_now"]:
            assert found["searched_now"].pop("degraded") == ["embedding_off"]
            assert told["searched_now"].pop("degraded") == []
        assert found == told, name
    assert paths.database.read_bytes() == before
