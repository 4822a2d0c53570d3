"""Topics in the store: all or nothing, each message in one of its own user and chat, and rebuilt from the journal."""

import json
import random
import signal
import tempfile
from pathlib import Path

import apsw
import attrs
import pytest
import trio
import trio.lowlevel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.message import MessageKind, Role
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.errors import NoSuchTopic, StorageError, TopicChanged
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.kinds import inventory, messages, topic_edits, topic_vectors, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, ended, reindexing_store, run, talk, unit
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, AT, archive, draft, flaws_of, remove, say

MAIN = chat_id(ANNA, "main")


async def test_topics_have_their_messages_and_say_what_they_span(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "Привет", "hello", "third")
        first, second = await archive(store, [a, c], [b])
        assert (first.messages, first.chars, first.first_rowid, first.last_rowid) == (2, 11, a, c)
        assert (second.id, second.messages) == (first.id + 1, 1)
        assert [message.content for message in await store.readers.run(topics.read, ANNA, first.id)] == [
            "Привет",
            "third",
        ]
        assert [each.id for each in await store.readers.run(topics.of_user, ANNA)] == [first.id, second.id]
        assert await store.readers.run(topics.unarchived, ANNA, 0, 10) == []
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_a_message_that_has_a_topic_refuses_the_whole_change(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "1", "2", "3")
        await archive(store, [a])
        with pytest.raises(TopicChanged):
            await archive(store, [b], [c, a])
        assert [row.rowid for row in await store.readers.run(topics.unarchived, ANNA, 0, 10)] == [b, c]
        assert await store.readers.run(topics.count, ANNA) == 1


async def test_nothing_of_another_user_or_chat_gets_into_a_topic(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (mine,) = await say(store, "mine")
        (other_chat,) = await say(store, "elsewhere", chat="other")
        (other_user,) = await say(store, "secret", user="boris")
        for wrong in (other_chat, other_user, 99_999):
            with pytest.raises(TopicChanged):
                await archive(store, [mine, wrong])
        (topic,) = await archive(store, [mine])
        counts = [await store.readers.run(topics.count, ANNA, chat) for chat in (None, MAIN, ChatId("anna:other"))]
        assert counts == [1, 1, 0]
        (his,) = await archive(store, [other_user], user="boris")
        boris = UserId("boris")
        assert await store.readers.run(topics.get, boris, topic.id) is None
        assert await store.readers.run(topics.read, boris, topic.id) == []
        assert await store.readers.run(topics.topics_of, boris, [mine, other_user]) == {other_user: his.id}
        with pytest.raises(NoSuchTopic):
            await store.writer.run(remove, boris, topic.id, AT)
        with pytest.raises(StorageError):
            await store.writer.run(topic_edits.merge, topic, his, "both", AT)
        assert not await store.writer.run(topic_edits.mark, boris, topic.id, "facts", AT)


@pytest.mark.parametrize(
    "drafts",
    [
        [],
        [draft("x")],
        [draft("x", 1, 1)],
        [draft("x", 1), draft("y", 1)],
        [draft("", 1)],
        [draft(" \n", 1)],
        [draft("я" * (MAX_SUMMARY_CHARS + 1), 1)],
        [draft("lone \ud800", 1)],
    ],
)
async def test_drafts_that_are_none(tmp_path: Path, drafts) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "1")
        with pytest.raises(StorageError):
            await store.writer.run(topic_edits.store, ANNA, MAIN, drafts, AT)
        assert await store.readers.run(topics.count, ANNA) == 0


async def test_commands_and_breaks_belong_to_no_topic(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        made = [
            new("/new", user="anna", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK),
            new("/status", user="anna", kind=MessageKind.COMMAND),
            new("{}", user="anna", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL),
            new("42", user="anna", role=Role.TOOL, kind=MessageKind.TOOL_RESULT),
            new("hi", user="anna"),
        ]
        rowids = [each.message.rowid for each in await store.writer.run(messages.append, made)]
        waiting = await store.readers.run(topics.unarchived, ANNA, 0, 10)
        assert [(row.rowid, row.said) for row in waiting] == [(rowids[2], False), (rowids[3], False), (rowids[4], True)]


async def test_a_merge_moves_the_messages_and_leaves_nothing_of_the_source(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        a, b = await say(store, "first", "second")
        target, source = await archive(store, [a], [b])
        vectors = [TopicVector(each.id, each.updated_at, unit(each.id)) for each in (target, source)]
        assert await store.writer.run(topic_vectors.store, MODEL, vectors) == 2
        merged = await store.writer.run(topic_edits.merge, source, target, "both", AT, vector=unit(7), model_id=MODEL)
        assert (merged.id, merged.messages, merged.summary, merged.consolidated) == (target.id, 2, "both", True)
        assert await store.readers.run(topics.get, ANNA, source.id) is None
        assert await store.readers.run(topics.resolve, ANNA, source.id) == target.id
        assert await store.readers.run(topic_vectors.read, ANNA, source.id) is None
        assert await store.readers.run(topic_vectors.read, ANNA, target.id) == unit(7)
        with pytest.raises(NoSuchTopic):
            await store.writer.run(topic_edits.merge, source, merged, "again", AT)
        with pytest.raises(StorageError):
            await store.writer.run(topic_edits.merge, merged, target, "again", AT)
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_a_merge_that_was_decided_on_something_older_is_refused(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "1", "2", "3")
        one, two, three = await archive(store, [a], [b], [c])
        await store.writer.run(topic_edits.merge, three, two, "2 and 3", AT)
        with pytest.raises(TopicChanged):
            await store.writer.run(topic_edits.merge, two, one, "1 and 2", AT)
        with pytest.raises(StorageError):
            await store.writer.run(topic_edits.merge, one, one, "1 and 1", AT)
        assert await store.readers.run(topics.count, ANNA) == 2


async def test_facts_are_done_only_when_they_are_done_for_both(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b = await say(store, "1", "2")
        one, two = await archive(store, [a], [b])
        assert await store.writer.run(topic_edits.mark, ANNA, one.id, "facts", AT)
        one = await store.readers.run(topics.get, ANNA, one.id)
        assert one.facts
        assert not (await store.writer.run(topic_edits.merge, two, one, "both", AT)).facts


async def test_a_split_puts_topics_in_place_of_one(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "1", "2", "3")
        (whole,) = await archive(store, [a, b])
        with pytest.raises(StorageError):  # b would have no topic
            await store.writer.run(topic_edits.store, ANNA, MAIN, [draft("a", a)], AT, replaces=whole.id)
        made = await store.writer.run(
            topic_edits.store, ANNA, MAIN, [draft("a", a), draft("bc", b, c)], AT, replaces=whole.id
        )
        assert [each.messages for each in made] == [1, 2]
        assert await store.readers.run(topics.get, ANNA, whole.id) is None
        removed = await store.writer.run(remove, ANNA, made[0].id, AT)
        assert removed == made[0]
        assert [row.rowid for row in await store.readers.run(topics.unarchived, ANNA, 0, 9)] == [a]
        (again,) = await archive(store, [a])
        assert again.id > made[1].id  # ids are never used twice


async def test_a_vector_of_another_state_or_model_is_left_out(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b = await say(store, "1", "2")
        one, two = await archive(store, [a], [b])
        stale = TopicVector(one.id, "2020-01-01T00:00:00.000Z", unit(1))
        good = TopicVector(two.id, two.updated_at, unit(2))
        assert await store.writer.run(topic_vectors.store, MODEL, [good]) == 0  # no model yet
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        short = attrs.evolve(good, vector=b"\0" * 4)
        assert await store.writer.run(topic_vectors.store, MODEL, [stale, short, good]) == 1
        near = await store.readers.run(topic_vectors.nearest, ANNA, unit(2), min_cosine=0.6, limit=50)
        assert [each.topic for each in near] == [two.id]
        boris = UserId("boris")
        assert await store.readers.run(topic_vectors.nearest, boris, unit(2), min_cosine=-1, limit=50) == []
        assert await store.readers.run(topic_vectors.unembedded, 0, 9) == [(ANNA, one.id)]
        # Another model: its vectors are not compared with those of the old one, and all are to be made again.
        await stored_vectors.prepare(store.writer, "other", DIMENSION)
        assert await store.readers.run(topic_vectors.nearest, ANNA, unit(2), min_cosine=-1, limit=50) == []
        assert await store.readers.run(topic_vectors.count_unembedded) == 2


# -- whatever is done ------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "store", "store", "merge", "remove", "split", "mark", "restart"]),
        st.integers(0, 1 << 30),
    ),
    max_size=25,
)


class Steps:
    def __init__(self, root: Path) -> None:
        self.root = root

    async def do(self, steps) -> None:
        rest = list(steps)
        while True:
            async with running_store(self.root, checkpoint_bytes=900) as store:
                await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
                while rest:
                    name, seed = rest.pop(0)
                    if name == "restart":
                        break
                    await self._step(store, name, random.Random(seed))
                else:
                    return

    async def _step(self, store: Store, name: str, chance: random.Random) -> None:
        user = chance.choice(["anna", "boris"])
        owner, chat = UserId(user), chance.choice(["main", "дача"])
        known = await store.readers.run(topics.of_user, owner)
        free = [
            row.rowid for row in await store.readers.run(topics.unarchived, owner, 0, 99) if row.chat.endswith(chat)
        ]
        match name:
            case "say":
                await say(store, *(f"слово {n}" for n in range(chance.randrange(1, 6))), user=user, chat=chat)
            case "store" if free:
                chance.shuffle(free)
                cut = chance.randrange(len(free))
                made = await archive(
                    store, *[sorted(part) for part in (free[:cut], free[cut:]) if part], user=user, chat=chat
                )
                vectors = [TopicVector(each.id, each.updated_at, unit(each.id)) for each in made[1:]]
                await store.writer.run(topic_vectors.store, MODEL, vectors)
            case "merge" if len(known) > 1:
                source, target = chance.sample(known, 2)
                if source.chat == target.chat:
                    await store.writer.run(
                        topic_edits.merge, source, target, "both", AT, vector=unit(3), model_id=MODEL
                    )
            case "remove" if known:
                await store.writer.run(remove, owner, chance.choice(known).id, AT)
            case "split" if known:
                old = chance.choice(known)
                rowids = await store.readers.run(topics.members, owner, old.id)
                await store.writer.run(
                    topic_edits.store,
                    owner,
                    old.chat,
                    [draft(f"part {rowid}", rowid) for rowid in rowids],
                    AT,
                    replaces=old.id,
                )
            case "mark" if known:
                await store.writer.run(
                    topic_edits.mark, owner, chance.choice(known).id, chance.choice(["facts", "consolidated"]), AT
                )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_whatever_is_done_the_invariants_hold_and_the_logs_give_the_same(steps) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trio.run(Steps(root).do, steps)
        assert flaws_of(root / "klaw.db") == {}
        before = digests_of(root / "klaw.db")
        report = run(root)
        assert report.swapped
        assert differing(report) == set()
        assert digests_of(root / "klaw.db") == before
        assert flaws_of(root / "klaw.db") == {}
        # A lost database is rebuilt by the start.
        for file in root.glob("klaw.db*"):
            file.unlink()
        trio.run(Steps(root).do, [])
        after = digests_of(root / "klaw.db")
        assert {name: digest for name, digest in after.items() if name != "vectors"} == {
            name: digest for name, digest in before.items() if name != "vectors"
        }


async def test_a_reindex_beside_a_server_that_stores_and_merges_topics(tmp_path: Path) -> None:
    async with reindexing_store(tmp_path) as (store, reindexer):
        assert isinstance(reindexer, Reindexer)
        await talk(store, rounds=20)
        rowids = await say(store, *(f"message {n}" for n in range(40)))
        made = list(await archive(store, *([each] for each in rowids[:30])))
        vectors = [TopicVector(each.id, each.updated_at, unit(each.id)) for each in made]
        await store.writer.run(topic_vectors.store, MODEL, vectors)
        await reindexer.start(ReindexOptions())
        while len(made) > 2 and reindexer.status.state == "running":
            source, target = made.pop(), made[0]
            made[0] = await store.writer.run(topic_edits.merge, source, target, "merged", AT)
            await trio.lowlevel.checkpoint()
        status = await ended(reindexer)
        assert status.report is not None, status
        assert status.report.swapped
        assert differing(status.report) == set()
        await archive(store, rowids[30:])
    assert flaws_of(tmp_path / "klaw.db") == {}


def test_a_line_that_is_no_change_of_topics_is_skipped(tmp_path: Path) -> None:
    async def fill() -> None:
        async with running_store(tmp_path) as store:
            rowids = await say(store, "1", "2")
            await archive(store, rowids)

    trio.run(fill)
    before = digests_of(tmp_path / "klaw.db")
    (log,) = tmp_path.glob("memory/*.jsonl")
    good = json.loads(log.read_text().splitlines()[0])
    bad = [
        {**good, "op": "explode"},
        {**good, "key": "x"},
        {**good, "value": {**good["value"], "topics": [{"id": 1}]}},
        {**good, "value": {**good["value"], "topics": [{**good["value"]["topics"][0], "members": [[1, 10**15]]}]}},
        {**good, "value": {**good["value"], "topics": [{**good["value"]["topics"][0], "members": [[5, 1]]}]}},
    ]
    lines = [json.dumps({**each, "entry": number}) for number, each in enumerate(bad, 90)]
    log.write_text("\n".join([*lines[:2], log.read_text().strip(), *lines[2:]]) + "\n")
    for file in tmp_path.glob("klaw.db*"):
        file.unlink()
    trio.run(Steps(tmp_path).do, [])
    after = digests_of(tmp_path / "klaw.db")
    assert after["topics"] == before["topics"]


def test_ids_of_an_older_schema_belong_to_no_topic(tmp_path: Path) -> None:
    """A database that has topic ids from before there were topics: they are taken back, and nothing else is lost."""
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    for number, script in migrations.scripts().items():
        if number < 7:
            connection.execute(script)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', '6')")
    connection.execute(
        "INSERT INTO sessions (chat_id, user_id, name, last_seq, created_at, updated_at)"
        " VALUES ('anna:main', 'anna', 'main', 1, ?1, ?1)",
        (AT,),
    )
    connection.execute(
        "INSERT INTO messages (id, user_id, channel, chat_id, seq, role, type, content, tokens, created_at, segment,"
        " topic_id) VALUES ('m1', 'anna', 'test', 'anna:main', 1, 'user', 'text', 'hi', 1, ?, 0, 77)",
        (AT,),
    )
    migrations.migrate(connection)
    assert [row.rowid for row in topics.unarchived(connection, ANNA, 0, 9)] == [1]
    assert inventory.faults(connection, TOPIC) == {}
    connection.close()


CHILD = """
import os, signal, sys, trio
from pathlib import Path
from klaw.store.engine.journal import Journal
from klaw.store.kinds import topic_edits, topics
from tests.support.stores import running_store
from tests.support.topics import AT, archive, say, ANNA

root, kind, place = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seen = 0

def here():
    global seen
    seen += 1
    if seen == place:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(function):
    def call(*args, **kwargs):
        here()
        found = function(*args, **kwargs)
        here()
        return found
    return call

async def main():
    async with running_store(root, checkpoint_bytes=700) as store:
        rowids = await say(store, *(f"слово {n}" for n in range(30)))
        made = list(await archive(store, *([each] for each in rowids[:10])))
        print("ready", flush=True)
        for name in ("_put", "end", "count_again"):
            setattr(topics, name, traced(getattr(topics, name)))
        Journal.append = traced(Journal.append)
        Journal.keep = traced(Journal.keep)
        Journal.checkpoint = traced(Journal.checkpoint)
        if kind == "split":
            for start in range(10, 30, 4):
                await archive(store, rowids[start : start + 2], rowids[start + 2 : start + 4])
        else:
            while len(made) > 1:
                made[0] = await store.writer.run(topic_edits.merge, made.pop(), made[0], "both", AT)

trio.run(main)
"""


@pytest.mark.parametrize("kind", ["split", "merge"])
def test_sigkill_in_the_middle_leaves_all_or_nothing(tmp_path: Path, kind: str) -> None:
    """Kills at eight places; after each the next start has whole topics and the same as a rebuild."""
    for place in range(1, 61, 8):
        root = tmp_path / str(place)
        root.mkdir()
        done = trio.run(completed, [*SCRIPT, CHILD, str(root), kind, str(place)])
        assert done.returncode == -signal.SIGKILL, (place, done.stderr.decode()[-2000:])
        assert b"ready" in done.stdout, done.stderr.decode()[-2000:]

        async def look(root: Path = root) -> None:
            async with running_store(root) as store:
                known = await store.readers.run(topics.of_user, ANNA)
                waiting = await store.readers.run(topics.unarchived, ANNA, 0, 99)
                assert sum(topic.messages for topic in known) + len(waiting) == 30
                if kind == "split":  # a chunk has both of its topics or none
                    assert (len(known) - 10) % 2 == 0
                else:
                    assert sum(topic.messages for topic in known) == 10

        trio.run(look)
        assert flaws_of(root / "klaw.db") == {}
        before = digests_of(root / "klaw.db")
        assert differing(run(root)) == set()
        assert digests_of(root / "klaw.db") == before
