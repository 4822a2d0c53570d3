"""Late interaction (Khattab and Zaharia, SIGIR 2020) in 128 bits a token: what of a text's tokens is stored, and what
of a question's scores it. Pure.

The token states that a text's vector is the mean of also say which word answers which. A state is centred and turned
onto the 128 axes along which such states differ most (PCA), and of each axis the sign is kept. Of a question's tokens
nothing is rounded: signs compared with numbers find what all of both states would (docs/benchmarks.md), signs compared
with signs do not. Centre and axes were learned by ``tools/train_token_codes.py`` for one model, and are data beside it.
"""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Self, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from klaw.errors import ModelError

TOKENS_FILE = "token_codes.npz"
BITS = 128
CODE_BYTES = BITS // 8
MAX_TOKENS = 512
"""Tokens of one message that get codes; the rest of a longer one is found by its vector and its words."""
_TINY = 1e-9

Floats: TypeAlias = npt.NDArray[np.float32]


@attrs.frozen(eq=False)
class Reading:
    """What one run of the model made of a text."""

    vector: bytes
    """Little-endian float32, L2-normalised."""
    codes: bytes = b""
    """Of a passage: 16 bytes for each token that says something; empty where the model has no coder."""
    tokens: Floats | None = None
    """Of a query: what ``token_overlap`` compares with such codes, (tokens, 128)."""


@attrs.frozen(eq=False)
class TokenCoder:
    id: str
    """A hash of what follows; codes of two ids cannot be compared."""
    centre: Floats
    """(hidden,): the mean of the normalised states."""
    axes: Floats
    """(hidden, 128)."""
    spread: Floats
    """(128,): how far states lie from the centre along each axis; its length is 1."""

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            data = path.read_bytes()
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                centre, axes, spread = (np.asarray(stored[name], np.float32) for name in ("centre", "axes", "spread"))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as exc:
            raise ModelError(f"{path}: cannot be read ({type(exc).__name__})") from exc
        if centre.ndim != 1 or axes.shape != (len(centre), BITS) or spread.shape != (BITS,):
            raise ModelError(f"{path}: its arrays do not fit together")
        return cls(hashlib.sha256(data).hexdigest()[:12], centre, axes, spread)

    def project(self, states: Floats) -> Floats:
        """States (tokens, hidden) as unit vectors (tokens, 128)."""
        return unit(np.asarray((unit(states) - self.centre) @ self.axes, np.float32))

    def query(self, projected: Floats, weights: Floats) -> Floats:
        """What stands for a question's tokens, weighted: its products with a code's signs add up to the score."""
        return projected * self.spread * (weights / max(float(weights.sum()), _TINY))[:, np.newaxis]


def encode(projected: Floats) -> bytes:
    """The signs of projected states: 16 bytes a token."""
    return np.packbits(projected > 0, axis=1).tobytes()


def unit(rows: npt.NDArray[np.floating]) -> Floats:
    """The rows scaled to length 1; a row of zeros stays as it is."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), _TINY), np.float32)
