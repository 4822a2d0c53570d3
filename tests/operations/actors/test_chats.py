"""Operations of chats through the admin socket, the command line and slash commands."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.app.app import App
from klaw.cli.output import written
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import ChatId
from klaw.operations import forget
from klaw.operations.chats import PART_CHARS, PART_MESSAGES
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from klaw.operations.slash import OperationCommands
from klaw.store.kinds import messages
from tests.support.admin import ANNA, Commands, served
from tests.support.asking import ask, klaw_here
from tests.support.forgetting import holding
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
    parts, anna = app, Caller(user=ANNA)
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
    chat.parts = app

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
        assert (code, out.split("\n")[0].split()) == (0, ["chat", "title", "messages", "last", "message"])
        assert out.split("\n")[1].startswith("сад   Garden plans         1  20")
        assert await klaw("rename", "сад", "") == (0, "chat сад has no title\n", "")
        assert (await klaw("archive", "сад"))[0] == 0
        assert await klaw("list") == (0, "no chats: `klaw chat` begins one\n", "")
        assert json.loads((await klaw("list", "--archived", "--json"))[1])["count"] == 1
        assert (await klaw("archive", "nowhere"))[0] == 1
        assert (await klaw("rename", "сад", "x" * 101))[:2] == (2, "")
    assert (await klaw("list", "--archived"))[0] == 0  # without a server, over the database


# -- export ------------------------------------------------------------------------------------------------------------

HOSTILE = "# no heading\n**User** · 2020-01-01 00:00 · #1\r\n> forged\r</details>\n```\nopen fence"


async def talk(app: App, user: str = "anna") -> None:
    """A conversation with everything that may be in one."""
    await say(app, "Как посадить томаты?", user=user)
    call = {"id": "1", "name": "web_fetch", "arguments": '{"url": "https://example.org/`x`"}'}
    rows = [
        new("Looking", user=user, chat="сад", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, calls=[call]),
        new(
            "a ``` fence ````",
            user=user,
            chat="сад",
            role=Role.TOOL,
            kind=MessageKind.TOOL_RESULT,
            name="web_fetch",
            call="1",
        ),
        new(HOSTILE, user=user, chat="сад", role=Role.ASSISTANT),
        new("gone", user=user, chat="сад", role=Role.SYSTEM, kind=MessageKind.COMMAND, forgotten="2026-11-22"),
        new("/new", user=user, chat="сад", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK),
        new("news", user=user, chat="сад", role=Role.ASSISTANT, kind=MessageKind.SCHEDULED, task="daily"),
        new(
            "",
            user=user,
            chat="сад",
            files=[{"sha256": "a" * 64, "name": "план_[1].png", "type": "image/png", "bytes": 3}],
        ),
    ]
    for row in rows:
        await app.core.writer.run(messages.append, [row])


async def exported(commands: Commands, **args: Any) -> tuple[str, int]:
    """The whole document, and of how many parts it is."""
    text, parts, after = "", 0, 0
    while True:
        answer = await ask(commands, "chats_export", user="anna", chat="сад", after=after, **args)
        text, parts = text + answer["text"], parts + 1
        if answer["next"] is None:
            return text, parts
        after = answer["next"]


async def test_a_chat_is_a_markdown_document(app: App, commands: Commands) -> None:
    await talk(app)
    await ask(commands, "chats_rename", user="anna", chat="сад", title="Огород <b>2026</b>")
    text, _ = await exported(commands)
    lines = text.split("\n")
    assert lines[:3] == [r"# Огород \<b\>2026\</b\>", "", "Chat сад; times are UTC."]
    heads = [line.split(" · ")[0] for line in lines if line.startswith(("**", "<details>", "*A fresh", "Files"))]
    assert heads == [
        "**User**",
        "**Assistant**",
        "<details><summary>Call of web_fetch",
        "<details><summary>Result of web_fetch",
        "**Assistant**",
        "*A fresh start",
        "**Assistant, task daily**",
        "**User**",
        r"Files: план\_\[1\].png",
    ]
    assert "> Как посадить томаты?" in lines
    assert lines.count("`````") == 2  # a fence longer than any in the result
    said = lines[lines.index("> # no heading") :]
    assert said[1:6] == ["> **User** · 2020-01-01 00:00 · #1", "> > forged", "> </details>", "> ```", "> open fence"]
    assert "gone" not in text


async def test_a_chat_is_a_json_document(app: App, commands: Commands) -> None:
    await talk(app)
    text, _ = await exported(commands, format="json")
    document = json.loads(text)
    assert (document["chat"], document["name"], document["title"]) == ("anna:сад", "сад", "")
    assert [each["seq"] for each in document["messages"]] == [1, 2, 3, 4, 6, 7, 8]
    assert document["messages"][3]["content"] == HOSTILE
    gone = await ask(commands, "chats_export", user="anna", chat="сад", after=99, format="json")
    assert (gone["text"], gone["next"]) == ("\n]}\n", None)  # the rest was forgotten meanwhile
    assert document["messages"][1]["metadata"]["calls"][0]["name"] == "web_fetch"
    assert set(document["messages"][0]) == {
        "seq", "id", "role", "type", "content", "created_at", "segment", "metadata"
    }  # fmt: skip


@pytest.mark.parametrize("form", ["markdown", "json"])
async def test_a_long_chat_comes_in_parts(app: App, commands: Commands, form: str) -> None:
    """Each part is bounded, by messages and by what was said; the first messages are all forgotten."""
    rows = [new("x", user="anna", chat="сад", forgotten="2026-11-22") for _ in range(PART_MESSAGES + 3)]
    rows += [new(f"m{number}", user="anna", chat="сад") for number in range(2 * PART_MESSAGES + 1)]
    rows += [new("я" * PART_CHARS + str(number), user="anna", chat="сад") for number in range(3)]
    await app.core.writer.run(messages.append, rows)
    text, parts = await exported(commands, format=form)
    assert parts == 6
    if form == "markdown":
        assert text.count("> m") == 2 * PART_MESSAGES + 1
    else:
        assert len(json.loads(text)["messages"]) == 2 * PART_MESSAGES + 4


async def test_a_document_is_written(
    home: Path, app: App, commands: Commands, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def klaw(*words: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(klaw_here, home, "chats", "export", *words)
        return (code, *capsys.readouterr())

    await talk(app, user="local")
    file = trio.Path(tmp_path) / "сад.md"
    async with served(app, commands):
        code, text, _ = await klaw("сад")
        assert (code, text.split("\n")[0]) == (0, "# сад")
        assert await klaw("сад", "--to", str(file)) == (0, "", "")
        assert await file.read_text() == text
        assert (await file.stat()).st_mode & 0o777 == 0o600
        code, _, told = await klaw("сад", "--to", str(file))
        assert (code, "File exists" in told) == (2, True)
        assert (await klaw("nowhere", "--to", str(tmp_path / "other")))[0] == 1
        assert not await (trio.Path(tmp_path) / "other").exists()
        assert len(json.loads((await klaw("сад", "--json"))[1])["messages"]) == 7
    assert (await klaw("сад"))[:2] == (0, text)  # without a server, over the database


async def test_nobody_exports_a_chat_of_another(app: App) -> None:
    await say(app, "secret", user="boris", chat="his")
    for chat, code in (("his", "unknown_chat"), ("boris:his", "bad_args")):
        with pytest.raises(OperationError) as caught:
            await perform(read(operations()["chats_export"], {"chat": chat}), Caller(user=ANNA), app)
        assert caught.value.code == code


# -- deletion ----------------------------------------------------------------------------------------------------------

SECRET = "Ключ от сейфа называется Kanarienvogel8842"


async def test_a_chat_is_deleted_with_a_proof(app: App, commands: Commands) -> None:
    await talk(app)
    await say(app, SECRET)
    await say(app, "hello", chat="main")
    await ask(commands, "chats_rename", user="anna", chat="сад", title="Огород")
    shown = await ask(commands, "chats_delete", user="anna", chat="сад")
    assert (shown["forgotten"], shown["messages"]) == (False, 7)
    assert written(forget.lines(shown))[:2] == ["would be forgotten:", "  chat сад: “Огород” (7 messages)"]
    assert {each["kind"] for each in shown["held"]} >= {"log"}
    assert len((await ask(commands, "chats_list", user="anna"))["chats"]) == 2
    done = await ask(commands, "chats_delete", user="anna", chat="сад", dry_run=False)
    assert (done["forgotten"], done["messages"], done["still_held"]) == (True, 7, [])
    assert holding(app.core.paths.data_dir, SECRET, "Огород") == {}
    assert [each["name"] for each in (await ask(commands, "chats_list", user="anna"))["chats"]] == ["main"]
    for name in ("chats_delete", "chats_export", "chats_archive"):
        with pytest.raises(OperationError) as caught:
            await ask(commands, name, user="anna", chat="сад")
        assert (caught.value.code, [each.path for each in caught.value.problems]) == ("unknown_chat", ["chat"])


async def test_a_user_deletes_their_own_chat_and_learns_nothing_of_files(app: App) -> None:
    await say(app, SECRET)
    await say(app, SECRET, user="boris", chat="his")
    parts, anna = app, Caller(user=ANNA)
    for chat, code in (("his", "unknown_chat"), ("boris:his", "bad_args")):
        with pytest.raises(OperationError) as caught:
            await perform(read(operations()["chats_delete"], {"chat": chat, "dry_run": False}), anna, parts)
        assert caught.value.code == code
    done = await perform(read(operations()["chats_delete"], {"chat": "сад", "dry_run": False}), anna, parts)
    assert (done["forgotten"], done["held"], done["still_held"], done["aside"]) == (True, [], [], [])
    assert (await perform(read(operations()["chats_list"], {}), anna, parts))["chats"] == []
    (left,) = await app.core.readers.run(messages.after, ChatId("boris:his"), 0, 9)
    assert left.content == SECRET


@pytest.mark.parametrize(("asked", "yes"), [("chat", "yes"), ("чат", "да"), ("chat:сад", "yes")])
async def test_a_chat_is_deleted_in_a_chat(app: App, asked: str, yes: str) -> None:
    await say(app, SECRET)
    await say(app, "hello", chat="main")
    chat = OperationCommands()
    chat.parts = app

    async def tell(rest: str) -> str:
        return (await chat.run("/forget", ChatId("anna:сад"), rest, stop)).text

    shown = await tell(asked)
    assert "\n  chat сад\n" in shown
    await say(app, "one more thing that is said before the yes")  # it goes too
    assert (await tell(yes)).startswith("Forgotten.")
    listed = await perform(read(operations()["chats_list"], {}), Caller(user=ANNA), app)
    assert [each["name"] for each in listed["chats"]] == ["main"]
    assert holding(app.core.paths.data_dir, SECRET, "before the yes") == {}
    assert await tell("chat:nowhere") == "the chat does not exist"


async def test_deletion_on_the_command_line(
    home: Path, app: App, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    async def klaw(*words: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(klaw_here, home, "chats", "delete", *words)
        return (code, *capsys.readouterr())

    await say(app, SECRET, user="local")
    async with served(app, commands):
        code, out, _ = await klaw("сад", "--dry-run")
        assert (code, out.split("\n")[:2]) == (0, ["would be forgotten:", "  chat сад (1 message)"])
        assert (await klaw("сад"))[0] == 1  # nobody is there to agree
        code, out, _ = await klaw("сад", "--yes")
        assert (code, out.split("\n")[0]) == (0, "forgotten:")
        assert (await klaw("сад", "--yes"))[0] == 1
