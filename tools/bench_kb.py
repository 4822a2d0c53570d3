"""How well the search of knowledge bases finds the pages that answer a question.

    python tools/bench_kb.py DIR... [--cache DIR] [--smalltalk FILE] [--articles FILE] [--scale PASSAGES...]
                             [--learn FILE] [--prepare] [--json] [--report FILE] [--models DIR]

Each ``DIR`` is a source: ``DIR/documents`` are read through the real reader into one base of a real store, embedded
with the real model, and each question of ``DIR/questions.json`` goes through the real search: ``[{"document",
"questions": [{"question", "pages", "kind": "text" | "unanswerable"}]}]``. ``--cache`` keeps what was read and embedded;
``--prepare`` does nothing else.

Printed for each source and step: page recall, the share of a question's pages among the pages of the first 1, 3 and 10
passages, each page counted once, averaged over the questions of the kind "text"; over all documents and with the
document known. The ranker is learned from the other sources, without questions about documents that this one has too
(of one source alone: for each document from the questions of all the others); "as shipped" is with the weights that
Klaw has, which have seen all of them. ``--articles`` is a file of paragraphs with questions (a conversation of
``bench_recall.py``): each paragraph is a document without pages, for which there are weights of their own, learned
here from the questions about the other half of them. Silence is how many small talk and unanswerable questions are
given no passage. ``--scale`` measures the time of a search, with the question's embedding, in a base of so many
passages.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.clock import SystemClock
from klaw.config.memory import AutoRagConfig
from klaw.config.paths import Paths
from klaw.domain import tokens
from klaw.domain.knowledge import DocumentId, Passage, Source, document_id
from klaw.domain.names import LOCAL_USER
from klaw.domain.search import WEAK, FoundPassage, PassageOutcome
from klaw.knowledge.passage_features import PASSAGES
from klaw.knowledge.search import KnowledgeSearch
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.passage import PassageText as Text
from klaw.memory.recall.ranker import Pool, built_in
from klaw.store.engine.tokenizer import stem, words
from klaw.store.kinds.knowledge import documents
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.search import passages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.passages import PassageVector
from klaw.store.store import Store
from tests.support.memory.ready_embedder import ReadyEmbedder
from tests.support.stores import running_store
from tools.bench_recall import MODEL
from tools.kept_documents import KeptModel, add, embed, new_base, read_folder
from tools.train_ranker import Group, fit, written

PLACES = (1, 3, 10)
MAX_TOKENS = 1_500
"""``kb.maxTokens`` as it is by default."""
L2, PRIOR = 0.1, {"fused": 6.0, "distance": -1.0, "page": 3.0}
"""What is learned stays near plain fusion, and near the page that a question names: so it carries over to documents of
another kind."""
L2_ARTICLES = 0.03
"""Of documents without pages, about which there are more questions."""
K1, B = 1.2, 0.75
"""Of BM25."""
_TIMED = 200


@attrs.frozen(kw_only=True)
class Question:
    """A question and where its answer is."""

    text: str
    document: DocumentId
    name: str
    """The document's."""
    pages: tuple[int | None, ...]
    """None of an article."""
    answerable: bool


@attrs.frozen(kw_only=True, eq=False)
class Asked:
    """What the search found for a question in one scope."""

    source: str
    question: Question
    scope: str
    """``all`` documents, or the document is ``known``."""
    pool: Pool[FoundPassage]

    def group(self) -> Group:
        """For learning: a page counts once, whichever of its passages is found."""
        found = [each.item for each in self.pool.entries]
        there = [each.document == self.question.document and each.first_page in self.question.pages for each in found]
        pages = [each.first_page for each in found]
        evidence = [
            float(hit) / sum(page == other and hit_too for other, hit_too in zip(pages, there, strict=True))
            if hit
            else 0
            for page, hit in zip(pages, there, strict=True)
        ]
        count = len(set(self.question.pages)) or 1
        return Group(str(self.question.document), self.pool.features, np.array(evidence) / count, self.pool)


# -- page recall -------------------------------------------------------------------------------------------------------


def page_recall(asked: Asked, order: Sequence[int]) -> list[float]:
    """Share of the question's pages among the first pages of a ranking, for each of ``PLACES``."""
    found = (asked.pool.entries[at].item for at in order)
    pages = list(dict.fromkeys((each.document, each.first_page) for each in found))
    wanted = {(asked.question.document, page) for page in asked.question.pages}
    return [len(wanted.intersection(pages[:places])) / len(wanted) for places in PLACES]


def by_rank(name: str) -> Callable[[Asked], list[int]]:
    """A ranking by one list."""

    def order(asked: Asked) -> list[int]:
        ranks = [(getattr(each, name), at) for at, each in enumerate(asked.pool.entries)]
        return [at for rank, at in sorted((rank, at) for rank, at in ranks if rank is not None)]

    return order


def by_weights(weights: Mapping[tuple[str, str], Mapping[str, float]]) -> Callable[[Asked], list[int]]:
    """A ranking by weights of the features, those for the question's source and document."""

    def order(asked: Asked) -> list[int]:
        own = weights[asked.source, asked.question.name]
        scores = asked.pool.features @ np.array([own.get(name, 0.0) for name in PASSAGES.names])
        return list(np.argsort(-scores, kind="stable"))

    return order


def learned_apart(asked: Sequence[Asked], without: str = "") -> dict[tuple[str, str], dict[str, float]]:
    """Weights for each source and document, learned from the other sources' questions about other documents, or of one
    source from those about its other documents; without a part of the features."""
    left = [at for at, name in enumerate(PASSAGES.names) if name not in PASSAGES.parts.get(without, ())]
    names = [PASSAGES.names[at] for at in left]
    groups = [(each, each.group()) for each in asked if each.question.answerable]
    several = len({each.source for each in asked}) > 1
    there = {(each.source, each.question.name) for each in asked}
    made: dict[tuple[str, ...], dict[str, float]] = {}
    for source, name in there:
        own = {other for where, other in there if where == source} if several else {name}
        key = (source,) if several else (source, name)
        if key not in made:
            used = [
                attrs.evolve(group, features=group.features[:, left])
                for each, group in groups
                if each.question.name not in own and group.evidence.any()
            ]
            made[key] = fit(used, L2, names, prior=PRIOR) if used else {}
    return {(source, name): made[(source,) if several else (source, name)] for source, name in there}


def learned_from_half(asked: Sequence[Asked]) -> dict[tuple[str, str], dict[str, float]]:
    """Weights for each article, learned from the questions about those of the other half."""
    names = dict.fromkeys(each.question.name for each in asked)
    half = {name: at % 2 for at, name in enumerate(names)}
    made = [fit_all([each for each in asked if half[each.question.name] != side], L2_ARTICLES) for side in (0, 1)]
    return {(each.source, each.question.name): made[half[each.question.name]] for each in asked}


def fit_all(asked: Sequence[Asked], l2: float) -> dict[str, float]:
    groups = [group for each in asked if each.question.answerable and (group := each.group()).evidence.any()]
    return fit(groups, l2, PASSAGES.names, prior=PRIOR)


Found: TypeAlias = Mapping[str, Sequence[Asked]]
"""What searches found by words alone, and with vectors; by the names of the ranker's sets of weights."""


def learn(path: Path, model: str, asked: Found, of_articles: Found) -> None:
    """Write the ranker that all questions teach; ``other`` is for documents without pages."""
    made = {
        "by": "tools/bench_kb.py --learn",
        "on": datetime.now(UTC).date().isoformat(),
        "model": model,
        "l2": L2,
        "prior": PRIOR,
        "searches": sum(each.question.answerable for each in asked["vectors"]),
    }
    other = {state: fit_all(found, L2_ARTICLES) for state, found in of_articles.items()}
    ranker = {"made": made, **{state: fit_all(found, L2) for state, found in asked.items()}}
    ranker["other"] = {"made": {"l2": L2_ARTICLES, "searches": len(of_articles["vectors"])}, **other}
    path.write_text(written(ranker) + "\n", encoding="utf-8")
    built_in.cache_clear()


def no_embedder() -> Embedder:
    return Embedder(SystemClock(), enabled=False)


@attrs.frozen(kw_only=True, eq=False)
class Pages:
    """Whole pages, ranked by BM25 of all words of a question: what a search must be better than."""

    names: Sequence[tuple[DocumentId, int | None]]
    counts: Sequence[Counter[str]]

    @classmethod
    async def of(cls, store: Store, source: Source) -> "Pages":
        found: dict[tuple[DocumentId, int | None], Counter[str]] = {}
        for document in await store.readers.run(documents.of_base, LOCAL_USER, source.base):
            for each in await store.readers.run(documents.passages, LOCAL_USER, document.id, limit=100_000):
                found.setdefault((document.id, each.first_page), Counter()).update(map(stem, words(each.text)))
        return cls(names=list(found), counts=list(found.values()))

    def recall(self, asked: Asked) -> list[float]:
        """As ``page_recall``."""
        known = asked.scope == "known"
        at = [at for at, (name, _) in enumerate(self.names) if not known or name == asked.question.document]
        if not at:  # a document without text
            return [0.0] * len(PLACES)
        counts = [self.counts[each] for each in at]
        sizes = np.array([each.total() for each in counts], float)
        scores = np.zeros(len(at))
        for word in set(map(stem, words(asked.question.text))):
            having = np.array([each[word] for each in counts], float)
            rows = np.count_nonzero(having)
            weight = np.log(1 + (len(at) - rows + 0.5) / (rows + 0.5))
            scores += weight * having * (K1 + 1) / (having + K1 * (1 - B + B * sizes / sizes.mean()))
        best = [self.names[at[each]] for each in np.argsort(-scores, kind="stable")]
        wanted = {(asked.question.document, page) for page in asked.question.pages}
        return [len(wanted.intersection(best[:places])) / len(wanted) for places in PLACES]


def table(asked: Sequence[Asked], pages: Mapping[str, Pages]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Page recall by source, step and scope, in percent."""
    weights = built_in("klaw.knowledge").vectors
    shipped = {(each.source, each.question.name): weights for each in asked}
    orders: dict[str, Callable[[Asked], list[int]]] = {
        "vectors": by_rank("vector_rank"),
        "words": by_rank("text_rank"),
        "fused": lambda each: list(range(len(each.pool.entries))),
        **{f"ranked without {part}": by_weights(learned_apart(asked, part)) for part in PASSAGES.parts},
        "ranked": by_weights(learned_apart(asked)),
        "ranked as shipped": by_weights(shipped),
    }

    def recalls(step: str, each: Asked) -> list[float]:
        return pages[each.source].recall(each) if step == "bm25 of pages" else page_recall(each, orders[step](each))

    def mean(step: str, source: str, scope: str) -> list[float]:
        found = [each for each in asked if (each.source, each.scope, each.question.answerable) == (source, scope, True)]
        columns = zip(*(recalls(step, each) for each in found), strict=True)
        return [round(100 * statistics.mean(column), 1) for column in columns]

    return {
        source: {
            step: {scope: mean(step, source, scope) for scope in ("all", "known")}
            for step in ("bm25 of pages", *orders)
        }
        for source in pages
    }


def ready_embedder(model: KeptModel) -> ReadyEmbedder:
    """The model behind the embedder's handle."""
    return ReadyEmbedder(lambda text: model.read([text], "query")[0], model.model.random_cosine, SystemClock())


def searching(store: Store, embedder: Embedder) -> KnowledgeSearch:
    return KnowledgeSearch(store.readers, embedder, AutoRagConfig(time_budget_ms=60_000), SystemClock())


async def ask_all(search: KnowledgeSearch, folders: Mapping[Path, Source]) -> list[Asked]:
    """Every question in both scopes."""
    found = []
    for folder, source in folders.items():
        for question in questions(folder, source):
            for scope, within in (("all", None), ("known", [question.document])):
                asked = PassageScope(user=LOCAL_USER, bases=[source.base], documents=within)
                _, pool = await search.gather(question.text, asked, search.account())
                found.append(Asked(source=source.name, question=question, scope=scope, pool=pool))
    return found


def questions(folder: Path, source: Source) -> list[Question]:
    told = _json(folder / "questions.json")
    return [
        Question(
            text=each["question"],
            document=document_id(source.id, document["document"]),
            name=document["document"],
            pages=tuple(each["pages"]),
            answerable=each["kind"] == "text",
        )
        for document in told
        for each in document["questions"]
    ]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# -- the rest ----------------------------------------------------------------------------------------------------------


async def outcomes(search: KnowledgeSearch, source: Source, asked: Sequence[str]) -> list[PassageOutcome]:
    return [await search.search(text, [source.base], LOCAL_USER, max_tokens=MAX_TOKENS) for text in asked]


def weak_curve(found: Mapping[str, Sequence[PassageOutcome]]) -> list[dict[str, float]]:
    """Where "nothing fits well" begins, and which share of each kind of question is told so, in percent."""
    lacks = {kind: np.array([each.lack or 0.0 for each in those]) for kind, those in found.items()}
    starts = np.quantile(lacks["answerable"], [0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5])
    return [
        {"from": round(at, 3), **{kind: round(100 * float((lack >= at).mean()), 1) for kind, lack in lacks.items()}}
        for at in (*starts.tolist(), WEAK)
    ]


async def ask_articles(store: Store, model: KeptModel, path: Path) -> Found:
    """Every question about a paragraph, each of which is a document."""
    source, told = await new_base(store, "articles"), _json(path)
    for message in told["messages"]:
        text = message["content"]
        cut = [Passage(ordinal=0, text=text, start=0, end=len(text), tokens=tokens.estimate(text))]
        await add(store, source, message["id"], "", cut)
    await embed(store, model)
    scope = PassageScope(user=LOCAL_USER, bases=[source.base], documents=None)

    async def ask(search: KnowledgeSearch) -> list[Asked]:
        found = []
        for each in told["questions"]:
            (name,) = each["evidence"]
            about = document_id(source.id, name)
            question = Question(text=each["query"], document=about, name=name, pages=(None,), answerable=True)
            _, pool = await search.gather(question.text, scope, search.account())
            found.append(Asked(source=source.name, question=question, scope="all", pool=pool))
        return found

    by_words, with_vectors = searching(store, no_embedder()), searching(store, ready_embedder(model))
    return {"words": await ask(by_words), "vectors": await ask(with_vectors)}


def articles(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    """Share of the questions whose paragraph is among the first articles, by step, in percent."""
    ranker = built_in("klaw.knowledge").other
    assert ranker is not None
    orders = {
        "fused": lambda each: list(range(len(each.pool.entries))),
        "ranked": by_weights(learned_from_half(asked)),
        "ranked as shipped": by_weights({(each.source, each.question.name): ranker.vectors for each in asked}),
    }
    columns = {
        step: zip(*(page_recall(each, order(each)) for each in asked), strict=True) for step, order in orders.items()
    }
    return {
        step: {
            f"@{places}": round(100 * statistics.mean(found), 1) for places, found in zip(PLACES, shares, strict=True)
        }
        for step, shares in columns.items()
    }


async def scale(store: Store, model: KeptModel, source: Source, folder: Path, count: int) -> dict[str, float]:
    """Times of searches in a base of so many passages, made of the sentences and near the vectors of those that are
    there; the question's embedding is part of the time, and not cached."""
    chance = random.Random(count)
    noise = np.random.default_rng(count)
    there = [
        each
        for document in await store.readers.run(documents.of_base, LOCAL_USER, source.base)
        for each in await store.readers.run(documents.passages, LOCAL_USER, document.id, limit=10_000)
    ]
    lines = [line for each in there for line in each.text.splitlines() if line.strip()]
    large = await new_base(store, f"scale-{count}")
    vectors = np.frombuffer(b"".join(model.embed([Text(each.text) for each in there[:512]])), "<f4").reshape(
        -1, model.model.dimension
    )
    name = model.id
    for start in range(0, count, 500):
        cut = []
        for ordinal in range(min(500, count - start)):
            text = "\n".join(chance.choices(lines, k=max(1, 1_000 // 60)))[:1_000]
            cut.append(Passage(ordinal=ordinal, text=text, first_page=ordinal, start=0, end=len(text), tokens=250))
        await add(store, large, f"report-{start}.pdf", "", cut)
        waiting = await store.readers.run(passages.unembedded, name, 500, ("document",))
        made = vectors[noise.integers(len(vectors), size=len(waiting))]
        made = made + noise.normal(scale=0.02, size=made.shape)
        made = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f4")
        found = [
            PassageVector(each.kind, each.rowid, each.lead + each.text, vector.tobytes())
            for each, vector in zip(waiting, made, strict=True)
        ]
        await store.writer.run(stored_vectors.store_of_passages, name, found)
    embedder = ready_embedder(model)
    embedder._read = lambda text: model.model.read([text], kind="query")[0]
    search = searching(store, embedder)
    asked = [each.text for each in questions(folder, source)]
    spent: list[float] = []
    steps: dict[str, list[float]] = {}
    for text in (asked * (_TIMED // len(asked) + 1))[:_TIMED]:
        begin = time.perf_counter()
        result = await search.search(text, [large.base], LOCAL_USER, max_tokens=MAX_TOKENS)
        spent.append(1_000 * (time.perf_counter() - begin))
        for step, took in result.timings_ms.items():
            steps.setdefault(step, []).append(took)
    spent.sort()
    return {
        "p50": round(statistics.median(spent), 1),
        "p95": round(spent[int(0.95 * len(spent))], 1),
        **{f"{step} p50": round(statistics.median(took), 1) for step, took in steps.items()},
    }


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.cache is not None:
        await trio.Path(arguments.cache).mkdir(parents=True, exist_ok=True)
    model = KeptModel(arguments.models / MODEL, arguments.cache)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        async with running_store(Path(scratch)) as store:
            await stored_vectors.prepare(store.writer, model.id, model.model.dimension)
            folders = {folder: await new_base(store, folder.name) for folder in arguments.folders}
            result["passages"] = {
                source.name: await read_folder(store, source, folder / "documents", arguments.cache)
                for folder, source in folders.items()
            }
            await embed(store, model)
            if arguments.prepare:
                return result
            search, words_alone = searching(store, ready_embedder(model)), searching(store, no_embedder())
            asked = await ask_all(search, folders)
            of_articles = await ask_articles(store, model, arguments.articles) if arguments.articles else {}
            if arguments.learn is not None:
                found_all = {"words": await ask_all(words_alone, folders), "vectors": asked}
                await trio.to_thread.run_sync(learn, arguments.learn, model.model.model_id, found_all, of_articles)
            result["pages"] = table(asked, {source.name: await Pages.of(store, source) for source in folders.values()})
            result["silent"] = {}
            found: dict[str, list[PassageOutcome]] = {}
            for folder, source in folders.items():
                kinds = {"unanswerable": [], "answerable": []}  # type: dict[str, list[str]]
                for each in questions(folder, source):
                    kinds["answerable" if each.answerable else "unanswerable"].append(each.text)
                if arguments.smalltalk:
                    kinds["small talk"] = _json(arguments.smalltalk)["queries"]
                result["silent"][source.name] = {}
                for kind, texts in kinds.items():
                    there = await outcomes(search, source, texts)
                    silent = sum(not each.kept for each in there)
                    result["silent"][source.name][kind] = f"{silent} of {len(there)}"
                    found.setdefault(kind, []).extend(there)
            result["weak"] = weak_curve({kind: found[kind] for kind in ("unanswerable", "answerable")})
            if of_articles:
                result["articles"] = articles(of_articles["vectors"])
            folder, source = next(iter(folders.items()))
            result["scale_ms"] = {count: await scale(store, model, source, folder, count) for count in arguments.scale}
    return result


def as_markdown(result: dict[str, Any]) -> str:
    lines = []
    for source, steps in result.get("pages", {}).items():
        lines += [f"| {source} | all @1 | @3 | @10 | known @1 | @3 | @10 |", "|---|---|---|---|---|---|---|"]
        for step, scopes in steps.items():
            cells = " | ".join(str(value) for values in scopes.values() for value in values)
            lines.append(f"| {step} | {cells} |")
        lines.append("")
    rest = {key: value for key, value in result.items() if key != "pages"}
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in rest.items()), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="holds documents/ and questions.json")
    parser.add_argument("--smalltalk", type=Path, help='{"queries": [...]} that must be given no passage')
    parser.add_argument("--articles", type=Path, help="a file of paragraphs with questions")
    parser.add_argument("--scale", type=int, nargs="+", default=[], metavar="PASSAGES", help="measure the time")
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="folder that keeps what was read and embedded")
    parser.add_argument("--prepare", action="store_true", help="only read and embed")
    parser.add_argument(
        "--learn", type=Path, metavar="FILE", help="write the ranker that all questions teach (needs --articles)"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--report", type=Path, help="file for the table as Markdown")
    arguments = parser.parse_args()
    if arguments.learn is not None and arguments.articles is None:
        parser.error("--learn needs --articles: documents without pages are ranked by weights of their own")
    log.configure("error", "json")
    arguments.models = (arguments.models or Paths.resolve().models_dir).absolute()
    result = trio.run(run, arguments)
    if arguments.report is not None:
        arguments.report.write_text(as_markdown(result), encoding="utf-8")
    print(json.dumps(result, ensure_ascii=False) if arguments.json else as_markdown(result))


if __name__ == "__main__":
    main()
