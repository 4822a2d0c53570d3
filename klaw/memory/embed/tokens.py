"""Text to token ids, behind one Protocol: the SentencePiece form (light) and the Hugging Face ``tokenizer.json``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from klaw.errors import ModelError
from klaw.memory.embed.unigram import Unigram, says_something

PIECES_FILE = "sentencepiece.model"
TOKENIZER_FILE = "tokenizer.json"

_TO_SPACE = str.maketrans({"\0": " ", "\u200d": " "})
"""NUL ends a string in C code. XLM-R's rules turn the zero-width joiner of composed emoji into a space; the newer
tables of the sentencepiece library keep it, which would give an unknown token."""


class Tokenizer(Protocol):
    """What the embedding model needs of a tokenizer."""

    before: list[int]
    """Special tokens in front of each window."""
    after: list[int]
    """Special tokens behind each window."""
    pad: int
    """Fills short rows; the model does not look at it."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Content token ids of each text, without special tokens and without a length limit."""
        ...

    def weights(self, ids: Sequence[int]) -> list[float]:
        """How much each token says: 0 for punctuation and white space."""
        ...


def clean(text: str) -> str:
    """``text`` without what tokenizers choke on: lone surrogates, NUL, white space at the ends."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Joins pairs that were split by an UTF-16 source; a lone half becomes U+FFFD.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.translate(_TO_SPACE).strip()


class SentencePieceTokenizer:
    """``sentencepiece.model`` as made by klaw.models.e5.source. The library reads it and normalises texts (NFKC); it is
    not kept for the pieces, which take 35 MB there."""

    def __init__(self, path: Path) -> None:
        import sentencepiece

        try:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self._normalizer = sentencepiece.SentencePieceNormalizer(model_proto=_without_pieces(path.read_bytes()))
        except (OSError, RuntimeError, ValueError) as exc:
            raise ModelError(f"{path}: not a SentencePiece model ({type(exc).__name__})") from exc
        self.before = [processor.bos_id()]
        self.after = [processor.eos_id()]
        self.pad = processor.pad_id()
        if min(*self.before, *self.after, self.pad) < 0:
            raise ModelError(f"{path}: has no <s>, </s> or <pad>")
        self._unigram = Unigram(processor)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See ``Tokenizer``."""
        return [self._unigram.encode(self._normalizer.normalize(clean(text))) for text in texts]

    def weights(self, ids: Sequence[int]) -> list[float]:
        """See ``Tokenizer``: a unigram model's score of a piece is the logarithm of how often it comes."""
        return self._unigram.weights(ids)


def _without_pieces(model: bytes) -> bytes:
    """A model's rules: its message of protobuf from behind the pieces, which are its first field."""
    at, end = 0, len(model) - 1
    while at < end and model[at] == 0x0A and model[at + 1] < 128:
        at += 2 + model[at + 1]
    return model[at:]


class HuggingFaceTokenizer:
    """``tokenizer.json``, where the ``tokenizers`` package is installed."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError as exc:
            raise ModelError(f"{path}: this model needs the tokenizers package: pip install tokenizers") from exc
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as exc:  # the library raises bare Exception
            raise ModelError(f"{path}: not a tokenizer ({type(exc).__name__})") from exc
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        sample: list[int] = self._tokenizer.encode("a", add_special_tokens=True).ids
        bare: list[int] = self._tokenizer.encode("a", add_special_tokens=False).ids
        start = next((at for at in range(len(sample)) if sample[at : at + len(bare)] == bare), None)
        if not bare or start is None:
            raise ModelError(f"{path}: special tokens are not in front of and behind the text")
        self.before = sample[:start]
        self.after = sample[start + len(bare) :]
        pads = (self._tokenizer.token_to_id(name) for name in ("<pad>", "[PAD]", "<|endoftext|>"))
        self.pad = next((pad for pad in pads if pad is not None), 0)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See ``Tokenizer``."""
        cleaned = [clean(text) for text in texts]
        return [found.ids for found in self._tokenizer.encode_batch(cleaned, add_special_tokens=False)]

    def weights(self, ids: Sequence[int]) -> list[float]:
        """See ``Tokenizer``: how often a piece comes is not in every such file, so all weigh the same."""
        return [float(says_something(self._tokenizer.id_to_token(each) or "")) for each in ids]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of ``folder``: ``sentencepiece.model`` if it is there, else ``tokenizer.json``. Raises ModelError:
    neither is there, it is broken, or its package is not installed."""
    if (folder / PIECES_FILE).is_file():
        return SentencePieceTokenizer(folder / PIECES_FILE)
    if (folder / TOKENIZER_FILE).is_file():
        return HuggingFaceTokenizer(folder / TOKENIZER_FILE)
    raise ModelError(f"{folder}: holds neither {PIECES_FILE} nor {TOKENIZER_FILE}")
