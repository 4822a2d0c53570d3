"""Notes on tool calls are found by ``memory_search`` and ``klaw search``, by their own user only, and while their
messages are there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klaw.actor.clock import SystemClock, iso
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.search import NoteResult
from klaw.domain.summary import NewSummary, ToolNote
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.token_coder import Reading
from klaw.memory.search.format_results import show
from klaw.memory.search.search import MemorySearch
from klaw.store.kinds import messages, summaries
from klaw.store.search import passages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.history_search import HistoryFilters
from klaw.store.search.passages import PassageVector
from klaw.store.store import Store
from tests.support.asking import ask_operation, search_lines
from tests.support.forgetting import forgetter, holding
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, run, unit
from tests.support.stores import START, new, running_store
from tests.support.topics import ANNA

NOTE = "В Риге дождь до пятницы, говорит Kanarienvogel8842."


async def noted(store: Store, user: str = "anna", chat: str = "main", text: str = NOTE) -> None:
    """A call with its result, a summary of both and a note."""
    await store.writer.run(
        messages.append,
        [
            new("What is it like in Riga?", user=user, chat=chat),
            new(
                "",
                user=user,
                chat=chat,
                role=Role.ASSISTANT,
                kind=MessageKind.TOOL_CALL,
                calls=[{"id": "k", "name": "web"}],
            ),
            new(f"result: {text}", user=user, chat=chat, role=Role.TOOL, kind=MessageKind.TOOL_RESULT, call="k"),
            new("Rain.", user=user, chat=chat, role=Role.ASSISTANT),
        ],
    )
    summary = NewSummary(
        user=UserId(user),
        chat=chat_id(UserId(user), chat),
        segment=0,
        first_seq=1,
        last_seq=3,
        text="About Riga.",
        tokens=3,
        model="test/m",
        created_at=iso(START),
    )
    await store.writer.run(summaries.put, summary, notes=[ToolNote(seq=2, call="k", tool="web", text=text)])


def searcher(store: Store) -> MemorySearch:
    return MemorySearch(store.readers, Embedder(SystemClock(), enabled=False), SystemClock())


async def found(store: Store, query: str, user: str = "anna", kinds=None, **filters) -> list[NoteResult]:
    page = await searcher(store).search(query, HistoryFilters(user=UserId(user), **filters), kinds=kinds)
    return [each for each in page.results if isinstance(each, NoteResult)]


@pytest.mark.parametrize("query", ["дожди в Риге", "Kanarienvogel8842"])
async def test_a_note_is_found_with_its_place_by_its_user_only(tmp_path: Path, query: str) -> None:
    async with running_store(tmp_path) as store:
        await noted(store)
        await noted(store, user="boris", text="Прогноз: дождь в Риге, Kanarienvogel8842")
        (note,) = await found(store, query)
        assert (note.chat, note.seq, note.tool, note.snippet) == ("anna:main", 2, "web", f"web: {NOTE}")
        assert note.words
        (his,) = await found(store, query, user="boris")
        assert his.chat == "boris:main"
        assert await found(store, query, user="cleo") == []
        assert await found(store, "квазары и пульсары") == []


async def test_notes_are_of_a_chat_and_a_time_and_of_no_speaker(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await noted(store)
        await noted(store, chat="дача")
        (note,) = await found(store, "дождь в Риге", chat=chat_id(ANNA, "дача"))
        assert note.chat == "anna:дача"
        assert await found(store, "дождь в Риге", role=Role.USER) == []
        assert await found(store, "дождь в Риге", since="2999-01-01T00:00:00.000Z") == []
        assert await found(store, "дождь в Риге", until="2000-01-01T00:00:00.000Z") == []
        assert len(await found(store, "дождь в Риге", kinds=frozenset({"note"}))) == 2
        assert await found(store, "дождь в Риге", kinds=frozenset({"message"})) == []


async def test_it_is_told_as_no_words_of_the_user(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await noted(store)
        search = searcher(store)
        page = await search.search("дождь в Риге", HistoryFilters(user=ANNA))
        told = show(page, page.results)
        assert "[note on a tool's result, " in told
        assert "chat main, not the user's words]: web: В Риге дождь" in told
        off = Embedder(SystemClock(), enabled=False)
        parts: Any = SimpleNamespace(search=search, readers=store.readers, embedder=off)
        answer = await ask_operation("search", parts, query="дождь", user="anna")
        assert "note" in {each["kind"] for each in answer["results"]}
        text = "\n".join(search_lines(answer))
        assert "main#2  note on a tool's result" in text


async def test_a_note_is_found_by_meaning(tmp_path: Path) -> None:
    class Near(Embedder):
        async def read(self, text: str) -> Reading:
            return Reading(unit(7))

    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await noted(store)
        waiting = await store.readers.run(passages.unembedded, MODEL, 10)
        (note,) = [each for each in waiting if each.kind == "note"]
        made = PassageVector("note", note.rowid, note.text, unit(7))
        assert await store.writer.run(stored_vectors.store_of_passages, MODEL, [made]) == 1
        search = MemorySearch(store.readers, Near(SystemClock(), enabled=False), SystemClock())
        page = await search.search("weather forecast", HistoryFilters(user=ANNA))
        (found_note,) = [each for each in page.results if isinstance(each, NoteResult)]
        assert (found_note.vector_rank, found_note.words) == (1, ())


@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_it_is_forgotten_with_any_message_of_its_summary(tmp_path: Path, seq: int) -> None:
    async with running_store(tmp_path) as store:
        await noted(store)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find(f"main#{seq}", ANNA), everywhere=True)
        assert await found(store, "дождь в Риге") == []
        if seq == 3:
            assert holding(tmp_path, "Kanarienvogel8842") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
