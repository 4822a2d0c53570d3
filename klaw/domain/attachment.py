"""Files of messages: what is known of one, what it is by its first bytes, and what of it a model reads. Pure."""

import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import attrs

from klaw.convert import JOURNAL, OMIT, Bounds
from klaw.domain import tokens
from klaw.domain.text import clean_output, find_charset, normalized
from klaw.errors import BadValue

FILES = "files"
MAX_FILES = 10
DOCUMENT_TOKENS = 2_000
HEAD_BYTES = 65_536
"""What is looked at of a file: enough for ``DOCUMENT_TOKENS`` in any script."""
MAX_NAME = 120
MAX_PICTURE_BYTES = 3_750_000
"""5 MB as base64, which is what the strictest providers take."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SOUNDS = {
    "audio/ogg": "ogg", "audio/mpeg": "mp3", "audio/wav": "wav", "audio/mp4": "m4a", "audio/aac": "aac",
    "audio/webm": "webm", "audio/flac": "flac",
}  # fmt: skip
"""Media types, and how names of such files end: services go by that."""
TRANSCRIBED = "transcribed"
"""Key in the metadata of a message: its text is what a model heard in its file."""
CANNOT_LISTEN = (
    "Klaw cannot listen yet: it needs a model that writes down speech. Set voice.transcribe (docs/voice.md)."
)
TEXT = "text/plain"
_MARKED_UP = (".html", ".htm", ".xhtml", ".eml", ".mbox", ".rtf", ".ics", ".vcf")
"""Ends of names of texts that are hard to read as they are."""
OTHER = "application/octet-stream"

Sha256 = Annotated[str, Bounds(pattern="[0-9a-f]{64}")]


def clean_name(name: str) -> str:
    """A name from outside as data: the last part, without what does not print. Of a long one, beginning and end."""
    last = re.split(r"[/\\]", normalized("NFC", name))[-1]
    plain = " ".join("".join(c if c.isprintable() else " " for c in last if unicodedata.category(c) != "Cf").split())
    if len(plain) > MAX_NAME:
        plain = f"{plain[: MAX_NAME - 21]}…{plain[-20:]}"
    return plain if plain.strip(". ") else "file"


@attrs.frozen(kw_only=True)
class NamedFile:
    sha256: Sha256
    name: Annotated[str, Bounds(0, 1_000)] = attrs.field(default="file", converter=clean_name)


@attrs.frozen(kw_only=True)
class Attachment:
    sha256: Sha256
    name: str
    """Never a path."""
    type: str
    """Media type by its content: one of ``PICTURES`` or ``SOUNDS``, ``application/pdf``, ``TEXT`` or ``OTHER``."""
    bytes: int
    text: Annotated[str, OMIT] = attrs.field(default="", repr=False)
    """The beginning of a text; ``cut``: it goes on."""
    cut: Annotated[bool, OMIT] = False
    reading: Annotated[str, OMIT] = ""
    """What was read of a document, for people."""

    @property
    def is_picture(self) -> bool:
        return self.type in PICTURES

    @property
    def is_sound(self) -> bool:
        return self.type in SOUNDS

    @property
    def is_document(self) -> bool:
        """It is read as the documents of knowledge bases are; a short plain text goes with its message as it is."""
        if self.type == TEXT:
            return self.bytes > 2 * DOCUMENT_TOKENS or self.name.lower().endswith(_MARKED_UP)
        return not self.is_picture and not self.is_sound


def word_of(media_type: str) -> str:
    """What people call a file of this type."""
    return "picture" if media_type in PICTURES else "sound" if media_type in SOUNDS else "file"


def reading(file: Attachment, *, hears: bool = False) -> str:
    """What a model gets of a file, for who attaches it. ``hears``: a sound can be written down."""
    if file.is_sound:
        return "What is said in it can be written down." if hears else CANNOT_LISTEN
    if file.is_picture:
        if file.bytes > MAX_PICTURE_BYTES:
            return "Too large for a model: only its name is passed on."
        return "Models that take pictures will see it."
    return "It will be read."


def files_of(metadata: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """The files in a message's metadata; malformed ones are left out."""
    found = []
    listed = metadata.get(FILES)
    for each in listed if isinstance(listed, list) else ():
        with suppress(BadValue):
            found.append(JOURNAL.read(each, Attachment))
    return tuple(found)


def names_of(metadata: Mapping[str, Any]) -> list[str]:
    return [f"[{word_of(each.type)} {each.name}]" for each in files_of(metadata)]


_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"OggS.{24}(?:OpusHead|\x01vorbis|\x7fFLAC|Speex)", re.DOTALL), "audio/ogg"),
    # Without an ID3 tag only what cannot be the beginning of a text in windows-1251.
    (re.compile(rb"ID3[\x02-\x04]|\xff[\xe2\xe3\xf2\xf3\xfa\xfb][\x10-\xdf]"), "audio/mpeg"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9][\x40-\x7f]"), "audio/aac"),
    (re.compile(rb"RIFF.{4}WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"fLaC[\x00\x80]"), "audio/flac"),
    # These may hold pictures too, which the beginning tells.
    (re.compile(rb".{4}ftyp(?:M4[AB] |(?=.*soun)(?!.*vide))", re.DOTALL), "audio/mp4"),
    (re.compile(rb"\x1a\x45\xdf\xa3(?=.*A_(?:OPUS|VORBIS))(?!.*V_(?:VP|AV1|MPEG))", re.DOTALL), "audio/webm"),
)


def sniff(head: bytes) -> str:
    """The media type of a file by its first ``HEAD_BYTES``, whatever its name says."""
    for magic, kind in _MAGIC:
        if magic.match(head):
            return kind
    return OTHER if _decoded(head) is None else TEXT


def _decoded(head: bytes) -> str | None:
    """The text that a file begins with; None if it is not a text. Its last character may be cut off."""
    codec, _ = find_charset(head, declares=False)
    text = head.decode(codec, "replace").removeprefix("\ufeff").rstrip("\ufffd")
    if codec == "ascii" or ("\ufffd" in text and "\ufffd".encode() not in head):  # bytes of no charset
        return None
    return None if any(c < " " and c not in "\t\n\r\f\x1b" for c in text) else text


def beginning(head: bytes, size: int, max_tokens: int) -> tuple[str, bool]:
    """The beginning of a text (estimated tokens), and whether it goes on. ``size``: bytes of the whole file."""
    text = clean_output(_decoded(head) or "").strip()
    if tokens.estimate(text) > max_tokens:
        return text[: tokens.fitting(text, max_tokens) if max_tokens else 0], True
    return text, size > len(head)
