"""Learns the weights of recall's ranker from conversations with questions and evidence.

    python tools/train_ranker.py DIR... [--out klaw/memory/recall/ranker.json] [--apart FILE] [--l2 0.005]
                                 [--models DIR] [--cache FILE] [--long]

Each conversation is loaded as ``bench_recall.py`` does, and each question goes through the real search. It learns
from the candidates as the ranker sees them: listwise softmax over those of one question, weighted by evidence (ListNet,
Cao and others, ICML 2007), with L2, by Newton's method; then once more, with what the scores of that say of the
sessions. ``--apart`` writes one ranker for each conversation, learned from all the others, for ``bench_recall.py
--apart``: figures for conversations that were not learned from. ``--long``: it learns a ranker for
chats with long messages, from each conversation as it is and with long answers (``long_turns``).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.clock import SystemClock
from klaw.config.memory import AutoRagConfig
from klaw.config.paths import Paths
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.passage import vectors_id
from klaw.memory.recall.message_features import MESSAGES
from klaw.memory.recall.pipeline import POOL
from klaw.memory.recall.ranker import Pool, centred
from klaw.memory.recall.recall import DEPTH, Recall
from klaw.store.search import vectors as stored_vectors
from tests.support.stores import running_store
from tools.bench_recall import MODEL, CachedModel, conversations, load, ready_embedder

STATES = ("words", "vectors", "tokens")
STEPS, LEAST_STEP = 50, 1e-6
SHARES = {"xquad": 0.25}
"""What the questions of a set count, if not 1: these are many, about paragraphs instead of talk, and easy."""
LATER = ("time", "number", "name", "first_person", "asks", "short", "previous_asks", "previous_short")
"""Features of the second pass alone: the sessions are found better without them."""


@attrs.frozen(eq=False)
class Group:
    """The candidates of one question."""

    conversation: str
    features: np.ndarray
    evidence: np.ndarray
    """1 for each candidate that is evidence, divided by how many pieces of evidence the question has; of ``SHARES``."""
    pool: Pool[Any]
    long: bool = False
    """Of a conversation with long answers that was made of another."""

    def again(self, weights: Mapping[str, float]) -> "Group":
        """The same for the second pass after a first with these weights."""
        scores = centred(self.features) @ np.array([weights.get(name, 0.0) for name in self.pool.of.names])
        return attrs.evolve(self, features=self.pool.with_scores(self.features, scores))


async def collect(
    folders: Sequence[Path], models: Path, cache: Path | None, *, long: bool = False
) -> tuple[dict[str, list[Group]], str]:
    """The candidates of all questions by state of recall, and the model's id."""
    model = CachedModel(models / MODEL, cache)
    groups: dict[str, list[Group]] = {state: [] for state in STATES}
    config, clock = AutoRagConfig(time_budget_ms=60_000), SystemClock()
    with tempfile.TemporaryDirectory() as scratch:
        async with running_store(Path(scratch)) as store:
            await stored_vectors.prepare(store.writer, vectors_id(model.model.model_id), model.model.dimension)
            recall = Recall(store.readers, ready_embedder(model), config, clock)
            by_words = Recall(store.readers, Embedder(clock, enabled=False), config, clock)
            also = conversations(folders, long=True) if long else ()
            for conversation in chain(conversations(folders), also):
                scope = await load(store, model, conversation)
                for question in conversation["questions"]:
                    evidence = {f"{conversation['name']}/{each}" for each in question["evidence"]}
                    if not evidence:
                        continue
                    ids = dict(await store.readers.run(_ids, scope.chat))
                    wanted = {rowid for rowid, name in ids.items() if name in evidence}
                    account = recall.account()
                    _, pool = await recall.gather(question["query"], scope, DEPTH, account, POOL)
                    scores = account.token_scores()
                    _, alone = await by_words.gather(question["query"], scope, DEPTH, by_words.account(), POOL)
                    for state, found, told in (
                        ("words", alone, {}), ("vectors", pool, {}), ("tokens", pool, scores)
                    ):  # fmt: skip
                        there = [each.rowid in wanted for each in found.entries]
                        hit = np.array(there, float) * SHARES.get(conversation["set"], 1.0) / len(evidence)
                        if hit.any():
                            slim = attrs.evolve(found, entries=(), rest=tuple)
                            long = conversation["name"] != conversation["source"]
                            groups[state].append(Group(conversation["source"], found.matrix(told), hit, slim, long))
    model.save()
    return groups, model.model.model_id


def _ids(connection: Any, chat: str) -> list[tuple[int, str]]:
    return list(connection.execute("SELECT rowid, id FROM messages WHERE chat_id = ?", (chat,)))


def fit(
    groups: Sequence[Group],
    l2: float,
    names: Sequence[str] = MESSAGES.names,
    without: Collection[str] = (),
    prior: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The weights that make the evidence likeliest, by the names of the features; the penalty draws them to ``prior``
    (0). It is quicker from a ``start`` that is near."""
    most = max(len(group.evidence) for group in groups)
    features = np.zeros((len(groups), most, len(names)))
    target, there = np.zeros((len(groups), most)), np.full((len(groups), most), -np.inf)
    for at, group in enumerate(groups):
        count = len(group.evidence)
        features[at, :count], target[at, :count], there[at, :count] = group.features, group.evidence, 0.0
    rows = np.concatenate([group.features for group in groups])
    spread = rows.std(axis=0)
    used = np.array([at for at, name in enumerate(names) if spread[at] > 0 and name not in without])
    scaled = (features[:, :, used] - rows.mean(axis=0)[used]) / spread[used] * (there == 0.0)[..., None]
    towards, begin = (np.array([(of or {}).get(names[at], 0.0) for at in used]) * spread[used] for of in (prior, start))
    weights = _newton(scaled, target, there, l2, towards, begin if start else towards)
    found = weights / spread[used]
    made = {names[column]: round(float(weight), 4) for column, weight in zip(used, found, strict=True)}
    return {**{name: weight for name, weight in (prior or {}).items() if name in names}, **made}


def _newton(
    features: np.ndarray, target: np.ndarray, there: np.ndarray, l2: float, prior: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Minimise the mean cross entropy plus the penalty; each step is halved until it is one downwards."""
    count, width = len(features), features.shape[2]
    total = target.sum(axis=1)

    def look(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ weights + there
        logits -= logits.max(axis=1, keepdims=True)
        likely = np.exp(logits)
        sums = likely.sum(axis=1, keepdims=True)
        entropy = total @ np.log(sums[:, 0]) - (target * np.maximum(logits, -1e9)).sum()
        return entropy / count + l2 * (weights - prior) @ (weights - prior), likely / sums

    cost, likely = look(weights)
    for _ in range(STEPS):
        slope = np.einsum("qk,qkf->f", total[:, None] * likely - target, features) / count + 2 * l2 * (weights - prior)
        means = np.einsum("qk,qkf->qf", likely, features)
        rows = (features * np.sqrt(total[:, None] * likely)[..., None]).reshape(-1, width)
        curve = (rows.T @ rows - (means * total[:, None]).T @ means) / count + 2 * l2 * np.eye(width)
        step = np.linalg.solve(curve, slope)
        while (found := look(weights - step))[0] > cost and np.abs(step).max() > LEAST_STEP:
            step /= 2
        weights, (cost, likely) = weights - step, found
        if np.abs(step).max() <= LEAST_STEP:
            break
    return weights


def learn(
    groups: Mapping[str, Sequence[Group]], l2: float, made: Mapping[str, Any], without: str = "", near: Any = None
) -> Any:
    """A ranker as it is stored, from all conversations but one; ``near`` is one from all."""
    counts: dict[str, int] = {}
    used = {state: [each for each in groups[state] if each.conversation != without] for state in STATES}
    for group in used["vectors"]:
        counts[group.conversation] = counts.get(group.conversation, 0) + 1
    found = []
    for long in (False, True):
        own = {state: [each for each in used[state] if long or not each.long] for state in STATES}
        known = (near.get("other", near) if long else near) if near else {"again": {}}
        first = {state: fit(each, l2, without=LATER, start=known.get(state)) for state, each in own.items() if each}
        again = {
            state: fit([each.again(of) for each in own[state]], l2, start=known["again"].get(state))
            for state, of in first.items()
        }
        found.append({**{state: first.get(state, {}) for state in STATES}, "again": again})
    other = {"other": {"made": {}, **found[1]}} if any(each.long for each in used["vectors"]) else {}
    return {"made": {**made, "l2": l2, "questions": counts}, **found[0], **other}


def written(ranker: Mapping[str, Any], indent: str = " ") -> str:
    """A line for each set of weights."""
    sets = (
        f"{indent}{json.dumps(name)}: "
        + (written(each, indent + " ") if name in ("again", "other") else json.dumps(each))
        for name, each in ranker.items()
    )
    return "{\n" + ",\n".join(sets) + f"\n{indent[1:]}}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folder of conversations")
    parser.add_argument("--out", type=Path, help="file for the ranker learned from all of them")
    parser.add_argument("--apart", type=Path, help="file for the rankers learned without one conversation each")
    parser.add_argument("--l2", type=float, default=0.005)
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument("--long", action="store_true", help="also learn from them with long answers")
    arguments = parser.parse_args()
    log.configure("error", "json")
    models = (arguments.models or Paths.resolve().models_dir).absolute()
    groups, model = trio.run(partial(collect, long=arguments.long), arguments.folders, models, arguments.cache)
    made = {"by": "tools/train_ranker.py", "on": datetime.now(UTC).date().isoformat(), "model": model}
    whole = learn(groups, arguments.l2, made)
    if arguments.apart is not None:
        names = dict.fromkeys(group.conversation for group in groups["vectors"])
        apart = {name: learn(groups, arguments.l2, made, name, whole) for name in names}
        arguments.apart.write_text(json.dumps(apart, indent=1) + "\n", encoding="utf-8")
    ranker = written(whole) + "\n"
    if arguments.out is not None:
        arguments.out.write_text(ranker, encoding="utf-8")
    else:
        print(ranker, end="")


if __name__ == "__main__":
    main()
