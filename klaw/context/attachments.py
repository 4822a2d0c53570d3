"""What a request has of messages' files: pictures, and text behind the name of its file. Of a long document the text
begins there, and passages of it that fit the question stand by themselves. Pure."""

from collections.abc import Sequence

import attrs

from klaw.context.inputs import FileText, Snapshot
from klaw.context.request import shorten
from klaw.domain import tokens
from klaw.domain.attachment import MAX_PICTURE_BYTES, TRANSCRIBED, Attachment, files_of
from klaw.domain.knowledge import what_was_read
from klaw.domain.message import Message, Role
from klaw.domain.text import quoted
from klaw.llm.providers.adapt import IMAGE_TOKENS

MAX_PICTURES, MAX_PICTURES_BYTES = 8, 12_000_000
"""Limits of one request, which gets the newest."""
PICTURES_SHARE = 0.75
"""Pictures may take this share of the room for the pending messages; the rest is for their text."""
BEGINNING_TOKENS = 600
"""Of a long document, in the message that it came with while that is to be answered."""
DOCUMENTS_SHARE = 0.5
"""The files of each earlier message may take this share of that room with their text."""


def pictures(messages: Sequence[Message]) -> list[Attachment]:
    """The pictures that one request may hold, the newest first, each once."""
    found: dict[str, Attachment] = {}
    left = MAX_PICTURES_BYTES
    for file in (file for message in reversed(messages) for file in reversed(files_of(message.metadata))):
        if file.is_picture and file.bytes <= min(MAX_PICTURE_BYTES, left) and file.sha256 not in found:
            found[file.sha256] = file
            left -= file.bytes
            if len(found) == MAX_PICTURES:
                break
    return list(found.values())


def with_files(snapshot: Snapshot, limit: int) -> Snapshot:
    """The snapshot with its messages as a model reads them; the pending ones may take about ``limit`` tokens."""
    messages = (*snapshot.history, *snapshot.pending)
    most = int(limit * PICTURES_SHARE) // IMAGE_TOKENS
    given = [each.sha256 for each in pictures(messages) if each.sha256 in snapshot.pictures][:most]
    at: dict[int, list[str]] = {}
    shown: dict[int, list[str]] = {}
    place = None
    for message in reversed(messages):  # each picture stands where it was sent last
        # Providers take pictures from users only: one of an answer stands beside what the user said to it.
        place = message.rowid if message.role is Role.USER else place
        own = dict.fromkeys(each.sha256 for each in files_of(message.metadata))
        shown[message.rowid] = [each for each in own if each in given and place is not None]
        given = [each for each in given if each not in shown[message.rowid]]
        if place is not None:
            at[place] = shown[message.rowid] + at.get(place, [])

    def read(message: Message, room: int, *, pending: bool = False) -> Message:
        files, images = files_of(message.metadata), at.get(message.rowid, ())
        if not files and not images:
            return message
        here = shown[message.rowid]
        heard = bool(message.metadata.get(TRANSCRIBED))
        lines = []
        for file in files:
            if (document := snapshot.documents.get(file.sha256)) is not None:
                lines.append(_of_document(file, document, room=room, begins=pending))
            else:
                lines.append(_line(file, given=file.sha256 in here, sees=snapshot.sees, heard=heard, room=room))
        text = "\n".join(filter(None, (message.content, *lines)))
        return attrs.evolve(message, content=text, tokens=tokens.estimate(text) + IMAGE_TOKENS * len(images))

    return attrs.evolve(
        snapshot,
        history=tuple(read(message, int(limit * DOCUMENTS_SHARE)) for message in snapshot.history),
        pending=tuple(read(message, limit, pending=True) for message in snapshot.pending),
        beside={rowid: tuple(snapshot.pictures[each] for each in here) for rowid, here in at.items() if here},
    )


def _of_document(file: Attachment, read: FileText, *, room: int, begins: bool) -> str:
    said = what_was_read(read.document)
    if not read.text:
        return f"[file {file.name}: {said}]"
    if read.whole:
        return f"[file {file.name}, {said}: its text]\n{quoted(shorten(read.text, room))}"
    line = f"[file {file.name}, {said}: a long one, of which passages that fit the question stand by themselves"
    return f"{line}; it begins so]\n{quoted(shorten(read.text, min(room, BEGINNING_TOKENS)))}" if begins else f"{line}]"


def _line(file: Attachment, *, given: bool, sees: bool, heard: bool, room: int) -> str:
    if file.is_sound and heard:
        return f"[sound {file.name}: spoken; the text above is what a speech model heard in it]"
    if file.is_picture:
        why = ""
        if not sees:
            why = ", which this model cannot see"
        elif file.bytes > MAX_PICTURE_BYTES:
            why = f", which is not shown: it has more than {MAX_PICTURE_BYTES:,} bytes"
        elif not given:
            why = ", which is not shown here"
        return f"[picture {file.name}{why}]"
    if not file.text:
        return f"[file {file.name}, {file.type}, {file.bytes:,} bytes: only its name is known]"
    whole = ": the beginning of its text" if file.cut else ": its text"
    return f"[file {file.name}, {file.bytes:,} bytes{whole}]\n{quoted(shorten(file.text, room))}"
