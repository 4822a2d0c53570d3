"""Codes of vectors, small enough to read all of a user's for one search. Pure; no SQL here.

A code is the sign of each component, after the vectors' common centre has been taken away: the vectors of one model
point into the same narrow cone (two random texts have a cosine of 0.77), so the raw signs hardly differ. Beside the
signs stand two numbers: how far the vector is from the centre, and how well the signs stand for it. With them, a count
of different bits becomes an estimate of the cosine (the idea of RaBitQ, SIGMOD 2024), which finds the true neighbours
among a fifth of the candidates that the count alone needs.
"""

import base64
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from klaw.domain.message import Role

Floats = npt.NDArray[np.float32]
Records = npt.NDArray[np.void]

ROLES = {Role.USER: 1, Role.ASSISTANT: 2}
"""How a record says who a message is from; 0 is anybody else."""

_MIN_SPREAD = 0.05
"""Of a vector that lies almost on the centre or on one axis the signs say little; this bounds the estimate."""
_SIGNS = (
    2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little").astype(np.float32) - 1
)
"""(256, 8): the signs that a byte stands for."""
_MAX_UINT32 = 2**32 - 1


@attrs.frozen(kw_only=True)
class Item:
    """A vector to encode, with what a search filters by."""

    rowid: int
    seq: int
    created_s: int
    """Unix seconds, rounded down."""
    role: str
    vector: bytes
    """Little-endian float32."""


def record_type(dimension: int) -> np.dtype[np.void]:
    """One vector's record in a block: what filters need, then the code. 72 bytes for 384 dimensions,
    always a multiple of 8."""
    return np.dtype(
        [
            ("rowid", "<i8"),
            ("code", "<u8", ((dimension + 63) // 64,)),
            ("created_s", "<u4"),
            ("seq", "<u4"),
            ("distance", "<f2"),  # from the centre
            ("spread", "<f2"),  # cosine between the vector and its signs
            ("role", "u1"),
            ("unused", "V3"),
        ]
    )


def take(records: Records, places: npt.NDArray[np.intp]) -> Records:
    """Some of the records. As whole numbers: numpy copies records with several fields far more slowly."""
    plain = records.view(np.uint64).reshape(len(records), -1)
    return plain.take(places, axis=0).view(records.dtype).reshape(-1)


def join(batches: Sequence[Records]) -> Records:
    """Batches of records as one."""
    return np.concatenate([batch.view(np.uint64) for batch in batches]).view(batches[0].dtype)


def _unit(vectors: Sequence[bytes], dimension: int) -> Floats:
    made = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimension).astype(np.float32)
    # A damaged row must not spoil a whole block.
    made = np.nan_to_num(made, nan=0.0, posinf=0.0, neginf=0.0)
    length = np.linalg.norm(made, axis=1, keepdims=True)
    return np.asarray(made / np.where(length > 0, length, 1), np.float32)


def mean(vectors: Sequence[bytes], dimension: int) -> Floats:
    """The centre of some vectors (little-endian float32)."""
    return np.asarray(_unit(vectors, dimension).mean(axis=0), np.float32)


def dump(centre: Floats) -> str:
    """A centre as text."""
    return base64.b64encode(centre.astype("<f4").tobytes()).decode("ascii")


def load(text: str) -> Floats:
    """The centre of a text made by ``dump``."""
    return np.frombuffer(base64.b64decode(text), "<f4")


def _signs(residuals: Floats) -> npt.NDArray[np.uint64]:
    rows, dimension = residuals.shape
    bits = np.zeros((rows, (dimension + 63) // 64 * 64), np.bool_)
    bits[:, :dimension] = residuals > 0
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")


def encode(items: Sequence[Item], centre: Floats) -> Records:
    """The records of some vectors."""
    dimension = len(centre)
    residuals = _unit([item.vector for item in items], dimension) - centre
    distance = np.linalg.norm(residuals, axis=1)
    spread = np.abs(residuals).sum(axis=1) / np.maximum(distance * np.sqrt(dimension), 1e-9)
    records = np.zeros(len(items), record_type(dimension))
    records["rowid"] = [item.rowid for item in items]
    records["seq"] = [item.seq for item in items]
    records["created_s"] = [min(max(item.created_s, 0), _MAX_UINT32) for item in items]
    records["role"] = [ROLES.get(Role(item.role), 0) for item in items]
    records["code"] = _signs(residuals)
    records["distance"] = distance
    records["spread"] = np.maximum(spread, _MIN_SPREAD)
    return records


class CodedQuery:
    """A query's vector, made ready to be compared with codes."""

    def __init__(self, vector: bytes, centre: Floats) -> None:
        self._residual = (_unit([vector], len(centre)) - centre)[0]
        self._code = _signs(self._residual[np.newaxis, :])[0]
        self._dimension = len(centre)
        padded = np.zeros((len(centre) + 7) // 8 * 8, np.float32)
        padded[: len(centre)] = self._residual
        self._worth = padded.reshape(-1, 8) @ _SIGNS.T
        """What each value of each byte of a code is worth."""

    def rough(self, records: Records) -> Floats:
        """How near each record is, up to a constant; larger is nearer. Compares signs with signs: quick."""
        codes = records["code"]
        different = np.zeros(len(records), np.uint16)
        for word in range(codes.shape[1]):
            different += np.bitwise_count(codes[:, word] ^ self._code[word])
        typical = float(np.abs(self._residual).mean())
        return self._nearness(records, (self._dimension - 2.0 * different.astype(np.float32)) * typical)

    def fine(self, records: Records) -> Floats:
        """The same, more exactly, because the query keeps its numbers: for a few thousand records."""
        codes = np.ascontiguousarray(records["code"]).view(np.uint8)
        product = np.zeros(len(records), np.float32)
        for place, worth in enumerate(self._worth):
            product += worth.take(codes[:, place])
        return self._nearness(records, product)

    def _nearness(self, records: Records, product: Floats) -> Floats:
        """Of |x| = 1 and x = centre + r: x·q = r·(q - centre) + r·centre + constant, r·centre = -|r|²/2 + constant."""
        distance = records["distance"].astype(np.float32)
        scale = distance / (records["spread"].astype(np.float32) * np.float32(np.sqrt(self._dimension)))
        return np.asarray(scale * product - distance * distance / 2, np.float32)
