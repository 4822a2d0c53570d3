"""Operations of chats through the admin socket, the command line and slash commands."""

import json
from pathlib import Path

import pytest
import trio

from klaw.app.app import App, operation_parts
from klaw.domain.names import ChatId
from klaw.operations.operation import OperationError
from klaw.operations.perform import Caller, operations, perform, read
from klaw.operations.slash import OperationCommands
from klaw.store.kinds import messages
from tests.support.admin import ANNA, Commands, served
from tests.support.asking import ask, klaw_here
from tests.support.stores import new


async def say(app: App, text: str, *, user: str = "anna", chat: str = "сад") -> None:
    await app.core.writer.run(messages.append, [new(text, user=user, chat=chat)])


async def stop(_reason: str) -> bool:
    return False


async def test_chats_are_listed_named_and_archived(app: App, commands: Commands) -> None:
    await say(app, "Когда сажать томаты?")
    await say(app, "hello", chat="main")
    await say(app, "secret", user="boris")
    made = await ask(commands, "chats_rename", user="anna", chat="сад", title="  Огород\n2026 ")
    assert (made["chat"]["title"], made["chat"]["chat"]) == ("Огород 2026", "anna:сад")
    listed = await ask(commands, "chats_list", user="anna", limit=1)
    assert (listed["count"], listed["next"], [each["name"] for each in listed["chats"]]) == (2, 2, ["main"])
    (second,) = (await ask(commands, "chats_list", user="anna", limit=1, page=2))["chats"]
    assert {name: second[name] for name in ("name", "title", "messages", "last_seq", "segment", "archived")} == {
        "name": "сад",
        "title": "Огород 2026",
        "messages": 1,
        "last_seq": 1,
        "segment": 0,
        "archived": False,
    }
    assert (await ask(commands, "chats_archive", user="anna", chat="anna:сад"))["chat"]["archived"]
    assert [each["name"] for each in (await ask(commands, "chats_list", user="anna"))["chats"]] == ["main"]
    assert [e["title"] for e in (await ask(commands, "chats_list", user="anna", archived=True))["chats"]] == [
        "Огород 2026"
    ]
    assert not (await ask(commands, "chats_restore", user="anna", chat="сад"))["chat"]["archived"]
    assert len((await ask(commands, "chats_list", user="anna"))["chats"]) == 2


@pytest.mark.parametrize(
    ("command", "args", "code", "field"),
    [
        ("chats_rename", {"chat": "nowhere", "title": "x"}, "unknown_chat", "chat"),
        ("chats_rename", {"chat": "сад", "title": "x" * 101}, "bad_args", "title"),
        ("chats_rename", {"chat": "сад", "title": "\u202ex"}, "bad_args", "title"),
        ("chats_rename", {"chat": "сад"}, "bad_args", "title"),
        ("chats_rename", {"title": "x"}, "bad_args", "chat"),
        ("chats_archive", {"chat": "boris:сад"}, "bad_args", "chat"),
        ("chats_archive", {"chat": "../x"}, "bad_args", "chat"),
        ("chats_restore", {"chat": "his"}, "unknown_chat", "chat"),
    ],
)
async def test_what_cannot_be_done_names_the_field(app: App, commands: Commands, command, args, code, field) -> None:
    await say(app, "one")
    await say(app, "secret", user="boris", chat="his")
    with pytest.raises(OperationError) as caught:
        await ask(commands, command, user="anna", **args)
    assert (caught.value.code, [each.path for each in caught.value.problems]) == (code, [field])


async def test_a_user_reaches_no_chat_of_another(app: App) -> None:
    await say(app, "secret", user="boris", chat="his")
    parts, anna = operation_parts(app), Caller(user=ANNA)
    for name, args in (("chats_rename", {"title": "x"}), ("chats_archive", {}), ("chats_restore", {})):
        for chat, code in (("his", "unknown_chat"), ("boris:his", "bad_args")):
            with pytest.raises(OperationError) as caught:
                await perform(read(operations()[name], {"chat": chat, **args}), anna, parts)
            assert caught.value.code == code
    assert (await perform(read(operations()["chats_list"], {}), anna, parts))["chats"] == []


async def test_in_a_chat(app: App) -> None:
    await say(app, "one")
    await say(app, "two", chat="main")
    chat = OperationCommands()
    chat.parts = operation_parts(app)

    async def tell(word: str, rest: str = "") -> str:
        return (await chat.run(word, ChatId("anna:сад"), rest, stop)).text

    assert await tell("/rename") == "say the title too, as in /rename Garden plans"
    assert await tell("/rename", "Грядки и теплица") == "chat сад is now called “Грядки и теплица”"
    assert await tell("/rename", "\x1b[31m") == "has no control characters and nothing else that does not print"
    lines = (await tell("/chats")).split("\n")
    assert lines[0] == "Your chats, the last used first:"
    assert [line.split("  ")[1] for line in lines[1:]] == ["main", "сад “Грядки и теплица”"]
    assert await tell("/archive") == "chat сад “Грядки и теплица” is archived; its next message brings it back"
    assert len((await tell("/chats")).split("\n")) == 2


async def test_on_the_command_line(
    home: Path, app: App, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    async def klaw(*words: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(klaw_here, home, "chats", *words)
        return (code, *capsys.readouterr())

    await say(app, "one", user="local")
    async with served(app, commands):
        assert await klaw("rename", "сад", "Garden", "plans") == (0, "chat сад is now called “Garden plans”\n", "")
        code, out, _ = await klaw("list")
        assert (code, out.split("\n")[0].split()) == (0, ["chat", "title", "messages", "last", "message", "(UTC)"])
        assert out.split("\n")[1].startswith("сад   Garden plans         1  20")
        assert await klaw("rename", "сад", "") == (0, "chat сад has no title\n", "")
        assert (await klaw("archive", "сад"))[0] == 0
        assert await klaw("list") == (0, "no chats: `klaw chat` begins one\n", "")
        assert json.loads((await klaw("list", "--archived", "--json"))[1])["count"] == 1
        assert (await klaw("archive", "nowhere"))[0] == 1
        assert (await klaw("rename", "сад", "x" * 101))[:2] == (2, "")
    assert (await klaw("list", "--archived"))[0] == 0  # without a server, over the database
