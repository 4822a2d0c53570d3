"""How well topics find what was said, and how fast: conversations archived by the real archivist.

    python tools/bench_topics.py recall DIR [--models DIR] [--cache FILE]
    python tools/bench_topics.py load [--messages 100000] [--users 20]

``recall``: each conversation (LoCoMo: ids such as ``D3:12`` tell the session) goes through the archivist with a
language model whose answers are written by this program: the true bounds of the sessions, and for a summary the words
that are rarest outside the session, as a careful writer would name them. Printed is the share of the questions of which
one of the first 5 topics holds evidence, without the reranker, and how much of the evidence is in the raw messages of
those topics packed into 2,000 tokens, those with the question's words first. Then how much of it stands in a prompt
with ``topics.inject`` = ``auto`` and no reranker, by the parts that a turn uses: in the topics' 1,000 tokens, in
Auto-RAG's 400, and in both together.

``load``: messages of many users are archived by a model that answers at once: messages a second, and the times of
searches over topics. Vectors are random; what the embedding model takes comes on top and is the same for any search.
"""

import argparse
import json
import math
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import SystemClock, from_iso
from klaw.actor.metrics import Metrics
from klaw.config.memory import AutoRagConfig, TopicsConfig
from klaw.context.assemble import Context, assemble, plan
from klaw.context.inputs import Budget, Settings, Snapshot
from klaw.domain import tokens
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.search import NOTHING
from klaw.llm.types import Request
from klaw.memory.archivist import Archivist
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.memory.recall.query import read_query
from klaw.memory.recall.recall import Recall
from klaw.memory.topics import search as search_module
from klaw.memory.topics.chooser import TopicChooser
from klaw.memory.topics.search import TopicMetrics, TopicSearch
from klaw.store.engine.tokenizer import stem, words
from klaw.store.kinds import messages, topics
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.chat_search import ChatScope
from klaw.store.search.history_search import HistoryFilters
from klaw.store.store import Store
from tests.support.memory.ready_embedder import ReadyEmbedder
from tests.support.scripted import Scripted, TestClock, archiving, client, lines_of, one_topic, split_answer
from tests.support.stores import START, new, running_store, stored
from tools.bench_recall import MODEL, CachedModel, load

TOP = 5
BUDGET = 2_000
SUMMARY_WORDS = 40
_SESSION = re.compile(r"D(\d+):")


class BackgroundEmbedder(ReadyEmbedder):
    """Also makes passages."""

    def __init__(self, model: CachedModel) -> None:
        super().__init__(
            lambda text: Reading(model.embed([text], "query")[0]), model.model.random_cosine, SystemClock()
        )
        self._model = model

    async def passage_in_background(self, text: str) -> bytes:
        return await self._threads.run(lambda: self._model.embed([text], "passage")[0])


class Librarian:
    """Answers the splitter with the true bounds, and the merger with no."""

    def __init__(self, conversation: dict[str, Any]) -> None:
        sessions: dict[str, list[str]] = {}
        self.session_of: dict[str, str] = {}
        for message in conversation["messages"]:
            session = _SESSION.match(message["id"])[1]  # type: ignore[index]
            sessions.setdefault(session, []).append(message["content"])
            self.session_of[" ".join(message["content"].split())[:60]] = session
        everywhere: Counter[str] = Counter()
        inside: dict[str, Counter[str]] = {}
        self.spoken: dict[str, str] = {}
        for session, said in sessions.items():
            inside[session] = Counter()
            for word in words(" ".join(said)):
                inside[session][stem(word)] += 1
                self.spoken.setdefault(stem(word), word)
            everywhere.update(inside[session].keys())
        self.summaries = {
            session: ", ".join(self.spoken[each] for each in _rarest(own, everywhere, len(sessions)))
            for session, own in inside.items()
        }

    def answer(self, request: Request) -> str:
        if request.json_schema is not None and request.json_schema.name == "merge":
            return one_topic(request)
        runs: list[list[Any]] = []
        for number, line in enumerate(lines_of(request), 1):
            session = self.session_of.get(line.split(": ", 1)[1][:60])
            if not runs or (session is not None and session != runs[-1][0]):
                runs.append([session, number, number])
            runs[-1][2] = number
        return split_answer(*((self.summaries.get(each[0], "talk"), each[1], each[2]) for each in runs))


def _rarest(own: Counter[str], everywhere: Counter[str], sessions: int) -> list[str]:
    weight = {each: count * math.log(sessions / everywhere[each]) for each, count in own.items()}
    return sorted(weight, key=lambda each: -weight[each])[:SUMMARY_WORDS]


async def recall(arguments: argparse.Namespace) -> None:
    model = CachedModel(arguments.models / MODEL, arguments.cache)
    found_at: list[float] = []
    single: dict[str, list[float]] = {"vector alone": [], "summary words alone": [], "messages alone": []}
    packed_share: list[float] = []
    in_prompt: dict[str, list[float]] = {"topics": [], "recall": [], "both": []}
    prompt_tokens: list[int] = []
    spent: list[float] = []
    count = 0
    for path in sorted(arguments.folder.glob("locomo-*.json")):
        conversation = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as scratch:
            async with running_store(Path(scratch)) as store:
                await stored_vectors.prepare(store.writer, vectors_id(model.model.model_id), model.model.dimension)
                scope = await load(store, model, conversation)
                embedder = BackgroundEmbedder(model)
                clock = TestClock(from_iso(conversation["messages"][-1]["ts"]) + 1e6)
                scripted = Scripted(Librarian(conversation).answer)
                async with archiving(store, scripted, clock, embedder) as (archivist, _):
                    await archivist.wait_idle()
                count += await store.readers.run(topics.count, LOCAL_USER)
                search = TopicSearch(store.readers, embedder, clock, TopicMetrics(Metrics()))
                prompts = Prompts(store, embedder, clock, scope)
                for question in conversation["questions"]:
                    await _ask(store, search, conversation, question, found_at, packed_share, single, spent)
                    await prompts.ask(conversation, question, in_prompt, prompt_tokens)
    model.save()
    spent.sort()
    print(
        json.dumps(
            {
                "topics": count,
                "questions": len(found_at),
                f"evidence in the top {TOP}": round(100 * statistics.mean(found_at), 1),
                **{name: round(100 * statistics.mean(values), 1) for name, values in single.items()},
                f"evidence in {BUDGET} tokens": round(100 * statistics.mean(packed_share), 1),
                **{
                    f"evidence in the prompt, {name}": round(100 * statistics.mean(v), 1)
                    for name, v in in_prompt.items()
                },
                "tokens of topics in the prompt, mean": round(statistics.mean(prompt_tokens)),
                "search_p95_ms": round(1000 * spent[int(len(spent) * 0.95)], 1),
            },
            indent=1,
        )
    )


async def _ask(
    store: Store,
    search: TopicSearch,
    conversation: dict[str, Any],
    question: dict[str, Any],
    found_at: list[float],
    packed_share: list[float],
    single: dict[str, list[float]],
    spent: list[float],
) -> None:
    evidence = {f"{conversation['name']}/{each}" for each in question["evidence"]}
    if not evidence:
        return
    begin = time.perf_counter()
    page = await search.search(question["query"], HistoryFilters(user=LOCAL_USER))
    spent.append(time.perf_counter() - begin)
    members = {hit.topic.id: await store.readers.run(topics.read, LOCAL_USER, hit.topic.id) for hit in page.hits}

    def holds(hits: Sequence[Any]) -> float:
        return float(any(message.id in evidence for hit in hits[:TOP] for message in members[hit.topic.id]))

    found_at.append(holds(page.hits))
    for name, value in (
        ("vector alone", lambda hit: -hit.cosine if hit.cosine is not None else math.inf),
        ("summary words alone", lambda hit: hit.words_rank or math.inf),
        ("messages alone", lambda hit: hit.message_rank or math.inf),
    ):
        ranked = sorted((hit for hit in page.hits if value(hit) < math.inf), key=value)
        single[name].append(holds(ranked))
    own = [message for hit in page.hits[:TOP] for message in members[hit.topic.id]]
    packed = {message.id for message in _pack(own, question["query"])}
    packed_share.append(len(evidence & packed) / len(evidence))


def _pack(own: Sequence[Any], query: str) -> list[Any]:
    """Messages with the question's words first, each with the one after it, then the rest in order of the topics."""
    wanted = set(read_query(query, now=0, latest=None).stems)
    stems = [{stem(word) for word in words(message.content)} for message in own]
    everywhere = Counter(each for some in stems for each in some)
    worth = [sum(math.log(1 + len(own) / everywhere[each]) for each in wanted & some) for some in stems]
    shared = [value + 0.5 * (worth[at - 1] if at else 0) for at, value in enumerate(worth)]
    left, kept = BUDGET, []
    for at in sorted(range(len(own)), key=lambda at: (-shared[at], at)):
        cost = tokens.estimate(own[at].content) + tokens.PER_MESSAGE
        if cost <= left:
            left -= cost
            kept.append(own[at])
    return kept


# -- in the prompt -----------------------------------------------------------------------------------------------------


class Prompts:
    """Puts prompts together as turns do, with an empty window: all that was said is long ago."""

    def __init__(self, store: Store, embedder: Embedder, clock: TestClock, scope: ChatScope) -> None:
        config = AutoRagConfig(time_budget_ms=60_000)
        metrics = TopicMetrics(Metrics())
        self._recall = Recall(store.readers, embedder, config, clock)
        self._chooser = TopicChooser(
            search=TopicSearch(store.readers, embedder, clock, metrics),
            asker=None,
            threshold=config.relevance_threshold,
            time_budget_s=60.0,
        )
        self._scope = scope
        self._snapshot = Snapshot(
            system_prompt="",
            core_memory="",
            history=(),
            has_older=True,
            pending=(stored(scope.end_seq),),
            tools_tokens=0,
            budget=Budget(context_tokens=32_768, reply_reserve_tokens=1024),
            settings=Settings(
                sliding_window=20,
                recall_enabled=True,
                recall_max_tokens=config.max_tokens,
                topics_max_tokens=TopicsConfig().max_tokens,
            ),
        )

    async def ask(
        self,
        conversation: dict[str, Any],
        question: dict[str, Any],
        shares: dict[str, list[float]],
        topic_tokens: list[int],
    ) -> None:
        """Add the shares of a question's evidence."""
        evidence = {f"{conversation['name']}/{each}" for each in question["evidence"]}
        if not evidence:
            return
        planned = plan(self._snapshot)
        recalled = await self._recall.search(question["query"], self._scope, planned.recall_tokens)
        chosen = await self._chooser.choose(LOCAL_USER, question["query"], recalled.vector, client().meter())
        of_topics = assemble(planned, NOTHING, chosen)
        for name, context in (
            ("topics", of_topics),
            ("recall", assemble(planned, recalled)),
            ("both", assemble(planned, recalled, chosen)),
        ):
            shares[name].append(len(evidence & _told(context)) / len(evidence))
        topic_tokens.append(of_topics.topics.tokens)


def _told(context: Context) -> set[str]:
    """Ids of the messages that a prompt shows, whole or in part."""
    told = {each.message.id for each in context.recalled.kept}
    for each in context.topics.shown:
        told |= {each.candidate.messages[place].id for place in each.kept}
    return told


# -- load --------------------------------------------------------------------------------------------------------------

_DIMENSION = 384


class RandomEmbedder(Embedder):
    """Answers at once with vectors around a few themes."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), enabled=True)
        self.enter(EmbedderState.READY)
        self._chance = np.random.default_rng(1)
        self._themes = self._chance.normal(size=(200, _DIMENSION))

    def _make(self) -> bytes:
        made = self._themes[self._chance.integers(200)] + 0.7 * self._chance.normal(size=_DIMENSION)
        return bytes((made / np.linalg.norm(made)).astype("<f4").tobytes())

    async def read(self, text: str) -> Reading:  # noqa: ARG002 - the embedder's method
        await trio.lowlevel.checkpoint()
        return Reading(self._make())

    async def passage_in_background(self, text: str) -> bytes:  # noqa: ARG002 - likewise
        await trio.lowlevel.checkpoint()
        return self._make()


def _theme_answer(request: Request) -> str:
    if request.json_schema is not None and request.json_schema.name == "merge":
        return one_topic(request)
    lines = lines_of(request)
    step = 20
    return split_answer(
        *((lines[at].split(": ", 1)[1][:150], at + 1, min(at + step, len(lines))) for at in range(0, len(lines), step))
    )


async def load_test(arguments: argparse.Namespace) -> None:
    chance = random.Random(1)
    vocabulary = [f"{chance.choice(['слово', 'word', 'дача', 'trip', 'gate'])}{n}" for n in range(20_000)]
    users = [f"user{n}" for n in range(arguments.users)]
    with tempfile.TemporaryDirectory() as scratch:
        async with running_store(Path(scratch)) as store:
            embedder = RandomEmbedder()
            await stored_vectors.prepare(store.writer, "bench", _DIMENSION)
            at = START
            made: list[Any] = []
            for number in range(arguments.messages):
                at += 20 if number % 4000 else 5_000
                text = " ".join(chance.choices(vocabulary, k=18))
                made.append(new(text, user=users[number % len(users)], chat="main", at=at))
                if len(made) == 500:
                    appended = await store.writer.run(messages.append, made)
                    vectors = [(each.message.rowid, embedder._make()) for each in appended]
                    await store.writer.run(stored_vectors.store, "bench", vectors)
                    made = []
            while await store.writer.run(stored_vectors.encode):
                pass
            if made:
                await store.writer.run(messages.append, made)
            begin = time.perf_counter()
            config = TopicsConfig(enabled=True)
            async with archiving(store, Scripted(_theme_answer), TestClock(at + 1e6), embedder, config=config) as (
                archivist,
                metrics,
            ):
                assert isinstance(archivist, Archivist)
                await archivist.wait_idle()
                seconds = time.perf_counter() - begin
                search = TopicSearch(store.readers, embedder, SystemClock(), metrics)
                spent, worked = [], []
                for number in range(400):
                    query = " ".join(chance.choices(vocabulary, k=6))
                    before, cpu = time.perf_counter(), time.process_time()
                    await search.search(query, HistoryFilters(user=UserId(users[number % len(users)])))
                    spent.append(time.perf_counter() - before)
                    worked.append(time.process_time() - cpu)
            spent.sort()
            worked.sort()
            count = sum([await store.readers.run(topics.count, UserId(user)) for user in users])
            result = {
                "topics": count,
                "left": await store.readers.run(topics.count_unarchived),
                "messages_a_second": round(arguments.messages / seconds),
                "search_p50_ms": round(1000 * spent[len(spent) // 2], 1),
                "search_p95_ms": round(1000 * spent[int(len(spent) * 0.95)], 1),
                "search_cpu_p50_ms": round(1000 * worked[len(worked) // 2], 1),
                "search_cpu_p95_ms": round(1000 * worked[int(len(worked) * 0.95)], 1),
            }
            print(json.dumps(result, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    of_recall = parts.add_parser("recall")
    of_recall.add_argument("folder", type=Path)
    of_recall.add_argument("--models", type=Path, default=Path(".models"))
    of_recall.add_argument("--cache", type=Path)
    of_recall.add_argument("--set", action="append", default=[], help="NAME=VALUE of a constant of the ranking")
    of_recall.set_defaults(run=recall)
    of_load = parts.add_parser("load")
    of_load.add_argument("--messages", type=int, default=100_000)
    of_load.add_argument("--users", type=int, default=20)
    of_load.set_defaults(run=load_test)
    arguments = parser.parse_args()
    for setting in getattr(arguments, "set", []):
        name, _, value = setting.partition("=")
        setattr(search_module, name, type(getattr(search_module, name, 1))(value))
    trio.run(arguments.run, arguments)


if __name__ == "__main__":
    main()
