"""The pieces found here are those of the sentencepiece library, with the real vocabulary."""

import random

import pytest
import sentencepiece

from klaw.memory.embed import tokens
from klaw.memory.embed.tokens import SentencePieceTokenizer, clean, says_something
from klaw.models.manifest import PIECES_FILE

TEXTS = (
    "",
    "   ",
    "What did Olga buy in Kazan? She bought a велосипед last week.",
    "Мурка и Барсик ещё спят, а Нина рассказывает про чайник № 5.",
    "日本語のテキスト🙂🙂 ☕️ 👩‍👩‍👧",
    "ß ﬁ ① ½ e\u0301 и\u0306",
    "</s><mask><unk> <s> ▁▁",
    "\ud800 x\0y \u200d",
    "аааа хахаха!!!! ....... ????",
    "x" * 300,
)
ALPHABET = "ab аб.!хa  e\u3000あ中🙂é\u0301-0123"
"""Few letters: many sums are equal."""


@pytest.fixture(scope="module")
def library(embedding_model_dir):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(embedding_model_dir / PIECES_FILE))
    return lambda text: processor.encode(clean(text))


@pytest.fixture(scope="module")
def tokenizer(embedding_model_dir):
    return SentencePieceTokenizer(embedding_model_dir / PIECES_FILE)


def random_text(pick: random.Random) -> str:
    if pick.random() < 0.8:
        return "".join(pick.choices(ALPHABET, k=pick.randrange(1, 40)))
    ranges = ((32, 0x250), (0x400, 0x530), (0x250, 0xD7FF), (0x1F300, 0x1F700))
    return "".join(chr(pick.randrange(*pick.choice(ranges))) for _ in range(pick.randrange(1, 40)))


def test_the_ids_are_the_librarys(tokenizer, library):
    pick = random.Random(3)
    texts = [*TEXTS, *(random_text(pick) for _ in range(3000)), *(each * 150 for each in ALPHABET)]
    assert tokenizer.encode(texts) == [library(text) for text in texts]


def test_a_long_text_is_cut_as_if_there_were_no_blocks(tokenizer, library, monkeypatch):
    pick = random.Random(4)
    text = " ".join(random_text(pick) for _ in range(400))
    lengths = [*range(4090, 4120), len(text)]
    assert len(text) > 2 * tokens._BLOCK
    assert all(tokenizer.encode([text[:length]]) == [library(text[:length])] for length in lengths)
    monkeypatch.setattr(tokens, "_BLOCK", 7)
    assert tokenizer.encode([text]) == [library(text)]


def test_every_piece_weighs_what_the_library_says(tokenizer, embedding_model_dir):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(embedding_model_dir / PIECES_FILE))
    ids = list(range(processor.get_piece_size()))
    pairs = zip(processor.id_to_piece(ids), processor.get_score(ids), strict=True)
    assert tokenizer.weights(ids) == [-score if says_something(piece.lstrip("▁")) else 0 for piece, score in pairs]
