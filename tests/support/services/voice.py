"""A service that listens and speaks as OpenAI's does, and checks every field of what it is sent."""

import io
import struct
import wave
from collections.abc import Mapping
from email.message import Message
from email.parser import BytesParser
from typing import Any

from klaw.domain.attachment import SOUNDS, sniff
from tests.support.llm_server import Recorded, Reply
from tests.support.services.imitation import Handler, json_reply
from tests.support.services.openai import OpenAiService, error_of, openai_rows

OGG = b"OggS\0\x02" + bytes(20) + b"\x01\x13OpusHead\x01\x01\x38\x01" + bytes(2_000)
"""It begins like a voice message."""
FORMATS = {"flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "ogg", "wav", "webm"}
"""The endings of file names that the service goes by."""
_SPEECH = {"model", "input", "voice", "response_format", "speed", "instructions", "stream_format"}
_KINDS = {"mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav"}


def wav(seconds: float = 0.5, number: int = 0) -> bytes:
    """A sound of its own for each number."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(struct.pack("<h", number) * int(16_000 * seconds))
    return made.getvalue()


class VoiceService(OpenAiService):
    """``heard``: what is said in a sound, by its bytes; another one is "something". It speaks by wrapping the text in a
    sound's first bytes. ``formats``: what it can speak in; ``said``: what is said in a sound that it does not know."""

    def __init__(self, *, key: str | None = None, formats: tuple[str, ...] = ("mp3", "opus", "wav")) -> None:
        super().__init__(openai_rows("echo", "whisper-1", "tts-1"), key=key)
        self.heard: dict[bytes, str] = {}
        self.formats = formats
        self.said = "something"
        self.usage: dict[str, Any] | None = None

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {
            **super().handlers(),
            ("POST", "/v1/audio/transcriptions"): self.transcribe,
            ("POST", "/v1/audio/speech"): self.speak,
        }

    def refused(self, text: str, param: str | None = None, status: int = 400) -> Reply:
        return json_reply(error_of(text, "invalid_request_error", None, param), status)

    def transcribe(self, request: Recorded) -> Reply:
        fields, file = read_form(request)
        unknown = fields.keys() - {"model", "language", "prompt", "response_format", "temperature"}
        if unknown:
            return self.refused(f"Unrecognized request argument supplied: {min(unknown)}")
        if fields.get("model") != "whisper-1":
            return self.refused("The model does not exist.", status=404)
        if fields.get("response_format", "json") != "json":
            return self.refused("only json here", "response_format")
        if "language" in fields and (len(fields["language"]) not in (2, 3) or not fields["language"].isalpha()):
            return self.refused("Invalid language; use ISO-639-1.", "language")
        if file is None:
            return self.refused("you must provide a file", "file")
        name, kind, sound = file
        if name.rpartition(".")[2] not in FORMATS or sniff(sound) != kind or kind not in SOUNDS:
            return self.refused(f"Unrecognized file format. Supported formats: {sorted(FORMATS)}", "file")
        told = {"usage": self.usage} if self.usage is not None else {}
        return json_reply({"text": self.heard.get(sound, self.said), **told})

    def speak(self, request: Recorded) -> Reply:
        asked = request.body
        wrong = asked.keys() - _SPEECH or {"model", "input", "voice"} - asked.keys()
        if wrong or asked["model"] != "tts-1" or not 0 < len(asked["input"]) <= 4_096:
            return self.refused("Invalid request.")
        wanted = asked.get("response_format", self.formats[0])
        if wanted not in self.formats:
            return self.refused("Input should be one of " + ", ".join(self.formats), "response_format")
        heads = {"opus": OGG[:36], "mp3": b"ID3\x04\0", "wav": wav()[:44]}
        body = heads[wanted] + asked["input"].encode()
        return Reply(status=200, body=body, content_type=_KINDS[wanted])


def read_form(request: Recorded) -> tuple[dict[str, str], tuple[str, str, bytes] | None]:
    """The fields of a form, and its file with name and type. It is read strictly: each part once, named, with nothing
    around."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    form = BytesParser().parsebytes(head + request.raw)
    assert form.get_content_type() == "multipart/form-data"
    assert form.preamble in (None, "")
    assert not form.defects
    fields: dict[str, str] = {}
    file = None
    for part in form.get_payload():
        assert isinstance(part, Message)
        assert part.get_content_disposition() == "form-data"
        name = part.get_param("name", header="content-disposition")
        assert isinstance(name, str)
        assert name not in fields
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        if name == "file":
            assert file is None
            file = (part.get_filename() or "", part.get_content_type(), data)
        else:
            fields[name] = data.decode()
    return fields, file
