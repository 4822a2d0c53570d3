"""Codes of tokens, made by the real model in the same run as the vector."""

from pathlib import Path

import numpy as np
import pytest

from klaw.errors import ModelError
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import PassageText
from klaw.memory.embed.token_coder import CODE_BYTES, MAX_TOKENS, TOKENS_FILE, TokenCoder
from klaw.memory.recall.token_overlap import max_sim
from tests.support.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(embedding_model_dir: Path) -> EmbeddingModel:
    return EmbeddingModel.load(embedding_model_dir, threads=2)


def codes(model: EmbeddingModel, *texts: str | PassageText) -> list[bytes]:
    return [each.codes for each in model.read(texts, kind="passage")]


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_reading_gives_the_vector_that_embedding_gives(model: EmbeddingModel, kind: str) -> None:
    texts = [
        "Where is the key?",
        "Ключ лежит под ковриком.",
        "",
        PassageText("Yes, on Friday.", "Do you come?"),
        "да " * 900,
    ]
    found = np.stack([np.frombuffer(each.vector, "<f4") for each in model.read(texts, kind=kind)])
    assert np.array_equal(found, model.embed(texts, kind=kind))


def test_only_tokens_of_the_text_itself_that_say_something_have_codes(model: EmbeddingModel) -> None:
    assert codes(model, "", "?!...", " ") == [b"", b"", b""]
    bare, dotted = codes(model, "ключ", "ключ ...")
    assert 0 < len(bare) == len(dotted) <= 2 * CODE_BYTES
    alone, in_context = codes(
        model, "Yes, on Friday.", PassageText("Yes, on Friday.", "Do you come to the lake with us?")
    )
    assert len(alone) == len(in_context)
    assert len(alone) % CODE_BYTES == 0


def test_a_very_long_text_has_the_codes_of_its_beginning(model: EmbeddingModel) -> None:
    # Beyond one window of the model: the second one's codes follow the first one's.
    words = " ".join(f"слово{at}" for at in range(600))
    (found,) = codes(model, words)
    assert len(found) == MAX_TOKENS * CODE_BYTES
    together = model.read(["short one", words, "короткое"], kind="passage")[1].codes
    one, other = (np.unpackbits(np.frombuffer(each, np.uint8)) for each in (found, together))
    assert np.mean(one != other) < 0.02  # rows of another width are added up in another order


@pytest.mark.parametrize(
    ("question", "answer", "others"),
    [
        (
            "What is my sister allergic to?",
            "Anna, my sister, must not eat peanuts: she is allergic.",
            ["The spare key lies under the third flower pot.", "We watched a film about the sea yesterday."],
        ),
        (
            "Где лежит запасной ключ?",
            "Запасной ключ я положил под третий цветочный горшок.",
            ["У сестры аллергия на арахис.", "Вчера мы смотрели фильм про море."],
        ),
    ],
)
def test_the_message_that_answers_scores_highest(
    model: EmbeddingModel, question: str, answer: str, others: list[str]
) -> None:
    (asked,) = model.read([question], kind="query")
    assert asked.tokens is not None
    assert asked.codes == b""
    scores = max_sim(asked.tokens, codes(model, *others, answer))
    assert max(scores, key=lambda score: score or 0) == scores[-1]


def test_a_model_that_nothing_was_learned_for_gives_vectors_alone(tmp_path: Path, embedding_model_dir: Path) -> None:
    tiny = EmbeddingModel.load(write_tiny_model(tmp_path / "tiny", embedding_model_dir), threads=1)
    assert tiny.coder is None
    (passage,), (query,) = tiny.read(["ключ"], kind="passage"), tiny.read(["ключ"], kind="query")
    assert (passage.codes, query.tokens) == (b"", None)
    assert len(passage.vector) == 4 * tiny.dimension


def test_what_was_learned_for_an_own_model_lies_in_its_folder(tmp_path: Path, embedding_model_dir: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny", embedding_model_dir)
    np.savez(folder / TOKENS_FILE, centre=np.zeros(16), axes=np.eye(16, 128), spread=np.ones(128) / 128**0.5)
    (passage,) = EmbeddingModel.load(folder, threads=1).read(["ключ"], kind="passage")
    assert len(passage.codes) >= CODE_BYTES


def test_one_that_was_learned_for_another_model_is_refused(tmp_path: Path, embedding_model_dir: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny", embedding_model_dir)
    np.savez(folder / TOKENS_FILE, centre=np.zeros(8), axes=np.eye(8, 128), spread=np.ones(128))
    with pytest.raises(ModelError, match="is of dimension 8, not 16"):
        EmbeddingModel.load(folder, threads=1)


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"PK\x03\x04no"), lambda path: np.savez(path, centre=1)]
)
def test_a_file_that_is_no_coder_is_named(tmp_path: Path, spoil) -> None:
    spoil(tmp_path / TOKENS_FILE)
    with pytest.raises(ModelError, match=TOKENS_FILE):
        TokenCoder.load(tmp_path / TOKENS_FILE)
