"""Topics that a person merges, splits and rebuilds: with a history, taken back, rebuilt from the journal, and with
every archived message in exactly one topic of its own user and chat."""

import random
import tempfile
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.actor.clock import SystemClock
from klaw.domain.forget import MARK
from klaw.domain.names import UserId, chat_id
from klaw.errors import NoSuchChange, TopicChanged, TopicRefused
from klaw.llm.errors import ProviderNetworkError
from klaw.memory.embed.embedder import Embedder
from klaw.memory.forget.forget import NothingToForget
from klaw.store.kinds import inventory, messages, topic_changes, topic_edits, topic_vectors, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.forgetting import forgetter, holding, lose_database
from tests.support.memory.topic_control import controlling
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, ended, reindexing_store, run, unit
from tests.support.scripted import Scripted, split_answer
from tests.support.stores import running_store
from tests.support.topics import ANNA, AT, archive, draft, flaws_of, remove, say
from tests.support.waiting import HANG_S

MAIN = chat_id(ANNA, "main")


async def state_of(store: Store, user: str = "anna") -> dict[int, tuple[str, tuple[int, ...]]]:
    """Each topic's summary and messages."""
    known = await store.readers.run(topics.of_user, UserId(user))
    return {
        each.id: (each.summary, tuple(await store.readers.run(topics.members, each.user, each.id)))
        for each in sorted(known, key=lambda topic: topic.id)
    }


def rebuilt_the_same(root: Path) -> None:
    assert flaws_of(root / "klaw.db") == {}
    before = digests_of(root / "klaw.db")
    assert differing(run(root)) == set()
    assert digests_of(root / "klaw.db") == before


async def test_a_merge_of_several_is_taken_back_and_done_again(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c, d = await say(store, "один", "two", "three", "four")
        one, two, three = await archive(store, [a, d], [b], [c])
        control = controlling(store)
        was = await state_of(store)
        merged = await control.merge(ANNA, [two.id, one.id, three.id])
        assert (merged.id, merged.messages, merged.consolidated) == (two.id, 4, True)
        assert merged.summary == f"topic of {b}; topic of {a}; topic of {c}"
        assert await store.readers.run(topics.resolve, ANNA, three.id) == two.id
        done = await control.undo(ANNA)
        assert await state_of(store) == was
        assert {each.id for each in done.topics} == {one.id, two.id, three.id}
        with pytest.raises(TopicRefused, match="no such change"):
            await control.undo(ANNA)
        again = await control.undo(ANNA, done.entry)  # taking back what took it back
        assert await state_of(store) == {two.id: (merged.summary, (a, b, c, d))}
        with pytest.raises(TopicRefused, match="taken back already"):
            await control.undo(ANNA, done.entry)
        await control.undo(ANNA, again.undone - 1)
        assert await state_of(store) == was
        (topic,) = await archive(store, await say(store, "five"))
        assert topic.id > three.id
        changes = await store.readers.run(topic_changes.of_user, ANNA)
        assert [each.op for each in changes] == ["undo", "undo", "undo", "merge"]
        assert [each.op for each in await store.readers.run(topic_changes.of_user, ANNA, topic=topic.id)] == []
    rebuilt_the_same(tmp_path)
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert len(await store.readers.run(topic_changes.of_user, ANNA)) == 4


async def test_a_later_change_is_taken_back_first(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        rowids = await say(store, "1", "2", "3", "4")
        made = await archive(store, *([rowid] for rowid in rowids))
        control = controlling(store)
        was = await state_of(store)
        await control.merge(ANNA, [made[0].id, made[1].id])
        await control.merge(ANNA, [made[2].id, made[3].id])  # has nothing to do with the first
        await control.merge(ANNA, [made[0].id, made[2].id], summary="все")
        third, second, first = [each.entry for each in await store.readers.run(topic_changes.of_user, ANNA)]
        for entry in (first, second):
            with pytest.raises(TopicRefused, match=f"change {third} came later"):
                await control.undo(ANNA, entry)
        undone = await control.undo(ANNA)
        assert undone.undone == third
        await control.undo(ANNA, first)
        with pytest.raises(TopicRefused, match="came later"):  # its topics are apart now
            await control.undo(ANNA, undone.entry)
        await control.undo(ANNA)
        assert await state_of(store) == was
    rebuilt_the_same(tmp_path)


@pytest.mark.parametrize("at", [["{seq}"], ["#{seq}"], ["main#{seq}"], ["anna:main#{seq}"], ["{id}"]])
async def test_a_split_by_messages_whatever_they_are_called(tmp_path: Path, at: list[str]) -> None:
    async with running_store(tmp_path) as store:
        rowids = await say(store, "поездка", "билеты", "хлеб", "молоко")
        (topic,) = await archive(store, rowids, facts=True)
        third = (await store.readers.run(messages.by_rowids, [rowids[2]]))[0]
        control = controlling(store)
        made = await control.split(ANNA, topic.id, [each.format(seq=third.seq, id=third.id) for each in at])
        assert [each.messages for each in made] == [2, 2]
        assert all(each.facts and each.consolidated for each in made)  # facts are drawn once, and nothing merges again
        assert made[0].summary == f"topic of {rowids[0]} (часть 1 из 2)"
        assert await store.readers.run(topics.get, ANNA, topic.id) is None
        await control.undo(ANNA)
        assert await state_of(store) == {topic.id: (f"topic of {rowids[0]}", tuple(rowids))}
    rebuilt_the_same(tmp_path)


async def test_a_split_by_the_model(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        rowids = await say(store, "Когда едем?", "в субботу", "Купить хлеб")
        (topic,) = await archive(store, rowids)
        control = controlling(store, Scripted(lambda _: split_answer(("Поездка", 1, 2), ("Покупки", 3, 3))))
        made = await control.split(ANNA, topic.id)
        assert [(each.summary, each.messages) for each in made] == [("Поездка", 2), ("Покупки", 1)]
        with pytest.raises(TopicRefused, match="one message only"):
            await control.split(ANNA, made[1].id)


def _down(_request) -> str:
    raise ProviderNetworkError("nobody is there")


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (_down, "no model can divide", "no_model"),
        (lambda _: "I cannot help with that", "gave no answer", "topics_refused"),
        (lambda _: split_answer(("all of it", 1, 3)), "finds one topic only", "topics_refused"),
    ],
)
async def test_a_model_that_cannot_divide_changes_nothing(tmp_path: Path, answer, said: str, code: str) -> None:
    async with running_store(tmp_path) as store:
        rowids = await say(store, "1", "2", "3")
        (topic,) = await archive(store, rowids)
        was = await state_of(store)
        with pytest.raises(TopicRefused, match=said) as caught:
            await controlling(store, Scripted(answer)).split(ANNA, topic.id)
        assert caught.value.code == code
        assert await state_of(store) == was


async def test_bad_input_names_what_is_wrong_and_changes_nothing(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "1", "2", "3")
        (elsewhere,) = await say(store, "там", chat="дача")
        (his,) = await say(store, "secret", user="boris")
        (large,) = await say(store, "я" * 49_999)
        one, two, big = await archive(store, [a, b], [c], [large])
        (other,) = await archive(store, [elsewhere], chat="дача")
        (foreign,) = await archive(store, [his], user="boris")
        control = controlling(store)
        was = await state_of(store), await state_of(store, "boris")
        merges = [
            ([one.id, foreign.id], f"there is no topic {foreign.id}"),
            ([one.id, 4711], "there is no topic 4711"),
            ([one.id, two.id, one.id], f"topic {one.id} is named twice"),
            ([one.id, other.id], f"topic {one.id} is of chat anna:main and topic {other.id} of chat anna:дача"),
            ([one.id, big.id], "together they have 50001 characters"),
        ]
        for ids, said in merges:
            with pytest.raises(TopicRefused, match=said) as caught:
                await control.merge(ANNA, ids)
            assert caught.value.argument == "topics"
        splits = [
            ([str(a)], "is the first of topic"),
            (["main#2", "2"], "is named twice"),
            (["main#99"], "names no message of topic"),
            (["дача#2"], "names no message of topic"),
            (["boris:main#2"], "names no message of topic"),
            (["9" * 30], "names no message of topic"),
        ]
        for at, said in splits:
            with pytest.raises(TopicRefused, match=said) as caught:
                await control.split(ANNA, one.id, at)
            assert caught.value.argument == "at"
        with pytest.raises(TopicRefused, match="there is no topic"):
            await control.split(ANNA, foreign.id, ["main#2"])
        for summary in ("", " \n", "я" * 2_001):
            with pytest.raises(TopicRefused, match="1 to 2000 characters"):
                await control.merge(ANNA, [one.id, two.id], summary)
        assert (await state_of(store), await state_of(store, "boris")) == was
        # Nobody takes back what another user did.
        await control.merge(ANNA, [one.id, two.id])
        (change,) = await store.readers.run(topic_changes.of_user, ANNA)
        boris = UserId("boris")
        assert await store.readers.run(topic_changes.of_user, boris) == []
        for entry in (change.entry, None, 4711):
            with pytest.raises(TopicRefused, match="no such change"):
                await control.undo(boris, entry)
        with pytest.raises(NoSuchChange):
            await store.writer.run(topic_edits.undo, ANNA, 4711, AT)


async def test_a_topic_that_is_being_merged_is_merged_by_one_of_the_two(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        rowids = await say(store, "1", "2", "3")
        one, two, three = await archive(store, *([rowid] for rowid in rowids))
        control = controlling(store)
        refused = []

        async def merge(ids: list[int]) -> None:
            try:
                await control.merge(ANNA, ids)
            except TopicRefused as error:
                refused.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge, [one.id, two.id])
            nursery.start_soon(merge, [three.id, two.id])
        # Whether the second had read the topic before the first ended it depends on the readers' threads.
        assert refused in (["topic_changed"], ["unknown_topic"])
        assert sum(len(members) for _, members in (await state_of(store)).values()) == 3
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_a_message_is_forgotten_while_the_model_divides_its_topic(tmp_path: Path) -> None:
    """Deterministic: the forgetting is over before the model answers."""
    async with running_store(tmp_path) as store:
        secret = "Der Schlüssel liegt unter dem Kanarienvogel8842."
        rowids = await say(store, "eins und nichts weiter", secret, "drei")
        quoting = await say(store, f"Du sagtest: {secret}", "und vier")
        topic, quotes = await archive(store, rowids, quoting)
        asked, forgotten = trio.Event(), trio.Event()

        class Slow(Scripted):
            async def stream(self, request, on_delta):
                asked.set()
                await forgotten.wait()
                return await super().stream(request, on_delta)

        control = controlling(store, Slow(lambda _: split_answer((f"says {secret}", 1, 1), ("rest", 2, 3))))
        codes = []

        async def split(number: int) -> None:
            try:
                await control.split(ANNA, number)
            except TopicRefused as error:
                codes.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(split, topic.id)
            nursery.start_soon(split, quotes.id)  # of this topic nothing is forgotten, but the model has read the text
            await asked.wait()
            tool = forgetter(store, tmp_path)
            proof = await tool.forget(await tool.find("main#2", ANNA), everywhere=True)
            assert proof.held == ()
            forgotten.set()
        assert codes == ["topic_changed", "topic_changed"]
        assert holding(tmp_path, "Kanarienvogel8842") == {}
    rebuilt_the_same(tmp_path)


async def test_topics_of_a_scope_are_dropped_and_taken_back(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        here = await say(store, "1", "2", "3")
        there = await say(store, "там", chat="дача")
        await say(store, "his", user="boris")
        await archive(store, here[:2], here[2:])
        await archive(store, there, chat="дача")
        control = controlling(store)
        was = await state_of(store)
        scope = await control.in_scope(ANNA, MAIN, None)
        assert [topic.messages for topic in scope] == [1, 2]
        (entry,) = await control.rebuild(ANNA, MAIN, None)
        assert [row.rowid for row in await store.readers.run(topics.unarchived, ANNA, 0, 9)] == here
        assert len(await state_of(store)) == 1
        with pytest.raises(TopicRefused) as caught:
            await control.rebuild(ANNA, MAIN, None)
        assert caught.value.code == "nothing_to_rebuild"
        with pytest.raises(TopicRefused, match=r"topics\.enabled"):
            await controlling(store, enabled=False).rebuild(ANNA, None, None)
        # The archivist has made other topics of it meanwhile, with a message that came later.
        (later,) = await say(store, "4")
        made = await archive(store, [*here, later])
        done = await control.undo(ANNA, entry)
        assert done.ended == (made[0].id,)
        assert await state_of(store) == was
        assert [row.rowid for row in await store.readers.run(topics.unarchived, ANNA, 0, 9)] == [later]
        # All chats at once, by time; taken back one by one.
        entries = await control.rebuild(ANNA, None, "2000-01-01T00:00:00.000Z")
        assert len(entries) == 2
        for entry in entries:
            await control.undo(ANNA, entry)
        assert await state_of(store) == was
        with pytest.raises(TopicRefused):
            await control.rebuild(ANNA, None, "2999-01-01T00:00:00.000Z")
    rebuilt_the_same(tmp_path)


async def test_facts_are_not_drawn_again_of_what_was_dropped(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        a, b, c = await say(store, "1", "2", "3")
        await archive(store, [a], facts=True)
        await archive(store, [b])
        control = controlling(store)
        await control.rebuild(ANNA, None, None)
        assert await store.readers.run(topic_changes.drawn, ANNA, [a, b, c]) == {a}
        assert await store.readers.run(topic_changes.drawn, UserId("boris"), [a, b, c]) == set()


async def test_what_is_forgotten_is_in_no_history(tmp_path: Path) -> None:
    text = "Мой код от сейфа Kanarienvogel8842."
    async with running_store(tmp_path) as store:
        first, secret, third = await say(store, "ничего особенного тут нет", text, "и дальше")
        (topic,) = await store.writer.run(
            topic_edits.store, ANNA, MAIN, [draft(f"Про {text}", first, secret, third)], AT
        )
        (safe,) = await archive(store, await say(store, "другое"))
        control = controlling(store)
        parts = await control.split(ANNA, topic.id, ["main#2", "main#3"])
        await control.merge(ANNA, [parts[2].id, safe.id], summary=f"Сказано: {text}")
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("main#2", ANNA)
        assert (
            topic.id in (await tool.preview(wanted, everywhere=True)).reach.topics
        )  # gone since the split, its summary is not
        proof = await tool.forget(wanted, everywhere=True)
        assert proof.held == ()
        assert holding(tmp_path, "Kanarienvogel8842") == {}
        left = await store.readers.run(topic_changes.of_user, ANNA)
        assert [each.op for each in left] == ["merge"]  # the split cannot be taken back any more
        assert all("Kanarien" not in state.summary for each in left for state in each.before)
        with pytest.raises(TopicRefused):
            await control.undo(ANNA, left[0].entry - 1)
        assert MARK in (await store.readers.run(topics.get, ANNA, parts[2].id)).summary
    rebuilt_the_same(tmp_path)


async def test_an_undo_beside_a_reindex(tmp_path: Path) -> None:
    async with reindexing_store(tmp_path) as (store, reindexer):
        rowids = await say(store, *(f"message {n}" for n in range(40)))
        made = await archive(store, *([each] for each in rowids))
        control = controlling(store)
        entries = []
        for place in range(0, 40, 2):
            await control.merge(ANNA, [made[place].id, made[place + 1].id])
            entries.append((await store.readers.run(topic_changes.of_user, ANNA, limit=1))[0].entry)
        await reindexer.start(ReindexOptions())
        while entries and reindexer.status.state == "running":
            await control.undo(ANNA, entries.pop())
            await trio.lowlevel.checkpoint()
        status = await ended(reindexer)
        assert status.report is not None, status
        assert status.report.swapped
        assert differing(status.report) == set()
    assert flaws_of(tmp_path / "klaw.db") == {}


def test_lines_of_before_there_was_a_history_make_none(tmp_path: Path) -> None:
    """So a database that was brought up to this schema and one that is made from the logs are the same."""

    async def fill() -> None:
        async with running_store(tmp_path) as store:
            one, two = await archive(store, *([each] for each in await say(store, "1", "2")))
            await store.writer.run(topic_edits.merge, two, one, "both", AT)
            await store.writer.run(remove, ANNA, one.id, AT)

    trio.run(fill)
    (log,) = tmp_path.glob("memory/*.jsonl")
    log.write_text(log.read_text().replace(',"by":"archivist"', ""))
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    assert connection.execute("SELECT count(*) FROM topic_changes").get == 1
    connection.execute("DELETE FROM topic_changes")
    connection.close()
    rebuilt_the_same(tmp_path)


# -- whatever is done ------------------------------------------------------------------------------------------------

KINDS = ["say", "archive", "archive", "merge", "merge", "split", "rebuild", "undo", "undo", "redo", "forget", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 30)), max_size=22)
WORDS = ["Вчера мы были на даче у озера", "the garden gate was open all night", "Какой сегодня был чудесный день"]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_after_any_sequence_every_archived_message_is_in_one_topic_of_its_own(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_live, Path(folder), steps)
        rebuilt_the_same(Path(folder))


async def _live(root: Path, steps: list[tuple[str, int]]) -> None:
    left = list(steps)
    while True:
        async with running_store(root, checkpoint_bytes=900) as store:
            await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
            while left:
                kind, seed = left.pop(0)
                if kind == "restart":
                    break
                with suppress(TopicRefused, TopicChanged, NothingToForget):
                    await _step(store, root, kind, random.Random(seed))
                await _sound(store)
        if not left:
            return


async def _step(store: Store, root: Path, kind: str, chance: random.Random) -> None:
    user, chat = chance.choice(["anna", "anna", "boris"]), chance.choice(["main", "main", "дача"])
    owner, control = UserId(user), controlling(store)
    known = await store.readers.run(topics.of_user, owner)
    everyone = known + await store.readers.run(topics.of_user, UserId("boris"))
    changes = await store.readers.run(topic_changes.of_user, owner)
    match kind:
        case "say":
            texts = [f"{chance.choice(WORDS)} {n}." for n in range(chance.randrange(1, 5))]
            await say(store, *texts, user=user, chat=chat)
        case "archive":
            free = [row.rowid for row in await store.readers.run(topics.unarchived, owner, 0, 99)]
            own = [
                each.rowid
                for each in await store.readers.run(messages.by_rowids, free)
                if each.chat == chat_id(owner, chat)
            ]
            chance.shuffle(own)
            cut = chance.randrange(len(own) + 1)
            groups = [sorted(part) for part in (own[:cut], own[cut:]) if part]
            if groups:
                made = await archive(store, *groups, user=user, chat=chat, facts=chance.random() < 0.5)
                vectors = [TopicVector(each.id, each.updated_at, unit(each.id)) for each in made[1:]]
                await store.writer.run(topic_vectors.store, MODEL, vectors)
        case "merge" if everyone:
            summary = chance.choice([None, chance.choice(WORDS)])
            await control.merge(
                owner, [each.id for each in chance.choices(everyone, k=chance.randrange(2, 4))], summary
            )
        case "split" if everyone:
            topic = chance.choice(everyone)
            said = await store.readers.run(topics.read, topic.user, topic.id)
            cuts = chance.sample([each.id for each in said], min(len(said), chance.randrange(1, 3)))
            await control.split(owner, topic.id, cuts)
        case "rebuild":
            await control.rebuild(owner, chance.choice([None, chat_id(owner, chat)]), None)
        case "undo":
            await control.undo(owner, None)
        case "redo" if changes:
            await control.undo(owner, chance.choice(changes).entry)
        case "forget":
            tool = forgetter(store, root)
            name = f"topic:{chance.choice(known).id}" if known and chance.random() < 0.4 else f"{chat}#{seq(chance)}"
            await tool.forget(await tool.find(name, owner), everywhere=True)


def seq(chance: random.Random) -> int:
    return chance.randrange(1, 12)


async def _sound(store: Store) -> None:
    assert await store.readers.run(inventory.faults, TOPIC) == {}
    for user in ("anna", "boris"):
        owner = UserId(user)
        homes = [rowid for _, members in (await state_of(store, user)).values() for rowid in members]
        free = [row.rowid for row in await store.readers.run(topics.unarchived, owner, 0, 999)]
        assert len(homes) == len(set(homes))
        assert set(homes).isdisjoint(free)
        said = []
        for chat in ("main", "дача"):
            said += await store.readers.run(messages.after, chat_id(owner, chat), 0, 999)
        assert {each.rowid for each in said if each.content} == {*homes, *free}


async def test_taking_back_does_not_wait_for_an_embedder_for_ever(tmp_path: Path) -> None:
    """Thousands of topics may be there again; who asked is told that they are."""

    class Stuck(Embedder):
        async def passage_in_background(self, text: str) -> bytes:
            await trio.sleep_forever()
            raise AssertionError(text)

    told: list[None] = []
    async with running_store(tmp_path) as store:
        one, two = await archive(store, await say(store, "one"), await say(store, "two"))
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await store.writer.run(topic_edits.merge, two, one, "both", AT, by="person")
        stuck = Stuck(SystemClock(), enabled=False)
        control = controlling(store, embedder=stuck, changed=lambda: told.append(None), embed_s=0.01)
        with trio.fail_after(HANG_S):
            done = await control.undo(ANNA)
        assert [each.id for each in done.topics] == [one.id, two.id]
        assert len(told) == 1
