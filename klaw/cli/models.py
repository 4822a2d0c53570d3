"""``klaw models pull`` and ``klaw models list``."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import attrs

from klaw.cli.progress import ProgressLine, bar

if TYPE_CHECKING:
    from klaw.models.build import Step
    from klaw.models.catalogue import ModelSpec
    from klaw.models.manifest import Calibration

_MEBI = 1 << 20
_LABELS = {
    "wait": "waiting for another pull",
    "download": "downloading",
    "check": "checking the kept download",
    "extract": "extracting",
    "convert": "converting",
    "done": "installed",
    "present": "already here",
}


def pull_command(args: argparse.Namespace) -> int:
    """Pulls the named models, all if none is named. Returns 1 if one could not be had; the others are still pulled."""
    from klaw.errors import ModelError
    from klaw.models.pull import pull, status

    chosen = _choose(args.names)
    if chosen is None:
        return 2
    models_dir = _models_dir(args.home)
    failed = 0
    report: list[dict[str, object]] = []
    for spec in chosen:
        # With --json stdout belongs to the answer.
        painter = ProgressPainter(sys.stderr if args.json else sys.stdout)
        try:
            pull(spec, models_dir, painter, verify=args.verify)
        except ModelError as exc:
            failed = 1
            painter.finish()
            print(f"klaw: {exc}", file=sys.stderr)
            report.append(_as_json(spec, models_dir, "failed", 0, str(exc)))
        else:
            done = status(spec, models_dir)
            report.append(_as_json(spec, models_dir, "complete", done.bytes, "", done.calibration))
    if args.json:
        print(json.dumps({"models": report}, indent=2, ensure_ascii=False))
    return failed


def list_command(args: argparse.Namespace) -> int:
    """Prints known models and their state. Returns 1 if one of them is damaged."""
    from klaw.models.pull import status

    chosen = _choose(args.names)
    if chosen is None:
        return 2
    models_dir = _models_dir(args.home)
    found = [(spec, status(spec, models_dir, verify=args.verify)) for spec in chosen]
    if args.json:
        rows = [
            _as_json(spec, models_dir, each.state, each.bytes, each.problem, each.calibration) for spec, each in found
        ]
        print(json.dumps({"models": rows}, indent=2, ensure_ascii=False))
    else:
        print(f"models in {models_dir}")
        for spec, each in found:
            size = each.bytes or spec.member_bytes
            print(f"  {spec.id:<24} {each.state:<9} {size / _MEBI:6.1f} MiB  {spec.summary}")
            if each.calibration is not None:
                print(f"  {'':<24} {_calibration(each.calibration)}")
            if each.problem:
                print(f"  {'':<24} {each.problem}")
    return 1 if any(each.state == "damaged" for _spec, each in found) else 0


def _choose(names: list[str]) -> "list[ModelSpec] | None":
    """The specs of ``names``; None, after saying so, if one is unknown."""
    from klaw.models.catalogue import catalogue

    known = {spec.id: spec for spec in catalogue()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"klaw: unknown model {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return None
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def _models_dir(home: str | None) -> Path:
    from klaw.config.paths import Paths

    return Paths.resolve(home).models_dir


def _calibration(calibration: "Calibration") -> str:
    on = {"catalogue": "by Klaw's makers", "built-in": "here, on the built-in texts", "own": "here, on your texts"}
    return f"calibrated {on[calibration.texts]}: mean cosine of unrelated texts {calibration.random_cosine:.4f}"


def _as_json(
    spec: "ModelSpec",
    models_dir: Path,
    state: str,
    size: int,
    problem: str,
    calibration: "Calibration | None" = None,
) -> dict[str, object]:
    return {
        "id": spec.id,
        "kind": spec.kind,
        "state": state,
        "bytes": size,
        "path": str(models_dir / spec.id),
        "problem": problem,
        "calibration": attrs.asdict(calibration) if calibration is not None else None,
    }


class ProgressPainter:
    """A ``Progress`` that draws a bar on a terminal, and prints one line a phase elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._line = ProgressLine(stream)

    def __call__(self, step: "Step", /) -> None:
        """Shows one report."""
        label = _LABELS[step.phase]
        size = f" ({step.total_bytes / _MEBI:.1f} MiB)" if step.total_bytes else ""
        self._line.show(
            step.phase,
            f"{step.model}: {label}{size}",
            lambda: f"{step.model}  {label}{_bar(step)}",
            last=step.phase in ("done", "present"),
        )

    def finish(self) -> None:
        """Ends an unfinished line, so that a message can follow."""
        self._line.finish()


def _bar(step: "Step") -> str:
    if not step.total_bytes:
        return ""
    if step.phase in ("done", "present"):
        return f", {step.total_bytes / _MEBI:.1f} MiB"
    size = f"{step.done_bytes / _MEBI:.1f} / {step.total_bytes / _MEBI:.1f} MiB"
    return f"  {bar(step.done_bytes, step.total_bytes)} {size}"
