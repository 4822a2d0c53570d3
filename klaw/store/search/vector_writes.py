"""Vectors of messages and passages, and their codes: what the writer runs."""

from collections.abc import Mapping, Sequence

from klaw.errors import StorageError
from klaw.store.engine import vector_model
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.search import passages, token_codes, vector_codes, vectors
from klaw.store.search.passages import PassageVector


def store(
    tx: Transaction,
    model_id: str,
    made: Sequence[tuple[int, bytes]],
    as_of: int | None = None,
    codes: Mapping[int, bytes] | None = None,
) -> int:
    """Store vectors made by a model, unless that was replaced meanwhile, and codes of tokens, as ``vectors.store``
    does. Returns how many vectors were new. Of a user who has forgotten something since ``as_of``, an entry of the
    memory journal, none is stored: what was read may hold it. Raises VectorsDamaged where the vector table cannot take
    them, StorageError where one has another dimension than the model's; then none was stored."""
    model = vector_model.current(tx.connection)
    if model is None or model[0] != model_id:
        return 0
    if any(len(vector) != model[1] * vector_model.FLOAT_BYTES for _, vector in made):
        raise StorageError(f"a vector has another dimension than {model[1]}, the model's; none was stored")
    with tx.touching_vectors():
        count = vectors.store(tx.connection, made, as_of, codes)
        vector_codes.advance(tx.connection)
        return count


def store_of_passages(tx: Transaction, model_id: str, made: Sequence[PassageVector]) -> int:
    """Store vectors of facts and chunks; returns how many. What has another text meanwhile is left out."""
    return passages.store(tx.connection, model_id, made)


async def prepare(writer: Writer, model_id: str, dimension: int, *, damaged: bool = False) -> bool:
    """Make the vector table fit a model, in steps between which messages are stored; ``damaged``: drop it, and let
    every message be embedded again. Returns whether another model's vectors were dropped and are not all made again
    yet. Raises VectorsDamaged if not even dropping works. Cancelled, the next call goes on from there."""
    while (dropped := await writer.run(_prepare_some, model_id, dimension, damaged=damaged)) is None:
        pass
    return dropped


def _prepare_some(tx: Transaction, model_id: str, dimension: int, *, damaged: bool) -> bool | None:
    with tx.touching_vectors():
        if damaged:
            vectors.make_anew(tx.connection, model_id, dimension)
        return vectors.prepare_some(tx.connection, model_id, dimension)


async def prepare_codes(writer: Writer, coder: str) -> None:
    """Drop the codes of tokens that another coder made, likewise."""
    while not await writer.run(lambda tx: token_codes.prepare_some(tx.connection, coder)):
        pass


def codes_complete_from(tx: Transaction, rowid: int) -> None:
    token_codes.looked_through(tx.connection, rowid)


def end_reembedding(tx: Transaction) -> None:
    vectors.end_reembedding(tx.connection)


def encode(tx: Transaction) -> bool:
    """Make codes for some vectors that have none; returns whether there may be more to do."""
    with tx.touching_vectors():
        return vector_model.current(tx.connection) is not None and vector_codes.advance(tx.connection)
