"""``klaw models calibrate``: measures what "nothing in common" looks like to an embedding model, and keeps it."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klaw.config.paths import Paths
from klaw.errors import KlawError, ModelError

if TYPE_CHECKING:
    from klaw.memory.embed.calibration import Measured, Talk
    from klaw.models.manifest import Calibration

THREADS = 2


def calibrate_command(args: argparse.Namespace) -> int:
    """Measures and stores. Returns 1 if the model or the texts cannot be used; nothing is changed then."""
    try:
        answer = _calibrate(args)
    except KlawError as error:
        print(f"klaw: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2, ensure_ascii=False) if args.json else "\n".join(_lines(answer)))
    return 0


def _calibrate(args: argparse.Namespace) -> dict[str, Any]:
    # Imported here: they load ONNX Runtime, which no other command needs.
    from klaw.memory.embed.calibration import TOO_ALIKE, built_in, measure
    from klaw.memory.embed.describe import describe
    from klaw.memory.embed.model import EmbeddingModel
    from klaw.memory.embed.passage import RECIPE
    from klaw.memory.embed.texts import read_talk
    from klaw.models.manifest import Calibration, store

    folder = _folder(args.model, Paths.resolve(args.home))
    talks = [read_talk(path) for path in args.texts] if args.texts else built_in()
    stored = describe(folder).calibration
    model = EmbeddingModel.load(folder, threads=THREADS)
    try:
        found = measure(lambda texts, kind: model.embed(texts, kind=kind), talks)
    finally:
        model.close()
    if found.mean >= TOO_ALIKE:
        raise ModelError(f"{folder}: all texts are alike to this model (mean cosine {found.mean:.4f}): it is of no use")
    new = Calibration(
        random_cosine=round(found.mean, 4),
        deviation=round(found.deviation, 4),
        pairs=found.pairs,
        recipe=RECIPE,
        texts="own" if args.texts else "built-in",
    )
    path = None if args.dry_run else store(folder, model.model_id, new)
    return _answer(model.model_id, folder, talks, found, stored, new, path)


def _folder(wanted: str | None, paths: Paths) -> Path:
    """The folder of a name or path; without one, that of the configured model."""
    if wanted is None:
        from klaw.config.load import load

        config = load(paths.config_file)[0].embedding
        return config.path or paths.models_dir / config.model
    path = Path(wanted)
    named = paths.models_dir / wanted
    folder = path if path.is_dir() or len(path.parts) > 1 else named
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder; `klaw models list` names the known models")
    return folder


def _answer(
    model_id: str,
    folder: Path,
    talks: "list[Talk] | tuple[Talk, ...]",
    found: "Measured",
    stored: "Calibration | None",
    new: "Calibration",
    path: Path | None,
) -> dict[str, Any]:
    from attrs import asdict

    return {
        "model": model_id,
        "folder": str(folder),
        "conversations": len(talks),
        "queries": found.queries,
        "messages": found.messages,
        "calibration": asdict(new),
        "before": asdict(stored) if stored is not None else None,
        "stored": str(path) if path is not None else None,
    }


def _lines(answer: dict[str, Any]) -> list[str]:
    new, before = answer["calibration"], answer["before"]
    spread = f"standard deviation {new['deviation']:.4f}, {new['pairs']} pairs"
    if before is None:
        change = f"none was stored; now {new['random_cosine']:.4f}"
    else:
        moved = new["random_cosine"] - before["random_cosine"]
        change = f"{before['random_cosine']:.4f} ({before['texts']}) -> {new['random_cosine']:.4f} ({moved:+.4f})"
    where = (
        f"{answer['stored']}; takes effect when the server is started again"
        if answer["stored"]
        else "nothing (--dry-run)"
    )
    texts = f"{answer['conversations']} conversations, {answer['queries']} queries, {answer['messages']} messages"
    return [
        f"model     {answer['model']}",
        f"texts     {new['texts']}: {texts}",
        f"measured  mean cosine {new['random_cosine']:.4f} of unrelated texts, {spread}",
        f"change    {change}",
        f"stored    {where}",
        "No vector changes: no message has to be embedded again.",
    ]
