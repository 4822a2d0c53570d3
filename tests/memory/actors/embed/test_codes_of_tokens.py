"""The embedder makes codes of tokens with the vectors, and for those that were embedded without."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import passage
from klaw.memory.recall.token_overlap import max_sim
from klaw.store.kinds import messages as stored_messages
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.memory.actors.embed.test_model_change import TEXTS, caught_up, running
from tests.store.files.forget.test_forgotten_between import Between, forget
from tests.support.stores import new, running_store
from tests.support.tiny_model import write_tiny_model
from tests.support.topics import say


async def stored(store: Store) -> dict[int, bytes]:
    return await store.readers.run(lambda connection: dict(connection.execute("SELECT rowid, codes FROM token_codes")))


async def vectors_of(store: Store) -> dict[int, bytes]:
    return await store.readers.run(
        lambda connection: dict(connection.execute("SELECT rowid, embedding FROM vec_messages"))
    )


async def embed(store: Store, folder: Path, *, tokens: bool) -> None:
    async with running(store, folder, tokens=tokens) as embedder:
        await caught_up(embedder)
        asked = await embedder.read("Какой пароль?")
        assert (asked.tokens is not None) is tokens
        assert asked.vector == await embedder.query("Какой пароль?")


async def test_codes_are_stored_with_the_vectors(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(stored_messages.append, [new(text) for text in TEXTS])
        await embed(store, embedding_model_dir, tokens=True)
        found = await stored(store)
        model = EmbeddingModel.load(embedding_model_dir, threads=1)
        passages = [passage(text, before) for text, before in zip(TEXTS, [None, *TEXTS[:-1]], strict=True)]
        made = [each.codes for each in model.read(passages, kind="passage")]
        (asked,) = model.read([TEXTS[1]], kind="query")
        model.close()
    assert {rowid: len(codes) for rowid, codes in found.items()} == {
        at + 1: len(codes) for at, codes in enumerate(made)
    }
    assert asked.tokens is not None
    scores = max_sim(asked.tokens, [found[rowid] for rowid in sorted(found)])
    assert max(scores, key=lambda score: score or 0) == scores[1], "the same words"


async def test_switched_off_none_are_made_and_switched_on_the_rest_is_without_touching_vectors(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(stored_messages.append, [new(text) for text in TEXTS[:2]])
        await embed(store, embedding_model_dir, tokens=True)
        await store.writer.run(stored_messages.append, [new(text) for text in TEXTS[2:]])
        await embed(store, embedding_model_dir, tokens=False)
        before, codes = await vectors_of(store), await stored(store)
        assert (len(before), sorted(codes)) == (len(TEXTS), [1, 2])
        await embed(store, embedding_model_dir, tokens=True)
        assert await vectors_of(store) == before
        after = await stored(store)
        assert sorted(after) == sorted(before)
        assert {rowid: after[rowid] for rowid in codes} == codes


async def test_a_forgetting_meanwhile_leaves_nobody_without_codes(tmp_path: Path, embedding_model_dir: Path) -> None:
    """What was read before it is not stored, and is made once more."""
    async with running_store(tmp_path / "data") as store:
        rowids = await say(store, *TEXTS)
        await embed(store, embedding_model_dir, tokens=False)
        writer = Between(store.writer, stored_vectors.store, lambda: forget(store, tmp_path / "data", "main#1"))
        here = SimpleNamespace(writer=writer, readers=store.readers)
        async with running(here, embedding_model_dir) as embedder:  # type: ignore[arg-type]
            await caught_up(embedder)
        assert sorted(await stored(store)) == rowids[1:]


async def test_another_model_has_its_own_codes_or_none(tmp_path: Path, embedding_model_dir: Path) -> None:
    tiny = write_tiny_model(tmp_path / "tiny", embedding_model_dir)
    async with running_store(tmp_path) as store:
        await store.writer.run(stored_messages.append, [new(text) for text in TEXTS])
        await embed(store, embedding_model_dir, tokens=True)
        assert len(await stored(store)) == len(TEXTS)
        async with running(store, tiny) as embedder:
            await caught_up(embedder)
        assert len(await vectors_of(store)) == len(TEXTS)
        assert await stored(store) == {}


@pytest.mark.parametrize("secret", ["The key of the safe is called Heron.", "Ключ от сейфа называется Цапля."])
async def test_forgetting_takes_the_codes_too(tmp_path: Path, embedding_model_dir: Path, secret: str) -> None:
    """Also those of the message that was read after it, which are made again."""
    async with running_store(tmp_path / "data") as store:
        await say(store, secret, *TEXTS[:2])
        await embed(store, embedding_model_dir, tokens=True)
        before = await stored(store)
        await forget(store, tmp_path / "data", "main#1")
        assert await stored(store) == {3: before[3]}
        await embed(store, embedding_model_dir, tokens=True)
        after = await stored(store)
        assert sorted(after) == [2, 3]
        assert after[2] != before[2], "it is read without what was before"
