"""Codes of vectors, small enough to read all of a user's for one search. Pure.

A code has two bits for each component, after the vectors' common centre has been taken away: its sign, and whether it
is large. Without that the raw signs hardly differ, because the vectors of one model point into the same narrow cone
(two random texts have a cosine of 0.77). Beside the bits stand three numbers, which turn a comparison of bits into an
estimate of the cosine (the idea of RaBitQ, SIGMOD 2024): the rough one compares signs with the query's signs, where the
query's large components count for more; the fine one, off by 0.005, all bits with the query's numbers.
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

_LARGE, _LEVELS = 0.9816, (0.4528, 1.5104)
"""From which size on a component counts as large, and what the two sizes stand for, in units of the components' root
mean square: the best quantiser of a normal distribution with two bits (Lloyd and Max)."""
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little").astype(np.float32)
"""(256, 8): the bits of every byte."""
_TINY, _HUGE = 1e-6, 1e6
_MAX_UINT32 = 2**32 - 1


@attrs.frozen
class VectorItem:
    """A vector (little-endian float32) to encode, with what a search filters by."""

    rowid: int
    seq: int
    created_s: int
    """Unix seconds, rounded down."""
    role: str
    vector: bytes
    chat_key: int = 0
    user: str = ""


def record_type(dimension: int) -> np.dtype[np.void]:
    """One vector's record in a block, always a multiple of 8 bytes; 120 for 384 dimensions."""
    words = (dimension + 63) // 64
    return np.dtype(
        [
            ("rowid", "<i8"),
            ("signs", "<u8", (words,)),
            ("large", "<u8", (words,)),
            ("created_s", "<u4"),
            ("seq", "<u4"),
            ("nearness", "<f2"),  # -|r|²/2, where r is the vector without the centre
            ("rough_scale", "<f2"),  # |r|²/(signs·r)
            ("fine_scale", "<f2"),  # |r|²/(levels·r)
            ("role", "u1"),
            ("unused", "V1"),
        ]
    )


def take(records: Records, places: npt.NDArray[np.intp]) -> Records:
    """Some of the records. As whole numbers: numpy copies records with several fields far more slowly."""
    plain = records.view(np.uint64).reshape(len(records), -1)
    return plain.take(places, axis=0).view(records.dtype).reshape(-1)


def join(batches: Sequence[Records]) -> Records:
    return np.concatenate([batch.view(np.uint64) for batch in batches]).view(batches[0].dtype)


def _unit(vectors: Sequence[bytes], dimension: int) -> Floats:
    made = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimension).astype(np.float32)
    # A damaged row must not spoil a whole block.
    made = np.clip(np.nan_to_num(made, nan=0.0, posinf=0.0, neginf=0.0), -_HUGE, _HUGE)
    length = np.linalg.norm(made, axis=1, keepdims=True)
    return np.asarray(made / np.where(length > 0, length, 1), np.float32)


def mean(vectors: Sequence[bytes], dimension: int) -> Floats:
    """The centre of some vectors (little-endian float32)."""
    return np.asarray(_unit(vectors, dimension).mean(axis=0), np.float32)


def dump(centre: Floats) -> str:
    return base64.b64encode(centre.astype("<f4").tobytes()).decode("ascii")


def load(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), "<f4")


def _packed(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    rows, dimension = bits.shape
    padded = np.zeros((rows, (dimension + 63) // 64 * 64), np.bool_)
    padded[:, :dimension] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")


def encode(items: Sequence[VectorItem], centre: Floats) -> Records:
    dimension = len(centre)
    residuals = _unit([item.vector for item in items], dimension) - centre
    sizes = np.abs(residuals)
    square = (residuals * residuals).sum(axis=1)
    large = sizes > _LARGE * np.sqrt(square / dimension)[:, np.newaxis]
    levels = np.where(large, np.float32(_LEVELS[1]), np.float32(_LEVELS[0]))
    records = np.zeros(len(items), record_type(dimension))
    records["rowid"] = [item.rowid for item in items]
    records["seq"] = [item.seq for item in items]
    records["created_s"] = [min(max(item.created_s, 0), _MAX_UINT32) for item in items]
    records["role"] = [ROLES.get(Role(item.role), 0) for item in items]
    records["signs"] = _packed(residuals > 0)
    records["large"] = _packed(large)
    records["nearness"] = -square / 2
    records["rough_scale"] = square / np.maximum(sizes.sum(axis=1), _TINY)
    records["fine_scale"] = square / np.maximum((levels * sizes).sum(axis=1), _TINY)
    return records


class CodedQuery:
    """A query's vector, made ready to be compared with codes.

    Of unit vectors x = centre + r holds x·q = r·(q - centre) + r·centre + constant, and r·centre = -|r|²/2 + constant.
    The first product is estimated from the code, the second is stored.
    """

    def __init__(self, vector: bytes, centre: Floats) -> None:
        self._residual = (_unit([vector], len(centre)) - centre)[0]
        usual = np.sqrt((self._residual * self._residual).mean())
        large = np.abs(self._residual) > _LARGE * usual
        self._signs, self._large = _packed(np.stack([self._residual > 0, large]))
        self._small, self._more = np.float32(_LEVELS[0] * usual), np.float32((_LEVELS[1] - _LEVELS[0]) * usual)
        """What a small component counts, and how much more a large one does."""
        self._full = self._small * len(self._residual) + self._more * np.count_nonzero(large)
        padded = np.zeros(len(self._signs) * 64, np.float32)
        padded[: len(centre)] = self._residual
        self._sums = padded.reshape(-1, 8) @ _BITS.T
        """(bytes, 256): the sum of the query's components that are set in each value of each byte."""

    def rough(self, records: Records) -> Floats:
        """How near each record is, up to a constant; larger is nearer. Compares signs with signs: quick. A different
        sign where the query is large costs more: so a quarter as many records have to be looked at more closely."""
        signs = records["signs"]
        different, of_large = np.zeros(len(records), np.uint16), np.zeros(len(records), np.uint16)
        for word in range(signs.shape[1]):
            bits = signs[:, word] ^ self._signs[word]
            different += np.bitwise_count(bits)
            of_large += np.bitwise_count(np.bitwise_and(bits, self._large[word], out=bits))
        product = self._full - (2 * self._small) * different - (2 * self._more) * of_large
        return np.asarray(records["rough_scale"] * product + records["nearness"], np.float32)

    def fine(self, records: Records) -> Floats:
        """The same, more exactly, by all bits and the query's numbers: for some thousand records."""
        signs, large = (np.ascontiguousarray(records[name]).view(np.uint8) for name in ("signs", "large"))
        positive = self._sum(signs)
        large_positive, all_large = self._sum(signs & large), self._sum(large)
        small, more = _LEVELS[0], _LEVELS[1] - _LEVELS[0]
        product = small * (2 * positive - self._residual.sum()) + more * (2 * large_positive - all_large)
        return np.asarray(records["fine_scale"] * product + records["nearness"], np.float32)

    def _sum(self, bits: npt.NDArray[np.uint8]) -> Floats:
        total = np.zeros(len(bits), np.float32)
        for place, sums in enumerate(self._sums):
            total += sums.take(bits[:, place])
        return total
