"""The frames of the wire protocol, version 2; docs/protocol.md tells what they and their fields mean.

Values only: ``codec`` turns them into text and back. A frame's ``type`` is its tag on the wire; optional fields that
are None are left out there. What a client sends is checked as its types say; what a server sends is trusted more."""

import base64
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import attrs

from klaw.convert import OMIT, Bounds, Check, Form
from klaw.domain import context_used
from klaw.domain.attachment import MAX_FILES, TRANSCRIBED, Attachment, NamedFile, files_of
from klaw.domain.branch import Variant
from klaw.domain.context_used import ContextUsed
from klaw.domain.message import Message
from klaw.domain.names import chat_name, client_id
from klaw.errors import InvalidName, ProtocolError
from klaw.wire.stored_call import StoredCall, calls_of

PROTOCOL_VERSION = 2
MAX_RESULT_CHARS = 8_000_000
"""Longest text of a ``result``: more than the longest message has as JSON."""


def _named(code: str, check: Callable[[str], str]) -> Check:
    def checked(name: str) -> str:
        try:
            return check(name)
        except InvalidName as error:
            raise ProtocolError(code, str(error)) from None

    return Check(checked)


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("must be a text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


ChatName = Annotated[str, _named("bad_chat", chat_name)]
MessageId = Annotated[str, _named("bad_id", client_id)]
Seq = Annotated[int, Bounds(0)]
Ref = Annotated[str, Bounds(1, 64)]
"""A client's mark on a request, echoed in the answer and in an error."""
Data = Annotated[bytes, Form(_from_base64, lambda data: base64.b64encode(data).decode())]


@attrs.frozen(kw_only=True)
class FileOfMessage:
    """A file of a message, with its media type by its content, and what was read of it. Its name is never a path."""

    sha256: str
    name: str
    type: str
    bytes: int
    reading: Annotated[str | None, OMIT] = None

    @classmethod
    def of(cls, file: Attachment) -> "FileOfMessage":
        return cls(sha256=file.sha256, name=file.name, type=file.type, bytes=file.bytes, reading=file.reading or None)


@attrs.frozen(kw_only=True)
class Hello:
    type: ClassVar[str] = "hello"
    version: int
    client: str | None = None
    token: str | None = attrs.field(default=None, repr=False)
    chats: dict[ChatName, Seq] = attrs.Factory(dict)
    html: bool | None = None


@attrs.frozen(kw_only=True)
class Send:
    type: ClassVar[str] = "send"
    id: MessageId
    chat: ChatName
    text: str
    files: Annotated[tuple[NamedFile, ...], Bounds(at_most=MAX_FILES)] | None = None
    model: Annotated[str, Bounds(1, 200)] | None = None
    transcribed: bool | None = None

    def __attrs_post_init__(self) -> None:
        if not self.text.strip() and not self.files:
            raise ProtocolError("empty_text", "a message needs a text")


@attrs.frozen(kw_only=True)
class CallFrame:
    type: ClassVar[str] = "call"
    operation: Annotated[str, Bounds(1, 64)]
    args: dict[str, Any] = attrs.field(factory=dict, repr=False)
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class UploadFrame:
    type: ClassVar[str] = "upload"
    name: Annotated[str, Bounds(0, 1_000)] = "file"
    offset: Seq
    data: Data = attrs.field(repr=False)
    last: bool = False
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class Stop:
    type: ClassVar[str] = "stop"
    chat: ChatName
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class Watch:
    type: ClassVar[str] = "watch"
    chat: ChatName
    seq: Seq | None = None
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class Approve:
    type: ClassVar[str] = "approve"
    id: MessageId
    allow: bool
    ref: Ref | None = None


@attrs.frozen(kw_only=True)
class Visible:
    type: ClassVar[str] = "visible"
    visible: bool


@attrs.frozen(kw_only=True)
class DegradedPart:
    code: str
    text: str


@attrs.frozen(kw_only=True)
class ServerLimits:
    max_frame_bytes: int
    messages_per_second: float
    burst: int
    history: int
    max_file_bytes: int | None = None
    max_message_file_bytes: int | None = None
    max_files: int | None = None


@attrs.frozen(kw_only=True)
class Welcome:
    type: ClassVar[str] = "welcome"
    version: int
    server: str
    user: str
    session: str
    degraded: list[DegradedPart]
    limits: ServerLimits
    hint: str | None = None
    """What people should do first: that only the built-in model is connected."""


@attrs.frozen(kw_only=True)
class Ack:
    type: ClassVar[str] = "ack"
    id: str
    chat: str
    seq: int


@attrs.frozen(kw_only=True)
class StoredMessage:
    seq: int
    id: str
    role: str
    kind: str
    """The stored message's ``type``, which is the frame's tag here."""
    content: str
    created_at: str = ""
    """ISO-8601 UTC; empty for what a client knows from an ``ack`` only."""
    turn: str | None = None
    task: str | None = None
    files: list[FileOfMessage] | None = None
    transcribed: bool | None = None
    calls: list[StoredCall] | None = None
    context_used: ContextUsed | None = None
    variant: Variant | None = None
    """On pages: if there are several variants of it, which of them this is."""
    replaced: bool | None = None

    @property
    def is_answer(self) -> bool:
        return self.role == "assistant" and self.kind == "text"

    @classmethod
    def of(cls, message: Message, **more: Any) -> Self:
        """A message as the store has it. ``more``: further fields of the frame."""
        texts = {name: text for name in ("turn", "task") if isinstance(text := message.metadata.get(name), str)}
        return cls(
            seq=message.seq,
            id=message.id,
            role=message.role,
            kind=message.type,
            content=message.content,
            created_at=message.created_at,
            files=[FileOfMessage.of(each) for each in files_of(message.metadata)] or None,
            transcribed=message.metadata.get(TRANSCRIBED) is True or None,
            calls=calls_of(message) or None,
            context_used=context_used.read(message.metadata),
            **more | texts,
        )


@attrs.frozen(kw_only=True)
class MessagePage:
    chat: str
    messages: list[StoredMessage]
    more: bool
    branched: int | None = None
    """Grows whenever another variant is shown; None: there are no variants."""


@attrs.frozen(kw_only=True)
class MessageFrame(StoredMessage):
    type: ClassVar[str] = "message"
    chat: str
    replayed: bool | None = None

    @classmethod
    def on_page(cls, chat: str, stored: StoredMessage) -> "MessageFrame":
        return cls(**attrs.asdict(stored, recurse=False), chat=chat, replayed=True)


@attrs.frozen(kw_only=True)
class Delta:
    type: ClassVar[str] = "delta"
    chat: str
    turn: str
    offset: int
    text: str


@attrs.frozen(kw_only=True)
class RenderedFrame:
    """An answer as HTML: ``html`` of its characters from ``offset`` to ``end``, which stays, and ``rest`` of those to
    ``shown``, which the next frame replaces. With ``seq`` it is complete, and stored as that message."""

    type: ClassVar[str] = "rendered"
    chat: str
    turn: str
    offset: int
    end: int
    html: str
    rest: str
    shown: int
    seq: int | None = None


@attrs.frozen(kw_only=True)
class ThinkingFrame:
    type: ClassVar[str] = "thinking"
    chat: str
    turn: str
    offset: int
    text: str


@attrs.frozen(kw_only=True)
class Tool:
    type: ClassVar[str] = "tool"
    chat: str
    turn: str
    call: str
    name: str
    state: str
    what: str | None = None
    title: str | None = None
    about: str | None = None


@attrs.frozen(kw_only=True)
class ApprovalFrame:
    type: ClassVar[str] = "approval"
    chat: str
    id: str
    tool: str
    what: str
    """In printable characters, never shortened."""
    until: str
    turn: str | None = None


@attrs.frozen(kw_only=True)
class ApprovalEndedFrame:
    type: ClassVar[str] = "approval_ended"
    chat: str
    id: str
    outcome: str
    ref: str | None = None


@attrs.frozen(kw_only=True)
class Status:
    type: ClassVar[str] = "status"
    state: str
    chat: str
    turn: str | None = None
    doing: str | None = None
    ended: str | None = None
    details: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class ResultFrame:
    type: ClassVar[str] = "result"
    result: dict[str, Any]
    ref: str | None = None


@attrs.frozen(kw_only=True)
class UploadedFrame:
    type: ClassVar[str] = "uploaded"
    bytes: int
    file: FileOfMessage | None = None
    ref: str | None = None


@attrs.frozen(kw_only=True)
class StoppedFrame:
    type: ClassVar[str] = "stopped"
    chat: str
    running: bool
    ref: str | None = None


@attrs.frozen(kw_only=True)
class ChatFrame:
    type: ClassVar[str] = "chat"
    chat: str
    title: str


@attrs.frozen(kw_only=True)
class CaughtUp:
    type: ClassVar[str] = "caught_up"
    chat: str
    seq: int
    ref: str | None = None
    branched: int | None = None


@attrs.frozen(kw_only=True)
class VariantFrame:
    type: ClassVar[str] = "variant"
    chat: str


@attrs.frozen(kw_only=True)
class FieldError:
    field: str
    message: str


@attrs.frozen(kw_only=True)
class Error:
    """``message`` never quotes the client. Of a turn it may quote the model's provider, on one line, without keys."""

    type: ClassVar[str] = "error"
    code: str
    message: str
    errors: list[FieldError] | None = None
    retryable: bool = False
    retry_after_ms: int | None = None
    id: str | None = None
    ref: str | None = None
    chat: str | None = None
    turn: str | None = None


@attrs.frozen(kw_only=True)
class Notice:
    type: ClassVar[str] = "notice"
    code: str
    text: str
    details: dict[str, Any] | None = None


RequestFrame: TypeAlias = CallFrame | Stop | UploadFrame
ClientFrame: TypeAlias = Hello | Send | RequestFrame | Watch | Approve | Visible
_Running: TypeAlias = Delta | RenderedFrame | ThinkingFrame | Tool | ApprovalFrame | ApprovalEndedFrame | Status
_Answer: TypeAlias = ResultFrame | StoppedFrame | UploadedFrame | ChatFrame | CaughtUp | VariantFrame | Error | Notice
ServerFrame: TypeAlias = Welcome | Ack | MessageFrame | _Running | _Answer
