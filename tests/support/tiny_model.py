"""A second embedding model, made in the test: a table of word vectors behind the real model's tokenizer."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = 512


def write_tiny_model(folder: Path, tokenizer_of: Path, *, dimension: int = 16, table: np.ndarray | None = None) -> Path:
    """Writes a folder in the Hugging Face layout.

    Args:
        folder: made.
        tokenizer_of: a model folder with a ``sentencepiece.model``.
        dimension: of the vectors.
        table: (512, dimension) float32, one row for each token id modulo 512; random by default.
    """
    folder.mkdir(parents=True)
    (folder / "sentencepiece.model").hardlink_to(tokenizer_of / "sentencepiece.model")
    rows = np.random.default_rng(7).normal(size=(ROWS, dimension)) if table is None else table
    grid = ["batch", "length"]
    graph = helper.make_graph(
        [
            helper.make_node("Mod", ["input_ids", "rows"], ["row"]),
            helper.make_node("Gather", ["table", "row"], ["last_hidden_state"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, grid)],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*grid, rows.shape[1]])],
        [
            numpy_helper.from_array(rows.astype(np.float32), "table"),
            numpy_helper.from_array(np.array(ROWS, np.int64), "rows"),
        ],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "model.onnx")
    return folder
