"""The order of one user's results does not tell what another user keeps."""

from pathlib import Path

import pytest

from klaw.domain.names import UserId
from klaw.store.kinds import facts, memory_files
from klaw.store.kinds.memory_files import FileChunk, MemoryFile
from klaw.store.search import passages
from klaw.store.search.history_search import HistoryFilters, search_topics
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.stores import running_store
from tests.support.topics import ANNA, archive, say

WORDS = {"english": ["4711", "garden"], "russian": ["4711", "сад"]}


async def keep(store: Store, user: str, texts: list[str]) -> None:
    for text in texts:
        await store.writer.run(facts.put, fact(text, user=user), "new")
        (row,) = await say(store, text, user=user)
        await archive(store, [row], user=user)
    pieces = [FileChunk(line=number, heading="", text=text) for number, text in enumerate(texts, 1)]
    await store.writer.run(memory_files.put, MemoryFile(user=UserId(user), path="MEMORY.md", stamp="1"), pieces)


async def results(root: Path, words: list[str], others: list[str]) -> list[object]:
    async with running_store(root) as store:
        await keep(store, "anna", [f"the {words[0]} is mine", f"a {words[1]} is here", "nothing of that", "and that"])
        found: list[object] = []
        for step in ("before", "after"):
            if step == "after":
                await keep(store, "boris", others)
            for kind in ("fact", "chunk"):
                hits = await store.readers.run(passages.matching, kind, ANNA, words, 9)
                found.append((step, kind, [(hit.rowid, hit.bm25) for hit in hits]))
            page = await store.readers.run(
                search_topics, None, words, (), HistoryFilters(user=ANNA), min_cosine=0.5, depth=9
            )
            found.append((step, list(page.by_words)))
        return found


@pytest.mark.parametrize("language", WORDS)
async def test_what_others_keep_changes_neither_order_nor_scores(tmp_path: Path, language: str) -> None:
    words = WORDS[language]
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    rare = await results(tmp_path / "one", words, [f"{words[1]} number {n}" for n in range(30)])
    often = await results(tmp_path / "other", words, [f"{words[0]} number {n}" for n in range(30)])
    assert rare == often
    assert [each[1:] for each in rare[:3]] == [each[1:] for each in rare[3:]]  # type: ignore[index]
