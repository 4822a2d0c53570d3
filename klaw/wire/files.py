"""The frames with which files of messages are uploaded."""

from typing import Annotated, ClassVar

import attrs

from klaw.convert import Bounds
from klaw.domain.attachment import Attachment
from klaw.wire.values import Data, Ref, Seq


@attrs.frozen(kw_only=True)
class FileOfMessage:
    """A file of a message. ``type`` is its media type by its content; its name is data and never a path."""

    sha256: str
    name: str
    type: str
    bytes: int

    @classmethod
    def of(cls, file: Attachment) -> "FileOfMessage":
        return cls(sha256=file.sha256, name=file.name, type=file.type, bytes=file.bytes)


@attrs.frozen(kw_only=True)
class UploadFrame:
    """The next piece of a file: the first has offset 0 and names it. One upload at a time."""

    type: ClassVar[str] = "upload"
    name: Annotated[str, Bounds(0, 1_000)] = "file"
    offset: Seq
    data: Data = attrs.field(repr=False)
    last: bool = False
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class UploadedFrame:
    """The answer to ``upload``: how much of the file is there. ``file`` when that is all: it is durable."""

    type: ClassVar[str] = "uploaded"
    bytes: int
    file: FileOfMessage | None = None
    ref: str | None = None
