"""Deleting a chat: everything of it is forgotten, in several parts where it is long, and a kill in between is finished
by the next start."""

import signal
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.forget import FORGOTTEN, MARK
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.errors import NoSuchChat
from klaw.memory.forget import take_out
from klaw.store.forget import execute
from klaw.store.forget.execute import ForgetEntry, forget_rest, merged, together
from klaw.store.kinds import chats, facts, messages, topics
from klaw.store.store import Store
from tests.store.files.forget.test_forget import CANARY, KILLED
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding, lose_database
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import differing, digests_of, run
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, AT, archive, flaws_of, say
from tests.support.writing import Real, instead

BORIS = UserId("boris")
GARDEN, MAIN = chat_id(ANNA, "сад"), chat_id(ANNA, "main")
TITLE = "Kanarienvogel8842 за дачей"
TOLD = f"Пароль от дачи {CANARY}, никому не говори"


async def past(store: Store) -> None:
    """A chat with a title, a secret, a topic, a choice of its model and two segments; quoted in another chat."""
    say = store.writer.run

    async def told(
        text: str, role: Role = Role.USER, kind: MessageKind = MessageKind.TEXT, *, chat: str = "сад", **more
    ) -> int:
        (made,) = await say(messages.append, [new(text, user="anna", chat=chat, role=role, kind=kind, **more)])
        return made.message.rowid

    rowids = [await told(TOLD), await told("Хорошо, запомнил", Role.ASSISTANT)]
    await told("/model big", kind=MessageKind.COMMAND)
    await told("Model: big", Role.SYSTEM, MessageKind.COMMAND, model="stub/big", thinking="high")
    await told("", Role.SYSTEM, MessageKind.SESSION_BREAK)
    for number in range(6):
        rowids.append(await told(f"Грядка номер {number} для помидоров {CANARY}"))
    await told(f"Ты сказала: {TOLD}", Role.ASSISTANT, chat="main")
    await told("Совсем другое дело здесь", chat="main")
    await say(messages.append, [new(f"my own {CANARY}-boris words", user="boris", chat="сад")])
    await archive(store, rowids, user="anna", chat="сад")
    await say(chats.rename, ANNA, GARDEN, TITLE, AT)
    await say(chats.rename, ANNA, GARDEN, f"{TITLE} 2", AT)
    await say(chats.rename, BORIS, chat_id(BORIS, "сад"), "Моё", AT)


async def listed(store: Store, user: UserId = ANNA) -> list[str]:
    return [each.name for each in await store.readers.run(chats.listed, user, 9)]


@pytest.mark.parametrize("at_once", [2, 100])
async def test_nothing_is_left_but_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(take_out, "AT_ONCE", at_once)
    async with running_store(tmp_path) as store:
        await past(store)
        assert (await store.readers.run(messages.session, GARDEN)).model == "stub/big"
        assert (await store.readers.run(messages.session, GARDEN)).thinking == "high"
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("chat:сад", ANNA)
        assert len(wanted.rowids) == 10
        preview = await tool.preview(wanted, everywhere=True)
        assert next((each.kind, each.name, each.text) for each in preview.things) == ("chat", "сад", f"{TITLE} 2")
        assert await listed(store) == ["main", "сад"]
        proof = await tool.forget(wanted, everywhere=True)
        assert {each.path.split("/")[1] for each in proof.held if each.kind == "log"} <= {"boris%3Aсад"}
        assert holding(tmp_path, TOLD, TITLE, "Грядка номер") == {}
        assert await listed(store) == ["main"]
        assert await listed(store, BORIS) == ["сад"]
        assert (await store.readers.run(chats.get, BORIS, chat_id(BORIS, "сад"))).title == "Моё"
        left = await store.readers.run(messages.after, GARDEN, 0, 99)
        assert [each.seq for each in left] == list(range(1, 12))
        gone = [each for each in left if each.type is MessageKind.COMMAND]
        assert {(each.content, FORGOTTEN in each.metadata) for each in gone} == {("", True)}
        assert (await store.readers.run(messages.session, GARDEN)).model is None
        assert (await store.readers.run(messages.session, GARDEN)).thinking is None
        assert await store.readers.run(topics.count, ANNA) == 0
        quoted, other = await store.readers.run(messages.after, MAIN, 0, 9)
        assert (MARK in quoted.content, other.content) == (True, "Совсем другое дело здесь")
        with pytest.raises(NoSuchChat):
            await tool.find("chat:сад", ANNA)
        with pytest.raises(NoSuchChat):
            await store.writer.run(chats.rename, ANNA, GARDEN, "x", AT)
    assert flaws_of(tmp_path / "klaw.db") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await listed(store) == ["main"]
        assert await store.readers.run(execute.pending) == []
        (again,) = await store.writer.run(messages.append, [new("Снова здравствуй", user="anna", chat="сад")])
        assert again.message.seq == 12
        found = await store.readers.run(chats.get, ANNA, GARDEN)
        assert (found.title, found.archived, found.last_seq) == ("", False, 12)
    assert holding(tmp_path, TOLD, TITLE) == {}


_WITHOUT_TOPIC = "SELECT count(*) FROM messages WHERE chat_id = ? AND topic_id IS NULL AND content <> ''"


async def test_no_message_is_without_its_topic_before_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the archivist would make new topics of what is about to go."""
    monkeypatch.setattr(take_out, "AT_ONCE", 4)
    without = []

    async def looking(real: Real, *args: Any) -> Any:
        without.append(await store.readers.run(lambda connection: connection.execute(_WITHOUT_TOPIC, (GARDEN,)).get))
        return await real(*args)

    async with running_store(tmp_path) as store:
        rowids = await say(store, *(f"Грядка номер {number}" for number in range(12)), chat="сад")
        await archive(store, *(rowids[first : first + 4] for first in (0, 4, 8)), user="anna", chat="сад")
        instead(store.writer, forget_rest, looking)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("chat:сад", ANNA))
        assert (without, await store.readers.run(topics.count, ANNA)) == ([0, 0], 0)


async def test_a_title_that_quotes_what_is_forgotten_says_so_no_more(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        await store.writer.run(chats.rename, ANNA, MAIN, f"About: {TOLD}", AT)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("сад#1", ANNA))
        assert (await store.readers.run(chats.get, ANNA, MAIN)).title == f"About: {MARK}"
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    assert holding(tmp_path, TOLD) == {}


async def test_facts_go_when_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_out, "AT_ONCE", 2)
    async with running_store(tmp_path) as store:
        await past(store)
        rowids = await store.readers.run(messages.kept_rowids, GARDEN, 99)
        for rowid in (rowids[0], rowids[-1]):
            (message,) = await store.readers.run(messages.by_rowids, [rowid])
            drawn = fact(f"drawn of {rowid} for later", user="anna", message=message.id, chat=GARDEN)
            await store.writer.run(facts.put, drawn, "new")
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("chat:сад", ANNA)
        assert len((await tool.preview(wanted)).reach.kept["fact"]) == 2
        await tool.forget(wanted, with_facts=True)
        assert await store.readers.run(facts.count, ANNA) == 0
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before


_FEW = KILLED.replace('"main#2"', '"chat:сад"').replace(
    "armed = False\n", "armed = False\nfrom klaw.memory.forget import take_out as module\nmodule.AT_ONCE = 2\n", 1
)


@pytest.mark.parametrize("steps", [1, 2, 4, 7, 10, 14, 20, 30, 60])
async def test_a_kill_leaves_all_of_it_or_nothing(tmp_path: Path, steps: int) -> None:
    assert _FEW.count("chat:сад") == _FEW.count("AT_ONCE") == 1
    async with running_store(tmp_path) as store:
        await past(store)
    done = await completed([*SCRIPT, _FEW, str(tmp_path), str(steps)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    async with running_store(tmp_path) as store:
        assert await store.readers.run(execute.pending) == []
        there = await store.readers.run(chats.get, ANNA, GARDEN)
        if there is not None:
            assert there.title == f"{TITLE} 2"
            assert len(await store.readers.run(messages.kept_rowids, GARDEN, 99)) == 10
            tool = forgetter(store, tmp_path)
            await tool.forget(await tool.find("chat:сад", ANNA))
        assert await store.readers.run(messages.kept_rowids, GARDEN, 99) == []
    assert holding(tmp_path, TOLD, TITLE, "Грядка номер") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    assert flaws_of(tmp_path / "klaw.db") == {}


def test_forgettings_of_the_same_moment_are_not_mixed() -> None:
    def entry(number: int, user: UserId, asked: tuple[int, ...], messages: tuple[int, ...] = ()) -> ForgetEntry:
        return ForgetEntry(entry=number, time=AT, user=user, asked=asked, messages=messages)

    first, second = entry(1, ANNA, (1, 2, 3, 4), (1, 2, 7)), entry(2, ANNA, (3, 4), (3, 4))
    others = entry(3, ANNA, (9,)), entry(4, BORIS, (9,)), entry(5, BORIS, ())
    assert together([first, second, *others]) == [[first, second], *([each] for each in others)]
    assert merged([first, second]).messages == (1, 2, 3, 4, 7)
