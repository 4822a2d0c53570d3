"""Recall over indexes that lack rows or are damaged: it says so, goes on with the rest, and mends the vectors."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from klaw.errors import VectorsDamaged
from klaw.store.engine import vector_model
from klaw.store.search import vectors
from klaw.store.search import vectors as stored_vectors
from tests.support.memory.recalling import Recalling, recalling
from tests.support.waiting import until

SAID = (
    "Anna is allergic to peanuts, so we never bake with them.",
    "Код от калитки на даче — 4815, не забудь его.",
    "The train to Kazan leaves at seven in the morning.",
    "Поезд в Казань отходит в семь часов утра.",
)
QUESTIONS = (("What is Anna allergic to?", 1), ("Какой код от калитки на даче?", 2))

DAMAGES = {
    "a vector cut short": "UPDATE vec_messages_vector_chunks00 SET vectors = substr(vectors, 1, 100)",
    "a chunk without vectors": "DELETE FROM vec_messages_vector_chunks00",
    "a chunk without its map": "UPDATE vec_messages_chunks SET validity = zeroblob(3)",
    "row ids cut short": "UPDATE vec_messages_chunks SET rowids = zeroblob(8)",
    "metadata cut short": "UPDATE vec_messages_metadatachunks00 SET data = zeroblob(1)",
    "no table of vectors": "DROP TABLE vec_messages_vector_chunks00",
    "no table of chunks": "DROP TABLE vec_messages_chunks",
    "no table of metadata": "DROP TABLE vec_messages_metadatachunks00",
}


async def change(here: Recalling, sql: str) -> None:
    """Write into the database behind the store's back."""
    await here.store.database.run(lambda connection: connection.execute(sql).fetchall())


async def check_recall(here: Recalling, *degraded: str, by_vector: bool = True) -> None:
    for question, wanted in QUESTIONS:
        recalled = await here.ask(question)
        assert recalled.degraded == degraded
        assert wanted in [candidate.message.seq for candidate in recalled.kept]
        (found,) = [each for each in recalled.candidates if each.message.seq == wanted]
        assert (found.vector_rank is not None) == by_vector


async def test_a_damaged_vector_table_is_named_and_made_anew(
    tmp_path: Path, embedding_model_dir: Path, log_events: list[dict[str, Any]]
) -> None:
    async with recalling(tmp_path, embedding_model_dir, repair_pause_s=0.0) as here:
        await here.say(SAID)
        for name, damage in DAMAGES.items():
            await check_recall(here)
            await change(here, damage)
            log_events.clear()
            recalled = await here.ask(QUESTIONS[1][0])
            assert recalled.degraded == ("vector_search_failed",), name
            assert 2 in [candidate.message.seq for candidate in recalled.kept], "full text goes on"
            await until(lambda: any(event["event"] == "vectors_damaged" for event in log_events))
            await here.caught_up()
            assert here.embedder.status.embedded == len(SAID), name
        await check_recall(here)
        await here.say(["И ещё одно сообщение, чтобы было куда его положить."])
        await check_recall(here)


@pytest.mark.parametrize("table", ["vec_messages_vector_chunks00", "vec_messages_chunks"])
async def test_a_damaged_page_of_the_vector_table_stops_neither_recall_nor_writing(
    tmp_path: Path, embedding_model_dir: Path, table: str, log_events: list[dict[str, Any]]
) -> None:
    """SQLite cannot drop such a table; everything else goes on, with what is new too."""
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID[:2])
    damage_root(tmp_path / "klaw.db", table)
    async with recalling(tmp_path, embedding_model_dir) as here:
        await check_recall(here, "vector_search_failed", by_vector=False)
        await until(lambda: any(event["event"] == "vectors_not_repaired" for event in log_events))
        await here.say(SAID[2:], embedded=False)
        here.embedder.nudge()
        await until(lambda: any(event["event"] == "vectors_not_stored" for event in log_events))
        recalled = await here.ask("Когда отходит поезд в Казань?")
        assert 4 in [candidate.message.seq for candidate in recalled.kept]
        assert [event for event in log_events if event["event"] == "actor_crashed"] == []


def damage_root(path: Path, table: str) -> None:
    """Overwrite a table's first page."""
    connection = apsw.Connection(str(path))
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
    size = connection.pragma("page_size")
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


async def test_damage_found_while_storing_is_mended_too(tmp_path: Path, embedding_model_dir: Path) -> None:
    """The writer refuses the vectors only: messages are stored, and the process goes on."""
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID[:2])
        await change(here, "DROP TABLE vec_messages_chunks")
        await here.say(SAID[2:])
        assert here.embedder.status.embedded == len(SAID)
        await check_recall(here)


async def test_damage_that_comes_back_is_left_alone(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        for _ in range(2):
            await change(here, DAMAGES["a chunk without vectors"])
            assert (await here.ask(QUESTIONS[0][0])).degraded == ("vector_search_failed",)
            await here.caught_up()
        await check_recall(here, "vector_search_failed", by_vector=False)
        (stored,) = await here.say(["Messages are stored all the same."], embedded=False)
        assert stored.seq == len(SAID) + 1


async def test_the_writer_names_damage_of_one_request_and_keeps_the_rest(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        messages = await here.say(SAID)
        model = await here.store.readers.run(vector_model.current)
        assert model is not None
        await change(here, "DROP TABLE vec_messages_rowids; UPDATE messages SET embedded = 0")
        with pytest.raises(VectorsDamaged):
            await here.store.writer.run(stored_vectors.store, model[0], [(messages[0].rowid, b"\0" * 4 * model[1])])
        await here.store.writer.ping()


async def test_a_message_that_comes_back_from_the_logs_replaces_its_vector(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        await change(here, "UPDATE messages SET embedded = 0 WHERE seq <= 2")
        await here.caught_up()
        await check_recall(here)
        assert await here.store.readers.run(vectors.count_embedded) == len(SAID)


async def test_a_chat_without_vectors_is_found_by_words(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        await change(here, "DELETE FROM vec_messages")
        await check_recall(here, by_vector=False)


async def test_half_of_the_vectors_missing(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        await change(here, "DELETE FROM vec_messages WHERE rowid IN (1, 3)")
        recalled = await here.ask("Anna peanuts, код от калитки")
        ranks = {each.message.seq: (each.vector_rank, each.text_rank) for each in recalled.candidates}
        assert ranks[1][0] is None
        assert ranks[1][1] is not None
        assert None not in ranks[2]


async def test_a_damaged_full_text_index_leaves_the_vectors(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(SAID)
        await change(here, "UPDATE messages_fts_data SET block = zeroblob(40) WHERE id > 10")
        for question, wanted in QUESTIONS:
            recalled = await here.ask(question)
            assert recalled.degraded == ("text_search_failed",)
            assert wanted in [each.message.seq for each in recalled.candidates if each.vector_rank]
