"""A person changes topics while the archivist works on the same chat: nothing dangles and nobody's message is lost."""

import json
import random
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
import trio

from klaw.domain.names import chat_id
from klaw.errors import StorageError, TopicRefused
from klaw.llm.types import Request
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import topic_changes, topics
from klaw.store.search import vectors as stored_vectors
from tests.memory.actors.test_archivist import LATER, SureEmbedder, settled, tell
from tests.support.memory.topic_control import controlling
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, run
from tests.support.scripted import Scripted, TestClock, archiving, lines_of, split_answer
from tests.support.stores import START, running_store
from tests.support.topics import ANNA, flaws_of

MAIN = chat_id(ANNA, "main")


def eager(request: Request) -> str:
    """Divides everything in two, and merges whatever it can."""
    if request.json_schema is not None and request.json_schema.name == "merge":
        return json.dumps({"should_merge": True, "reason": "", "topic": 1, "merged_summary": "едем вместе"})
    count = len(lines_of(request))
    if count < 2:
        return split_answer(("едем один", 1, 1))
    return split_answer(("едем туда", 1, count // 2), ("едем обратно", count // 2 + 1, count))


def placed(connection: apsw.Connection) -> tuple[list[int], list[int]]:
    """Messages that have a topic, once for each that has them, and those that wait for one, at one moment."""
    with snapshot(connection):
        known = topics.of_user(connection, ANNA)
        homes = [rowid for each in known for rowid in topics.members(connection, ANNA, each.id)]
        return homes, [row.rowid for row in topics.unarchived(connection, ANNA, 0, 99)]


@pytest.mark.parametrize("seed", range(4))
async def test_both_at_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        rowids = []
        for session in range(6):
            rowids += await tell(store, *(f"едем {session} {n}" for n in range(5)), at=START + session * 10_000)
        embedder = SureEmbedder("едем")
        async with archiving(store, Scripted(eager), TestClock(LATER), embedder) as (archivist, _):
            control = controlling(store, Scripted(eager), embedder=embedder, changed=archivist.nudge)

            async def act() -> None:
                known = await store.readers.run(topics.of_user, ANNA)
                changes = await store.readers.run(topic_changes.of_user, ANNA)
                match chance.randrange(4):
                    case 0 if len(known) > 1:
                        await control.merge(ANNA, [each.id for each in chance.sample(known, 2)])
                    case 1 if known:
                        await control.split(ANNA, chance.choice(known).id)
                    case 2:
                        await control.rebuild(ANNA, MAIN, None)
                    case _ if changes:
                        await control.undo(ANNA, chance.choice(changes).entry)

            archivist.nudge()
            for _ in range(25):
                for _ in range(chance.randrange(12)):
                    await trio.lowlevel.checkpoint()
                with suppress(TopicRefused, StorageError):
                    await act()
                homes, waiting = await store.readers.run(placed)
                assert sorted([*homes, *waiting]) == rowids
            # What the archivist was refused waits five minutes; a fresh one does not.
        async with archiving(store, Scripted(eager), TestClock(LATER), embedder) as (archivist, _):
            await settled(archivist)
            assert sorted((await store.readers.run(placed))[0]) == rowids
    assert flaws_of(tmp_path / "klaw.db") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before


async def test_the_archivist_makes_dropped_topics_anew_and_its_merge_can_be_taken_back(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await tell(store, "едем раз", "едем два")
        embedder = SureEmbedder("едем")
        async with archiving(store, Scripted(eager), TestClock(LATER), embedder) as (archivist, _):
            await settled(archivist)
            control = controlling(store, Scripted(eager), embedder=embedder, changed=archivist.nudge)
            (merge,) = await store.readers.run(topic_changes.of_user, ANNA)
            assert (merge.op, merge.by) == ("merge", "archivist")
            with pytest.raises(TopicRefused):  # without a number only a person's own change is taken back
                await control.undo(ANNA)
            await control.undo(ANNA, merge.entry)
            await settled(archivist)
            # It does not put together again what a person took apart.
            assert sorted(topic.summary for topic in await store.readers.run(topics.of_user, ANNA)) == [
                "едем обратно",
                "едем туда",
            ]
            await control.rebuild(ANNA, None, None)
            await settled(archivist)
            assert [topic.summary for topic in await store.readers.run(topics.of_user, ANNA)] == ["едем вместе"]
            assert archivist.status.unarchived == 0
