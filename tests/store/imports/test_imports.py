"""Storing what was moved in: chats and their names, a second import, a newer export, forgetting, and what is not done
with it unasked."""

from pathlib import Path

import pytest

from klaw.domain.message import Message
from klaw.domain.names import UserId, chat_id
from klaw.memory.forget import finding
from klaw.memory.forget.finding import NothingToForget
from klaw.operations.perform import OPERATOR, operations, perform, read
from klaw.store.kinds import chats, imports, messages, summaries, topics
from klaw.store.search import vectors
from klaw.store.store import Store
from tests.support.exports import FIRST, SECOND, THIRD, chatgpt_export, imported, talk
from tests.support.forgetting import forgetter, holding
from tests.support.reindexing import digests_of
from tests.support.stores import new, running_store

LOCAL, ANNA = UserId("local"), UserId("anna")
SECRET = "Ключ от сейфа называется Kanarienvogel8842, запомни это"


async def names(store: Store, user: UserId = LOCAL) -> dict[str, str]:
    """Names and titles of a user's chats."""
    return {each.name: each.title for each in await store.readers.run(chats.listed, user, 100)}


async def said(store: Store, name: str, user: UserId = LOCAL) -> list[Message]:
    return await store.readers.run(messages.kept_after, chat_id(user, name), 0, 100)


async def test_chats_get_names_titles_and_their_times(tmp_path: Path) -> None:
    path = chatgpt_export(
        tmp_path,
        talk("c1", "Где мой велосипед?!", "Где он?", "В сарае"),
        talk("c2", "New chat", "one"),
        talk("c3", "New chat", "two", at=1_500_000_000.0),
        talk("c4", None, "no title"),
        talk("c5", "🙂", "only a picture"),
    )
    async with running_store(tmp_path / "data") as store:
        await store.writer.run(messages.append, [new("mine", chat="New chat")])
        report = await imported(store, "chatgpt", path)
        assert (report.chats, report.messages, report.added, report.known) == (5, 6, 6, 0)
        assert (report.first_at, report.last_at) == ("2017-07-14T02:40:00.000Z", "2023-11-14T22:13:21.000Z")
        assert await names(store) == {
            "Где мой велосипед": "Где мой велосипед?!",
            "New chat": "",
            "New chat 2": "",
            "New chat 3": "",
            "chatgpt 2023-11-14": "",
            "chatgpt 2023-11-14 2": "🙂",
        }
        first, second = await said(store, "Где мой велосипед")
        assert (first.content, first.channel) == ("Где он?", f"import:{FIRST}")
        assert (first.created_at, second.created_at) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z")


async def test_a_second_import_adds_nothing_and_a_newer_export_what_is_new(tmp_path: Path) -> None:
    older = chatgpt_export(tmp_path, talk("c1", "Сад", "one", "two"), talk("c2", "Сад", "other"), name="1.zip")
    newer = chatgpt_export(
        tmp_path,
        talk("c3", "Сад", "new"),
        talk("c1", "Огород", "one", "two", "three"),
        talk("c2", "Сад", "other"),
        name="2.zip",
    )
    async with running_store(tmp_path / "data") as store:
        await imported(store, "chatgpt", older)
        report = await imported(store, "chatgpt", older, SECOND)
        assert (report.messages, report.added, report.known) == (3, 0, 3)
        await store.writer.run(messages.append, [new("and now here", chat="Сад")])
        report = await imported(store, "chatgpt", newer, THIRD)
        assert (report.messages, report.added, report.known) == (5, 2, 3)
        assert [each.content for each in await said(store, "Сад")] == ["one", "two", "and now here", "three"]
        assert [each.content for each in await said(store, "Сад 2")] == ["other"]
        assert [each.content for each in await said(store, "Сад 3")] == ["new"]
        found = await store.readers.run(imports.listed, LOCAL)
        assert [(each.id, each.chats, each.messages) for each in found] == [(FIRST, 2, 3), (THIRD, 2, 2)]
    live = digests_of(tmp_path / "data" / "klaw.db")
    (tmp_path / "data" / "klaw.db").unlink()
    async with running_store(tmp_path / "data"):
        pass
    assert digests_of(tmp_path / "data" / "klaw.db") == live


async def test_long_messages_come_in_several(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "Long", "ж" * 250_000, "x" * 100_000, "short\0"))
    async with running_store(tmp_path / "data") as store:
        for origin in (FIRST, SECOND):
            report = await imported(store, "chatgpt", path, origin)
        assert (report.messages, report.added) == (3, 0)
        found = [each.content for each in await said(store, "Long")]
        assert [len(each) for each in found] == [100_000, 100_000, 50_000, 100_000, 6]
        assert found[-1] == "short\ufffd"


async def test_nobody_answers_summarises_or_archives_what_was_imported(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "Сад", *(f"message {n}" for n in range(9))))
    async with running_store(tmp_path / "data") as store:
        await imported(store, "chatgpt", path)
        chat, read = chat_id(LOCAL, "Сад"), store.readers.run
        assert await read(messages.pending_chats, "2000-01-01") == []
        assert await read(messages.pending, chat, 1, 100) == []
        assert await read(summaries.candidates, 1, 100) == []
        assert await read(topics.unarchived, LOCAL, 0, 100) == []
        assert await read(topics.count_unarchived) == 0
        assert await read(vectors.count_unembedded, 1) == 9  # found by words at once, and by meaning when this is done
        await store.writer.run(messages.append, [new("What did we plant?", chat="Сад")])
        assert [each.content for each in await read(messages.pending, chat, 1, 100)] == ["What did we plant?"]
        assert len(await read(topics.unarchived, LOCAL, 0, 100)) == 1


async def test_topics_are_made_where_they_are_asked_for(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "Сад", "one", "two"))
    async with running_store(tmp_path / "data") as store:
        await imported(store, "chatgpt", path, topics=True)
        assert len(await store.readers.run(topics.unarchived, LOCAL, 0, 100)) == 2


async def test_users_have_their_own(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "Сад", "one", "two"))
    async with running_store(tmp_path / "data") as store:
        await imported(store, "chatgpt", path, user="anna")
        assert (await imported(store, "chatgpt", path, SECOND)).added == 2
        assert await names(store) == await names(store, ANNA) == {"Сад": ""}
        assert [each.id for each in await store.readers.run(imports.listed, ANNA)] == [FIRST]
        assert await store.readers.run(imports.rowids, LOCAL, FIRST, 10) == []  # type: ignore[arg-type]
        forget = forgetter(store, tmp_path / "data")
        try:
            await forget.find(f"import:{FIRST}", LOCAL)
        except NothingToForget:
            pass
        else:
            raise AssertionError("another user's import")


async def test_undo_forgets_all_of_it_and_it_may_come_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = chatgpt_export(tmp_path, talk("c1", "Сейф", "Hello", SECRET), talk("c2", "Both", "first"), name="1.zip")
    more = chatgpt_export(tmp_path, talk("c2", "Both", "first", "second"), name="2.zip")
    async with running_store(data) as store:
        await imported(store, "chatgpt", path)
        await imported(store, "chatgpt", more, SECOND)
        forget = forgetter(store, data)
        done = await forget.forget(await forget.find(f"import:{FIRST}", LOCAL), everywhere=True)
        assert done.held == ()
        assert holding(data, SECRET, "Kanarienvogel8842") == {}
        assert await names(store) == {"Both": ""}
        assert [each.content for each in await said(store, "Both")] == ["second"]
        assert [each.id for each in await store.readers.run(imports.listed, LOCAL)] == [SECOND]
        again = await imported(store, "chatgpt", path, THIRD)
        assert (again.added, again.known) == (3, 0)
        assert (await imported(store, "chatgpt", path, THIRD)).added == 0
        assert await names(store) == {"Both": "", "Сейф": ""}
        assert [each.content for each in await said(store, "Сейф")] == ["Hello", SECRET]


async def test_a_large_import_is_forgotten_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat goes with its last message, and with it its title."""
    monkeypatch.setattr(finding, "MOST_OF_IMPORT", 3)
    data = tmp_path / "data"
    path = chatgpt_export(tmp_path, *(talk(f"c{n}", f"Тайна: {n}", f"Hello {n}", SECRET) for n in range(4)))
    async with running_store(data) as store:
        await imported(store, "chatgpt", path)
        await store.writer.run(messages.append, [new("mine", chat="Тайна 1")])
        parts: dict[str, object] = {"readers": store.readers, "forgetter": forgetter(store, data)}
        asked = read(operations()["import_undo"], {"origin": FIRST, "dry_run": False})
        answer = await perform(asked, OPERATOR, parts)
        assert (answer["messages"], answer["still_held"]) == (8, [])
        assert holding(data, SECRET, "Kanarienvogel8842", "Тайна: 0", "Тайна: 3") == {}
        assert await names(store) == {"Тайна 1": "Тайна: 1"}
        assert (await imported(store, "chatgpt", path, SECOND)).added == 8


async def test_what_was_forgotten_by_itself_stays_forgotten(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = chatgpt_export(tmp_path, talk("c1", "Сейф", "Hello", SECRET))
    async with running_store(data) as store:
        await imported(store, "chatgpt", path)
        forget = forgetter(store, data)
        await forget.forget(await forget.find("Сейф#2", LOCAL))
        report = await imported(store, "chatgpt", path, SECOND)
        assert (report.added, report.known) == (0, 2)
        assert holding(data, SECRET) == {}
