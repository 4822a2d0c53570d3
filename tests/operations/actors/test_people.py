"""``klaw people`` of a real server without a model: each change is in the journal, and can be taken back."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.app.app import App
from klaw.cli.main import main
from klaw.domain.person import MAX_NAME, MAX_RELATION
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from tests.support.admin import Commands, served


async def ask(commands: Commands, command: str, **args: Any) -> dict[str, Any]:
    return await commands.run(read_call(command, args))


async def add(commands: Commands, name: str, user: str = "local", **fields: Any) -> str:
    return (await ask(commands, "person_add", user=user, fields={"name": name, **fields}))["person"]["id"]


async def names(commands: Commands, user: str = "local") -> list[str]:
    return sorted(each["name"] for each in (await ask(commands, "person_list", user=user))["people"])


async def refused(commands: Commands, command: str, **args: Any) -> OperationError:
    with pytest.raises(OperationError) as caught:
        await ask(commands, command, **args)
    return caught.value


async def test_a_person_is_added_changed_merged_and_removed_by_its_name(commands: Commands) -> None:
    anya = await add(commands, "Аня", aliases=["Анечка"], relation="сестра")
    edited = await ask(
        commands,
        "person_edit",
        person="анечка",
        fields={"name": "Анна", "add_aliases": ["Anna"], "remove_aliases": ["Анечка"]},
    )
    assert (edited["person"]["id"], edited["person"]["aliases"]) == (anya, ["Аня", "Anna"])
    other = await add(commands, "Анна Петровна")
    merged = await ask(commands, "person_merge", person="Анна Петровна", into="аня")
    assert (merged["merged"], merged["person"]["name"]) == (other, "Анна")
    assert await names(commands) == ["Анна"]
    assert [each["id"] for each in (await ask(commands, "person_show", person="Анна"))["was"]] == [other]
    assert (await ask(commands, "person_show", person=other))["person"]["merged_into"] == anya
    undone = await ask(commands, "person_undo", person=other)
    assert [each["id"] for each in undone["revived"]] == [other]
    assert await names(commands) == ["Анна", "Анна Петровна"]
    await ask(commands, "person_delete", person="Анна")
    assert await names(commands) == ["Анна Петровна"]
    await ask(commands, "person_undo", person=anya)
    changes = (await ask(commands, "person_history", person=anya))["changes"]
    assert [each["person"] and each["person"]["name"] for each in changes] == [
        *("Аня", "Анна", "Анна", "Анна"),
        None,
        "Анна",
    ]


async def test_two_of_one_name_are_told_apart_by_their_ids(commands: Commands) -> None:
    one = await add(commands, "Anna", relation="sister")
    answer = await ask(commands, "person_add", fields={"name": "anna", "relation": "boss"})
    assert answer["namesakes"] == [one]
    error = await refused(commands, "person_delete", person="ANNA")
    assert error.code == "several_people"
    assert one in str(error)
    await ask(commands, "person_delete", person=one)
    assert (await ask(commands, "person_show", person="anna"))["person"]["relation"] == "boss"


@pytest.mark.parametrize(("name", "again"), [("Anna", "ANNA"), ("Аня", "аня")])
async def test_the_same_person_is_not_added_twice(commands: Commands, name: str, again: str) -> None:
    one = await add(commands, name, relation="sister")
    for relation in ("", "Sister"):
        error = await refused(commands, "person_add", fields={"name": again, "relation": relation})
        assert error.code == "person_exists"
        assert f"{name} (sister, {one}) is known already" in str(error)
    assert (await ask(commands, "person_show", person=again))["person"]["id"] == one
    other = await add(commands, again, relation="boss")
    error = await refused(commands, "person_show", person=name)
    assert f"{name} (sister, {one})" in str(error)
    assert f"{again} (boss, {other})" in str(error)


async def test_a_history_says_what_happened(commands: Commands) -> None:
    one, other = await add(commands, "Anna"), await add(commands, "Аня", relation="сестра")
    await ask(commands, "person_edit", person=one, fields={"name": "Ann", "relation": "sister"})
    await ask(commands, "person_edit", person=one, fields={"add_aliases": ["Annie"]})
    await ask(commands, "person_merge", person=other, into=one)
    await ask(commands, "person_undo", person=other)
    await ask(commands, "person_delete", person=other)
    told = [
        [each["what"] for each in (await ask(commands, "person_history", person=id_))["changes"]]
        for id_ in (one, other)
    ]
    assert told[0][:3] == ["added", "name, other names, relation changed", "other names changed"]
    assert told[1] == ["added", f"turned out to be {one}", "restored as a separate person", "removed"]


async def test_nobody_touches_people_of_another_user(commands: Commands) -> None:
    strange = await add(commands, "Anna", user="anna")
    mine = await add(commands, "Boris")
    for command in ("person_show", "person_delete", "person_history", "person_undo"):
        assert (await refused(commands, command, person=strange)).code == "unknown_person"
    assert (await refused(commands, "person_edit", person="Anna", fields={"name": "x"})).code == "unknown_person"
    for one, into in ((strange, mine), (mine, strange)):
        assert (await refused(commands, "person_merge", person=one, into=into)).code == "unknown_person"
    assert (await names(commands), await names(commands, "anna")) == (["Boris"], ["Anna"])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": " \x07 …"}, ["name"]),
        ({"name": "a" * (MAX_NAME + 1)}, ["name"]),
        ({"name": "the user"}, ["name"]),
        ({"name": 7, "aliases": "Annie", "relation": []}, ["name", "aliases", "relation"]),
        ({"name": "Anna", "aliases": ["Annie", ""]}, ["aliases"]),
        ({"name": "Anna", "aliases": [f"a{chr(97 + each)}" for each in range(26)]}, ["aliases"]),
        ({"name": "Anna", "relation": "x" * (MAX_RELATION + 1)}, ["relation"]),
        ({"name": "Anna", "color": "red"}, ["fields"]),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_fields_are_named(commands: Commands, fields: dict[str, Any], named: list[str]) -> None:
    error = await refused(commands, "person_add", fields=fields)
    assert error.code == "bad_person"
    assert [problem.path.partition("[")[0] for problem in error.problems] == named
    assert await names(commands) == []


async def test_a_list_has_pages(commands: Commands) -> None:
    for letter in "abcde":
        await add(commands, f"Person {letter}")
    page = await ask(commands, "person_list", limit=2)
    assert (len(page["people"]), page["count"], page["next"]) == (2, 5, 2)
    last = await ask(commands, "person_list", limit=2, page=3)
    assert (len(last["people"]), last["next"]) == (1, None)


async def test_the_commands(app: App, home: Path, commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    async def klaw(*words: str) -> tuple[int, str]:
        code = await trio.to_thread.run_sync(main, ["people", *words, "--home", str(home)])
        told = capsys.readouterr()
        return code, told.out + told.err

    async with served(app, commands):
        assert await klaw("list") == (0, "no people: `klaw people add NAME` adds one\n")
        code, told = await klaw("add", "Аня\x1b[31m", "--alias", "A\x07nna", "--relation", "сестра %_*")
        assert (code, "\x1b" in told, "\x07" in told, "сестра %_*" in told) == (0, False, False, True)
        assert (await klaw("list"))[1].split("\n")[1].split()[-4:] == ["Аня", "Anna", "сестра", "%_*"]
        assert await klaw("edit", "Аня") == (2, "klaw: give at least one of --name, --relation, --alias, --no-alias\n")
        assert (await klaw("edit", "%", "--relation", "x"))[0] == 1
        code, told = await klaw("edit", "anna", "--no-alias", "Nobody")
        assert (code, told.startswith("klaw: --no-alias: ")) == (2, True)
        assert (await klaw("add", "the user"))[0] == 2
        assert (await klaw("add", "Борис"))[0] == 0
        code, told = await klaw("merge", "Борис", "Аня")
        assert (code, "klaw people undo" in told) == (0, True)
        assert "was also known as" in (await klaw("show", "Аня"))[1]
        assert "restored: " in (await klaw("undo", "Аня"))[1]
        code, told = await klaw("delete", "борис")
        assert (code, "klaw forget person:" in told) == (0, True)
        assert len((await klaw("history", "Аня"))[1].splitlines()) == 4
        assert (await klaw("merge", "Аня", "Аня"))[0] == 1
        assert json.loads((await klaw("show", "Аня", "--json"))[1])["person"]["name"] == "Аня"
