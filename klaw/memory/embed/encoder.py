"""``EncoderSession``: token ids to hidden states with ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime

from klaw.errors import ModelError
from klaw.memory.embed.describe import GRAPH_FILE
from klaw.memory.embed.token_coder import Floats

Int64: TypeAlias = npt.NDArray[np.int64]

_KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_LOG_ERRORS = 3


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _LOG_ERRORS
    # The arena keeps the largest batch's buffers for ever and rounds them up; plain malloc gives them back.
    options.enable_cpu_mem_arena = False
    # Memory patterns are cached per input shape, and our shapes are different in nearly every batch.
    options.enable_mem_pattern = False
    # Waiting workers sleep. Spinning saves 2 ms of a query's 12 on an idle machine, but on a busy one (say, by a local
    # LLM) it was measured to cost a quarter more CPU and to save nothing.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


class EncoderSession:
    """One encoder. ``run`` may be called from several threads at a time."""

    def __init__(self, folder: Path, *, threads: int, pad: int) -> None:
        path = folder / GRAPH_FILE
        if not path.is_file():
            raise ModelError(f"{path}: the file is missing")
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), _options(threads), providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # ONNX Runtime has no common base class for its errors
            raise ModelError(f"{path}: ONNX Runtime cannot load it ({type(exc).__name__})") from exc
        self._path = path
        self._pad = pad
        self._inputs = {each.name for each in self._session.get_inputs()}
        unknown = self._inputs - _KNOWN_INPUTS
        if unknown or "input_ids" not in self._inputs:
            raise ModelError(f"{path}: inputs {sorted(self._inputs)} are not those of a text encoder")
        outputs = [each.name for each in self._session.get_outputs() if len(each.shape) == 3]
        if not outputs:
            raise ModelError(f"{path}: has no output of shape (batch, length, hidden)")
        self._output = outputs[0]

    def run(self, rows: Sequence[Sequence[int]]) -> tuple[Floats, Int64]:
        """Runs one batch of token ids, special tokens included.

        Returns:
            The hidden states (rows, longest row, hidden) float32 and the mask (rows, longest row) int64: 1 for a
            token, 0 for padding.

        Raises:
            ModelError: ONNX Runtime failed.
        """
        width = max(len(row) for row in rows)
        ids = np.full((len(rows), width), self._pad, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        feed = {"input_ids": ids}
        if "attention_mask" in self._inputs:
            feed["attention_mask"] = mask
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = np.zeros_like(ids)
        try:
            (states,) = self._session.run([self._output], feed)
        except Exception as exc:  # as above
            raise ModelError(f"{self._path}: ONNX Runtime failed ({type(exc).__name__})") from exc
        return np.asarray(states, np.float32), mask
