"""Files of messages: pieces of them, as operations take and give them, and what is said in a sound."""

import base64
from typing import Annotated, NotRequired, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.attachment import Sha256
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts

FILES = op.Noun("files", "read the files of messages")
VOICE = op.Noun("voice", "write down what is said in sounds")

PIECE_BYTES = 48_000
"""Bytes of a file that are sent at once."""

UploadId = Annotated[str, Bounds(8, 64, r"[0-9a-f]*")]


def piece(data: str) -> bytes:
    """Return the bytes of an argument ``data`` in base64. Raises OperationError."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise op.OperationError("bad_args", "must be base64", field="data") from None


class UploadedPiece(TypedDict):
    size: int
    upload: NotRequired[str]


class PieceOfFile(TypedDict):
    """``type`` is the media type by the content, ``bytes`` the size of the whole file."""

    type: str
    bytes: int
    data: str


@attrs.frozen(kw_only=True)
class FilePiece(op.OfUser):
    sha256: Sha256 = op.required("the file's SHA-256")
    offset: Annotated[int, Bounds(0)] = op.argument("where the piece begins (default: 0)", default=0, metavar="BYTES")


@FILES.operation("file_piece", FilePiece, route="GET {sha256}/piece")
async def file_piece(asked: FilePiece, caller: Caller, parts: Parts) -> PieceOfFile:
    """Give a piece of a file of a message in base64; an empty one behind its end."""
    attachments = parts.core.attachments
    found = await attachments.find(caller.user, asked.sha256)
    data = await attachments.read(caller.user, asked.sha256, asked.offset, PIECE_BYTES)
    return {"type": found.type, "bytes": found.bytes, "data": base64.b64encode(data).decode("ascii")}


class Transcript(TypedDict):
    text: str


@attrs.frozen(kw_only=True)
class Transcribe(op.OfUser):
    sha256: Sha256 = op.required("the file's SHA-256")
    language: Annotated[str, Bounds(2, 16)] | None = op.argument("what is spoken: en, ru … (default: found out)")


@VOICE.operation("voice_transcribe", Transcribe, changes=True, route="POST transcribe", deadline_s=310)
async def transcribe(asked: Transcribe, caller: Caller, parts: Parts) -> Transcript:
    """Write down what is said in a file that was uploaded. Nothing is stored: the text goes with a message later."""
    attachments, user = parts.core.attachments, caller.user
    file = await attachments.find(user, asked.sha256)
    # A byte more than is taken shows that it is too long.
    sound = await attachments.read(user, file.sha256, limit=parts.config.voice.max_bytes + 1)
    return {"text": await parts.voice.transcribe(sound, file.name, file.type, language=asked.language, user=user)}
