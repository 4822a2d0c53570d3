"""No vector is left, or stored late, that was made of what is forgotten: not of a message, of what quotes it, of what
was read after it, nor of a topic."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from klaw.domain.names import UserId
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import passage
from klaw.store.engine import meta
from klaw.store.kinds import topic_vectors, topics
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.search import vectors
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.memory.actors.embed.test_model_change import caught_up, running
from tests.store.files.forget.test_forgotten_between import Between, forget
from tests.support.reindexing import DIMENSION, MODEL, unit
from tests.support.stores import running_store
from tests.support.tiny_model import write_tiny_model
from tests.support.topics import ANNA, archive, say

CANARY = "Kanarienvogel8842"
SECRETS = [
    f"The key of the safe is called {CANARY}, said my uncle.",
    f"Ключ от сейфа называется {CANARY}, сказал дядя.",
]
FOLLOWING = "Yes, that is what we are going to do on Friday evening, all of us."


async def stored(store: Store) -> dict[int, bytes]:
    return await store.readers.run(
        lambda connection: dict(connection.execute("SELECT rowid, embedding FROM vec_messages"))
    )


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("late", [True, False])
async def test_what_follows_or_quotes_it_is_embedded_without_it(
    tmp_path: Path, embedding_model_dir: Path, secret: str, late: bool
) -> None:
    """late: it is forgotten while its vectors are being made, else after."""
    folder = write_tiny_model(tmp_path / "tiny", embedding_model_dir)
    async with running_store(tmp_path / "data") as store:
        rowids = await say(store, secret, FOLLOWING, f"He did say it: {secret} And then he went away.")
        writer = Between(store.writer, stored_vectors.store, lambda: forget(store, tmp_path / "data", "main#1"))
        here = SimpleNamespace(writer=writer if late else store.writer, readers=store.readers)
        async with running(here, folder) as embedder:  # type: ignore[arg-type]
            await caught_up(embedder)
            if not late:
                await forget(store, tmp_path / "data", "main#1")
                embedder.nudge()
                await caught_up(embedder)
        quoting = "He did say it: [forgotten] And then he went away."
        model = EmbeddingModel.load(folder, threads=1)
        made = model.embed([passage(FOLLOWING, None), passage(quoting, FOLLOWING)], kind="passage")
        model.close()
        found = await stored(store)
        assert sorted(found) == rowids[1:]
        for rowid, vector in zip(rowids[1:], made, strict=True):
            assert np.allclose(np.frombuffer(found[rowid], "<f4"), vector, atol=1e-5)


async def test_the_writer_refuses_vectors_of_before_a_forgetting_of_the_same_user(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        rowids = await say(store, "one thing", "another thing")
        (strange,) = await say(store, "a thing", user="boris")
        as_of = await store.readers.run(meta.last_entry)
        await forget(store, tmp_path, "main#2")
        pairs = [(rowid, unit(rowid)) for rowid in (*rowids, strange)]
        assert await store.writer.run(stored_vectors.store, MODEL, pairs, as_of=as_of) == 1
        assert sorted(await stored(store)) == [strange]
        assert await store.readers.run(vectors.count_embedded) == 1
        now = await store.readers.run(meta.last_entry)
        assert await store.writer.run(stored_vectors.store, MODEL, pairs, as_of=now) == 1
        assert sorted(await stored(store)) == [rowids[0], strange]


async def test_a_topic_whose_message_quotes_it_gets_another_vector(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await say(store, SECRETS[0], chat="other")
        (row,) = await say(store, f"I said: {SECRETS[0]}")
        (strange,) = await say(store, "a thing", user="boris")
        (topic,) = await archive(store, [row])
        (other,) = await archive(store, [strange], user="boris")
        made = [TopicVector(each.id, each.updated_at, unit(each.id)) for each in (topic, other)]
        as_of = await store.readers.run(meta.last_entry)
        assert await store.writer.run(topic_vectors.store, MODEL, made, as_of=as_of) == 2
        await forget(store, tmp_path, "other#1")
        assert await store.readers.run(topics.get, ANNA, topic.id) is not None
        waiting = await store.readers.run(topic_vectors.unembedded, 0, 10)
        assert waiting == [(ANNA, topic.id)]
        assert await store.writer.run(topic_vectors.store, MODEL, made, as_of=as_of) == 1
        assert await store.readers.run(topic_vectors.unembedded, 0, 10) == [(ANNA, topic.id)]
        assert await store.readers.run(topic_vectors.read, UserId("boris"), other.id) is not None
