"""A folder with model.onnx and tokenizer.json and no manifest, as exporters of the Hugging Face world write it."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from klaw.errors import ModelError
from klaw.memory.embed.model import EmbeddingModel

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "passage", ":", "hello", "мир"]
HIDDEN = 8
TABLE = np.random.default_rng(1).normal(size=(len(WORDS), HIDDEN)).astype(np.float32)


def write_encoder(folder: Path, *, inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")) -> None:
    """An "encoder" that looks words up; with token types it needs them, adding a zero row."""
    grid = ["batch", "length"]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["words"])]
    last = "words"
    if "token_type_ids" in inputs:
        nodes.append(helper.make_node("Gather", ["types", "token_type_ids"], ["typed"]))
        nodes.append(helper.make_node("Add", ["words", "typed"], ["sum"]))
        last = "sum"
    nodes.append(helper.make_node("Identity", [last], ["last_hidden_state"]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, grid) for name in inputs],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*grid, HIDDEN])],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.zeros((1, HIDDEN), np.float32), "types")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "model.onnx")


def write_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is optional and not installed")
    model = tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = [("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding()
    tokenizer.save(str(folder / "tokenizer.json"))


def mean_of(*words: str) -> np.ndarray:
    vector = TABLE[[WORDS.index(word) for word in words]].mean(axis=0)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("inputs", [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")], ids=len)
def test_the_layout_is_read_whatever_inputs_it_has(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    """The tokenizer file's own truncation and padding are switched off; padding does not enter the mean."""
    write_encoder(tmp_path, inputs=inputs)
    write_tokenizer(tmp_path)
    model = EmbeddingModel.load(tmp_path, threads=1)
    found = model.embed(["hello", "hello мир hello мир hello", ""], kind="query")
    assert np.allclose(found[0], mean_of("[CLS]", "hello", "[SEP]"), atol=1e-5)
    expected = mean_of("[CLS]", "hello", "мир", "hello", "мир", "hello", "[SEP]")
    assert np.allclose(found[1], expected, atol=1e-5)
    assert np.allclose(found[2], mean_of("[CLS]", "[SEP]"), atol=1e-5)
    assert (model.dimension, model.max_tokens) == (HIDDEN, 512)
    assert -1 < model.random_cosine <= 1


def test_the_files_of_the_layout_change_the_defaults(tmp_path: Path) -> None:
    """A folder named after E5 gets its prefixes; pooling and length come from the usual files."""
    folder = tmp_path / "some-E5-model"
    (folder / "1_Pooling").mkdir(parents=True)
    write_encoder(folder)
    write_tokenizer(folder)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128}))
    model = EmbeddingModel.load(folder, threads=1)
    assert np.allclose(model.embed(["hello"], kind="query")[0], mean_of("[CLS]"), atol=1e-5)
    assert model.max_tokens == 128


def test_without_the_tokenizers_package_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    write_encoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="pip install tokenizers"):
        EmbeddingModel.load(tmp_path, threads=1)


def test_without_any_tokenizer_the_error_names_both_files(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    with pytest.raises(ModelError, match=r"neither sentencepiece\.model nor tokenizer\.json"):
        EmbeddingModel.load(tmp_path, threads=1)


@pytest.mark.parametrize("inputs", [("input_ids", "past_key_values"), ("tokens",)], ids=lambda names: names[-1])
def test_a_graph_that_is_no_text_encoder_is_refused(
    embedding_model_dir: Path, tmp_path: Path, inputs: tuple[str, ...]
) -> None:
    (tmp_path / "sentencepiece.model").symlink_to(embedding_model_dir / "sentencepiece.model")
    grid = ["batch", "length"]
    graph = helper.make_graph(
        [helper.make_node("Identity", [inputs[0]], ["out"])],
        "other",
        [helper.make_tensor_value_info(name, TensorProto.INT64, grid) for name in inputs],
        [helper.make_tensor_value_info("out", TensorProto.INT64, grid)],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"model\.onnx: inputs .* are not those of a text encoder"):
        EmbeddingModel.load(tmp_path, threads=1)
    # The same graph with an encoder's input: now its output is what is wrong.
    del model.graph.input[1:]
    model.graph.input[0].name = model.graph.node[0].input[0] = "input_ids"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="has no output of shape"):
        EmbeddingModel.load(tmp_path, threads=1)
