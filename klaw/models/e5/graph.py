"""Builds the ONNX graph of multilingual-e5-small from the source file's own 4-bit numbers.

The weights go to one external data file next to the graph: ONNX Runtime maps it, so the word table (60 MB) costs
resident memory only for the rows that texts touch. Needs the ``onnx`` package (extra ``local``), which nothing needs
at run time.

The products are of 8-bit integers: the matrices with one scale a column, the activations with one scale a token, taken
while the model runs, so that no vector depends on the texts beside it. Processors have instructions for that (AMX and
VNNI, dotprod on ARM), and ONNX Runtime's kernels for batches of rows use them much better than those for the 4-bit
blocks themselves (``MatMulNBits``), which were measured slower than float32. The numbers are made with exact or
correctly rounded operations only, so the files are the same bytes on every platform.
"""

from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from klaw.models.e5.source import BLOCK, Float32, SourceFile
from klaw.models.manifest import GRAPH_FILE

WEIGHTS_FILE = "model.onnx.data"

_OPSET = 17
_IR_VERSION = 10
_CONTRIB = "com.microsoft"
_ALIGNMENT = 4096
"""External tensors start on page boundaries, which is what ONNX Runtime needs to map them."""
_SMALL = 1024
"""Tensors under this many bytes stay in the graph; constants of shapes must."""
_ZERO, _STEPS = 128, 127
"""Codes of signed values: this code means 0, and so many steps lead from it to the largest of the token."""
_GELU_ZERO, _GELU_DIP = 32, 0.17
"""GELU gives nothing below minus the second: few codes for what is negative leave more for the rest."""
_OUTLIERS = {15: 4, 35: 4, 321: 2, 60: 2, 87: 2, 146: 2, 297: 2, 351: 2}
"""Channels of the hidden states that are far larger than all others in nearly every token, and by what they are divided
before a product (its matrix is multiplied by the same, see SmoothQuant, Xiao and others, 2023). Measured with these
weights: mean cosine to the float32 result 0.9998, without 0.9991."""


class _Codes(NamedTuple):
    """Names of a quantised value: activation = (code - zero) * step."""

    codes: str
    step: str
    """(tokens, 1)."""
    zero: str


class _Weights:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.initializers: list[onnx.TensorProto] = []

    def add(self, name: str, array: npt.NDArray[np.generic]) -> str:
        """Returns ``name``."""
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
    """Methods take and return names of values."""

    def __init__(self, source: SourceFile, weights: _Weights) -> None:
        self._source = source
        self._weights = weights
        self._shape = source.shape
        self.nodes: list[onnx.NodeProto] = []

    def node(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: float | list[int]) -> str:
        node = onnx.helper.make_node(kind, inputs, [output], name=output, domain=domain)
        node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output

    def _quantise(self, value: str, *, spread: bool = False, gelu: bool = False) -> _Codes:
        """8-bit codes of (tokens, channels), each token with its own step; ``spread``: the outliers are divided."""
        if spread:
            value = self.node("Mul", [value, "spread"], f"{value}.spread")
        size = value if gelu else self.node("Abs", [value], f"{value}.size")
        largest = self.node("ReduceMax", [size], f"{value}.largest", axes=[-1], keepdims=1)
        step = self.node("Mul", [largest, "gelu_step" if gelu else "step"], f"{value}.step")
        if gelu:
            step = self.node("Max", [step, "gelu_least_step"], f"{value}.some_step")
        each = self.node("Reshape", [step, "flat"], f"{value}.each_step")
        zero = "gelu_zero" if gelu else "zero"
        codes = self.node("QuantizeLinear", [value, each, f"{zero}s"], f"{value}.codes", axis=0)
        return _Codes(codes, step, zero)

    def _matmul(
        self, value: _Codes, parts: list[str], rows: int, columns: int, output: str, *, spread: bool = False
    ) -> str:
        """``value`` times W^T, plus b; ``parts`` are the name prefixes of matrices stacked into one product."""
        matrix = np.concatenate([self._source.quantised(f"{part}.w", rows, columns).floats() for part in parts])
        bias = np.concatenate([self._source.floats(f"{part}.b", rows) for part in parts])
        if spread:
            matrix = matrix / _spread(columns)
        scales = np.abs(matrix).max(axis=1) / np.float32(_STEPS)
        codes = np.rint(matrix / scales[:, None]).astype(np.int8)
        inputs = [
            value.codes,
            self._weights.add(f"{output}.w", np.ascontiguousarray(codes.T)),
            "one",
            self._weights.add(f"{output}.scales", scales),
            value.zero,
        ]
        product = self.node("MatMulIntegerToFloat", inputs, f"{output}.product", _CONTRIB)
        scaled = self.node("Mul", [product, value.step], f"{output}.scaled")
        return self._sum([scaled, self._weights.add(f"{output}.b", bias)], output)

    def _sum(self, values: list[str], output: str) -> str:
        """Not ``Add``: ONNX Runtime would fuse that with the node behind it, and its ``SkipLayerNormalization`` takes
        five times as long as the two apart."""
        return self.node("Sum", values, output)

    def _residual_norm(self, value: str, skip: str, prefix: str, output: str) -> str:
        return self._norm(self._sum([value, skip], f"{output}.sum"), prefix, output)

    def _norm(self, value: str, prefix: str, output: str) -> str:
        names = (f"{prefix}.{part}" for part in "wb")
        weights = [self._weights.add(name, self._source.floats(name, self._shape.hidden)) for name in names]
        return self.node("LayerNormalization", [value, *weights], output, axis=-1, epsilon=self._shape.epsilon)

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
        begin = self._weights.add("begin", np.array([0], np.int64))
        positions = self.node("Slice", [self._weights.add("emb.position", table), begin, length], "positions")
        value = self._norm(self._sum([words, positions], "embedded"), "emb.ln", "normed")
        return self.node("Reshape", [value, "tokens"], "x")

    def layer(self, value: str, mask: str, at: int) -> str:
        shape = self._shape
        name = f"l{at}"
        states = self._quantise(value, spread=True)
        thirds = [f"{name}.q", f"{name}.k", f"{name}.v"]
        joined = self._matmul(states, thirds, shape.hidden, shape.hidden, f"{name}.qkv", spread=True)
        joined = self.node("Reshape", [joined, "joined_grid"], f"{name}.grid")
        heads = [f"{name}.query", f"{name}.key", f"{name}.value"]
        self.nodes.append(onnx.helper.make_node("Split", [joined, "thirds"], heads, name=f"{name}.split", axis=-1))
        attended = self.node(
            "MultiHeadAttention", [*heads, "", mask], f"{name}.attended", _CONTRIB, num_heads=shape.heads
        )
        attended = self.node("Reshape", [attended, "tokens"], f"{name}.flat")
        out = self._matmul(self._quantise(attended), [f"{name}.ao"], shape.hidden, shape.hidden, f"{name}.out")
        value = self._residual_norm(value, out, f"{name}.aln", f"{name}.mid")
        states = self._quantise(value, spread=True)
        wide = self._matmul(states, [f"{name}.fi"], shape.feed_forward, shape.hidden, f"{name}.wide", spread=True)
        wide = self.node("Gelu", [wide], f"{name}.gelu", _CONTRIB)
        wide_codes = self._quantise(wide, gelu=True)
        narrow = self._matmul(wide_codes, [f"{name}.fo"], shape.hidden, shape.feed_forward, f"{name}.narrow")
        return self._residual_norm(value, narrow, f"{name}.oln", f"{name}.x")

    def shared(self, ids: str) -> None:
        hidden = self._shape.hidden
        floats = {
            "one": 1,
            "step": 1 / _STEPS,
            "gelu_step": 1 / (255 - _GELU_ZERO),
            "gelu_least_step": _GELU_DIP / _GELU_ZERO,
        }
        joined = 3 * hidden  # query, key and value of one product
        shapes = {"flat": [-1], "tokens": [-1, hidden], "hidden": [hidden], "joined": [joined], "thirds": [hidden] * 3}
        for name, value in floats.items():
            self._weights.add(name, np.array(value, np.float32))
        for name, sizes in shapes.items():
            self._weights.add(name, np.array(sizes, np.int64))
        self._weights.add("spread", _spread(hidden))
        shape = self.node("Shape", [ids], "shape")
        self.node("Concat", [shape, "joined"], "joined_grid", axis=0)
        self.node("Concat", [shape, "hidden"], "grid", axis=0)
        count = self.node("Reshape", [self.node("Size", [ids], "size"), "flat"], "count")
        for name, code in {"zero": _ZERO, "gelu_zero": _GELU_ZERO}.items():  # the scalar, and one for each token
            self.node("Expand", [self._weights.add(name, np.array(code, np.uint8)), count], f"{name}s")


def _spread(hidden: int) -> Float32:
    factors = np.ones(hidden, np.float32)
    for channel, divisor in _OUTLIERS.items():
        factors[channel] /= divisor
    return factors


def write_graph(source: SourceFile, folder: Path) -> None:
    """Write model.onnx and model.onnx.data. The model takes ``input_ids`` and ``attention_mask`` (batch, length)
    int64 and gives ``last_hidden_state`` (batch, length, hidden) float32."""
    helper = onnx.helper
    with (folder / WEIGHTS_FILE).open("wb") as file:
        weights = _Weights(file)
        graph = _Graph(source, weights)
        graph.shared("input_ids")
        value = graph.embeddings("input_ids")
        mask = graph.node("Cast", ["attention_mask"], "key_mask", to=onnx.TensorProto.INT32)  # as the operator takes it
        for at in range(source.shape.layers):
            value = graph.layer(value, mask, at)
        value = graph.node("Reshape", [value, "grid"], "last_hidden_state")
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
