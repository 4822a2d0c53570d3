"""Replaying the recall of stored turns on a real store: the question, the scope and the time are the turn's own."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.actor.clock import SystemClock, iso
from klaw.config.memory import AutoRagConfig, EmbeddingConfig
from klaw.config.schema import EngineConfig
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.turn import TurnRecord
from klaw.memory.embed.embedder import Embedder, OfflineEmbedder
from klaw.memory.embed.passage import vectors_id
from klaw.memory.recall.replay import TurnReplay, replay, totals
from klaw.store.kinds import messages as stored_messages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.whereabouts import newest_recalls as newest
from klaw.store.search.whereabouts import recalls_of as named
from klaw.store.search.whereabouts import stored_recall
from klaw.store.store import Store
from tests.support.stores import START, new, running_store
from tests.support.turns import record

DAY = 86_400
DEFAULT = AutoRagConfig(time_budget_ms=10_000)
WINDOW = {"messages": 1, "first_seq": 5, "last_seq": 5, "left_out": 0, "older_in_segment": True}


def turn_of(asked: Message, *, window: dict[str, Any] | None = None, **recall: Any) -> TurnRecord:
    told = {"guard": "search", "kept": [], "query_words": 2, "candidates": [], **recall}
    receipt = {"version": 2, "pending": [asked.seq], "window": {**WINDOW, **(window or {})}, "recall": told}
    return attrs.evolve(record(asked), receipt=receipt)


async def say(store: Store, *messages: NewMessage) -> list[Message]:
    return [each.message for each in await store.writer.run(stored_messages.append, messages)]


async def again(
    store: Store, turn: TurnRecord, after: AutoRagConfig, before: AutoRagConfig = DEFAULT
) -> TurnReplay | None:
    stored = await store.readers.run(stored_recall, turn)
    return await replay(store.readers, Embedder(SystemClock(), enabled=False), stored, before, after)


async def test_more_places_recall_more_within_the_turns_scope(tmp_path: Path) -> None:
    """Neither the window, nor what came later, nor another segment or chat comes in."""
    async with running_store(tmp_path) as store:
        await say(store, new("код калитки 1", chat="other"), new("код калитки до беседы"))
        await say(
            store,
            new("", kind=MessageKind.SESSION_BREAK, role=Role.SYSTEM),
            new("Код калитки в саду 4711"),
            new("Калитку покрасили в зелёный, код прежний"),
            new("код калитки в окне"),
        )
        (asked,) = await say(store, new("Какой код у калитки?"))
        await say(store, new("код калитки позже"))
        turn = turn_of(asked, scope={"first_seq": 2, "end_seq": 5}, kept=[4])
        done = await again(store, turn, AutoRagConfig(top_k=5, time_budget_ms=10_000), attrs.evolve(DEFAULT, top_k=1))
        assert done is not None
        assert done.kept_then == [4]
        assert (sorted(done.kept(done.before)), sorted(done.kept(done.after))) == ([4], [3, 4])
        assert ([each.message.seq for each in done.gained], done.lost, done.changed) == ([3], [], True)
        before, after = done.tokens
        assert before < after
        assert totals([done]) == {
            "turns": 1,
            "changed": 1,
            "unlike_then": 0,
            "before": {"recalled": 1, "tokens": before, "turns_with_nothing": 0, "turns_cut_short": 0},
            "after": {"recalled": 2, "tokens": after, "turns_with_nothing": 0, "turns_cut_short": 0},
        }
        same = await again(store, turn, DEFAULT)
        assert same is not None
        assert not same.changed
        off = await again(store, turn, attrs.evolve(DEFAULT, enabled=False))
        assert off is not None
        assert [each.message.seq for each in off.lost] == [3, 4]


async def test_yesterday_is_the_day_before_the_turn(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        said = await say(
            store,
            *(new(f"Обедали с Анной, суп номер {day}", at=START + day * DAY) for day in range(4)),
            new("в окне", at=START + 4 * DAY),
        )
        (asked,) = await say(store, new("Какой суп мы ели вчера?", at=START + 4 * DAY))
        turn = attrs.evolve(turn_of(asked), started_at=iso(START + 4 * DAY))
        done = await again(store, turn, attrs.evolve(DEFAULT, top_k=1))
        assert done is not None
        first = said[3].created_at[:10]
        assert [day.isoformat() for day in done.after.days[0]] == [first, first]
        assert sorted(done.kept(done.after)) == [4]


async def test_the_scope_of_receipts_without_one(tmp_path: Path) -> None:
    """Of version 1: from the segment's first message to the window."""
    async with running_store(tmp_path) as store:
        await say(store, new("до беседы"), new("", kind=MessageKind.SESSION_BREAK, role=Role.SYSTEM))
        *_, asked = await say(store, *(new(f"сообщение {number}") for number in range(5)))

        async def scope(turn: TurnRecord) -> tuple[int, int] | None:
            found = (await store.readers.run(stored_recall, turn)).scope
            return (found.first_seq, found.end_seq) if found else None

        assert await scope(turn_of(asked)) == (2, 5)
        assert await scope(turn_of(asked, window={"older_in_segment": False, "left_out": 2})) == (2, 5)
        assert await scope(turn_of(asked, window={"older_in_segment": False})) is None
        assert await scope(turn_of(asked, window={"messages": 0, "first_seq": None, "last_seq": None})) == (
            2,
            asked.seq,
        )
        empty = attrs.evolve(turn_of(asked), receipt={})
        assert await scope(empty) is None
        assert await again(store, empty, DEFAULT) is None


async def test_turns_are_chosen_by_chat_user_and_id(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        turns = []
        for number, user in enumerate(["anna", "boris", "anna"]):
            (asked,) = await say(store, new(f"вопрос {number}", user=user))
            turns.append(turn_of(asked))
            await store.writer.run(stored_messages.append, [], turns[-1])

        async def chosen(*wanted: Any) -> list[str]:
            return [each.turn.id for each in await store.readers.run(newest, *wanted)]

        ids = [turn.id for turn in turns]
        assert await chosen(None, None, 10) == ids
        assert await chosen(None, None, 2) == ids[1:]
        assert await chosen(None, "anna", 10) == [ids[0], ids[2]]
        assert await chosen("boris:main", None, 10) == [ids[1]]
        found = await store.readers.run(named, [ids[2], "nothing", ids[0]])
        assert [(each.turn.id, each.question) for each in found] == [(ids[2], "вопрос 2"), (ids[0], "вопрос 0")]


async def test_vectors_are_used_when_they_are_of_the_model_that_is_here(
    tmp_path: Path, embedding_model_dir: Path
) -> None:
    """Across languages, where no word is shared; otherwise the reason is named and words alone are searched."""
    from klaw.memory.embed.model import EmbeddingModel

    config = EngineConfig(auto_rag=DEFAULT)
    model = await trio.to_thread.run_sync(lambda: EmbeddingModel.load(embedding_model_dir, threads=2))
    async with running_store(tmp_path) as store:
        said = await say(store, new("Моя сестра Анна живёт в Казани и работает врачом"), new("Вчера шёл дождь"))
        (asked,) = await say(store, new("Which city does my sister live in?"))
        turn = turn_of(asked, scope={"first_seq": 1, "end_seq": 3}, window={"first_seq": None})

        async def missing(config: EngineConfig, folder: Path) -> str | None:
            return await OfflineEmbedder(store.readers, config, folder, SystemClock()).prepare()

        assert await missing(config, embedding_model_dir) == "no_vectors"
        await stored_vectors.prepare(store.writer, vectors_id(model.model_id), model.dimension)
        made = model.embed([each.content for each in said], kind="passage").astype("<f4")
        pairs = [(each.rowid, bytes(one.tobytes())) for each, one in zip(said, made, strict=True)]
        await store.writer.run(stored_vectors.store, vectors_id(model.model_id), pairs)
        assert await missing(config, tmp_path / "nothing") == "no_model"
        assert (
            await missing(EngineConfig(embedding=EmbeddingConfig(enabled=False)), embedding_model_dir)
            == "embedding_off"
        )
        embedder = OfflineEmbedder(store.readers, config, embedding_model_dir, SystemClock())
        assert await embedder.prepare() is None
        stored = await store.readers.run(stored_recall, turn)
        patient = attrs.evolve(DEFAULT, relevance_threshold=1.0)
        done = await replay(store.readers, embedder, stored, DEFAULT, patient)
        assert done is not None
        assert done.after.candidates[0].message.seq == 1
        assert done.after.candidates[0].vector_rank == 1
        assert 1 in done.kept(done.after)
        await stored_vectors.prepare(store.writer, "another", model.dimension)
        assert await missing(config, embedding_model_dir) == "other_model"


@pytest.mark.parametrize("text", ["", "…!?", "x" * 20_000, 'NEAR(" * ^ -col: OR', "吃饭了吗 ข้าว 👍"])
async def test_any_question_can_be_replayed(tmp_path: Path, text: str) -> None:
    async with running_store(tmp_path) as store:
        await say(store, *(new(f"сообщение {number}") for number in range(3)))
        (asked,) = await say(store, new(text))
        done = await again(store, turn_of(asked, scope={"first_seq": 1, "end_seq": 4}), attrs.evolve(DEFAULT, top_k=9))
        assert done is not None
        assert done.before.degraded == ()
