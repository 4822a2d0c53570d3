"""Storing what was moved in: chats and their names, a second import, a newer export, forgetting, and what is not done
with it unasked."""

import signal
from pathlib import Path

import apsw
import pytest

from klaw.domain.message import Message, Role
from klaw.domain.names import UserId, chat_id
from klaw.memory.forget import take_out
from klaw.operations.handler import OPERATOR
from klaw.operations.perform import operations, perform, read
from klaw.store.forget import execute, logs
from klaw.store.forget.finding import NothingToForget
from klaw.store.kinds import chats, imports, messages, pending, summaries, topics
from klaw.store.search import fulltext_renewal, vectors
from klaw.store.store import Store
from tests.store.files.forget.test_forget import KILLED
from tests.support.asking import parts_to_forget
from tests.support.exports import FIRST, SECOND, THIRD, chatgpt_export, imported, talk
from tests.support.forgetting import forgetter, holding
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import differing, digests_of, run
from tests.support.stores import new, running_store
from tests.support.topics import flaws_of

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
        assert await read(pending.pending_chats, "2000-01-01") == []
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
        assert (await store.readers.run(imports.brought, LOCAL, FIRST)).rowids == ()  # type: ignore[arg-type]
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


async def test_a_large_import_goes_and_others_stay_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat goes with its title, and full text is rebuilt without the messages."""
    monkeypatch.setattr(take_out, "MANY", 4)
    monkeypatch.setattr(fulltext_renewal, "ROWS", 2)
    monkeypatch.setattr(fulltext_renewal, "DROPPED", 2)
    data = tmp_path / "data"
    path = chatgpt_export(tmp_path, *(talk(f"c{n}", f"Тайна: {n}", f"Hello {n}", SECRET) for n in range(14)))
    async with running_store(data) as store:
        await imported(store, "chatgpt", path)
        own = [new(f"my own words, number {n}", chat="Тайна 1" if n else "main") for n in range(5)]
        await store.writer.run(messages.append, [*own, new(f"You said: {SECRET}! Right?", role=Role.ASSISTANT)])
        parts = parts_to_forget(forgetter(store, data))
        asked = read(operations()["import_undo"], {"origin": FIRST})
        assert (await perform(asked, OPERATOR, parts))["messages"] == 28
        asked = read(operations()["import_undo"], {"origin": FIRST, "dry_run": False})
        answer = await perform(asked, OPERATOR, parts)
        assert (answer["messages"], answer["still_held"], answer["rows"]["messages"]) == (28, [], 1)
        assert holding(data, SECRET, "Kanarienvogel8842", "Тайна: 0", "Тайна: 3") == {}
        assert await names(store) == {"Тайна 1": "Тайна: 1", "main": ""}
        words = [("my", 5), ("hello", 0), ("forgotten", 1)]
        assert [(each, await store.readers.run(_having, each)) for each, _ in words] == words
        assert await store.readers.run(_tables, "messages_fts_*") == await store.readers.run(
            _tables, "messages_fts_[cdi]*"
        )
        assert (await imported(store, "chatgpt", path, SECOND)).added == 28
    assert flaws_of(data / "klaw.db") == {}
    live = digests_of(data / "klaw.db")
    assert differing(run(data)) == set()
    assert digests_of(data / "klaw.db") == live


def _having(connection: apsw.Connection, word: str) -> int:
    return int(connection.execute("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ?", (word,)).get)


def _tables(connection: apsw.Connection, pattern: str) -> list[str]:
    names = connection.execute("SELECT name FROM sqlite_schema WHERE name GLOB ? ORDER BY 1", (pattern,))
    return [name for (name,) in names]


_LARGE = KILLED.replace('"main#2"', f'"import:{FIRST}"').replace(
    "forget_logs.compact =",
    """from klaw.memory.forget import take_out
from klaw.store.search import fulltext_renewal
take_out.MANY, take_out.AT_ONCE, take_out.AT_ONCE_WITHOUT_TEXT, fulltext_renewal.ROWS = 2, 2, 3, 2
for name in ("begin", "fill", "drop_some"):
    setattr(fulltext_renewal, name, around(getattr(fulltext_renewal, name)))
forget_logs.compact =""",
)


@pytest.mark.parametrize("point", [1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 55, 75, 100, 140, 200])
async def test_a_kill_while_a_large_import_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    """The next start goes on by itself, beside the server."""
    for module, name, value in ((logs, "MOST_AT_START", 3), (take_out, "MANY", 2), (take_out, "AT_ONCE", 2)):
        monkeypatch.setattr(module, name, value)
    data = tmp_path / "data"
    path = chatgpt_export(tmp_path, *(talk(f"c{n}", f"Тайна: {n}", f"Hello {n}", SECRET) for n in range(6)))
    async with running_store(data) as store:
        await store.writer.run(messages.append, [new("Good morning to you", user="anna")])
        await imported(store, "chatgpt", path, user="anna")
        await store.writer.run(messages.append, [new(f"You said: {SECRET}! Right?", user="anna", role=Role.ASSISTANT)])
    done = await completed([*SCRIPT, _LARGE, str(data), str(point)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    async with running_store(data) as store:
        tool = forgetter(store, data)
        await tool.resume()
        assert await store.readers.run(execute.pending) == []
        if await store.readers.run(imports.listed, ANNA):  # the kill came before anything was decided
            assert await store.readers.run(imports.count, ANNA, FIRST) == 12  # type: ignore[arg-type]
            await tool.forget(await tool.find(f"import:{FIRST}", ANNA), everywhere=True)
        assert await names(store, ANNA) == {"main": ""}
        await tool.compact_files(vacuum=True)
        assert holding(data, SECRET, "Kanarienvogel8842", "Тайна: 0", "Тайна: 3") == {}
        assert await store.readers.run(_tables, "messages_fts_[no]*") == []
    assert flaws_of(data / "klaw.db") == {}
    live = digests_of(data / "klaw.db")
    assert differing(run(data)) == set()
    assert digests_of(data / "klaw.db") == live


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
