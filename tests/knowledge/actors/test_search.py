"""Searching knowledge bases with the real embedding model and a real store: found by meaning and by words in two
languages, never in another user's base, nothing for small talk, and what is left when a part is missing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw
import attrs
import numpy as np
import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import AutoRagConfig, EmbeddingConfig
from klaw.domain import tokens
from klaw.domain.knowledge import Base, BaseId, Document, DocumentState, Passage, Source, SourceId, SourceKind
from klaw.domain.knowledge import document_id as id_of
from klaw.domain.names import UserId
from klaw.domain.search import Decision
from klaw.knowledge.passage_features import PASSAGES
from klaw.knowledge.search import KnowledgeSearch
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.worker import Worker
from klaw.store.engine import vector_model
from klaw.store.engine.connect import prepare_reader
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.knowledge import bases, documents, sources
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.search import passages, vectors
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support import stored_documents
from tests.support.stores import new, running_store
from tests.support.waiting import until

ANNA, BORIS, EVE = UserId("anna"), UserId("boris"), UserId("eve")
AT = "2026-11-01T10:00:00.000Z"
LEASE = (
    "Срок аренды помещения составляет один год и продлевается по соглашению сторон.",
    "Арендатор вносит плату до пятого числа каждого месяца на счёт арендодателя.",
    "Домашних животных держать в помещении запрещено, кроме рыбок в аквариуме.",
)
MANUAL = (
    "To descale the coffee machine, fill the tank with the cleaning liquid and press the menu button for 5 seconds.",
    "The milk container keeps milk cool for four hours; rinse it with warm water afterwards.",
    "Error 42 means that the grinder is blocked. Switch the machine off and remove the beans.",
)
SMALL_TALK = ("thanks", "tell me a joke", "write a haiku about the sea", "спасибо большое!", "как дела?", "понял", "👍")


async def add(store: Store, user: UserId, name: str, texts: tuple[str, ...], *, title: str = "") -> Document:
    """A document in a base of its own."""
    base = await store.writer.run(
        bases.put, Base(id=BaseId(f"b-{name}"), user=user, name=name, created_at=AT, updated_at=AT)
    )
    source = Source(
        id=SourceId(f"s-{name}"),
        user=user,
        base=base.id,
        kind=SourceKind.FILE,
        name=name,
        added_by=user,
        created_at=AT,
        updated_at=AT,
    )
    await store.writer.run(sources.put, user, source)
    made = Document(
        id=id_of(source.id, name), base=base.id, source=source.id, name=name, title=title, state=DocumentState.READ
    )
    cut = [
        Passage(
            ordinal=at,
            text=text,
            first_page=at + 1,
            last_page=at + 1,
            start=100 * at,
            end=100 * at + len(text),
            tokens=tokens.estimate(text),
        )
        for at, text in enumerate(texts)
    ]
    assert await store.writer.run(stored_documents.put, made, cut)
    return attrs.evolve(made, passages=len(cut))


@asynccontextmanager
async def embedding(store: Store, folder: Path) -> AsyncIterator[Embedder]:
    embedder = Embedder(SystemClock(), enabled=True)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        worker = Worker(
            embedder=embedder,
            config=EmbeddingConfig(threads=2),
            folder=folder,
            min_tokens=3,
            writer=store.writer,
            readers=store.readers,
        )
        await supervisor.start(worker.spec())
        await until(lambda: embedder.status.state is EmbedderState.READY)
        yield embedder
        await supervisor.stop("memory.embedder", "test is over")


async def embedded(store: Store, embedder: Embedder) -> None:
    def is_done(connection: apsw.Connection) -> bool:
        return not passages.count_unembedded(connection, vector_model.current_id(connection), ("document",))

    embedder.nudge()
    await until(lambda: store.readers.run(is_done))


def searching(store: Store, embedder: Embedder) -> KnowledgeSearch:
    return KnowledgeSearch(store.readers, embedder, AutoRagConfig(time_budget_ms=60_000), SystemClock())


async def test_questions_in_two_languages_find_their_passages_and_only_in_bases_of_the_user(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    async with running_store(tmp_path) as store, embedding(store, embedding_model_dir) as embedder:
        lease = await add(store, ANNA, "договор_аренды-2024.pdf", LEASE, title="Договор аренды офиса")
        manual = await add(store, ANNA, "manual.pdf", MANUAL)
        hidden = await add(store, EVE, "secret.txt", ("The grinder code of Eve is error 42 and 7788.", *LEASE))
        await embedded(store, embedder)
        search, mine = searching(store, embedder), (lease.base, manual.base)

        async def first(text: str, user: UserId = ANNA, **scope: object) -> str:
            found = await search.search(text, (*mine, hidden.base), user, max_tokens=1_500, **scope)  # type: ignore[arg-type]
            assert not found.degraded
            assert all(each.passage.document != hidden.id for each in found.candidates) or user == EVE
            return found.kept[0].text if found.kept else found.why_nothing

        assert await first("Можно ли жить в офисе с собакой?") == LEASE[2]
        assert await first("когда платить за аренду") == LEASE[1]
        assert await first("How do I clean limescale out of the coffee maker?") == MANUAL[0]
        assert await first("what does error 42 mean") == MANUAL[2]
        assert await first("Сколько часов молоко остаётся холодным?") == MANUAL[1]
        assert await first("what does error 42 mean", within=[lease.id]) != MANUAL[2]
        assert await first("what does error 42 mean", user=BORIS) == "no_passages"
        assert "7788" in await first("what does error 42 mean", user=EVE)
        # The words of a file's name find it too.
        assert (await first("договор 2024 года: срок")) == LEASE[0]
        for each in SMALL_TALK:
            found = await search.search(each, mine, ANNA, max_tokens=1_500)
            assert (found.kept, found.why_nothing in ("no_content", "too_far")) == ((), True), each
        found = await search.search("what does error 42 mean", mine, ANNA, max_tokens=1_500)
        best = found.kept[0]
        assert (best.passage.document, best.passage.name, best.passage.first_page) == (manual.id, "manual.pdf", 3)
        assert (best.passage.start, best.shared_words >= 2, best.decision.value) == (200, True, "near")
        assert set(best.parts) <= set(PASSAGES.parts)
        assert len(found.candidates) == 6
        narrow = await search.search("аренда помещения", mine, ANNA, max_tokens=100)
        assert sum(each.tokens for each in narrow.kept) <= 100
        assert Decision.OVER_TOP_K in {each.decision for each in narrow.candidates}

        await store.writer.run(stored_documents.remove, manual.id)
        gone = await search.search("what does error 42 mean", mine, ANNA, max_tokens=1_500)
        assert all(each.passage.document == lease.id for each in gone.candidates)
        assert not gone.kept
        await store.writer.run(bases.share, ANNA, lease.base, AT, {BORIS: "viewer"})
        assert await first("когда платить за аренду", user=BORIS) == LEASE[1]


async def test_without_a_model_words_are_searched_and_the_result_says_so(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        manual = await add(store, ANNA, "manual.pdf", MANUAL)
        search = searching(store, Embedder(SystemClock(), enabled=True))
        found = await search.search("what does error 42 mean?", [manual.base], ANNA, max_tokens=1_500)
        assert found.kept[0].text == MANUAL[2]
        assert found.degraded == ("embedding_loading",)
        assert (await search.search("what does error 42 mean?", [], ANNA, max_tokens=9)).why_nothing == "no_passages"
        await store.writer.run(lambda tx: tx.connection.execute("DROP TABLE kb_passages_fts_idx"))
        broken = await search.search("what does error 42 mean?", [manual.base], ANNA, max_tokens=1_500)
        assert (broken.kept, broken.degraded) == ((), ("embedding_loading", "text_search_failed"))


async def test_a_search_without_time_says_what_it_left_out(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        manual = await add(store, ANNA, "manual.pdf", MANUAL)
        embedder = Embedder(SystemClock(), enabled=False)
        ticks = iter(range(10_000))
        search = KnowledgeSearch(
            store.readers,
            embedder,
            AutoRagConfig(time_budget_ms=60_000),
            SystemClock(),
            monotonic=lambda: 100.0 * next(ticks),
        )
        found = await search.search("error 42", [manual.base], ANNA, max_tokens=1_500)
        assert (found.kept, "cut_words" in found.degraded) == ((), True)


async def test_passages_are_embedded_behind_messages_and_counted_by_base(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    async with running_store(tmp_path) as store:
        lease = await add(store, ANNA, "lease.pdf", LEASE)
        await stored_vectors.prepare(store.writer, "none yet", 384)
        waiting = documents.count_unembedded
        assert await store.readers.run(waiting, ANNA, lease.base) == len(LEASE)
        assert await store.readers.run(waiting, EVE, lease.base) == 0
        await store.writer.run(messages.append, [new(f"Message {each} about gardens and bees.") for each in range(9)])
        async with embedding(store, embedding_model_dir) as embedder:
            await until(lambda: store.readers.run(lambda c: waiting(c, ANNA, lease.base) < len(LEASE)))
            assert await store.readers.run(vectors.count_embedded) == 9
            await embedded(store, embedder)
            near = await store.readers.run(
                passages.nearest_passages,
                await embedder.query("Can I keep a dog?"),
                PassageScope(user=ANNA, bases=[lease.base]),
                9,
            )
            assert len(near) == len(LEASE)
            there = await store.readers.run(documents.passages, ANNA, lease.id)
            assert {each.rowid for each in near} == {each.rowid for each in there}
            assert near[0].rowid == there[2].rowid


@pytest.mark.parametrize("dimension", [16, 384, 3_072])
async def test_codes_of_eight_bits_keep_the_distance(dimension: int) -> None:
    made = np.random.default_rng(1).normal(size=(2, dimension)) + 1
    one, other = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f4")
    codes = [np.frombuffer(passages._code(each.tobytes()), np.int8).astype(float) for each in (one, other)]
    scale = passages._scale(dimension)
    measured = ((codes[0] - codes[1]) ** 2).sum() / (2 * scale**2)
    assert measured == pytest.approx(1 - float(one @ other), abs=0.02)


async def test_a_rebuilt_database_takes_over_the_vectors_of_passages_that_are_the_same(tmp_path: Path) -> None:
    vector = (np.ones(384) / np.sqrt(384)).astype("<f4").tobytes()
    async with running_store(tmp_path / "live") as live, running_store(tmp_path / "built") as built:
        for store, texts in ((live, LEASE), (built, (LEASE[0], "Другой текст.", LEASE[2]))):
            await stored_vectors.prepare(store.writer, "model", 384)
            await add(store, EVE, "other", MANUAL if store is live else ())
            made = await add(store, ANNA, "lease.pdf", texts)
        waiting = await live.readers.run(passages.unembedded, "model", 9, ("document",))
        found = [passages.PassageVector(each.kind, each.rowid, each.lead + each.text, vector) for each in waiting]
        assert await live.writer.run(stored_vectors.store_of_passages, "model", found) == len(waiting) == 6

        def take_over(tx: Transaction) -> None:
            with closing(apsw.Connection(str(tmp_path / "live" / "klaw.db"))) as old:
                prepare_reader(old)
                row: int | None = 0
                while row is not None:
                    row = passages.copy_documents(old, tx.connection, row, 2)

        await built.writer.run(take_over)
        assert await built.readers.run(documents.count_unembedded, ANNA, made.base) == 1
        near = await built.readers.run(passages.nearest_passages, vector, PassageScope(user=ANNA, bases=[made.base]), 9)
        there = await built.readers.run(documents.passages, ANNA, made.id)
        assert {each.rowid for each in near} == {there[0].rowid, there[2].rowid}
        assert all(each.distance < 0.01 for each in near)
