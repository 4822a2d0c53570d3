"""Ids may be shortened to a beginning that only one has; and lists are read without a server."""

import json
from pathlib import Path

import pytest

from klaw.app.app import running
from klaw.cli.main import main
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.operations.operation import OperationError
from tests.operations.actors.test_facts import add, ask, refused
from tests.support.admin import SETTINGS, Commands


async def test_a_beginning_that_only_one_has_stands_for_the_id(commands: Commands) -> None:
    one = (await add(commands, "Anna likes tea"))["fact"]["id"]
    two = (await add(commands, "Boris likes coffee"))["fact"]["id"]
    short = next(one[:length] for length in range(4, 21) if not two.startswith(one[:length]))
    edited = await ask(commands, "fact_edit", fact=short, fields={"importance": 90})
    assert edited["fact"]["id"] == one
    await ask(commands, "fact_delete", fact=short)
    assert (await ask(commands, "fact_history", fact=short))["id"] == one, "what was removed has a history"
    error = await refused(commands, "fact_delete", fact=one[:4])
    assert error.code == "ambiguous_id"
    assert str(error) == f"args.fact: several ids begin so: {min(one, two)}, {max(one, two)}"
    assert (await refused(commands, "fact_delete", fact="0000")).code == "unknown_fact"
    assert (await ask(commands, "forget", what=f"fact:{two}", dry_run=True))["facts"]


async def test_people_are_found_by_name_before_an_id_is_tried(commands: Commands) -> None:
    made = await ask(commands, "person_add", fields={"name": "Anna"})
    person = made["person"]["id"]
    assert (await ask(commands, "person_show", person=person[:12]))["person"]["id"] == person
    assert (await ask(commands, "person_show", person="anna"))["person"]["id"] == person


async def test_ids_of_another_user_are_not_found(commands: Commands) -> None:
    one = (await add(commands, "Anna likes tea", user="anna"))["fact"]["id"]
    with pytest.raises(OperationError) as caught:
        await ask(commands, "fact_delete", fact=one[:12])
    assert caught.value.code == "unknown_fact"


async def test_lists_are_read_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trio

    config, _ = parse_config(SETTINGS, {})
    async with running(config, Paths.resolve(home, {})) as app:
        from tests.support.admin import parts_of

        commands = Commands(parts_of(app))
        await add(commands, "Аня любит чай")
        await ask(commands, "person_add", fields={"name": "Борис"})

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--home", str(home)])
        out, errors = capsys.readouterr()
        return code, out, errors

    for words, wanted in (
        (("facts", "list"), "Аня любит чай"),
        (("people", "list"), "Борис"),
        (("topics", "list"), "no topics yet"),
    ):
        code, out, errors = await trio.to_thread.run_sync(run, *words)
        assert (code, errors) == (0, ""), words
        assert wanted in out
        code, out, errors = await trio.to_thread.run_sync(run, *words, "--json")
        assert code == 0
        assert json.loads(out)["user"] == "local"
    code, out, errors = await trio.to_thread.run_sync(run, "topics", "show", "99")
    assert (code, errors) == (1, "klaw: TOPIC: there is no such topic\n")
    code, out, errors = await trio.to_thread.run_sync(run, "facts", "delete", "0199")
    assert code == 1
    assert "no server is running" in errors
