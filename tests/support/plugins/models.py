"""The real models, pulled once for the whole test suite into ``$KLAW_TEST_MODELS`` or ``<repo>/.models``."""

import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from klaw.errors import ModelError
from klaw.memory.embed import model
from klaw.memory.embed.model import EncoderSession
from klaw.memory.embed.tokens import Tokenizer, load_tokenizer
from klaw.models.build import silent
from klaw.models.manifest import CATALOGUE, PIECES_FILE, ModelSpec
from klaw.models.pull import pull
from tests.support.repository import REPOSITORY


def models_dir() -> Path:
    """Where the test suite keeps its models."""
    return Path(os.environ.get("KLAW_TEST_MODELS") or REPOSITORY / ".models")


def spec_of(name: str) -> ModelSpec:
    """The catalogue's entry ``name``."""
    return next(spec for spec in CATALOGUE if spec.id == name)


def _pulled(name: str) -> Path:
    try:
        return pull(spec_of(name), models_dir(), silent)
    except ModelError as exc:
        # Only what the machine cannot help skips; a wrong checksum or a failed conversion is a failure.
        if "cannot download" in str(exc):
            pytest.skip(f"needs the model {name}: {exc}")
        raise


@pytest.fixture(scope="session")
def embedding_model_dir() -> Iterator[Path]:
    """The folder of multilingual-e5-small. A process reads it once, not in each of the hundreds of tests: a session and
    a tokenizer have nothing that a test could change."""
    folder = _pulled("multilingual-e5-small")
    session = cache(EncoderSession)
    tokenizers: dict[str, Tokenizer] = {}

    def encoder(of: Path, *, threads: int, pad: int) -> EncoderSession:
        kept = of.resolve() == folder.resolve()
        return session(folder, threads=threads, pad=pad) if kept else EncoderSession(of, threads=threads, pad=pad)

    def tokenizer(of: Path) -> Tokenizer:
        """Also of a small model with the pieces of the large one."""
        pieces = of / PIECES_FILE
        if not pieces.is_file():
            return load_tokenizer(of)
        digest = sha256(pieces.read_bytes()).hexdigest()
        if digest not in tokenizers:
            tokenizers[digest] = load_tokenizer(of)
        return tokenizers[digest]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "EncoderSession", encoder)
        patch.setattr(model, "load_tokenizer", tokenizer)
        yield folder


@pytest.fixture(scope="session")
def local_llm_dir() -> Path:
    """The folder of smollm2-135m-instruct."""
    return _pulled("smollm2-135m-instruct")
