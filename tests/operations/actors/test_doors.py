"""One module makes an operation, and every door has it: admin socket, command line, chat."""

import argparse
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import klaw.operations
from klaw.app.app import App, running
from klaw.chats.commands import SlashAnswer
from klaw.cli.main import main, parser
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.domain.names import ChatId
from klaw.operations import perform as table
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.operation import OperationError, Scope, told, without_none
from klaw.operations.perform import Call, perform, read, read_call
from klaw.operations.slash import OperationCommands
from tests.support.admin import SETTINGS, Commands, parts_of, served

MODULE = '''
"""How many facts there are."""
from typing import Annotated, Any
import attrs
from klaw.convert import Bounds
from klaw.operations.operation import Noun, OfUser, Slash, argument

NOUN = Noun("tally", "count what is remembered")

@attrs.frozen(kw_only=True)
class Tally(OfUser):
    at_least: Annotated[int, Bounds(0, 9)] = argument("count as at least so many", default=0, metavar="N")
    word: str = argument("what is counted", default="facts", positional=True)

def _lines(answer):
    return [f"{answer['count']} {answer['word']} of {answer['user']}"]

SLASH = Slash(word="/tally", help="count", rest="word")

@NOUN.operation("tally", Tally, cli="", show=_lines, offline=True, slash=SLASH)
async def count(asked, caller, parts):
    """Count the facts."""
    from klaw.store.kinds import facts
    user, least = caller.user, asked.at_least
    return {"user": user, "word": asked.word, "count": max(least, await parts.readers.run(facts.count, user))}
'''


@pytest.fixture
def one_more_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of ``klaw.operations`` that nobody names anywhere else."""
    folder = tmp_path / "operations"
    folder.mkdir()
    (folder / "tally.py").write_text(MODULE)
    monkeypatch.setattr(klaw.operations, "__path__", [*klaw.operations.__path__, str(folder)])
    caches = (table.modules, table.nouns, table.operations)
    for cache in caches:
        cache.cache_clear()
    yield
    sys.modules.pop("klaw.operations.tally", None)
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


async def asked(commands: Commands, command: str, **args: Any) -> dict[str, Any]:
    return await commands.run(read_call(command, args))


async def stop(_reason: str) -> bool:
    return False


@pytest.mark.usefixtures("one_more_module")
async def test_a_new_operation_is_one_module_and_every_door_has_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = parse_config(SETTINGS, {})

    async def klaw(*words: str) -> tuple[int, str, str]:
        given = ["tally", "--home", str(home), *words]
        code = await trio.to_thread.run_sync(main, given)
        said = capsys.readouterr()
        return code, said.out, said.err

    async with running(config, Paths.resolve(home, {})) as app:
        commands = Commands(parts_of(app))
        await asked(commands, "fact_add", user="anna", fields={"text": "Чай вечером"})
        assert await asked(commands, "tally", user="anna") == {"user": "anna", "word": "facts", "count": 1}
        with pytest.raises(OperationError, match=r"args\.at_least: must be 0 to 9"):
            await asked(commands, "tally", at_least=10)
        async with served(app, commands):
            assert await klaw("--user", "anna") == (0, "1 facts of anna\n", "")
            assert json.loads((await klaw("--json", "things"))[1]) == {"user": "local", "word": "things", "count": 0}
            assert await klaw("--at-least", "10") == (2, "", "klaw: --at-least: must be 0 to 9\n")
            assert await klaw("--user", "an na") == (2, "", (await klaw("--user", "б в"))[2])
        chat = OperationCommands()
        chat.parts = app
        assert chat.meanings["/tally"] == "count"
        assert await chat.run("/tally", ChatId("anna:main"), "", stop) == SlashAnswer("1 facts of anna")
        assert (await chat.run("/tally", ChatId("boris:main"), "facts\nof\x1b", stop)).text.startswith("0 facts of")
    assert await klaw("--user", "anna") == (0, "1 facts of anna\n", "")  # without a server, over the database


async def test_a_user_touches_only_their_own_data(app: App) -> None:
    parts = app
    anna = Caller(user="anna", chat=ChatId("anna:main"))  # type: ignore[arg-type]
    operations = table.operations()
    for name in ("fact_list", "memory"):
        with pytest.raises(OperationError) as caught:
            await perform(read(operations[name], {"user": "boris"}), anna, parts)
        assert caught.value.code == "forbidden"
        assert (await perform(read(operations[name], {}), anna, parts))["user"] == "anna"


async def test_whoever_is_no_operator_asks_nothing_about_the_server(app: App) -> None:
    for operation in table.operations().values():
        if operation.scope is not Scope.OPERATOR:
            continue
        asked = object.__new__(operation.arguments)
        with pytest.raises(OperationError) as caught:
            await perform(Call(operation, asked), Caller(user="anna"), app)  # type: ignore[arg-type]
        assert caught.value.code == "forbidden"


def test_every_handler_and_what_shows_its_answer_take_what_they_are_given() -> None:
    for operation in table.operations().values():
        handler = inspect.signature(operation.handler).parameters
        assert [name.lstrip("_") for name in handler] == ["asked", "caller", "parts"], operation.name
        assert (handler["parts" if "parts" in handler else "_parts"].annotation is DatabaseParts) == operation.offline
        assert len(inspect.signature(operation.show).parameters) == 1, operation.name


def test_every_operation_is_described() -> None:
    for operation in table.operations().values():
        assert operation.help.endswith("."), operation.name
        for field in operation.arguments.__attrs_attrs__:
            assert told(field).help, (operation.name, field.name)
            assert without_none(field.type) is not None
        if operation.confirm is not None:
            dry_run = {field.name: field for field in operation.arguments.__attrs_attrs__}["dry_run"]
            assert (dry_run.default, told(dry_run).option) == (True, None), operation.name
        if operation.scope is Scope.OWN:
            assert any(field.name == "user" for field in operation.arguments.__attrs_attrs__), operation.name


def test_the_command_line_stays_light() -> None:
    """Help and a command of an operation import neither the models nor the store nor the server."""
    code = (
        "import sys; from klaw.cli.main import parser; parser(['facts', 'list']); "
        "few = 'klaw.operations.memory.people' in sys.modules; parser(['--help']); "
        "print(few, {'onnxruntime', 'apsw', 'trio', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False set()\n"


def test_a_command_imports_no_others() -> None:
    known = commands_of(parser())
    for word, made in known.items():
        found = commands_of(parser([word]))
        assert found[word].format_help() == made.format_help()
        assert len(found) < len(known) / 2, f"name the module of {word} in perform.IN_MODULE"


def commands_of(root: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (group,) = (each for each in root._actions if isinstance(each, argparse._SubParsersAction))
    return dict(group.choices)


def test_a_module_of_the_store_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = stored.people
    monkeypatch.setattr(stored, "find_spec", None)
    assert stored.people is found
