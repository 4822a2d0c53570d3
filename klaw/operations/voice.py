"""Writing down what is said in a sound."""

from typing import Annotated, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.attachment import Sha256
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts

NOUN = op.Noun("voice", "write down what is said in sounds")


class Transcript(TypedDict):
    text: str


@attrs.frozen(kw_only=True)
class Transcribe(op.OfUser):
    sha256: Sha256 = op.required("the file's SHA-256")
    language: Annotated[str, Bounds(2, 16)] | None = op.argument("what is spoken: en, ru … (default: found out)")


@NOUN.operation("voice_transcribe", Transcribe, changes=True, route="POST transcribe", deadline_s=310)
async def transcribe(asked: Transcribe, caller: Caller, parts: Parts) -> Transcript:
    """Write down what is said in a file that was uploaded. Nothing is stored: the text goes with a message later."""
    attachments, voice = parts.core.attachments, parts.voice
    file = await attachments.find(caller.user, asked.sha256)
    # What is too long is refused by its first bytes too.
    sound = await attachments.read(caller.user, file.sha256, limit=voice.max_bytes + 1)
    return {"text": await voice.transcribe(sound, file.name, file.type, language=asked.language, user=caller.user)}
