"""The embedder's backfill of facts and of pieces of memory files: what has no vector of the model in use gets one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.errors import ModelError
from klaw.store.kinds import vectors
from klaw.store.readers import Readers
from klaw.store.sql import passages
from klaw.store.sql.passages import PassageVector, Unembedded
from klaw.store.writer import Writer

if TYPE_CHECKING:
    from klaw.memory.onnx.model import EmbeddingModel  # loads ONNX Runtime; imported when a model is

ROWS = 16
"""Embedded at once."""

log = structlog.get_logger("klaw.embedder")


async def embed_passages(
    readers: Readers, writer: Writer, threads: Threads, model: "EmbeddingModel", vectors_id: str
) -> bool:
    """Embed some. Returns whether there may be more to do; not when none of a fetch could be stored.

    Raises:
        StorageFull: they could not be stored.
    """
    waiting = await readers.run(passages.unembedded, vectors_id, ROWS)
    if not waiting:
        return False
    try:
        made = await threads.run(_embed, model, waiting)
    except ModelError as error:
        log.warning("embed_failed", count=len(waiting), error=error_class(error))
        return False
    return await writer.run(vectors.store_of_passages, vectors_id, made) > 0


def _embed(model: "EmbeddingModel", waiting: list[Unembedded]) -> list[PassageVector]:
    made = model.embed([each.text for each in waiting], kind="passage").astype("<f4")
    return [
        PassageVector(each.kind, each.rowid, each.text, bytes(vector.tobytes()))
        for each, vector in zip(waiting, made, strict=True)
    ]


class HasSize(Protocol):
    @property
    def tokens(self) -> int: ...


Row = TypeVar("Row", bound=HasSize)


def split_batches(rows: Sequence[Row], batch_tokens: int) -> list[list[Row]]:
    """Batches of similar length: sorted by length, each of at most ``batch_tokens`` padded tokens (or one row)."""
    ordered = sorted(rows, key=lambda row: row.tokens)
    batches: list[list[Row]] = []
    for row in ordered:
        longest = row.tokens  # rows come in ascending length, so this one is the longest yet
        if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
