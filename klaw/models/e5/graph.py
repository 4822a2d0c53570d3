"""Builds the ONNX graph of multilingual-e5-small from the source file's own 4-bit numbers.

The weights go to one external data file next to the graph: ONNX Runtime maps it, so the word table (60 MB) costs
resident memory only for the rows that texts touch. Needs the ``onnx`` package (extra ``local``), which nothing needs
at run time.
"""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import onnx

from klaw.models.e5.source import BLOCK, Quantised, SourceFile

GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "model.onnx.data"

_OPSET = 17
_IR_VERSION = 10
_CONTRIB = "com.microsoft"
_ALIGNMENT = 4096
"""External tensors start on page boundaries, which is what ONNX Runtime needs to map them."""
_SMALL = 1024
"""Tensors under this many bytes stay in the graph; constants of shapes must."""
_ACCURACY_LEVEL = 4
"""Activations as int8 per block, which is also what the source engine does. Measured on 2 cores against 0 (float32
activations): a query takes 12.5 ms instead of 15 to 17, throughput is the same, cosine between the two 0.9999."""


class _Weights:
    """Appends tensors to the external data file and remembers them as initializers."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.initializers: list[onnx.TensorProto] = []

    def add(self, name: str, array: npt.NDArray[np.generic]) -> str:
        """Stores ``array`` and returns ``name``, so that calls nest in node definitions."""
        if array.nbytes < _SMALL:
            self.initializers.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
            return name
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        tensor = onnx.TensorProto(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.dims.extend(array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = {"location": WEIGHTS_FILE, "offset": self._file.tell(), "length": array.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self._file.write(np.ascontiguousarray(array).data)
        self.initializers.append(tensor)
        return name


class _Graph:
    """The nodes, in order. Methods take and return names of values."""

    def __init__(self, source: SourceFile, weights: _Weights) -> None:
        self._source = source
        self._weights = weights
        self._shape = source.shape
        self.nodes: list[onnx.NodeProto] = []

    def node(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: float) -> str:
        node = onnx.helper.make_node(kind, inputs, [output], name=output, domain=domain)
        node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output

    def _floats(self, name: str, *shape: int) -> str:
        return self._weights.add(name, self._source.floats(name, *shape))

    def _matmul(self, value: str, parts: list[str], rows: int, columns: int, output: str) -> str:
        """``value`` times W^T, plus b; ``parts`` are the name prefixes of matrices stacked into one product."""
        matrices = [self._source.quantised(f"{part}.w", rows, columns) for part in parts]
        bias = np.concatenate([self._source.floats(f"{part}.b", rows) for part in parts])
        stacked = Quantised(
            packed=np.concatenate([m.packed for m in matrices]), scales=np.concatenate([m.scales for m in matrices])
        )
        inputs = [
            value,
            self._weights.add(f"{output}.w", stacked.packed),
            self._weights.add(f"{output}.scales", stacked.scales),
            "",
            "",
            self._weights.add(f"{output}.b", bias),
        ]
        return self.node(
            "MatMulNBits",
            inputs,
            output,
            _CONTRIB,
            K=columns,
            N=rows * len(parts),
            bits=4,
            block_size=BLOCK,
            accuracy_level=_ACCURACY_LEVEL,
        )

    def _residual_norm(self, value: str, skip: str, prefix: str, output: str) -> str:
        hidden = self._shape.hidden
        return self.node(
            "SkipLayerNormalization",
            [value, skip, self._floats(f"{prefix}.w", hidden), self._floats(f"{prefix}.b", hidden)],
            output,
            _CONTRIB,
            epsilon=self._shape.epsilon,
        )

    def embeddings(self, ids: str) -> str:
        """Word + position + the one token type, normalised."""
        shape = self._shape
        word = self._source.quantised("emb.word", shape.vocabulary, shape.hidden)
        words = self.node(
            "GatherBlockQuantized",
            [
                self._weights.add("emb.word", word.packed.reshape(shape.vocabulary, shape.hidden // 2)),
                ids,
                self._weights.add("emb.word.scales", word.scales),
            ],
            "words",
            _CONTRIB,
            bits=4,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
        table = self._source.floats("emb.pos", shape.positions, shape.hidden)
        types = self._source.floats("emb.type", -1, shape.hidden)
        table = table + types[0]
        length = self.node("Shape", [ids], "length", start=1, end=2)
        zero = self._weights.add("zero", np.array([0], np.int64))
        positions = self.node("Slice", [self._weights.add("emb.position", table), zero, length], "positions")
        summed = self.node("Add", [words, positions], "embedded")
        return self.node(
            "LayerNormalization",
            [summed, self._floats("emb.ln.w", shape.hidden), self._floats("emb.ln.b", shape.hidden)],
            "x",
            axis=-1,
            epsilon=shape.epsilon,
        )

    def layer(self, value: str, mask: str, at: int) -> str:
        """One transformer layer (post-norm)."""
        shape = self._shape
        name = f"l{at}"
        joined = self._matmul(value, [f"{name}.q", f"{name}.k", f"{name}.v"], shape.hidden, shape.hidden, f"{name}.qkv")
        heads = [f"{name}.query", f"{name}.key", f"{name}.value"]
        self.nodes.append(onnx.helper.make_node("Split", [joined, "thirds"], heads, name=f"{name}.split", axis=-1))
        attended = self.node(
            "MultiHeadAttention", [*heads, "", mask], f"{name}.attended", _CONTRIB, num_heads=shape.heads
        )
        out = self._matmul(attended, [f"{name}.ao"], shape.hidden, shape.hidden, f"{name}.out")
        value = self._residual_norm(value, out, f"{name}.aln", f"{name}.mid")
        wide = self._matmul(value, [f"{name}.fi"], shape.feed_forward, shape.hidden, f"{name}.wide")
        wide = self.node("Gelu", [wide], f"{name}.gelu", _CONTRIB)
        narrow = self._matmul(wide, [f"{name}.fo"], shape.hidden, shape.feed_forward, f"{name}.narrow")
        last = at == shape.layers - 1
        return self._residual_norm(value, narrow, f"{name}.oln", "last_hidden_state" if last else f"{name}.x")


def write_graph(source: SourceFile, folder: Path) -> None:
    """Writes ``model.onnx`` and ``model.onnx.data`` into ``folder``.

    The model takes ``input_ids`` and ``attention_mask`` (batch, length) int64 and gives ``last_hidden_state``
    (batch, length, hidden) float32.
    """
    helper = onnx.helper
    with (folder / WEIGHTS_FILE).open("wb") as file:
        weights = _Weights(file)
        graph = _Graph(source, weights)
        weights.add("thirds", np.array([source.shape.hidden] * 3, np.int64))  # query, key and value of a joined product
        value = graph.embeddings("input_ids")
        mask = graph.node("Cast", ["attention_mask"], "key_mask", to=onnx.TensorProto.INT32)  # as the operator takes it
        for at in range(source.shape.layers):
            value = graph.layer(value, mask, at)
    grid = ["batch", "length"]
    built = helper.make_graph(
        graph.nodes,
        "multilingual-e5-small",
        [
            helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, grid),
            helper.make_tensor_value_info("attention_mask", onnx.TensorProto.INT64, grid),
        ],
        [helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [*grid, source.shape.hidden])],
        weights.initializers,
    )
    model = helper.make_model(
        built,
        producer_name="klaw",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)],
    )
    (folder / GRAPH_FILE).write_bytes(model.SerializeToString(deterministic=True))
