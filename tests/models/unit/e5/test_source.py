"""The reader of the packed model file, on a file small enough to check by hand."""

import struct
from pathlib import Path

import numpy as np
import pytest

from klaw.errors import ModelError
from klaw.models.e5.source import open_source

ROWS, COLUMNS = 3, 64
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁мир", "a"]


def _packed_rows() -> tuple[bytes, np.ndarray]:
    """Q4_0 blocks as ggml defines them, and the matrix that they stand for."""
    random = np.random.default_rng(3)
    nibbles = random.integers(0, 16, (ROWS, COLUMNS // 32, 32))
    scales = random.uniform(0.01, 0.1, (ROWS, COLUMNS // 32)).astype(np.float16)
    data = b""
    for row in range(ROWS):
        for block in range(COLUMNS // 32):
            values = nibbles[row, block]
            data += scales[row, block].tobytes() + bytes(values[j] | values[j + 16] << 4 for j in range(16))
    weights = (nibbles - 8) * scales.astype(np.float32)[:, :, None]
    return data, weights.reshape(ROWS, COLUMNS)


def _file(*, magic: bytes = b"E5S1", block: int = 32) -> bytes:
    head = magic + struct.pack("<I7ifi", 1, COLUMNS, 1, 2, 128, len(PIECES), 512, 2, 1e-12, block)
    blob = "".join(PIECES).encode()
    offsets = np.cumsum([0, *(len(piece.encode()) for piece in PIECES)]).astype(np.uint32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(blob))
    head += offsets.tobytes() + np.arange(len(PIECES), dtype=np.float32).tobytes() + blob
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF21, 1, 0x41)  # one normalisation entry
    quantised, _weights = _packed_rows()
    tensors = {"w": (1, quantised), "b": (0, np.arange(4, dtype=np.float32).tobytes())}
    directory_bytes = sum(2 + len(name) + 21 for name in tensors) + 4
    at = -(-(len(head) + directory_bytes) // 64) * 64
    directory, body = struct.pack("<i", len(tensors)), b""
    for name, (kind, data) in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, len(data), at + len(body), len(data))
        body += data
    return (head + directory).ljust(at, b"\0") + body


def _write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "tiny.bin"
    path.write_bytes(data)
    return path


def test_the_vocabulary_and_the_shape_are_read(tmp_path: Path) -> None:
    source = open_source(_write(tmp_path, _file()))
    assert source.pieces == PIECES
    assert source.scores.tolist() == [0, 1, 2, 3, 4, 5]
    assert (source.bos, source.pad, source.eos, source.unknown) == (0, 1, 2, 3)
    assert (source.shape.hidden, source.shape.heads, source.shape.positions) == (COLUMNS, 2, 512)
    assert source.floats("b", 4).tolist() == [0, 1, 2, 3]


def test_the_repacked_numbers_are_the_same_numbers(tmp_path: Path) -> None:
    """ONNX Runtime reads two neighbouring weights from a byte, the first in the low nibble."""
    found = open_source(_write(tmp_path, _file())).quantised("w", ROWS, COLUMNS)
    nibbles = np.stack([found.packed & 0x0F, found.packed >> 4], axis=-1).reshape(ROWS, COLUMNS // 32, 32)
    weights = (nibbles.astype(np.float32) - 8) * found.scales[:, :, None]
    assert np.array_equal(weights.reshape(ROWS, COLUMNS), _packed_rows()[1].astype(np.float32))


@pytest.mark.parametrize("magic", [b"GGUF", b"\0\0\0\0"])
def test_another_kind_of_file_is_refused(tmp_path: Path, magic: bytes) -> None:
    with pytest.raises(ModelError, match=r"tiny\.bin: not an E5S1 model"):
        open_source(_write(tmp_path, _file(magic=magic)))


def test_another_block_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="block is 16"):
        open_source(_write(tmp_path, _file(block=16)))


@pytest.mark.parametrize("kept", [0, 10, 64, 100, 150, 200, 300, -1])
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, kept: int) -> None:
    with pytest.raises(ModelError, match=r"tiny\.bin"):
        open_source(_write(tmp_path, _file()[:kept]))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    source = open_source(_write(tmp_path, _file()))
    with pytest.raises(ModelError, match=r"no tensor emb\.word"):
        source.floats("emb.word", 1)
