"""Facts with the real embedding model: found by meaning, refused when they say nothing new, embedded later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import attrs
import pytest
import trio

from klaw.actor.clock import SystemClock, iso
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import EmbeddingConfig
from klaw.domain.fact import Fact, FactSource, Origin
from klaw.domain.names import UserId
from klaw.domain.search import FactResult, FileResult
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.worker import Worker
from klaw.memory.facts.facts import Facts
from klaw.memory.search.search import MemorySearch
from klaw.store.kinds import facts as stored_facts
from klaw.store.kinds import memory_files, messages
from klaw.store.kinds.memory_files import FileChunk, MemoryFile
from klaw.store.search import passages
from klaw.store.search.history_search import HistoryFilters
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.stores import START, new, running_store
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import HANG_S, until

LOCAL = UserId("local")


@asynccontextmanager
async def embedding(store: Store, folder: Path) -> AsyncIterator[Embedder]:
    embedder = Embedder(SystemClock(), enabled=True)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        worker = Worker(
            embedder=embedder,
            config=EmbeddingConfig(threads=1),
            folder=folder,
            min_tokens=3,
            writer=store.writer,
            readers=store.readers,
        )
        await supervisor.start(worker.spec())
        await until(lambda: embedder.status.state is EmbedderState.READY)
        yield embedder
        await supervisor.stop("memory.embedder", "test is over")


@pytest.fixture
def saving(tmp_path: Path, embedding_model_dir: Path):
    @asynccontextmanager
    async def opened():
        numbers = count(1)
        async with running_store(tmp_path) as store, embedding(store, embedding_model_dir) as embedder:
            kept = Facts(store.writer, store.readers, embedder, SystemClock(), lambda: f"f{next(numbers)}")

            async def save(text: str, user: UserId = LOCAL) -> tuple[Fact, bool]:
                return await kept.save(user, text, category="other", source=FactSource.TOOL, origin=Origin.ASSISTANT)

            yield store, embedder, save

    return opened


SAME = [
    ("The user has a cat named Murka.", "The user's cat is named Murka."),
    ("Wifi password is tangerine-42", "The password of the wifi is tangerine-42"),
    ("Anna is allergic to peanuts and walnuts", "Anna is allergic to peanuts"),
    ("The user works at Siemens as an engineer", "The user is an engineer and works at Siemens."),
    ("Кошку пользователя зовут Мурка", "Пользователя кошку зовут — Мурка!"),
    ("День рождения мамы 12 мая", "12 мая у мамы день рождения"),
]
OTHER = [
    ("Anna lives in Berlin", "Anna lives in Munich"),
    ("Сестра Аня живёт в Берлине", "Сестра Аня живёт в Мюнхене"),
    ("The user likes tea", "The user does not like tea"),
    ("Не ест орехи", "Ест орехи"),
    ("Wifi password is tangerine-42", "Wifi password is tangerine-43"),
    ("День рождения мамы 12 мая", "День рождения папы 12 мая"),
    ("Anna is allergic to peanuts", "Anna is allergic to peanuts and walnuts"),
    ("The gate code is 4815", "Код от гаража 1623"),
]


async def test_what_says_nothing_new_is_refused_and_the_rest_is_kept(saving) -> None:
    for one, other in SAME + OTHER:
        async with saving() as (store, _, save):
            first, added = await save(one)
            assert added
            again, added = await save(other)
            if (one, other) in SAME:
                assert (again, added) == (first, False), other
            else:
                assert added, other
            assert (await save(other, UserId("anna")))[1]  # another user's facts do not count
            for user in (LOCAL, UserId("anna")):
                for each in await store.readers.run(facts_of, user):
                    await store.writer.run(stored_facts.remove, user, each.id, iso(START))


def facts_of(connection, user):
    from klaw.store.kinds import facts as stored_facts

    return stored_facts.of_user(connection, user)


async def test_facts_and_files_are_found_by_meaning_beside_messages(saving) -> None:
    async with saving() as (store, embedder, save):
        await store.writer.run(messages.append, [new("My sister Anna must not eat any nuts.")])
        await save("У сестры пользователя аллергия на арахис.")
        await save("The user drives an old red tractor.")
        file = MemoryFile(user=LOCAL, path="MEMORY.md", stamp="1")
        piece = FileChunk(
            line=7, heading="Family", text="My sister Anna is allergic to walnuts and gets ill from them."
        )
        await store.writer.run(memory_files.put, file, [piece])
        embedder.nudge()
        with trio.fail_after(HANG_S):
            await embedder.wait_idle()
        search = MemorySearch(store.readers, embedder, SystemClock())
        page = await search.search("Which foods is my sister allergic to?", HistoryFilters(user=LOCAL))
        kinds = [type(each) for each in page.results]
        assert set(kinds[:3]) >= {FactResult, FileResult}
        facts = [each for each in page.results if isinstance(each, FactResult)]
        assert [each.snippet for each in facts] == ["У сестры пользователя аллергия на арахис."]
        nobody = await search.search("Which foods is my sister allergic to?", HistoryFilters(user=UserId("bob")))
        assert nobody.results == ()


async def test_a_changed_text_gets_a_new_vector(saving) -> None:
    async with saving() as (store, embedder, save):
        saved, _ = await save("The user keeps bees.")
        model = vectors_id("multilingual-e5-small")
        before = await embedder.query("bees and honey")
        near = await store.readers.run(passages.nearest, "fact", LOCAL, before, 5)
        at = iso(START + 1)
        await store.writer.run(
            stored_facts.put, attrs.evolve(saved, text="Поезд уходит в девять.", updated_at=at), "existing"
        )
        assert await store.readers.run(passages.nearest, "fact", LOCAL, before, 5) == []
        embedder.nudge()
        with trio.fail_after(HANG_S):
            await embedder.wait_idle()
        (after,) = await store.readers.run(passages.nearest, "fact", LOCAL, before, 5)
        assert after.distance > near[0].distance + 0.05
        assert model


async def test_another_model_embeds_facts_anew(tmp_path: Path, embedding_model_dir: Path) -> None:
    tiny = write_tiny_model(tmp_path / "tiny", embedding_model_dir)
    data = tmp_path / "data"
    data.mkdir()
    async with running_store(data) as store:
        await store.writer.run(stored_facts.put, fact("The user keeps bees."), "new")
        for folder in (embedding_model_dir, tiny):
            async with embedding(store, folder) as embedder:
                embedder.nudge()
                with trio.fail_after(HANG_S):
                    await embedder.wait_idle()
                (near,) = await store.readers.run(
                    passages.nearest, "fact", LOCAL, await embedder.query("The user keeps bees."), 5
                )
                assert near.distance < 0.5


async def test_the_vector_changes_with_the_text(saving) -> None:
    """Of an edited fact, and of one whose change was taken back: found by what it says now."""
    async with saving() as (store, embedder, save):
        saved, _ = await save("Anna lives in Berlin")
        await save("Кошку зовут Мурка")
        numbers = count(100)
        kept = Facts(store.writer, store.readers, embedder, SystemClock(), lambda: f"f{next(numbers)}")

        async def distance(text: str) -> float:
            """Of the fact's stored vector from a text's."""
            near = await store.readers.run(passages.nearest, "fact", LOCAL, await embedder.passage(text), 5)
            found = await store.readers.run(stored_facts.by_rowids, LOCAL, [each.rowid for each in near])
            return next(each.distance for each in near if found[each.rowid].id == saved.id)

        await kept.edit(LOCAL, saved.id, text="Собака пользователя любит снег")
        assert await distance("Собака пользователя любит снег") < 0.001
        await kept.undo(LOCAL, saved.id)
        assert await distance("Anna lives in Berlin") < 0.001
        await kept.remove(LOCAL, saved.id)
        assert len(await store.readers.run(passages.nearest, "fact", LOCAL, await embedder.passage("x"), 5)) == 1
        await kept.undo(LOCAL, saved.id)
        assert await distance("Anna lives in Berlin") < 0.001
