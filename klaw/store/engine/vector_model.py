"""Which model's vectors are stored."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import apsw

from klaw.store.engine import meta

FLOAT_BYTES = 4
MODEL_KEY = "embedding_model"
DIMENSION_KEY = "embedding_dimension"


def current(connection: apsw.Connection) -> tuple[str, int] | None:
    """Id and dimension of the model whose vectors are stored."""
    name, dimension = meta.get(connection, MODEL_KEY), meta.get(connection, DIMENSION_KEY)
    return (name, int(dimension)) if name is not None and dimension is not None else None


def current_id(connection: apsw.Connection) -> str:
    """Id of the model whose vectors are stored; empty while none is in use: no vector has that."""
    return (current(connection) or ("", 0))[0]


class _WithVector(Protocol):
    @property
    def vector(self) -> bytes: ...


V = TypeVar("V", bound=_WithVector)


def fitting(connection: apsw.Connection, wanted: str, made: Sequence[V]) -> list[V]:
    """Those of some vectors that fit the model in use; none when it took the place of the one that made them."""
    now, dimension = current(connection) or ("", 0)
    return [each for each in made if now == wanted and len(each.vector) == dimension * FLOAT_BYTES]
