"""``klaw search``: of the real server, and the same answer without one."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.app.app import App, running
from klaw.cli.fields import again
from klaw.cli.main import main, parser
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.domain.fact import Origin
from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.memory.embed.embedder import Embedder
from klaw.memory.search.search import MemorySearch
from klaw.operations.memory.search import notes
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, read_call
from klaw.store.kinds import facts as stored_facts
from klaw.store.kinds import memory_files, messages
from klaw.store.kinds.memory_files import FileChunk, MemoryFile
from tests.conftest import CANARY
from tests.support.admin import SETTINGS, Commands, parts_of, served
from tests.support.asking import ask_operation
from tests.support.asking import search_lines as lines
from tests.support.facts import fact
from tests.support.stores import new, running_store

MAX_QUERY = 4_000
MAY = 1_714_564_800.0  # 2024-05-01T12:00Z


async def fill(app: App) -> None:
    await app.core.writer.run(
        messages.append,
        [
            new(f"Код калитки в саду 4711, {CANARY}", chat="дача", at=MAY),
            new("The code of the garden gate is 4711.", role=Role.ASSISTANT, at=MAY + 86_400),
            new("Anna's gate code is secret", user="anna", at=MAY),
        ],
    )


async def ask(commands: Commands, query: str, **given: Any) -> dict[str, Any]:
    args = {"query": query, **given}
    return await commands.run(read_call("search", args))


def found(answer: dict[str, Any]) -> list[str]:
    return [f"{each['chat']}#{each['seq']}" for each in answer["results"]]


async def test_the_answer(app: App, commands: Commands) -> None:
    await fill(app)
    answer = await ask(commands, "калитки")
    (only,) = answer["results"]
    assert {key: only[key] for key in ("kind", "chat", "seq", "role", "created_at", "words")} == {
        "kind": "message",
        "chat": "local:дача",
        "seq": 1,
        "role": Role.USER,
        "created_at": "2024-05-01T12:00:00.000Z",
        "words": ["калитки"],
    }
    assert only["snippet"][slice(*only["marks"][0])] == "калитки"
    assert (answer["user"], answer["total"], answer["total_is_exact"], answer["next"]) == ("local", 1, True, None)
    assert answer["degraded"] == ["embedding_off"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["local:main#1", "local:дача#1"]),
        ({"chat": "main"}, ["local:main#1"]),
        ({"chat": "local:дача", "user": "local"}, ["local:дача#1"]),
        ({"user": "anna"}, ["anna:main#1"]),
        ({"chat": "anna:main"}, ["anna:main#1"]),
        ({"role": "assistant"}, ["local:main#1"]),
        ({"since": "2024-05-02"}, ["local:main#1"]),
        ({"until": "2024-05-01"}, ["local:дача#1"]),
        ({"until": "2024-05-01T12:00+03:00"}, []),
        ({"since": "1d"}, []),
        ({"user": "nobody"}, []),
    ],
)
async def test_filters(app: App, commands: Commands, given: dict[str, Any], expected: list[str]) -> None:
    await fill(app)
    assert sorted(found(await ask(commands, "gate code калитки", **given))) == sorted(expected)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "args.query: is required"),
        ({"query": ""}, f"args.query: must have 1 to {MAX_QUERY} characters"),
        ({"query": "я" * (MAX_QUERY + 1)}, f"args.query: must have 1 to {MAX_QUERY} characters"),
        ({"query": "a\0b"}, "args.query: must not hold NUL"),
        ({"query": "a\ud800"}, "args.query: must not hold NUL"),
        ({"query": 5}, "args.query: must be a text"),
        ({"since": "soon"}, "args.since: must be a time like 2024-05-01"),
        ({"until": "31.02.2024"}, "args.until: must be a time like 2024-05-01"),
        ({"since": "2024-05-02", "until": "2024-05-01"}, "args.until: must be later than since"),
        ({"role": "system"}, "args.role: must be one of user, assistant"),
        ({"limit": 0}, "args.limit: must be 1 to 100"),
        ({"limit": 101}, "args.limit: must be 1 to 100"),
        ({"limit": True}, "args.limit: must be a whole number"),
        ({"limit": "5"}, "args.limit: must be a whole number"),
        ({"page": "0"}, "args.page: must be a number from 1 to 1000"),
        ({"page": "2-zz"}, "args.page: must be a number from 1 to 1000"),
        ({"user": "Anna"}, "args.user: a user name has"),
        ({"chat": "a/b"}, "args.chat: a chat name has"),
        ({"chat": "anna:main", "user": "local"}, "args.chat: is not the user's"),
        ({"chat": "unknown"}, "chat: there is no such chat"),
        ({"untill": "1d"}, "args: unknown field"),
    ],
)
async def test_bad_arguments_are_named(app: App, commands: Commands, args: dict[str, Any], said: str) -> None:
    await fill(app)
    with pytest.raises(OperationError) as refused:
        await commands.run(read_call("search", {"query": "x", **args} if args else {}))
    assert str(refused.value).startswith(said)


# -- the command -------------------------------------------------------------------------------------------------------


def arguments(home: Path, *given: str) -> argparse.Namespace:
    return parser().parse_args(["search", "--home", str(home), *given])


async def command(home: Path, *given: str) -> int:
    return await trio.to_thread.run_sync(main, ["search", "--home", str(home), *given])


async def test_the_same_with_and_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = parse_config(SETTINGS, {})
    paths = Paths.resolve(home, {})
    (home / "config").mkdir()
    (home / "config" / "engine.yaml").write_text('{"embedding": {"enabled": false}}')
    async with running(config, paths) as app:
        await fill(app)
        async with served(app, Commands(parts_of(app))):
            assert await command(home, "gate code", "--json") == 0
            asked = json.loads(capsys.readouterr().out)
            assert await command(home, "gate code") == 0
            text = capsys.readouterr()
    assert await command(home, "gate code", "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert await command(home, "gate code") == 0
    without = capsys.readouterr()
    for each in (asked, read):
        del each["timings_ms"]
    assert asked == read
    assert text == without
    assert text.out.splitlines() == [
        "2024-05-02 12:00  main#1  assistant",
        "    The code of the garden gate is 4711.",
        "",
        "1 to 1 of 1",
    ]
    assert text.err == "klaw: full text only: embedding.enabled is false\n"


async def test_pages_on_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = parse_config(SETTINGS, {})
    async with running(config, Paths.resolve(home, {})) as app:
        await app.core.writer.run(messages.append, [new(f"needle {number}") for number in range(5)])
        async with served(app, Commands(parts_of(app))):
            seen = []
            given = ["--limit", "2", "--", "-needle"]
            for _ in range(3):
                assert await command(home, *given) == 0
                out = capsys.readouterr().out.splitlines()
                seen += [line.split()[1] for line in out if line.startswith("    ")]
                more = [line for line in out if line.startswith("more: klaw search ")]
                if more:
                    *options, last = more[0].removeprefix("more: klaw search ").split()
                    assert last == "-needle"
                    given = [each for each in options if not each.startswith("--home")] + [last]
                    await app.core.writer.run(messages.append, [new("needle needle")])
            assert not more
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("given", "code", "err"),
    [
        (["xyzzy"], 1, "klaw: nothing found\n"),
        (["…?!"], 1, "klaw: QUERY has no word or emoji that could be searched for\n"),
        (["code", "--page", "9"], 1, "klaw: there is no such page: 1 in all\n"),
        (["code", "--user", "nobody"], 1, "klaw: nothing found\n"),
        (["code", "--chat", "unknown"], 1, "klaw: --chat: there is no such chat\n"),
        ([""], 2, f"klaw: QUERY: must have 1 to {MAX_QUERY} characters\n"),
        (["ы" * 20_000], 2, f"klaw: QUERY: must have 1 to {MAX_QUERY} characters\n"),
        (["code", "--since", "soon"], 2, "klaw: --since: must be a time like 2024-05-01"),
        (["code", "--limit", "0"], 2, "klaw: --limit: must be 1 to 100\n"),
    ],
)
async def test_exit_codes(
    home: Path, capsys: pytest.CaptureFixture[str], given: list[str], code: int, err: str
) -> None:
    config, _ = parse_config(SETTINGS, {})
    (home / "config").mkdir()
    (home / "config" / "engine.yaml").write_text('{"embedding": {"enabled": false}}')
    async with running(config, Paths.resolve(home, {})) as app:
        await fill(app)
        async with served(app, Commands(parts_of(app))):
            assert await command(home, *given) == code
            with_server = capsys.readouterr()
    assert await command(home, *given) == code
    assert capsys.readouterr() == with_server
    assert with_server.out == ""
    assert err in with_server.err


async def test_without_a_server_and_without_a_database(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command(home, "code") == 1
    assert "no server is running" in capsys.readouterr().err


# -- the text ----------------------------------------------------------------------------------------------------------


def answer(**changes: Any) -> dict[str, Any]:
    result = {
        "chat": "local:main",
        "seq": 7,
        "role": "user",
        "created_at": "2024-05-01T12:00:00.000Z",
        "snippet": "one needle \x1b[31mred\x07 \u202eneedles\u202c end",
        "marks": [[4, 10], [22, 29]],
        "words": ["needle"],
        "vector_rank": None,
    }
    plain = {"user": "local", "first": 1, "total": 3, "total_is_exact": False, "next": "2-f-6", "words": ["needle"]}
    return {**plain, "words_left_out": [], "degraded": [], "results": [result], **changes}


def test_terminal_commands_in_messages_are_harmless() -> None:
    shown = "\n".join(lines(answer(), more="klaw search x", bold=True))
    assert "one \x1b[1mneedle\x1b[22m ␛[31mred␇ \ufffd\x1b[1mneedles\x1b[22m\ufffd end" in shown
    assert shown.replace("\x1b[1m", "").replace("\x1b[22m", "").count("\x1b") == 0
    assert "\x1b" not in "\n".join(lines(answer(), more="klaw search \x1b[2J", bold=False))
    assert shown.endswith("1 to 1 of at least 3\nmore: klaw search x")


def test_what_has_none_of_the_words_says_why_it_is_there() -> None:
    (plain,) = answer()["results"]
    results = [plain, {**plain, "words": [], "vector_rank": 3}, {**plain, "words": []}]
    heads = lines(answer(results=results), more=None, bold=False)[:9:3]
    assert heads == [f"2024-05-01 12:00  main#7  user{why}" for why in ("", "  by meaning", "  beside a match")]


def test_what_is_missing_is_said() -> None:
    said = notes(answer(degraded=["reembedding:37%", "text_search_failed", "other"], words_left_out=["like"]))
    assert said == [
        "full text only, 37 % re-embedded: the embedding model was changed",
        "by meaning only: the full-text index is damaged (klaw doctor)",
        "other",
        "very frequent words were not looked for: like",
    ]


def test_the_command_for_the_next_page_can_be_pasted() -> None:
    given = arguments(Path("/a b"), "it's", "--chat", "дача", "--limit", "3", "--page", "2")
    pasted = again(operations()["search"], given, page="3-a-b")
    assert pasted == """klaw search '--home=/a b' '--chat=дача' --limit=3 --page=3-a-b 'it'"'"'s'"""


async def test_facts_and_files_are_shown_with_what_they_are(tmp_path: Path) -> None:
    """From the store through the request to the lines of the terminal."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("The gate is green.")])
        await store.writer.run(stored_facts.put, fact("The gate code is 4815.", id="f1", category="place"), "new")
        await store.writer.run(
            stored_facts.put, fact("The gate code was 1111.", origin=Origin.TOOL, id="f2", user="anna"), "new"
        )
        piece = FileChunk(line=7, heading="House > Gate", text="The gate needs paint.")
        await store.writer.run(memory_files.put, MemoryFile(user=UserId("local"), path="MEMORY.md", stamp="1"), [piece])
        off = Embedder(SystemClock(), enabled=False)
        search = MemorySearch(store.readers, off, SystemClock())
        parts: Any = SimpleNamespace(search=search, readers=store.readers, embedder=off)
        found = await ask_operation("search", parts, query="gate")
        assert [each["kind"] for each in found["results"]] == ["fact", "message", "file"]
        shown = lines(json.loads(json.dumps(found)), more=None, bold=False)
        assert shown[0] == "2025-10-09 08:53  fact f1  place, importance 60"
        assert shown[1] == "    The gate code is 4815."
        assert shown[6] == "MEMORY.md:7  House > Gate"
        whole = await ask_operation("fetch", parts, what="file:MEMORY.md")
        assert whole == {"kind": "file", "path": "MEMORY.md", "text": "The gate needs paint."}
        assert (await ask_operation("fetch", parts, what="f1"))["fact"]["text"] == "The gate code is 4815."
        for unseen in ({"what": "file:MEMORY.md", "user": "anna"}, {"what": "file:../MEMORY.md"}, {"what": "f2"}):
            with pytest.raises(OperationError) as caught:
                await ask_operation("fetch", parts, **unseen)
            assert caught.value.code in ("unknown_file", "unknown_message")
        chat_only = await ask_operation("search", parts, query="gate", chat="main")
        assert [each["kind"] for each in chat_only["results"]] == ["message"]
        annas = await ask_operation("search", parts, query="gate", user="anna")
        assert lines(annas, more=None, bold=False)[0].endswith("person, importance 60  after reading from outside")


def test_a_person_is_shown_before_all_else_also_when_nothing_was_found() -> None:
    facts = [{"id": "f1", "text": "Аня любит \x1b[2Jчай"}]
    anya = {"id": "p1", "name": "Аня", "aliases": ["Анечка"], "relation": "сестра", "last_at": None, "facts": facts}
    found = answer(results=[], people=[anya], total=0)
    shown = lines(found, more=None, bold=False)
    assert shown[0] == "person  Аня  сестра  also Анечка"
    assert shown[1].startswith("    Аня любит")
    assert "\x1b" not in "".join(shown)
    assert "nothing found" not in notes(found)
    assert "nothing found" in notes(answer(results=[], total=0))
