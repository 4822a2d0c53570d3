"""How well recall finds what was said: conversations with questions and the messages that answer them.

    python tools/bench_recall.py DIR... [--smalltalk FILE] [--json] [--report FILE] [--without STEP...]
                                 [--apart FILE] [--models DIR] [--cache FILE] [--long] [--expand]

Loads each conversation through the real store into one chat as one segment, embeds it with the real model,
and runs each question through the real pipeline with an empty window. One JSON file per conversation:
``{"name", "messages": [{"id", "role", "ts", "content"}], "questions": [{"query", "evidence": [ids], "category"}]}``.

Printed for vectors alone, full text alone and the whole: the share of the questions' evidence among the first 3 and 10
results and in what is packed into 400 and 800 tokens (topK not limiting), averaged over questions; any is the share of
questions with at least one piece, text the share of the evidence's passages (``long_turns``) that what is packed shows,
and n how many messages are packed; silence is the share of small-talk queries that recall nothing. Embeddings are
cached by model and content. ``--without`` leaves out steps of the pipeline, to see what each of them brings;
``--report`` writes the table as Markdown. ``--long`` makes long answers beside short messages (``long_turns``).
``--expand`` adds the words of ``word_classes.json`` to questions, as a model might; of a class are those that have one.
"""

import argparse
import hashlib
import json
import pickle
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.clock import SystemClock, from_iso, iso
from klaw.config.memory import AutoRagConfig
from klaw.config.paths import Paths
from klaw.convert import JOURNAL
from klaw.domain import tokens
from klaw.domain.message import SESSION_PAUSE_S, Message, MessageKind, NewMessage, Role, is_embeddable
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.search import Candidate, Decision
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import PassageText, passage, vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.memory.recall import excerpt as pack_module
from klaw.memory.recall import message_features
from klaw.memory.recall import ranker as ranker_module
from klaw.memory.recall import recall as recall_module
from klaw.memory.recall.excerpt import line_tokens, pack
from klaw.memory.recall.expansion import MAX_WORDS as MAX_ADDED
from klaw.memory.recall.gate import Gate
from klaw.memory.recall.query import MAX_WORDS, content_words
from klaw.memory.recall.ranker import Ranker
from klaw.memory.recall.recall import DEPTH, Recall
from klaw.store.engine.tokenizer import stem
from klaw.store.kinds import messages as stored_messages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.chat_search import ChatScope, Depth, read_messages, search_chat
from klaw.store.store import Store
from tests.support.memory.ready_embedder import ReadyEmbedder
from tests.support.stores import running_store
from tools.long_turns import is_shown, lengthen, with_passages

MODEL = "multilingual-e5-small"
BUDGETS = (400, 800)
CONTEXT = True
TOKENS = True
MIN_TOKENS = AutoRagConfig().min_message_tokens
CLASSES = json.loads(Path(__file__).with_name("word_classes.json").read_text(encoding="utf-8"))
ADDED = {stem(name): words.split()[:MAX_ADDED] for names, words in CLASSES.items() for name in names.split()}
"""What a scripted model adds to a question that has such a word."""


class CachedModel:
    """The embedding model with a cache on disk."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self.model = EmbeddingModel.load(folder, threads=2)
        self._path = cache
        self._known: dict[str, Reading] = {}
        if cache is not None and cache.exists():
            self._known = pickle.loads(cache.read_bytes())

    def read(self, texts: Sequence[str] | Sequence[PassageText], kind: Any) -> list[Reading]:
        made_by = f"{self.model.model_id}\0{self.model.coder.id if self.model.coder else None}\0{kind}"
        keys = [hashlib.sha256(f"{made_by}\0{text}".encode()).hexdigest() for text in texts]
        missing = [(key, text) for key, text in zip(keys, texts, strict=True) if key not in self._known]
        for start in range(0, len(missing), 64):
            part = missing[start : start + 64]
            readings = self.model.read([text for _, text in part], kind=kind)
            self._known.update({key: reading for (key, _), reading in zip(part, readings, strict=True)})
        return [self._known[key] for key in keys]

    def embed(self, texts: Sequence[str] | Sequence[PassageText], kind: Any) -> list[bytes]:
        return [reading.vector for reading in self.read(texts, kind)]

    def save(self) -> None:
        if self._path is not None:
            self._path.write_bytes(pickle.dumps(self._known))


@attrs.define
class Scores:
    """Sums over the questions of one set and method."""

    at: dict[str, list[float]] = attrs.Factory(lambda: defaultdict(list))

    def add(self, ranked: Sequence[str], evidence: set[str]) -> None:
        for count in (3, 10):
            self.at[f"@{count}"].append(len(evidence & set(ranked[:count])) / len(evidence))

    def add_packed(self, budget: int, packed: Sequence[Candidate], question: dict[str, Any]) -> None:
        """Count the evidence that is packed into so many tokens, and what of its own text stands there."""
        evidence, passages = set(question["evidence"]), question["passages"]
        texts = dict(zip(ids_of(packed), packed, strict=True))
        found = len(evidence & texts.keys())
        shown = [is_shown(texts[own].message.content, texts[own].text, text) for own, text in passages if own in texts]
        self.at[f"@{budget}"].append(found / len(evidence))
        self.at[f"any@{budget}"].append(float(found > 0))
        self.at[f"text@{budget}"].append(sum(shown) / len(passages))
        self.at[f"n@{budget}"].append(len(texts) / 100)

    def summary(self) -> dict[str, float]:
        return {name: round(100 * statistics.mean(values), 1) for name, values in self.at.items()}


def conversations(folders: Sequence[Path], *, long: bool = False) -> Iterator[dict[str, Any]]:
    """All conversations, with the set that each is of, and the ``source`` that it is or is made of."""
    paths = sorted(path for folder in folders for path in folder.glob("*.json"))
    read = {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    for path, each in read.items():
        made = lengthen(each, list(read.values())) if long else with_passages(each)
        yield {**made, "set": path.stem.split("-")[0], "source": each["name"]}


def ready_embedder(model: CachedModel) -> ReadyEmbedder:
    """The model behind the embedder's handle."""
    return ReadyEmbedder(lambda text: model.read([text], "query")[0], model.model.random_cosine, SystemClock())


async def load(store: Store, model: CachedModel, conversation: dict[str, Any]) -> ChatScope:
    """Put a conversation with its vectors into one chat."""
    chat = chat_id(LOCAL_USER, conversation["name"].replace("_", "-"))
    made = [
        NewMessage(
            id=f"{conversation['name']}/{message['id']}",
            chat=chat,
            user=LOCAL_USER,
            channel="bench",
            role=Role(message["role"]),
            type=MessageKind.TEXT,
            content=message["content"],
            tokens=tokens.estimate(message["content"]),
            created_at=iso(from_iso(message["ts"])),
        )
        for message in conversation["messages"]
    ]
    appended = await store.writer.run(stored_messages.append, made)
    long_enough = [
        a.message for a in appended if is_embeddable(a.message.role, a.message.type, a.message.tokens, MIN_TOKENS)
    ]
    before = {message.rowid: _previous(message, earlier) for earlier, message in pairwise(a.message for a in appended)}
    passages = [passage(message.content, before.get(message.rowid) if CONTEXT else None) for message in long_enough]
    readings = dict(zip((message.rowid for message in long_enough), model.read(passages, "passage"), strict=True))
    rows = [(rowid, reading.vector) for rowid, reading in readings.items()]
    codes = {rowid: reading.codes for rowid, reading in readings.items()} if TOKENS else None
    await store.writer.run(stored_vectors.store, vectors_id(model.model.model_id), rows, codes=codes)
    return ChatScope(chat=chat, first_seq=1, end_seq=len(made) + 1)


def _previous(message: Message, earlier: Message) -> str | None:
    """What the embedder takes for the context of a message."""
    pause = from_iso(message.created_at) - from_iso(earlier.created_at)
    return earlier.content if pause <= SESSION_PAUSE_S else None


def single_list(messages: Sequence[Message]) -> list[Candidate]:
    """One list alone as candidates that all passed."""
    return [
        Candidate(
            message=message,
            vector_rank=None,
            distance=None,
            text_rank=None,
            bm25=None,
            score=0.0,
            decision=Decision.NEAR,
            text=message.content,
            tokens=line_tokens(message.content),
        )
        for message in messages
    ]


def packed_alone(candidates: Sequence[Candidate], wanted: Collection[str], budget: int) -> list[Candidate]:
    return passed_of(pack(candidates, wanted, top_k=1000, max_tokens=budget))


WITHOUT: dict[str, list[tuple[Any, str, Any]]] = {
    "shares": [(message_features, "FROM_PREVIOUS", 0.0), (message_features, "FROM_NEXT", 0.0)],
    "tokens": [(sys.modules[__name__], "TOKENS", False)],
    "context": [(sys.modules[__name__], "CONTEXT", False)],
    "depth": [(recall_module, "DEPTH", Depth(vectors=20, words=20, spreading=20))],
    "excerpts": [(pack_module, "MIN_SHARE_TOKENS", BUDGETS[0] // 2)],
    "repeats": [(recall_module, "prefer_newer", lambda candidates: candidates)],
    "gate": [(Gate, "decide", lambda _gate, candidates: [Decision.RANKED] * len(candidates))],
}
"""Steps that can be left out, as what has to be set to which value for that."""


def ids_of(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.message.id.split("/", 1)[1] for candidate in candidates]


def passed_of(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.passed]


def _ranked(candidate: Candidate) -> bool:
    """Whether the gate let it pass; packing does not matter for @3 and @10."""
    return candidate.decision not in (Decision.NO_CONTENT, Decision.TOO_FAR, Decision.REPEATED)


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    model = CachedModel(arguments.models / MODEL, arguments.cache)
    sets: dict[str, dict[str, Scores]] = defaultdict(lambda: defaultdict(Scores))
    silence: dict[str, list[float]] = defaultdict(list)
    spent: list[float] = []
    small = json.loads(arguments.smalltalk.read_text(encoding="utf-8"))["queries"] if arguments.smalltalk else []
    with tempfile.TemporaryDirectory() as scratch:
        async with running_store(Path(scratch)) as store:
            await stored_vectors.prepare(store.writer, vectors_id(model.model.model_id), model.model.dimension)
            config = AutoRagConfig(top_k=100, max_tokens=max(BUDGETS), time_budget_ms=60_000)
            recall = Recall(store.readers, ready_embedder(model), config, SystemClock())
            apart = json.loads(arguments.apart.read_text(encoding="utf-8")) if arguments.apart else {}
            for each in conversations(arguments.folders, long=arguments.long):
                if apart:
                    ranker = JOURNAL.read(apart[each["source"]], Ranker)
                    ranker_module.built_in = lambda _package, ranker=ranker: ranker  # type: ignore[assignment]
                scope = await load(store, model, each)
                name = each["set"]
                for question in each["questions"]:
                    await ask(store, model, recall, scope, question, sets, name, spent, expand=arguments.expand)
                for query in small:
                    silence[name].append(float(not (await recall.search(query, scope)).kept))
    model.save()
    milliseconds = sorted(1000 * each for each in spent)
    return {
        "sets": {name: {key: scores.summary() for key, scores in methods.items()} for name, methods in sets.items()},
        "silence": {name: round(100 * statistics.mean(values), 1) for name, values in silence.items()},
        "search_p50_ms": round(statistics.median(milliseconds), 2),
        "search_p95_ms": round(milliseconds[int(len(milliseconds) * 0.95)], 2),
    }


async def ask(
    store: Store,
    model: CachedModel,
    recall: Recall,
    scope: ChatScope,
    question: dict[str, Any],
    sets: dict[str, dict[str, Scores]],
    name: str,
    spent: list[float],
    *,
    expand: bool,
) -> None:
    """Score one question by each method."""
    evidence = set(question["evidence"])
    if not evidence:
        return
    asked = content_words(question["query"], MAX_WORDS)
    wanted = dict.fromkeys(map(stem, asked))
    vector = model.embed([question["query"]], "query")[0]
    added = [word for form in wanted for word in ADDED.get(form, ()) if stem(word) not in wanted][:MAX_ADDED]
    both = [
        sets[name],
        sets[f"{name} {question.get('category', '')}"],
        *([sets[f"{name} of a class"]] if added else []),
    ]
    for budget in BUDGETS:
        begin = time.perf_counter()
        found = await recall.search(question["query"], scope, budget, added=added if expand else None)
        spent.append(time.perf_counter() - begin)
        for each in both:
            each["whole"].add_packed(budget, passed_of(found.candidates), question)
    for each in both:
        each["whole"].add(ids_of(list(filter(_ranked, found.candidates))), evidence)
    lists = await store.readers.run(search_chat, vector, asked, (), scope, DEPTH, 60.0)
    for method, rowids in (
        ("vectors", [each.rowid for each in lists.neighbours]),
        ("text", [each.rowid for each in lists.hits]),
    ):
        alone = single_list(await store.readers.run(read_messages, rowids, scope))
        sets[name][method].add(ids_of(alone), evidence)
        for budget in BUDGETS:
            sets[name][method].add_packed(budget, packed_alone(alone, wanted, budget), question)


def as_markdown(result: dict[str, Any]) -> str:
    names = list(next(iter(result["sets"].values()))["whole"])
    lines = [f"| set | method | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for name, methods in result["sets"].items():
        for method, scores in methods.items():
            lines.append(f"| {name} | {method} | " + " | ".join(str(scores[key]) for key in names) + " |")
    silence = ", ".join(f"{name} {value}" for name, value in result["silence"].items()) or "not measured"
    return "\n".join([*lines, "", f"Silence: {silence}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folder of conversations")
    parser.add_argument("--smalltalk", type=Path, help='{"queries": [...]} that must recall nothing')
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument("--long", action="store_true", help="make long answers of the messages")
    parser.add_argument("--expand", action="store_true", help="add words to questions, as a model might")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--apart", type=Path, help="rankers that have not seen the conversation (train_ranker.py)")
    parser.add_argument("--report", type=Path, help="file for the table as Markdown")
    parser.add_argument("--without", nargs="+", choices=sorted(WITHOUT), default=[], help="steps to leave out")
    arguments = parser.parse_args()
    log.configure("error", "json")
    arguments.models = (arguments.models or Paths.resolve().models_dir).absolute()
    for folder in arguments.folders:
        if not any(folder.glob("*.json")):
            sys.exit(f"no conversations (*.json) in {folder}")
    for step in arguments.without:
        for place, name, value in WITHOUT[step]:
            setattr(place, name, value)
    result = trio.run(run, arguments)
    if arguments.report is not None:
        arguments.report.write_text(as_markdown(result), encoding="utf-8")
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, methods in result["sets"].items():
        for method, scores in methods.items():
            print(f"{name:<28} {method:<8} " + "  ".join(f"{key} {value:>5}" for key, value in scores.items()))
    print("silence", result["silence"])
    print("search ", result["search_p50_ms"], "ms p50,", result["search_p95_ms"], "ms p95")


if __name__ == "__main__":
    main()
