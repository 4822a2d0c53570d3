"""``klaw facts`` of a real server without a model: each change is in the journal, and can be taken back."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.app.app import App, running
from klaw.cli.main import main
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.domain.fact import MAX_TEXT
from klaw.domain.names import UserId
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from klaw.store.kinds import facts
from tests.support.admin import SETTINGS, Commands, parts_of, served
from tests.support.facts import fact


async def ask(commands: Commands, command: str, **args: Any) -> dict[str, Any]:
    return await commands.run(read_call(command, args))


async def add(commands: Commands, text: str, user: str = "local", **fields: Any) -> dict[str, Any]:
    return await ask(commands, "fact_add", user=user, fields={"text": text, **fields})


async def texts(commands: Commands, user: str = "local", **args: Any) -> list[str]:
    return [each["text"] for each in (await ask(commands, "fact_list", user=user, **args))["facts"]]


async def refused(commands: Commands, command: str, **args: Any) -> OperationError:
    with pytest.raises(OperationError) as caught:
        await ask(commands, command, **args)
    return caught.value


async def test_a_fact_is_added_changed_removed_and_each_step_taken_back(commands: Commands) -> None:
    made = (await add(commands, "  Аня живёт в Берлине ", category="person", importance=70))["fact"]
    assert (made["text"], made["source"], made["origin"]) == ("Аня живёт в Берлине", "user", "user")
    again = await add(commands, "аня живет в берлине!")
    assert (again["added"], again["fact"]["id"]) == (False, made["id"])
    edited = await ask(commands, "fact_edit", fact=made["id"], fields={"text": "Аня живёт в Мюнхене", "importance": 95})
    assert (edited["fact"]["text"], edited["fact"]["importance"]) == ("Аня живёт в Мюнхене", 95)
    back = await ask(commands, "fact_undo", fact=made["id"])
    assert (back["fact"]["text"], back["fact"]["importance"]) == ("Аня живёт в Берлине", 70)
    forth = await ask(commands, "fact_undo", fact=made["id"])
    assert forth["fact"]["text"] == "Аня живёт в Мюнхене"
    removed = await ask(commands, "fact_delete", fact=made["id"])
    assert removed["removed"]["id"] == made["id"]
    assert await texts(commands) == []
    assert (await ask(commands, "fact_undo", fact=made["id"]))["fact"]["text"] == "Аня живёт в Мюнхене"
    assert await texts(commands) == ["Аня живёт в Мюнхене"]
    changes = (await ask(commands, "fact_history", fact=made["id"]))["changes"]
    assert [each["fact"] and each["fact"]["text"] for each in changes] == [
        "Аня живёт в Берлине",
        "Аня живёт в Мюнхене",
        "Аня живёт в Берлине",
        "Аня живёт в Мюнхене",
        None,
        "Аня живёт в Мюнхене",
    ]
    first = changes[0]["entry"]
    assert (await ask(commands, "fact_undo", fact=made["id"], entry=first))["fact"]["text"] == "Аня живёт в Берлине"


async def test_taking_back_a_correction_brings_the_older_statement_back(commands: Commands) -> None:
    old = (await add(commands, "Anna lives in Berlin"))["fact"]["id"]
    new = (await add(commands, "Anna lives in Munich", replaces=old))["fact"]["id"]
    assert await texts(commands) == ["Anna lives in Munich"]
    answer = await ask(commands, "fact_undo", fact=new)
    assert answer["fact"] is None
    assert [each["id"] for each in answer["revived"]] == [old]
    assert await texts(commands) == ["Anna lives in Berlin"]


async def test_the_making_of_a_correction_is_taken_back_as_often_as_one_likes(commands: Commands) -> None:
    old = (await add(commands, "Аня живёт в Берлине"))["fact"]["id"]
    new = (await add(commands, "Аня живёт в Мюнхене", replaces=old))["fact"]["id"]
    for expected in ("Берлине", "Мюнхене", "Берлине", "Мюнхене"):
        await ask(commands, "fact_undo", fact=new)
        assert await texts(commands) == [f"Аня живёт в {expected}"]


async def test_an_older_statement_that_was_changed_since_it_holds_again_stays(commands: Commands) -> None:
    old = (await add(commands, "Anna lives in Berlin"))["fact"]["id"]
    new = (await add(commands, "Anna lives in Munich", replaces=old))["fact"]["id"]
    await ask(commands, "fact_undo", fact=new)
    await ask(commands, "fact_edit", fact=old, fields={"text": "Anna works in Berlin"})
    await ask(commands, "fact_undo", fact=new)
    assert sorted(await texts(commands)) == ["Anna lives in Munich", "Anna works in Berlin"]


async def test_what_undo_cannot_do_is_said(commands: Commands) -> None:
    first = (await add(commands, "one is so"))["fact"]["id"]
    await ask(commands, "fact_delete", fact=first)
    other = (await add(commands, "One is so!"))["fact"]["id"]
    clash = await refused(commands, "fact_undo", fact=first)
    assert clash.code == "fact_exists"
    assert other in str(clash)
    entry = (await ask(commands, "fact_history", fact=other))["changes"][0]["entry"]
    assert (await refused(commands, "fact_undo", fact=other, entry=entry)).code == "cannot_undo"
    assert str(await refused(commands, "fact_undo", fact=other, entry=entry + 50)).startswith("entry:")
    assert await texts(commands) == ["One is so!"]


async def test_nobody_touches_facts_of_another_user(commands: Commands) -> None:
    of_anna = (await add(commands, "Anna's secret", user="anna"))["fact"]["id"]
    for command in ("fact_delete", "fact_history", "fact_undo"):
        assert (await refused(commands, command, fact=of_anna)).code == "unknown_fact"
    edit = await refused(commands, "fact_edit", fact=of_anna, fields={"text": "mine"})
    assert edit.code == "unknown_fact"
    assert [problem.path for problem in (await refused(
        commands, "fact_add", fields={"text": "mine", "replaces": of_anna}
    )).problems] == ["replaces"]  # fmt: skip
    assert await texts(commands) == []
    assert await texts(commands, user="anna") == ["Anna's secret"]


async def test_a_list_has_pages_and_categories(commands: Commands) -> None:
    for number in range(5):
        await add(commands, f"fact number {number}", importance=number * 10, category="work" if number % 2 else "other")
    page = await ask(commands, "fact_list", limit=2)
    assert ([each["importance"] for each in page["facts"]], page["count"], page["next"]) == ([40, 30], 5, 2)
    last = await ask(commands, "fact_list", limit=2, page=3)
    assert ([each["importance"] for each in last["facts"]], last["next"]) == ([0], None)
    assert await texts(commands, category="work") == ["fact number 3", "fact number 1"]
    assert await texts(commands, page=2**53 - 1) == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ["text"]),
        ({"text": ""}, ["text"]),
        ({"text": " \x07 …"}, ["text"]),
        ({"text": "a" * (MAX_TEXT + 1)}, ["text"]),
        ({"text": 7, "category": "Личное", "importance": 101}, ["text", "category", "importance"]),
        ({"text": "a", "importance": True}, ["importance"]),
        ({"text": "a", "importance": 50.5}, ["importance"]),
        ({"text": "a", "replaces": ""}, ["replaces"]),
        ({"text": "a", "replaces": "nothing"}, ["replaces"]),
        ({"text": "a", "color": "red"}, ["fields"]),
    ],
    ids=str,
)
async def test_wrong_fields_are_named(commands: Commands, fields: dict[str, Any], named: list[str]) -> None:
    error = await refused(commands, "fact_add", fields=fields)
    assert error.code == "bad_fact"
    assert [problem.path for problem in error.problems] == named
    assert await texts(commands) == []


@pytest.mark.parametrize(
    ("command", "args", "said"),
    [
        ("fact_list", {"limit": 101}, "args.limit"),
        ("fact_list", {"page": 0}, "args.page"),
        ("fact_list", {"category": "../x"}, "args.category"),
        ("fact_list", {"user": "a b"}, "args.user"),
        ("fact_undo", {"fact": "x", "entry": True}, "args.entry"),
        ("fact_delete", {}, "args.fact"),
        ("fact_delete", {"fact": "nothing"}, "fact:"),
    ],
)
async def test_wrong_arguments_are_named(commands: Commands, command: str, args: dict[str, Any], said: str) -> None:
    assert str(await refused(commands, command, **args)).startswith(said)


async def test_a_superseded_fact_is_not_edited(app: App, commands: Commands) -> None:
    await app.core.writer.run(facts.put, fact("old", id="old"), "new")
    await app.core.writer.run(facts.put, fact("new", id="new"), "new", supersedes="old")  # type: ignore[arg-type]
    for command, args in (("fact_edit", {"fields": {"importance": 1}}), ("fact_delete", {})):
        assert (await refused(commands, command, fact="old", **args)).code == "unknown_fact"
    revived = await ask(commands, "fact_undo", fact="old")
    assert revived["fact"]["superseded_by"] is None
    assert sorted(await texts(commands)) == ["new", "old"]


# -- the command -------------------------------------------------------------------------------------------------------


async def test_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = parse_config(SETTINGS, {})
    paths = Paths.resolve(home, {})

    async def klaw(*words: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(main, ["facts", words[0], "--home", str(home), *words[1:]])
        said = capsys.readouterr()
        return code, said.out, said.err

    assert (await klaw("list"))[0] == 1
    async with running(config, paths) as app, served(app, Commands(parts_of(app))):
        assert await klaw("list") == (0, "no facts: `klaw facts add TEXT` adds one\n", "")
        code, out, err = await klaw("add", "Кошку зовут Мурка", "--category", "identity", "--importance", "90")
        assert (code, err) == (0, "")
        assert "Кошку зовут Мурка" in out
        code, out, _ = await klaw("list", "--json")
        (kept,) = json.loads(out)["facts"]
        assert (await klaw("add", "кошку зовут мурка"))[1].startswith("known already")
        code, out, _ = await klaw("edit", kept["id"], "--text", "Кошку зовут Маркиза\x1b[2J")
        assert (code, "\x1b" in out) == (0, False)
        table = (await klaw("list"))[1].splitlines()
        assert table[0].split() == ["fact", "category", "importance", "changed", "text"]
        assert table[1].endswith("Кошку зовут Маркиза")
        assert f"klaw facts undo {kept['id']}" in (await klaw("delete", kept["id"]))[1]
        assert (await klaw("history", kept["id"]))[1].splitlines()[-1].endswith("(removed)")
        assert "Маркиза" in (await klaw("undo", kept["id"]))[1]
        for words, named in (
            (("add", " "), "TEXT:"),
            (("add", "x" * 3_000), "TEXT:"),
            (("edit", kept["id"], "--text", ""), "--text:"),
            (("edit", kept["id"]), "give at least one of --text"),
            (("edit", kept["id"], "--importance", "101"), "--importance:"),
            (("add", "x", "--category", "Плохо"), "--category:"),
            (("add", "x", "--replaces", "none"), "--replaces:"),
            (("list", "--limit", "0"), "--limit:"),
            (("list", "--user", "a b"), "--user:"),
        ):
            code, out, err = await klaw(*words)
            assert (code, out) == (2, ""), words
            assert err.startswith(f"klaw: {named}"), err
        code, _, err = await klaw("delete", "nothing")
        assert (code, err) == (1, "klaw: FACT: there is no fact with this id, or it was replaced or removed\n")
        assert (await app.memory.facts.remove(UserId("local"), kept["id"])).text == "Кошку зовут Маркиза"
