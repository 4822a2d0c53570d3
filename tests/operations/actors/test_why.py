"""``klaw why``: of the real server, and the same answer without one."""

import json
import struct
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.app.app import App, running
from klaw.cli.output import written
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, read
from klaw.operations.why import lines as shown
from klaw.store.kinds import messages as stored_messages
from klaw.store.search import vectors as stored_vectors
from tests.conftest import CANARY
from tests.support.admin import SETTINGS, Commands, parts_of, served
from tests.support.asking import ask_operation, klaw_here
from tests.support.stores import new
from tests.support.turns import record

FACT = "Код калитки в саду 4711, его знает Анна"


def receipt(**changes: Any) -> dict[str, Any]:
    recall = {"guard": "search", "kept": [], "candidates": [], **changes.pop("recall", {})}
    window = {"messages": 2, "first_seq": 3, "last_seq": 4, **changes.pop("window", {})}
    return {"version": 1, "budget": {"correction": 1.0}, "pending": [], **changes, "window": window, "recall": recall}


async def put(app: App, *messages: NewMessage) -> None:
    await app.core.writer.run(stored_messages.append, messages)


async def talk(app: App, count: int = 30, **names: str) -> None:
    """The fact, and so many answered messages after it that it leaves the window."""
    await put(app, new(FACT, id="fact", **names))
    for number in range(count):
        role = Role.ASSISTANT if number % 2 == 0 else Role.USER
        text = f"Сегодня идёт дождь {number}, и завтра тоже"
        (last,) = await app.core.writer.run(stored_messages.append, [new(text, role=role, **names)])
    answered = attrs.evolve(record(last.message), receipt={}, first_seq=1)
    await app.core.writer.run(stored_messages.append, [], answered)


async def ask(app: App, message: str, **given: Any) -> dict[str, Any]:
    return await ask_operation("why", app, message=message, **given)


def lines(answer: dict[str, Any]) -> list[str]:
    return written(shown(answer))


# -- where it is -------------------------------------------------------------------------------------------------------


async def test_a_message_that_left_the_window_is_in_reach(app: App) -> None:
    """And its rarer words are named: those that the chat has least often."""
    await talk(app)
    why = await ask(app, "fact")
    assert (why["message"]["chat"], why["message"]["seq"], why["place"]) == ("local:main", 1, "auto_rag")
    assert why["reach"] == {"auto_rag": True, "search": True, "topics": False}
    assert (why["full_text"]["words"], why["vector"]["reason"]) == (8, "disabled")
    assert not why["window"]["there"]
    assert why["window"]["first_seq"] > 1
    assert [word["messages"] for word in why["rare_words"]] == [1] * 5
    for name, place in (("recall_never", "unwanted"), ("recall_again", "auto_rag")):
        await ask_operation(name, app, what="fact")
        assert (await ask(app, "fact"))["place"] == place
    assert {"Код", "калитки"} <= {word["word"] for word in why["rare_words"]}
    assert why["advice"][0].startswith("Ask in the chat main with one of its rarer words: ")
    assert "“калитки”" in why["advice"][0]
    assert why["message"]["log"].startswith("conversations/local%3Amain/")


async def test_a_message_in_the_window(app: App) -> None:
    await talk(app)
    why = await ask(app, "main#31")
    assert (why["place"], why["window"]["there"]) == ("window", True)
    assert why["window"]["last_seq"] == 31


async def test_a_question_that_waits(app: App) -> None:
    await talk(app, 1)
    await put(app, new("Какой код?", id="q"))
    assert (await ask(app, "q"))["place"] == "pending"


async def test_before_new_only_search_finds_it(app: App) -> None:
    await talk(app, 2)
    await put(app, new("", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK))
    why = await ask(app, "fact")
    assert (why["place"], why["reach"]) == ("earlier_segment", {"auto_rag": False, "search": True, "topics": False})
    assert (why["segment"]["current"], why["segment"]["ended_by_seq"]) == (False, 4)
    assert "before /new" in why["advice"][0]


@pytest.mark.parametrize(
    ("message", "place"),
    [(new("/status", id="m", kind=MessageKind.COMMAND), "not_searched"), (new("...!?", id="m"), "wordless")],
)
async def test_what_search_does_not_find_by_design(
    app: App, commands: Commands, message: NewMessage, place: str
) -> None:
    await put(app, attrs.evolve(message, id=f"{place}"))
    await talk(app)
    why = await ask(app, place)
    assert (why["place"], why["reach"]["search"], why["rare_words"]) == (place, False, [])


async def test_a_message_that_nothing_finds_is_an_alarm(app: App) -> None:
    await talk(app)
    await app.core.supervisor.stop("memory.coverage", "it would repair this at once")
    await app.core.store.database.run(
        lambda connection: connection.execute(
            "INSERT INTO messages_fts (messages_fts, rowid, content, scope)"
            " SELECT 'delete', rowid, content, scope FROM messages_search WHERE rowid = 1"
        ).fetchall()
    )
    why = await ask(app, "fact")
    assert (why["place"], why["reach"]) == ("nowhere", {"auto_rag": False, "search": False, "topics": False})
    assert "alarm" in why["advice"][0]
    assert "NOWHERE" in "\n".join(lines(why))


async def test_small_talk_is_said_to_be_so(app: App) -> None:
    await put(app, new("ну ладно, спасибо", id="thanks"))
    await talk(app)
    why = await ask(app, "thanks")
    assert (why["place"], why["rare_words"]) == ("auto_rag", [])
    assert "small talk" in why["advice"][0]


async def test_a_message_with_a_vector(app: App) -> None:
    await talk(app)
    await stored_vectors.prepare(app.core.writer, "model-1", 4)
    await app.core.writer.run(stored_vectors.store, "model-1", [(1, struct.pack("<4f", 1, 2, 3, 4))])
    why = await ask(app, "fact")
    assert why["vector"] == {"there": True, "model": "model-1", "reason": None}


# -- what turns did with it --------------------------------------------------------------------------------------------


async def test_what_the_last_turns_did_with_it(app: App) -> None:
    await talk(app)
    asked = await app.core.writer.run(stored_messages.append, [new("вопрос", at=2e9 - n) for n in range(8)])
    candidate = {"seq": 1, "decision": "over_top_k", "vector_rank": 4, "distance": 0.3, "text_rank": None, "score": 0.1}
    receipts = [
        {},
        receipt(pending=[1]),
        receipt(window={"first_seq": 1, "last_seq": 2}),
        receipt(recall={"guard": "all_in_context"}, window={"first_seq": 2}),
        receipt(),
        receipt(recall={"kept": [1], "candidates": [{**candidate, "decision": "near"}]}),
        receipt(recall={"candidates": [{**candidate, "tokens": 5}], "settings": {"topK": 0, "maxTokens": 500}}),
    ]
    for each, made in zip(asked, receipts, strict=False):
        await app.core.writer.run(stored_messages.append, [], attrs.evolve(record(each.message), receipt=made))
    why = await ask(app, "fact")
    assert [turn["as"] for turn in why["turns"]] == [
        "cut", "recalled", "not_found", "guard_all_in_context", "window", "question", "no_context", "no_context",
    ]  # fmt: skip
    assert why["turns"][0]["candidate"]["vector_rank"] == 4
    assert any("with autoRag.topK 1 it would have come in" in sentence for sentence in why["advice"])
    printed = "\n".join(lines(why))
    assert "over_top_k" in printed
    assert "1 recalled it" in printed


async def test_a_question_is_tried(app: App) -> None:
    await talk(app)
    why = await ask(app, "fact", query="Какой код у калитки?")
    assert (why["query"]["in_scope"], why["query"]["recalled"], why["query"]["place"]) == (True, True, 1)
    assert why["query"]["candidate"]["decision"] == "words"
    assert "would recall it: place 1" in "\n".join(lines(why))
    why = await ask(app, "fact", query="Спасибо!")
    assert (why["query"]["recalled"], why["query"]["candidate"]) == (False, None)
    assert "would not find it" in "\n".join(lines(why))
    why = await ask(app, "main#31", query="дождь")
    assert why["query"]["in_scope"] is False
    assert "would not look there" in "\n".join(lines(why))


# -- naming it ---------------------------------------------------------------------------------------------------------


async def test_ways_to_name_a_message(app: App) -> None:
    await talk(app, 2, user="anna", chat="Работа")
    await talk(app, 2, user="boris")
    for given in (
        {"message": "anna:Работа#1"},
        {"message": "Работа#1", "user": "anna"},
        {"message": "1", "chat": "anna:Работа"},
        {"message": "#1", "chat": "Работа", "user": "anna"},
        {"message": "fact", "user": "anna"},
        {"message": "fact", "chat": "anna:Работа"},
    ):
        assert (await ask(app, **given))["message"]["chat"] == "anna:Работа", given


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"message": "fact"}, "bad_args", "args.user: is required"),
        ({"message": "nothing"}, "unknown_message", "main#12"),
        ({"message": "main#1"}, "unknown_message", "klaw receipt"),
        ({"message": "boris:main#99"}, "unknown_message", "no such message"),
        ({"message": "main#x"}, "bad_args", "args.message"),
        ({"message": "main#0"}, "bad_args", "args.message"),
        ({"message": "boris:main#1", "chat": "anna:main"}, "bad_args", "another chat"),
        ({"message": "boris:main#1", "user": "anna"}, "bad_args", "args.message: is not the user's"),
        ({"message": "../x#1"}, "bad_args", "args.message: a chat name"),
        ({"message": "m", "user": "../x"}, "bad_args", "args.user"),
    ],
)
async def test_refusals(app: App, given: dict[str, str], code: str, says: str) -> None:
    """The field is named, and how to find the right value."""
    await talk(app, 1, user="anna")
    await talk(app, 1, user="boris")
    with pytest.raises(OperationError) as caught:
        await ask(app, **given)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_a_request_with_a_query() -> None:
    """A query may be longer than a name, and has a limit of its own; its text is not quoted."""
    why = operations()["why"]
    assert read(why, {"message": "m", "query": "я" * 4_000}).asked.query == "я" * 4_000
    for wrong in ("", "я" * 4_001, 5, "a\0"):
        with pytest.raises(OperationError, match=r"^args\.query: must") as caught:
            read(why, {"message": "m", "query": wrong})
        assert str(wrong) not in str(caught.value) or not wrong


# -- the command -------------------------------------------------------------------------------------------------------


async def test_the_command_with_and_without_a_server(
    home: Path, capsys: pytest.CaptureFixture[str], log_events: list[dict[str, Any]]
) -> None:
    """Both give the same answer; the words that are named reach no log."""
    config, _ = parse_config(SETTINGS, {})
    paths = Paths.resolve(home, {})
    paths.config_dir.mkdir()
    paths.config_file.write_text(SETTINGS)
    async with running(config, paths) as app:
        await put(app, new(f"{CANARY} is the word", id="canary"))
        await talk(app)
        commands = Commands(parts_of(app))
        async with served(app, commands):
            assert await trio.to_thread.run_sync(klaw_here, home, "why", "canary", "--json") == 0
            with_server = json.loads(capsys.readouterr().out)
            assert await trio.to_thread.run_sync(klaw_here, home, "why", "fact", "--query", "Какой код?") == 0
            assert "would recall it" in capsys.readouterr().out
            assert await trio.to_thread.run_sync(klaw_here, home, "why", "nothing") == 1
            assert "no such message" in capsys.readouterr().err
    without = await trio.to_thread.run_sync(klaw_here, home, "why", "canary", "--json")
    assert without == 0
    assert json.loads(capsys.readouterr().out) == with_server
    assert await trio.to_thread.run_sync(klaw_here, home, "why", "fact", "--query", "Какой код?") == 0
    printed = capsys.readouterr().out
    assert "would recall it" in printed
    assert "embedding_off" in printed
    assert await trio.to_thread.run_sync(klaw_here, home, "why", "main#99") == 1
    assert "no such message" in capsys.readouterr().err
