"""Text to token ids, behind one Protocol: the SentencePiece form (light) and the Hugging Face ``tokenizer.json``.

``SentencePieceTokenizer`` does in numpy what the library does with a unigram vocabulary, in 8 MB instead of 35. The
best pieces of a text are those whose scores add up to most (Kudo, ACL 2018), found by Viterbi's algorithm. The ids are
the library's own: sums are rounded to 32 bits as there, and of two equal ones that with the longer last piece wins, or
"аааа" would be cut otherwise. (Beyond 30,000 characters the library rounds otherwise, and a few ids differ.)
"""

import sys
import unicodedata
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from klaw.errors import ModelError
from klaw.models.manifest import PIECES_FILE, TOKENIZER_FILE

Numbers: TypeAlias = npt.NDArray[np.uint64]
CodePoints: TypeAlias = npt.NDArray[np.uint32]
Indexes: TypeAlias = npt.NDArray[np.intp]


_TO_SPACE = str.maketrans({"\0": " ", "\u200d": " "})
"""NUL ends a string in C code. XLM-R's rules turn the zero-width joiner of composed emoji into a space; the newer
tables of the sentencepiece library keep it, which would give an unknown token."""


_SPACE = "\u2581"
"""How SentencePiece writes it in its pieces."""
_UNKNOWN_PENALTY = np.float32(10)
"""How far the score of an unknown character is beneath the lowest of all pieces; as in the library."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MAP_BITS = 20
_BLOCK = 4096
"""So many beginnings of pieces are looked at together: bounds the memory for a long text."""


class Tokenizer(Protocol):
    before: list[int]
    after: list[int]
    """Special tokens around each window."""
    pad: int
    """Fills short rows; the model does not look at it."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens and without a length limit."""
        ...

    def weights(self, ids: Sequence[int]) -> list[float]:
        """How much each token says: 0 for punctuation and white space."""
        ...


def clean(text: str) -> str:
    """``text`` without what tokenizers choke on: lone surrogates, NUL, white space at the ends."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Joins pairs that were split by an UTF-16 source; a lone half becomes U+FFFD.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.translate(_TO_SPACE).strip()


class SentencePieceTokenizer:
    """``sentencepiece.model`` as made by klaw.models.e5.source, with normal, control and unknown pieces only. The
    library reads it and normalises texts (NFKC); it is not kept for the pieces, which take 35 MB there."""

    def __init__(self, path: Path) -> None:
        import sentencepiece

        try:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self._normalizer = sentencepiece.SentencePieceNormalizer(model_proto=_without_pieces(path.read_bytes()))
        except (OSError, RuntimeError, ValueError) as exc:
            raise ModelError(f"{path}: not a SentencePiece model ({type(exc).__name__})") from exc
        self.before = [processor.bos_id()]
        self.after = [processor.eos_id()]
        self.pad = processor.pad_id()
        if min(*self.before, *self.after, self.pad) < 0:
            raise ModelError(f"{path}: has no <s>, </s> or <pad>")
        self._read_pieces(processor)

    def _read_pieces(self, processor: Any) -> None:
        ids = list(range(processor.get_piece_size()))
        texts: list[str] = processor.id_to_piece(ids)
        self._unknown: int = processor.unk_id()
        self._scores = np.array(processor.get_score(ids), np.float32)
        points = _code_points("".join(texts))
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        starts = np.cumsum(lengths) - lengths
        normal = np.flatnonzero(~np.array(processor.is_control(ids)) & ~np.array(processor.is_unknown(ids)))
        self._lowest = float(self._scores[normal].min() - _UNKNOWN_PENALTY)
        self._longest = int(lengths[normal].max())
        hashes = np.zeros(len(ids), np.uint64)
        for at in range(int(lengths.max())):
            some = lengths > at
            hashes[some] = _longer(hashes[some], points[starts[some] + at])
        self._ids = normal[np.argsort(hashes[normal])].astype(np.int32)
        self._hashes = hashes[self._ids]
        self._may_be = np.zeros(1 << _MAP_BITS, np.bool_)
        """Whether a piece's hash begins with these bits: most parts of a text need no look at the hashes."""
        self._may_be[_first_bits(self._hashes)] = True
        says = np.zeros(sys.maxunicode + 1, np.bool_)
        says[points] = True
        says[[at for at in np.flatnonzero(says).tolist() if chr(at) == _SPACE or not says_something(chr(at))]] = False
        self._weights = np.where(np.logical_or.reduceat(says[points], starts), -self._scores, np.float32(0))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._encode(self._normalizer.normalize(clean(text))) for text in texts]

    def weights(self, ids: Sequence[int]) -> list[float]:
        """How rare each token is, by its score: the logarithm of how often it occurs."""
        weights: list[float] = self._weights[list(ids)].tolist()
        return weights

    def _encode(self, text: str) -> list[int]:
        points = _code_points(text)
        best, sum_32 = array("f", bytes(4 * (len(points) + 1))), array("f", [0])
        begin_of = array("l", [-1]) * len(best)
        """For each place in the text: where the last piece of the best path to it begins …"""
        piece_of = array("l", begin_of)
        """… and which it is."""
        for start in range(0, len(points), _BLOCK):
            first, ends, ids = self._pieces_in(points, start)
            edges = list(zip(ends.tolist(), self._scores[ids].tolist(), ids.tolist(), strict=True))
            for begin, (low, high) in enumerate(pairwise(first), start):
                here = edges[low:high]
                if not here or here[0][0] != begin + 1:  # they come in the order of their lengths
                    here.append((begin + 1, self._lowest, self._unknown))
                for end, score, piece in here:
                    sum_32[0] = best[begin] + score
                    if begin_of[end] < 0 or sum_32[0] > best[end]:
                        best[end], begin_of[end], piece_of[end] = sum_32[0], begin, piece
        path: list[int] = []
        at = len(points)
        while at > 0:
            if piece_of[at] != self._unknown or path[-1:] != [self._unknown]:  # unknown ones in a row are one piece
                path.append(piece_of[at])
            at = begin_of[at]
        return path[::-1]

    def _pieces_in(self, points: CodePoints, start: int) -> tuple[list[int], Indexes, npt.NDArray[np.int32]]:
        """All pieces in a block, by beginning and length: the limits of each beginning's; their ends; their ids."""
        points = points[start : start + _BLOCK + self._longest - 1]
        block = count = min(_BLOCK, len(points))
        hashes = np.zeros(count, np.uint64)
        begins, ends, wanted = [], [], []
        for length in range(1, min(self._longest, len(points)) + 1):
            count = min(count, len(points) - length + 1)
            hashes = _longer(hashes[:count], points[length - 1 : length - 1 + count])
            some = np.flatnonzero(self._may_be[_first_bits(hashes)])
            begins.append(some)
            ends.append(start + some + length)
            wanted.append(hashes[some])
        looked_for = np.concatenate(wanted)
        places = np.minimum(np.searchsorted(self._hashes, looked_for), len(self._hashes) - 1)
        right = np.flatnonzero(self._hashes[places] == looked_for)
        begin = np.concatenate(begins)[right]
        order = np.argsort(begin, kind="stable")
        first: list[int] = np.searchsorted(begin[order], np.arange(block + 1)).tolist()
        return first, np.concatenate(ends)[right][order], self._ids[places[right][order]]


def _without_pieces(model: bytes) -> bytes:
    """A model's rules: its message of protobuf from behind the pieces, which are its first field."""
    at, end = 0, len(model) - 1
    while at < end and model[at] == 0x0A and model[at + 1] < 128:
        at += 2 + model[at + 1]
    return model[at:]


class HuggingFaceTokenizer:
    """``tokenizer.json``, where the ``tokenizers`` package is installed."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError as exc:
            raise ModelError(f"{path}: this model needs the tokenizers package: pip install tokenizers") from exc
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as exc:  # the library raises bare Exception
            raise ModelError(f"{path}: not a tokenizer ({type(exc).__name__})") from exc
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        sample: list[int] = self._tokenizer.encode("a", add_special_tokens=True).ids
        bare: list[int] = self._tokenizer.encode("a", add_special_tokens=False).ids
        start = next((at for at in range(len(sample)) if sample[at : at + len(bare)] == bare), None)
        if not bare or start is None:
            raise ModelError(f"{path}: special tokens are not in front of and behind the text")
        self.before = sample[:start]
        self.after = sample[start + len(bare) :]
        pads = (self._tokenizer.token_to_id(name) for name in ("<pad>", "[PAD]", "<|endoftext|>"))
        self.pad = next((pad for pad in pads if pad is not None), 0)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        cleaned = [clean(text) for text in texts]
        return [found.ids for found in self._tokenizer.encode_batch(cleaned, add_special_tokens=False)]

    def weights(self, ids: Sequence[int]) -> list[float]:
        """1 for each token that says something, else 0: not every tokenizer.json says how often a token occurs."""
        return [float(says_something(self._tokenizer.id_to_token(each) or "")) for each in ids]


def load_tokenizer(folder: Path) -> Tokenizer:
    """Raises ModelError: there is no tokenizer, it is broken, or its package is not installed."""
    if (folder / PIECES_FILE).is_file():
        return SentencePieceTokenizer(folder / PIECES_FILE)
    if (folder / TOKENIZER_FILE).is_file():
        return HuggingFaceTokenizer(folder / TOKENIZER_FILE)
    raise ModelError(f"{folder}: holds neither {PIECES_FILE} nor {TOKENIZER_FILE}")


def says_something(piece: str) -> bool:
    """Whether a token has a letter, a digit or an emoji in it."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in piece)


def _code_points(text: str) -> CodePoints:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def _longer(hashes: Numbers, points: CodePoints) -> Numbers:
    return (hashes + points + np.uint64(1)) * _FACTOR


def _first_bits(hashes: Numbers) -> Numbers:
    return hashes >> np.uint64(64 - _MAP_BITS)
