"""Builds ``sentencepiece.model`` from the vocabulary of the source file.

The pieces keep the order of the model's token ids (XLM-R: <s> 0, <pad> 1, </s> 2, <unk> 3, then the pieces), so ids
need no offset at run time. Text normalisation is the library's own ``nmt_nfkc`` table, the one XLM-R was trained
with, compiled into the file: ids do not depend on the Unicode version of Python.
"""

from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from klaw.errors import ModelError
from klaw.models.e5.source import Pieces

PIECES_FILE = "sentencepiece.model"

_MASK = "<mask>"


def write_pieces(pieces: Pieces, folder: Path) -> None:
    """Writes ``sentencepiece.model`` into ``folder``.

    Special tokens become control symbols, which text never matches: a user who writes "</s>" gets ordinary pieces
    (the source engine would emit the special token).

    Raises:
        ModelError: the sentencepiece library rejects the result.
    """
    schema: Any = sentencepiece_model_pb2  # generated at import; its stub does not list the message classes
    model = schema.ModelProto()
    kind = schema.ModelProto.SentencePiece
    control = {pieces.bos, pieces.eos, pieces.pad}
    for at, (text, score) in enumerate(zip(pieces.texts, pieces.scores.tolist(), strict=True)):
        piece = model.pieces.add(piece=text, score=score)
        if at == pieces.unknown:
            piece.type = kind.UNKNOWN
        elif at in control or text == _MASK:
            piece.type = kind.CONTROL
    trainer = model.trainer_spec
    trainer.model_type = schema.TrainerSpec.UNIGRAM
    trainer.vocab_size = len(pieces.texts)
    trainer.bos_id, trainer.eos_id = pieces.bos, pieces.eos
    trainer.pad_id, trainer.unk_id = pieces.pad, pieces.unknown
    rules = schema.ModelProto.FromString(
        sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    )
    model.normalizer_spec.CopyFrom(rules.normalizer_spec)
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    data = model.SerializeToString(deterministic=True)
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(data)
    except (RuntimeError, ValueError) as exc:
        raise ModelError(f"{PIECES_FILE}: the sentencepiece library rejects the vocabulary") from exc
    (folder / PIECES_FILE).write_bytes(data)
