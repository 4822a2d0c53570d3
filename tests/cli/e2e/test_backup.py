"""`klaw backup` beside a running server: under load, with a forgetting in between, restored elsewhere."""

import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from klaw.wire.frames import StoredMessage
from tests.e2e.invariants.test_bad_disk import small_disk
from tests.support.forgetting import holding
from tests.support.llm_server import serve_llm
from tests.support.repository import REPOSITORY
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import Talk, talking

SECRET = "Ключ от сейфа называется Kanarienvogel8842, запомни"
CLIENTS = 3
EVERY_S = 0.2
FEW_TURNS = {"debounceMs": 500, "debounceMaxMs": 1_000}
"""What is written counts here, not the answers."""


async def klaw(*arguments: str, home: Path, code: int = 0) -> str:
    found, out, err = await run_klaw(*arguments, "--home", str(home))
    assert found == code, err
    return out + err if code else out


def said(messages: list[StoredMessage]) -> list[str]:
    return [each.content for each in messages if each.role == "user" and each.content]


Acked = dict[str, list[str]]


async def under_load(talks: list[Talk], body: Callable[[Acked], Awaitable[None]]) -> Acked:
    """Clients that say one thing after the other while the body runs. Returns what each chat was acknowledged."""
    acked: Acked = {f"чат{number}": [] for number in range(CLIENTS)}

    async def say(talk: Talk, chat: str) -> None:
        while True:
            text = f"{chat} said {len(acked[chat])}"
            await talk.send(text, chat=chat)
            acked[chat].append(text)
            await trio.sleep(EVERY_S)

    async with trio.open_nursery() as nursery:
        for talk, chat in zip(talks, acked, strict=True):
            nursery.start_soon(say, talk, chat)
        await body(acked)
        nursery.cancel_scope.cancel(reason="the body is done")
    return acked


async def test_what_was_acknowledged_before_is_in_it_in_order_and_once(tmp_path: Path) -> None:
    home, new = tmp_path / "home", tmp_path / "new"
    before: Acked = {}

    async with serve_llm() as llm:
        async with served(write_home(home, llm=llm.url, processing=FEW_TURNS)) as server:
            async with talking(server.url) as one, talking(server.url) as two, talking(server.url) as three:
                await one.ask(SECRET, chat="дача")

                async def body(acked: Acked) -> None:
                    for _ in range(2):
                        await trio.sleep(0.5)
                        await klaw("backup", "create", home=home)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(lambda: klaw("chats", "delete", "дача", "--yes", home=home))
                        before.update({chat: list(texts) for chat, texts in acked.items()})
                        await klaw("backup", "create", "--json", home=home)
                    await klaw("backup", "create", home=home)
                    before.update({chat: list(texts) for chat, texts in acked.items()})
                    await klaw("backup", "create", home=home)

                acked = await under_load([one, two, three], body)
            listed = json.loads(await klaw("backup", "list", "--json", home=home))["backups"]
            assert len(listed) == 5
            assert [each["holds_forgotten"] for each in listed[:2] + listed[3:]] == [True, True, False, False]
            for each in listed[2:4]:
                assert "as they were written" in await klaw("backup", "verify", each["name"], home=home)
            refused = await klaw("backup", "restore", home=home, code=1)
            assert "a server is running there" in refused
        backups = home / "backups"
        assert {path.name for path in backups.iterdir() if not path.name.startswith(".")} == {
            each["name"] for each in listed
        }
        assert holding(backups / listed[-1]["name"], SECRET) == {}
        refused = await klaw("backup", "restore", home=home, code=1)
        assert "is not empty: a restore changes nothing" in refused
        told = await klaw("backup", "restore", "--from", str(backups), home=new)
        assert f"{listed[-1]['name']} is in place" in told
        async with served(new) as server, talking(server.url) as talk:
            for chat, texts in before.items():
                found = said(await talk.history(chat))
                assert len(texts) > 3
                assert found[: len(texts)] == texts
                assert found == acked[chat][: len(found)]
            assert said(await talk.history("дача")) == []
    pruned = await klaw("backup", "prune", "--keep", "4", "--forgotten", home=home)
    left = json.loads(await klaw("backup", "list", "--json", home=home))["backups"]
    assert not any(each["holds_forgotten"] for each in left), pruned
    assert holding(backups, SECRET) == {}


async def test_the_unit_removes_old_ones_also_when_something_cannot_be_copied(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home")
    assert "there is nothing to back up" in await klaw("backup", "create", home=home, code=1)
    assert [each.name for each in home.iterdir()] == ["config"]
    for name in ("data", "workspace"):
        (home / name).mkdir(mode=0o700)
    os.mkfifo(home / "workspace" / "труба")
    unit = (REPOSITORY / "conf" / "klaw-backup.service").read_text().replace("--keep 13", "--keep 1")
    commands = re.findall(r"^ExecStart=(-?)/opt/klaw/bin/klaw (.*)$", unit, re.MULTILINE)
    assert len(commands) == 2
    for _ in range(3):
        for ignored, words in commands:
            code, _out, _err = await run_klaw(*words.split(), "--home", str(home))
            if code and not ignored:  # nothing after it is done
                break
        assert code == 1
    assert len(json.loads(await klaw("backup", "list", "--json", home=home))["backups"]) == 2
    assert "not in it: 1 file, workspace/труба" in await klaw("doctor", home=home)
    new = str(tmp_path / "new")
    restored = await run_klaw("backup", "restore", "--from", str(home / "backups"), "--home", new)
    assert (restored[0], "was NOT in it: workspace/труба: it is no file" in restored[2]) == (0, True)


async def test_a_card_that_became_read_only_is_backed_up_with_its_latest_lines(tmp_path: Path) -> None:
    home, new, texts = tmp_path / "home", tmp_path / "new", [f"Сообщение {number}" for number in range(3)]
    async with serve_llm() as llm:
        write_home(home, llm=llm.url)
        with small_disk(home / "data", "20m") as data, small_disk(tmp_path / "stick", "100m") as stick:
            async with served(home) as server:
                async with talking(server.url) as talk:
                    for text in texts:
                        await talk.ask(text)
                await server.kill()
            assert (data / "commit.log").stat().st_size
            await trio.run_process(["mount", "-o", "remount,ro", str(data)])
            await klaw("backup", "create", "--to", str(stick), home=home)
            await trio.run_process(["mount", "-o", "remount,ro", str(stick)])
            told = await klaw("backup", "verify", "--from", str(stick), home=home)
            assert "there is nothing to compare that with" in told
            await klaw("backup", "restore", "--from", str(stick), home=new)
        write_home(new, llm=llm.url)
        async with served(new) as server, talking(server.url) as talk:
            assert said(await talk.history("main")) == texts
