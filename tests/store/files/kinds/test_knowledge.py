"""Knowledge bases in a real store: roles hold in every statement, and the logs give the same bases again."""

import random
from pathlib import Path
from typing import Any

import attrs
import pytest

from klaw.domain.knowledge import (
    Base,
    BaseId,
    BaseRole,
    Document,
    DocumentState,
    Passage,
    Source,
    SourceId,
    SourceKind,
    document_id,
)
from klaw.domain.names import UserId
from klaw.errors import BaseExists, NoSuchBase, NoSuchDocument, NoSuchSource, NotAllowed
from klaw.memory.forget.take_out import sweep_documents
from klaw.store.kinds.knowledge import bases, document_steps, documents, passages, sources
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.store import Store
from tests.support import stored_documents
from tests.support.forgetting import lose_database
from tests.support.stores import running_store

ANNA, BORIS, EVE = UserId("anna"), UserId("boris"), UserId("eve")
AT, LATER = "2026-11-01T10:00:00.000Z", "2026-11-02T10:00:00.000Z"


def base(name: str = "Договоры", **fields: Any) -> Base:
    return Base(
        **{"id": BaseId(f"kb-{name}"), "user": ANNA, "name": name, "created_at": AT, "updated_at": AT, **fields}
    )


def source(of: Base, name: str = "папка", **fields: Any) -> Source:
    own = {"id": SourceId(f"s-{name}"), "user": of.user, "base": of.id, "kind": SourceKind.FOLDER, "name": name}
    return Source(**{**own, "where": f"/srv/{name}", "added_by": of.user, "created_at": AT, "updated_at": AT, **fields})


def document(of: Source, name: str = "аренда.pdf", **fields: Any) -> Document:
    own = {"id": document_id(of.id, name), "base": of.base, "source": of.id, "name": name}
    return Document(**{**own, "state": DocumentState.READ, **fields})


def passage(ordinal: int, text: str) -> Passage:
    start = ordinal * 1_000
    return Passage(
        ordinal=ordinal, text=text, heading="Сроки", first_page=1, start=start, end=start + len(text), tokens=9
    )


async def count(store: Store, query: str, *bindings: Any) -> int:
    return int(await store.readers.run(lambda connection: connection.execute(query, bindings).get))


async def found(store: Store, word: str) -> int:
    query = "SELECT count(*) FROM kb_passages_fts WHERE kb_passages_fts MATCH ?"
    return await count(store, query, f'content: "{word}"')


async def test_roles_decide_what_a_member_sees_and_changes(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        run, read = store.writer.run, store.readers.run
        mine = await run(bases.put, base(members={BORIS: "viewer"}))
        assert await run(bases.put, mine) == mine
        with pytest.raises(BaseExists):
            await run(bases.put, base(id=BaseId("kb-2")))
        assert [(each.base.name, each.role) for each in await read(bases.of_user, BORIS)] == [
            ("Договоры", BaseRole.VIEWER)
        ]
        assert await read(bases.of_user, EVE) == []
        made = source(mine)
        with pytest.raises(NotAllowed):
            await run(sources.put, BORIS, made)
        with pytest.raises(NoSuchBase):
            await run(sources.put, EVE, made)
        await run(bases.share, ANNA, mine.id, LATER, {BORIS: "editor"})
        await run(sources.put, BORIS, made)
        with pytest.raises(NotAllowed):
            await run(bases.change, BORIS, mine.id, LATER, {"name": "моя"})
        with pytest.raises(NotAllowed):
            await run(bases.remove, BORIS, mine.id, LATER)
        with pytest.raises(NotAllowed):
            await run(bases.leave, ANNA, mine.id, LATER)
        assert await read(sources.of_base, EVE, mine.id) == []
        with pytest.raises(NoSuchSource):
            await read(sources.get, EVE, made.id)
        await run(bases.leave, BORIS, mine.id, LATER)
        assert await read(bases.of_user, BORIS) == []
        with pytest.raises(NoSuchSource):
            await run(sources.remove, BORIS, made.id, LATER)
        await run(sources.remove, ANNA, made.id, LATER)
        other = await run(sources.put, ANNA, source(mine, "другая"))
        await run(bases.remove, ANNA, mine.id, LATER)
        assert await read(bases.of_user, ANNA) == []
        with pytest.raises(NoSuchSource):
            await read(sources.get, ANNA, other.id)


async def test_a_document_keeps_the_passages_that_did_not_change_and_loses_the_others(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        run, read = store.writer.run, store.readers.run
        mine = await run(bases.put, base())
        await run(sources.put, ANNA, made := source(mine))
        first = document(made)
        assert await run(
            stored_documents.put, first, [passage(0, "Срок аренды один год."), passage(1, "Залог не нужен.")]
        )
        kept, gone = await read(documents.passages, ANNA, first.id)
        assert (await found(store, "залога"), await found(store, "срок")) == (1, 2)
        again = [passage(0, "Стороны договора."), passage(1, "Срок аренды один год.")]
        assert await run(stored_documents.put, first, again)
        now = await read(documents.passages, ANNA, first.id)
        assert [each.text for each in now] == [each.text for each in again]
        assert now[1].rowid == kept.rowid
        assert gone.rowid not in {each.rowid for each in now}
        assert (await found(store, "залога"), await found(store, "стороны")) == (0, 1)
        assert await run(
            stored_documents.put, attrs.evolve(first, title="Аренда офиса"), again
        )  # in each passage's vector
        assert await found(store, "офис") == 2
        assert not {each.rowid for each in now} & {
            each.rowid for each in await read(documents.passages, ANNA, first.id)
        }
        now = await read(documents.passages, ANNA, first.id)
        assert await read(documents.passages, ANNA, first.id, between=(1_001, 1_002)) == [now[1]]
        for user, count_of in ((ANNA, 1), (EVE, 0)):
            scope = PassageScope(user=user, bases=[mine.id])
            assert len(await read(passages.read, [now[0].rowid], scope)) == count_of
        with pytest.raises(NoSuchDocument):
            await read(documents.get, EVE, first.id)
        assert await run(stored_documents.remove, first.id) == 2
        assert (await found(store, "аренды"), await count(store, "SELECT count(*) FROM kb_passages")) == (0, 0)
        await run(sources.remove, ANNA, made.id, LATER)
        assert not await run(stored_documents.put, first, again)


@pytest.mark.parametrize("seed", range(5))
async def test_steps_that_are_cut_off_anywhere_end_in_exactly_the_passages_of_the_last_reading(
    tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    async with running_store(tmp_path) as store:
        run, read = store.writer.run, store.readers.run
        mine = await run(bases.put, base())
        await run(sources.put, ANNA, made := source(mine))
        doc = document(made)
        assert await run(document_steps.wait, [doc]) == 1
        texts = [f"слово{number % 7} залог {number % 5}" for number in range(30)]
        for reading in range(12):
            texts = [choose.choice(texts) for _ in range(choose.randrange(40))]
            texts = [*texts, f"новый{reading} текст"]
            pieces = [passage(ordinal, text) for ordinal, text in enumerate(texts)]
            had, last = await read(document_steps.same, doc.id, limit=10)
            while last:
                more, last = await read(document_steps.same, doc.id, after=last, limit=10)
                for key, rowids in more.items():
                    had.setdefault(key, []).extend(rowids)
            assert await run(document_steps.begin, doc) == ""
            assert [each.id for each in await read(documents.waiting, made.id, 5)] == [doc.id]
            cut_off = reading < 11 and choose.randrange(len(pieces))
            left = list(document_steps.claimed(had, pieces[:cut_off] if cut_off else pieces))
            while left:
                left = left[await run(document_steps.fill, doc.id, left, 0.0) :]
            if not cut_off:
                while await run(document_steps.trim, doc.id, len(pieces), 0.0):
                    pass
                full = attrs.evolve(doc, passages=len(pieces), digest=stored_documents.digest(pieces))
                assert await run(document_steps.finish, full)
                assert await read(documents.of_source, made.id) == [full]
        now = await read(documents.passages, ANNA, doc.id)
        assert [each.text for each in now] == texts
        assert [each.ordinal for each in now] == list(range(len(texts)))
        assert await count(store, "SELECT count(*) FROM kb_passages") == len(texts)
        for word in {each for text in texts for each in text.split()}:
            assert await found(store, word) == sum(word in text.split() for text in texts)
        await run(
            lambda tx: tx.connection.execute(
                "INSERT INTO kb_passages_fts (kb_passages_fts, rank) VALUES ('integrity-check', 1)"
            )
        )
        while await run(document_steps.remove_some, doc.id, 0.0):
            pass
        assert await count(store, "SELECT count(*) FROM kb_passages") == 0
        assert not await run(document_steps.finish, full)
        assert await run(document_steps.fill, doc.id, [(passage(0, "x"), None)]) == 0


async def test_documents_of_a_removed_source_are_removed_in_steps(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        run = store.writer.run
        mine = await run(bases.put, base())
        stays, gone = source(mine, "a"), source(mine, "b")
        for each in (stays, gone):
            await run(sources.put, ANNA, each)
            for name in ("1.txt", "2.txt"):
                texts = [passage(at, f"Залог {each.name} {at}") for at in range(3)]
                await run(stored_documents.put, document(each, name), texts)
        await run(sources.remove, ANNA, gone.id, LATER)
        assert await sweep_documents(store.readers, store.writer) == 2
        assert await count(store, "SELECT count(*) FROM kb_documents") == 2
        assert (await found(store, "залог"), await found(store, "b")) == (6, 0)


async def test_the_logs_give_the_same_bases(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        mine = await store.writer.run(bases.put, base(description="Всё об аренде", members={BORIS: "editor"}))
        await store.writer.run(sources.put, ANNA, made := source(mine))
        other = await store.writer.run(bases.put, base("Recipes"))
        await store.writer.run(bases.remove, ANNA, other.id, LATER)
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert [each.base for each in await store.readers.run(bases.of_user, BORIS)] == [mine]
        assert await store.readers.run(sources.of_base, BORIS, mine.id) == [made]
