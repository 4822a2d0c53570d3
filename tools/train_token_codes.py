"""Learn how the tokens of an embedding model are kept in 16 bytes (klaw/memory/embed/token_coder.py).

    python tools/train_token_codes.py MODEL OUT DIR...

MODEL is a model folder, OUT the file to write: ``token_codes.npz`` in the model's folder, or
klaw/models/e5/token_codes.npz for the model that Klaw installs. Each DIR holds conversations as tools/bench_recall.py
reads them; nothing but the texts of their messages is used. The sets (a file's name up to the first "-") have equal
shares, so that no language is learned at the cost of another. Nothing is random but the sample, whose seed is fixed.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import passage
from klaw.memory.embed.token_coder import BITS

SAMPLE = 16_000
"""Tokens of each set."""

Floats = npt.NDArray[np.float32]


def states_of(model: EmbeddingModel, texts: list[str]) -> Floats:
    """Normalised states of the tokens of messages, each read after the one before it."""
    passages = [passage(text, before) for text, before in zip(texts, [None, *texts[:-1]], strict=True)]
    joined = np.concatenate(
        [states for _, _, states in model._run(model._encode(passages, model._prefixes["passage"]), "passage")]
    )
    return joined / np.linalg.norm(joined, axis=1, keepdims=True)


def sample(model: EmbeddingModel, folders: list[Path]) -> Floats:
    sets: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        conversation = json.loads(path.read_text(encoding="utf-8"))
        sets[path.stem.split("-")[0]] += [message["content"] for message in conversation["messages"]]
    random, chosen = np.random.RandomState(15), []
    for name, texts in sorted(sets.items()):
        states = states_of(model, texts)
        print(f"{name}: {len(texts)} messages, {len(states)} tokens", file=sys.stderr)
        chosen.append(states[random.permutation(len(states))[:SAMPLE]])
    return np.concatenate(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    arguments = parser.parse_args()
    states = sample(EmbeddingModel.load(arguments.model, threads=2), arguments.folders)
    centre = states.mean(axis=0)
    centred = states - centre
    variances, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    axes = vectors[:, ::-1][:, :BITS]
    spread = np.sqrt(variances[::-1][:BITS])
    arrays = {"centre": centre, "axes": axes, "spread": spread / np.linalg.norm(spread)}
    np.savez(arguments.out, **{name: array.astype("<f2") for name, array in arrays.items()})


if __name__ == "__main__":
    main()
