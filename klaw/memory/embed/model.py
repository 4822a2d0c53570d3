"""``EmbeddingModel``: texts to unit vectors with an ONNX encoder. Sync code for worker threads; calls may overlap. A
text longer than the model's limit is cut into windows without overlap; its vector is the mean of the windows' pooled
vectors, weighted by their tokens. Windows of similar length run together, so that little padding is computed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import onnxruntime

import klaw.models.e5
from klaw.actor.process import give_back
from klaw.errors import ModelError
from klaw.memory.embed.calibration import Kind, calibrate
from klaw.memory.embed.passage import RECIPE, PassageText
from klaw.memory.embed.token_coder import BITS, MAX_TOKENS, TOKENS_FILE, Floats, Reading, TokenCoder, encode, unit
from klaw.memory.embed.tokens import Tokenizer, load_tokenizer
from klaw.models.manifest import GRAPH_FILE, Description, describe

_LEARNED_FOR = "multilingual-e5-small@"
_LEARNED = Path(klaw.models.e5.__file__).parent / TOKENS_FILE
"""Codes of tokens for the model that Klaw installs."""
_KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_LOG_ERRORS = 3

BATCH_TOKENS = 512
"""Padded tokens of one run by default: bounds the memory of a run."""

Int64: TypeAlias = npt.NDArray[np.int64]
Content: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""Token ids of a text: of its head, which is read before it and not pooled, and its own."""


class EncoderSession:
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
        if self._inputs - _KNOWN_INPUTS or "input_ids" not in self._inputs:
            raise ModelError(f"{path}: inputs {sorted(self._inputs)} are not those of a text encoder")
        outputs = [each.name for each in self._session.get_outputs() if len(each.shape) == 3]
        if not outputs:
            raise ModelError(f"{path}: has no output of shape (batch, length, hidden)")
        self._output = outputs[0]

    def run(self, rows: Sequence[Sequence[int]]) -> tuple[Floats, Int64]:
        """Run a batch of token ids, special tokens included. Returns the hidden states (rows, longest row, hidden) and
        the mask (rows, longest row): 0 for padding. Raises ModelError."""
        width = max(len(row) for row in rows)
        ids = np.full((len(rows), width), self._pad, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            (states,) = self._session.run([self._output], {name: feed[name] for name in self._inputs})
        except Exception as exc:  # as above
            raise ModelError(f"{self._path}: ONNX Runtime failed ({type(exc).__name__})") from exc
        return np.asarray(states, np.float32), mask


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


@attrs.frozen
class Window:
    """A slice of one text's content tokens, without special tokens."""

    text: int
    ids: Sequence[int]
    head: Sequence[int] = ()
    start: int = 0
    """Index of its first id among the text's."""

    @property
    def width(self) -> int:
        return len(self.head) + len(self.ids)

    @property
    def weight(self) -> int:
        """Its share in the text's vector; 1 for a text without tokens."""
        return max(1, len(self.ids))


def cut_windows(contents: Sequence[Content], size: int) -> list[Window]:
    """Cut each text into windows of ``size``, of which its head takes half at most; an empty text gets one."""
    windows: list[Window] = []
    for text, (head, ids) in enumerate(contents):
        kept = head[-(size // 2) :] if head else head
        room = size - len(kept)
        starts = range(0, len(ids), room) or range(1)
        windows.extend(Window(text, ids[start : start + room], kept, start) for start in starts)
    return windows


def plan_batches(windows: Sequence[Window], max_tokens: int, special: int) -> Iterator[list[Window]]:
    """Group windows so that rows times the longest row, with ``special`` tokens, stays within ``max_tokens``; a longer
    window is a batch of its own. Longest first: the allocator can reuse what its largest request took."""
    batch: list[Window] = []
    width = 0
    for window in sorted(windows, key=lambda w: w.width, reverse=True):
        if batch and (len(batch) + 1) * width > max_tokens:
            yield batch
            batch = []
        if not batch:
            width = window.width + special
        batch.append(window)
    if batch:
        yield batch


class EmbeddingModel:
    dimension: int
    model_id: str
    """Name, version and a hash of all that shapes a vector: two models with one id give the same vectors."""
    random_cosine: float
    """Mean cosine of unrelated texts."""
    max_tokens: int
    """Tokens of one window, special tokens included."""
    coder: TokenCoder | None
    """None: nothing was learned for the model."""

    def __init__(
        self,
        sessions: Mapping[Kind, EncoderSession],
        tokenizer: Tokenizer,
        description: Description,
        *,
        batch_tokens: int,
        coder: TokenCoder | None = None,
    ) -> None:
        self._sessions: Mapping[Kind, EncoderSession] | None = sessions
        self._tokenizer = tokenizer
        self._prefixes = {"query": description.prefixes.query, "passage": description.prefixes.passage}
        self._pooling = description.pooling
        self._batch_tokens = batch_tokens
        self._special = len(tokenizer.before) + len(tokenizer.after)
        self._prefix_tokens = {kind: len(tokenizer.encode([prefix])[0]) for kind, prefix in self._prefixes.items()}
        self.coder = coder
        self.max_tokens = description.max_tokens
        self.model_id = description.model_id
        self.dimension = self._pool([Window(0, [])], "passage")[0].shape[1]
        known = description.calibration
        measured = known if known is not None and known.recipe == RECIPE else calibrate(self.embed)
        self.random_cosine = measured.random_cosine

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        threads: int,
        batch_tokens: int = BATCH_TOKENS,
        parallel_passages: bool = False,
        tokens: bool = True,
    ) -> Self:
        """Load a folder made by ``klaw models pull`` or one in the Hugging Face layout, and run it once. Raises
        ModelError, which names what is missing, damaged or of the wrong kind.

        Args:
            threads: of one run.
            batch_tokens: padded tokens of one run; a text of ``max_tokens`` always fits.
            parallel_passages: a run of passages has one thread, because the caller makes several at a time: threads
                that do not wait for each other at every layer give more throughput for a few MiB.
            tokens: ``read`` makes codes of tokens, if something was learned for the model.
        """
        description = describe(folder)
        tokenizer = load_tokenizer(folder)
        give_back()
        wide = EncoderSession(folder, threads=threads, pad=tokenizer.pad)
        narrow = EncoderSession(folder, threads=1, pad=tokenizer.pad) if parallel_passages and threads > 1 else wide
        coder = _coder(folder, description) if tokens else None
        model = cls({"query": wide, "passage": narrow}, tokenizer, description, batch_tokens=batch_tokens, coder=coder)
        if description.dimension not in (None, model.dimension):
            raise ModelError(
                f"{folder}: the manifest says dimension {description.dimension}, model.onnx gives {model.dimension}"
            )
        if coder is not None and len(coder.centre) != model.dimension:
            raise ModelError(f"{folder}: {TOKENS_FILE} is of dimension {len(coder.centre)}, not {model.dimension}")
        return model

    def embed(self, texts: Sequence[str | PassageText], kind: Kind) -> Floats:
        """Unit vectors (len(texts), dimension) of any strings, also empty or very long ones, or with lone surrogates.
        The vector of a passage with a context is pooled over its own tokens as the model sees them after the context
        ("late chunking", Günther and others, 2024). Raises ModelError: the model is closed or ONNX Runtime failed."""
        sums = np.zeros((len(texts), self.dimension), np.float32)
        for window, pooled, _ in self._run(self._encode(texts, self._prefixes[kind]), kind):
            sums[window.text] += window.weight * pooled
        return unit(sums)

    def read(self, texts: Sequence[str | PassageText], *, kind: Kind) -> list[Reading]:
        """Vectors, and what late interaction wants of the texts' own tokens. See ``embed``."""
        coder = self.coder
        if coder is None:
            return [Reading(vector.tobytes()) for vector in self.embed(texts, kind).astype("<f4")]
        contents = self._encode(texts, self._prefixes[kind])
        sums = np.zeros((len(texts), self.dimension), np.float32)
        tokens = [np.zeros((len(ids), BITS), np.float32) for _, ids in contents]
        for window, pooled, states in self._run(contents, kind):
            sums[window.text] += window.weight * pooled
            tokens[window.text][window.start : window.start + len(window.ids)] = coder.project(states)
        vectors = unit(sums).astype("<f4")
        return [
            self._reading(vector.tobytes(), ids, projected, 0 if head else self._prefix_tokens[kind], kind, coder)
            for vector, (head, ids), projected in zip(vectors, contents, tokens, strict=True)
        ]

    def close(self) -> None:
        """Later calls raise ModelError; a running one finishes."""
        self._sessions = None

    def _reading(
        self, vector: bytes, ids: Sequence[int], projected: Floats, first: int, kind: Kind, coder: TokenCoder
    ) -> Reading:
        """``first``: where the text begins, after the model's prefix."""
        weights = np.array(self._tokenizer.weights(ids), np.float32)
        weights[:first] = 0
        telling = np.flatnonzero(weights)[:MAX_TOKENS]
        if kind == "query":
            return Reading(vector, tokens=coder.query(projected[telling], weights[telling]))
        return Reading(vector, codes=encode(projected[telling]))

    def _run(self, contents: Sequence[Content], kind: Kind) -> Iterator[tuple[Window, Floats, Floats]]:
        """Each window with its pooled vector and the states of its ids."""
        windows = cut_windows(contents, self.max_tokens - self._special)
        for batch in plan_batches(windows, self._batch_tokens, self._special):
            means, states = self._pool(batch, kind)
            for window, pooled, row in zip(batch, means, states, strict=True):
                begin = len(self._tokenizer.before) + len(window.head)
                yield window, pooled, row[begin : begin + len(window.ids)]

    def _encode(self, texts: Sequence[str | PassageText], prefix: str) -> list[Content]:
        passages = [PassageText(text) if isinstance(text, str) else text for text in texts]
        whole = [each.text if each.context else prefix + each.text for each in passages]
        heads = iter(self._tokenizer.encode([prefix + each.context for each in passages if each.context]))
        contents = self._tokenizer.encode(whole)
        return [(next(heads) if each.context else [], ids) for each, ids in zip(passages, contents, strict=True)]

    def _pool(self, batch: Sequence[Window], kind: Kind) -> tuple[Floats, Floats]:
        """One pooled, not yet normalised vector for each window: (len(batch), dimension); and the states."""
        sessions = self._sessions
        if sessions is None:
            raise ModelError(f"{self.model_id}: the model is closed")
        before, after = self._tokenizer.before, self._tokenizer.after
        states, mask = sessions[kind].run([[*before, *window.head, *window.ids, *after] for window in batch])
        if self._pooling == "cls":
            return states[:, 0], states
        weights = mask.astype(np.float32)
        for row, window in enumerate(batch):
            if window.head and window.ids:
                begin = len(before) + len(window.head)
                weights[row] = 0
                weights[row, begin : begin + len(window.ids)] = 1
        means: Floats = np.einsum("blh,bl->bh", states, weights) / weights.sum(axis=1, keepdims=True)
        return means, states


def _coder(folder: Path, description: Description) -> TokenCoder | None:
    learned = [folder / TOKENS_FILE]
    if description.model_id.startswith(_LEARNED_FOR):
        learned.append(_LEARNED)
    return next((TokenCoder.load(path) for path in learned if path.is_file()), None)
