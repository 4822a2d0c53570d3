"""The converted model against the engine that its weights were published with."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.tokens import SentencePieceTokenizer, load_tokenizer
from tests.support.plugins.source_engine import SourceEngine

TEXTS = [
    "ok",
    "What did Melanie paint for her birthday?",
    "Caroline: Hey Mel! I went to a LGBTQ support group yesterday & it was so powerful.",
    "Сколько очков уступила защита «Пэнтерс» в 2015 году?",
    "Съешь ещё этих мягких французских булок, да выпей чаю!",
    "СРОЧНО: перезвони маме до 18:30, т.к. она уезжает 05.11.2026…",
    "吾輩は猫である。名前はまだ無い。",
    "ﾊﾝｶｸ ｶﾀｶﾅ と 全角ＡＢＣ１２３",
    "Ünïcödé façade — naïve café, Ωμέγα, שלום, مرحبا, 你好",
    "😀👍🏽 emoji 👨‍👩‍👧‍👦 family, flag 🇷🇺",
    "digits 1234567890 3.14159 1,000,000 ½ ① x² №5",
    "tabs\tand\nnew lines\r\nand   many     spaces",
    "def f(x: int) -> str: return f'{x!r}'  # code <b>html</b>",
    "supercalifragilisticexpialidocious" * 4,
]
# No white space at the ends: Klaw strips it, the source engine makes a token of it.
LONG_TEXTS = [
    " ".join(["The quick brown fox jumps over the lazy dog."] * 60),
    " ".join(["Съешь ещё этих мягких французских булок, да выпей чаю."] * 36),
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。" * 32,
]


@pytest.fixture(scope="module")
def model(embedding_model_dir: Path) -> Iterator[EmbeddingModel]:
    loaded = EmbeddingModel.load(embedding_model_dir, threads=2)
    yield loaded
    loaded.close()


@pytest.mark.parametrize("text", [*TEXTS, *LONG_TEXTS], ids=lambda text: text[:12])
def test_token_ids_equal_those_of_the_source_engine(
    embedding_model_dir: Path, source_engine: SourceEngine, text: str
) -> None:
    tokenizer = SentencePieceTokenizer(embedding_model_dir / "sentencepiece.model")
    assert tokenizer.encode([text]) == [source_engine.ids(text)]


def test_special_token_ids_are_those_of_xlm_r(embedding_model_dir: Path) -> None:
    tokenizer = SentencePieceTokenizer(embedding_model_dir / "sentencepiece.model")
    assert (tokenizer.before, tokenizer.after, tokenizer.pad) == ([0], [2], 1)


def test_special_tokens_written_by_a_user_are_ordinary_text(embedding_model_dir: Path) -> None:
    tokenizer = SentencePieceTokenizer(embedding_model_dir / "sentencepiece.model")
    (ids,) = tokenizer.encode(["</s> <s> <pad> <mask>"])
    assert not {0, 1, 2, 250001} & set(ids)


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_vectors_match_the_source_engine(model: EmbeddingModel, source_engine: SourceEngine, kind: str) -> None:
    """Mixed lengths in one call, so that padding is covered as well; the long texts span several windows. 0.9998 on
    ARM, 0.9987 on x86 without VNNI, where sums of 8-bit products saturate."""
    texts = [*TEXTS, *LONG_TEXTS] if kind == "passage" else TEXTS
    ours = model.embed(texts, kind=kind)
    theirs = np.stack([source_engine.embed(text, kind) for text in texts])
    cosines = (ours * theirs).sum(axis=1)
    assert cosines.min() > 0.998, dict(zip((text[:20] for text in texts), cosines.tolist(), strict=True))


def test_long_texts_span_several_windows(embedding_model_dir: Path, model: EmbeddingModel) -> None:
    assert min(map(len, load_tokenizer(embedding_model_dir).encode(LONG_TEXTS))) > model.max_tokens


def test_the_manifest_says_what_the_model_is(embedding_model_dir: Path, model: EmbeddingModel) -> None:
    manifest = json.loads((embedding_model_dir / "manifest.json").read_text())
    entry = manifest["embedding"]
    assert (entry["dimension"], entry["max_tokens"], entry["pooling"]) == (384, 512, "mean")
    assert entry["prefixes"] == {"query": "query: ", "passage": "passage: "}
    assert set(manifest["files"]) == {"model.onnx", "model.onnx.data", "sentencepiece.model"}
    assert (model.dimension, model.max_tokens, model.random_cosine) == (384, 512, 0.78)


def test_the_language_model_is_a_gguf_file(local_llm_dir: Path) -> None:
    with (local_llm_dir / "model.gguf").open("rb") as file:
        assert file.read(4) == b"GGUF"
