"""The real models, pulled once for the whole test suite into ``$KLAW_TEST_MODELS`` or ``<repo>/.models``."""

import os
from pathlib import Path

import pytest

from klaw.errors import ModelError
from klaw.models.build import silent
from klaw.models.catalogue import CATALOGUE, ModelSpec
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
def embedding_model_dir() -> Path:
    """The folder of multilingual-e5-small."""
    return _pulled("multilingual-e5-small")


@pytest.fixture(scope="session")
def local_llm_dir() -> Path:
    """The folder of smollm2-135m-instruct."""
    return _pulled("smollm2-135m-instruct")
