"""Chats as their user sees them: titles and the archive, also after a kill and in a database made from the logs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from klaw.domain.knowledge import Base, BaseId
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.errors import NoSuchBase, NoSuchChat, StorageError
from klaw.store.kinds import chats, messages
from klaw.store.kinds.knowledge import bases
from klaw.store.store import Store
from tests.support.forgetting import lose_database
from tests.support.reindexing import differing, digests_of
from tests.support.reindexing import run as reindexed
from tests.support.repository import REPOSITORY
from tests.support.stores import new, running_store

ANNA, BORIS = UserId("anna"), UserId("boris")
GARDEN, MAIN = chat_id(ANNA, "сад"), chat_id(ANNA, "main")
AT = "2026-11-22T10:00:00.000Z"


async def say(store: Store, text: str, *, chat: str = "сад", user: str = "anna", **values) -> None:
    await store.writer.run(messages.append, [new(text, user=user, chat=chat, **values)])


async def names(store: Store, user: UserId = ANNA, *, archived: bool = False) -> list[tuple[str, str]]:
    found = await store.readers.run(chats.listed, user, 50, archived=archived)
    assert await store.readers.run(chats.count, user, archived=archived) == len(found)
    return [(each.name, each.title) for each in found]


async def test_a_title_is_kept_and_belongs_to_one_user(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "Когда сажать томаты?")
        await say(store, "hello", chat="main")
        await say(store, "mine", user="boris")
        made = await store.writer.run(chats.rename, ANNA, GARDEN, "Огород 2026", AT)
        assert (made.title, made.name, made.last_seq) == ("Огород 2026", "сад", 1)
        assert await store.readers.run(chats.get, ANNA, GARDEN) == made
        assert await names(store) == [("main", ""), ("сад", "Огород 2026")]
        assert await names(store, BORIS) == [("сад", "")]
        assert await store.readers.run(chats.get, BORIS, GARDEN) is None
        for user, chat in ((BORIS, GARDEN), (ANNA, chat_id(ANNA, "nowhere"))):
            with pytest.raises(NoSuchChat):
                await store.writer.run(chats.rename, user, chat, "x", AT)
        await store.writer.run(chats.rename, ANNA, GARDEN, "Огород 2026", AT)  # nothing new: no line
        await store.writer.run(chats.rename, ANNA, MAIN, "x", AT)
        await store.writer.run(chats.rename, ANNA, MAIN, "", AT)
        assert await names(store) == [("main", ""), ("сад", "Огород 2026")]
    (log,) = [each.read_text() for each in sorted(tmp_path.glob("memory/*.jsonl"))]  # noqa: ASYNC240
    lines = [json.loads(line) for line in log.splitlines()]
    assert [(each["what"], each["key"], each["value"]) for each in lines] == [
        ("chat", "сад", {"title": "Огород 2026"}),
        ("chat", "main", {"title": "x"}),
        ("chat", "main", {"titled": 1}),
    ]


async def test_chats_are_listed_with_titles_previews_and_pinned_ones_first(tmp_path: Path) -> None:
    first, second = "chat-1aaaaaaa", "chat-2bbbbbbb"
    async with running_store(tmp_path) as store:
        await say(store, "hello", chat="main")
        await say(store, "", chat=first, files=[])
        await say(store, f"  Как   **пересадить** старую яблоню?\n{'и грушу ' * 20}", chat=first)
        await say(store, "# Ответ\n\n- [осенью](http://x.org/) `сразу`", chat=first, role=Role.ASSISTANT)
        await say(store, "found", chat=first, role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
        await say(store, "second", chat=second)
        listed = await store.readers.run(chats.listed, ANNA, 9)
        assert [(each.name, each.title, each.named, each.preview) for each in listed] == [
            (second, "second", False, "second"),
            (first, "Как пересадить старую яблоню? и грушу и грушу и грушу и…", False, "Ответ осенью сразу"),
            ("main", "", False, "hello"),
        ]
        assert (await store.writer.run(chats.pin, ANNA, MAIN, AT, pinned=True)).pinned
        assert [each[0] for each in await names(store)] == ["main", second, first]
        made = await store.writer.run(chats.rename, ANNA, chat_id(ANNA, first), "🍎 Сад, “яблони”!", AT)
        assert (made.title, made.named) == ("🍎 Сад, “яблони”!", True)
        before = await store.readers.run(chats.listed, ANNA, 9)
    assert differing(reindexed(tmp_path)) == set()
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(chats.listed, ANNA, 9) == before
        assert not (await store.writer.run(chats.pin, ANNA, MAIN, AT, pinned=False)).pinned


async def test_what_is_never_recalled_is_kept_until_the_chat_is_forgotten(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for text in ("one", "two", "three"):
            await say(store, text)
        for seqs, recalled in (([3, 1], False), ([1], False), ([2, 1], True)):
            await store.writer.run(chats.recall, ANNA, GARDEN, seqs, AT, recalled=recalled)
        assert await store.readers.run(chats.unrecalled, GARDEN) == {3}
        assert await store.readers.run(chats.unrecalled, MAIN) == frozenset()
        await store.writer.run(chats.rename, ANNA, GARDEN, "Огород", AT)  # and this leaves it as it is
        assert await store.readers.run(chats.unrecalled, GARDEN) == {3}
        with pytest.raises(NoSuchChat):
            await store.writer.run(chats.recall, BORIS, GARDEN, [1], AT, recalled=False)
        await store.writer.run(chats.recall, ANNA, GARDEN, [1], AT, recalled=False)
    (log,) = [each.read_text() for each in sorted(tmp_path.glob("memory/*.jsonl"))]  # noqa: ASYNC240
    assert [json.loads(line)["value"] for line in log.splitlines()] == [
        {"unrecalled": [1, 3]},
        {"unrecalled": [3]},
        {"title": "Огород", "unrecalled": [3]},
        {"title": "Огород", "unrecalled": [1, 3]},
    ]
    assert differing(reindexed(tmp_path)) == set()
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(chats.unrecalled, GARDEN) == {1, 3}


async def test_a_chat_is_bound_to_bases_of_which_its_user_is_a_member_then_and_now(tmp_path: Path) -> None:
    def base(name: str, user: UserId, **members: str) -> Base:
        return Base(id=BaseId(name), user=user, name=name, members=members, created_at=AT, updated_at=AT)

    async with running_store(tmp_path) as store:
        run, read = store.writer.run, store.readers.run
        for each in (base("own", ANNA), base("shared", BORIS, anna="viewer"), base("secret", BORIS)):
            await run(bases.put, each)
        assert await run(chats.bind, ANNA, GARDEN, ["shared", "own", "own"], AT) == ("shared", "own")
        await say(store, "one")
        await run(chats.rename, ANNA, GARDEN, "Огород", AT)
        await run(chats.bind, ANNA, GARDEN, ["shared", "own"], AT)  # nothing new: no line
        found = await read(chats.get, ANNA, GARDEN)
        assert found is not None
        assert (found.bases, found.title) == (("shared", "own"), "Огород")
        for wanted in (["own", "secret"], ["nowhere"]):
            with pytest.raises(NoSuchBase):
                await run(chats.bind, ANNA, GARDEN, wanted, AT)
        with pytest.raises(StorageError, match="at most 16"):
            await run(chats.bind, ANNA, GARDEN, [str(each) for each in range(17)], AT)
        await run(bases.share, BORIS, BaseId("shared"), AT, {"anna": None})
        now = await read(chats.bound, ANNA, GARDEN)
        assert now is not None
        assert ([each.base.id for each in now.bases], now.gone) == (["own"], ("shared",))
        assert await read(chats.bound, BORIS, GARDEN) is None
        assert await read(chats.bound, ANNA, MAIN) is None
    (log,) = [each.read_text() for each in sorted(tmp_path.glob("memory/*.jsonl"))]  # noqa: ASYNC240
    lines = [json.loads(line) for line in log.splitlines()]
    assert [each["value"] for each in lines if each["what"] == "chat"] == [
        {"bases": ["shared", "own"]},
        {"title": "Огород", "bases": ["shared", "own"]},
    ]
    assert differing(reindexed(tmp_path)) == set()
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(chats.bound, ANNA, GARDEN) == now
        await store.writer.run(chats.bind, ANNA, GARDEN, [], AT)
        assert await store.readers.run(chats.bound, ANNA, GARDEN) is None


@pytest.mark.parametrize(
    ("said", "back"),
    [
        ({"role": Role.USER}, True),
        ({"role": Role.ASSISTANT, "kind": MessageKind.SCHEDULED}, True),
        ({"role": Role.USER, "kind": MessageKind.COMMAND}, False),
        ({"role": Role.SYSTEM, "kind": MessageKind.COMMAND}, False),
    ],
)
async def test_an_archived_chat_comes_back_with_its_next_message(tmp_path: Path, said, back: bool) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "one")
        await say(store, "two", chat="main")
        await store.writer.run(chats.rename, ANNA, GARDEN, "Сад", AT)
        assert (await store.writer.run(chats.archive, ANNA, GARDEN, AT, archived=True)).archived
        assert await names(store) == [("main", "")]
        assert await names(store, archived=True) == [("сад", "Сад")]
        assert await store.readers.run(chats.count, ANNA) == 2
        await say(store, "three", **said)
        assert await names(store, archived=True) == ([] if back else [("сад", "Сад")])
        await store.writer.run(chats.archive, ANNA, GARDEN, AT, archived=False)
        assert await names(store, archived=True) == []
        assert len(await names(store)) == 2


async def test_pages_and_numbers(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for number in range(7):
            for _ in range(number + 1):
                await say(store, "x", chat=f"c{number}")
            await say(store, "", chat=f"c{number}", role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
        pages = [await store.readers.run(chats.listed, ANNA, 3, offset) for offset in (0, 3, 6)]
        assert [[each.name for each in page] for page in pages] == [["c6", "c5", "c4"], ["c3", "c2", "c1"], ["c0"]]
        said = await store.readers.run(chats.count_said, ANNA, [each.chat for each in pages[0]])
        assert list(said.values()) == [7, 6, 5]
        assert list((await store.readers.run(chats.count_said, BORIS, list(said))).values()) == [0, 0, 0]


async def test_the_logs_give_titles_and_archive_back(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "one")
        await say(store, "two", chat="main")
        await store.writer.run(chats.rename, ANNA, GARDEN, "Сад", AT)
        await store.writer.run(chats.archive, ANNA, GARDEN, AT, archived=True)
        await store.writer.run(chats.rename, ANNA, MAIN, "Main “things”", AT)
    before = digests_of(tmp_path / "klaw.db")
    report = reindexed(tmp_path)
    assert (differing(report), report.tally.chats) == (set(), 3)
    assert digests_of(tmp_path / "klaw.db") == before
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await names(store) == [("main", "Main “things”")]
        assert await names(store, archived=True) == [("сад", "Сад")]
    assert digests_of(tmp_path / "klaw.db") == before


CHILD = """
import os, sys, trio
from pathlib import Path
from klaw.domain.names import UserId, chat_id
from klaw.store.kinds import chats, messages
from klaw.store.kinds.knowledge import bases
from tests.support.stores import new, running_store

async def main():
    async with running_store(Path(sys.argv[1])) as store:
        await store.writer.run(messages.append, [new("text", user="anna", chat="сад")])
        for number in range(100_000):
            chat = chat_id(UserId("anna"), "сад")
            await store.writer.run(chats.rename, UserId("anna"), chat, f"Сад {number}", "2026-11-22T10:00:00.000Z")
            os.write(1, f"{number}\\n".encode())

trio.run(main)
"""


async def test_a_title_survives_sigkill(tmp_path: Path) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - it only forks; what blocks is read in threads
        [sys.executable, "-c", CHILD, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ},
    )
    assert process.stdout is not None
    lines = [await trio.to_thread.run_sync(process.stdout.readline) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    rest = await trio.to_thread.run_sync(process.stdout.read)
    process.wait()
    process.stdout.close()
    told = [*lines, *rest.splitlines(keepends=True)]  # beside lines of the log
    acknowledged = max(int(line) for line in told if line.strip().isdigit() and line.endswith(b"\n"))
    async with running_store(tmp_path / "data") as store:
        ((name, title),) = await names(store)
        assert name == "сад"
        assert int(title.split()[1]) in (acknowledged, acknowledged + 1)  # the last may be durable and not yet told
