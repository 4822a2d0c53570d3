"""Text to frame and back. Pure.

``decode_client`` and ``decode_server`` convert nothing, ignore unknown fields, so that a newer peer may say more, and
raise nothing but ``ProtocolError``. A frame that exists is valid: see ``klaw.wire.frames``.
"""

import base64
import json
from contextlib import suppress
from functools import cache
from typing import Any, cast, get_args

import attrs

from klaw.convert import BAD_TEXT, FRAMES, read_json
from klaw.errors import BadValue, ProtocolError
from klaw.wire.frames import ChatName, ClientFrame, Hello, MessageId, Ref, ServerFrame

_CLIENT_FRAMES: dict[str, type] = {cls.type: cls for cls in get_args(ClientFrame)}
_SERVER_FRAMES: dict[str, type] = {cls.type: cls for cls in get_args(ServerFrame)}
_MARKS: dict[str, Any] = {"ref": Ref, "id": MessageId, "chat": ChatName}


def decode_client(text: str, max_bytes: int, *, first: bool = False) -> ClientFrame:
    """Read a frame of a client.

    Args:
        max_bytes: its longest allowed UTF-8 form.
        first: of its connection: one that is no hello is refused by its type alone.
    """
    if byte_size(text) > max_bytes:
        raise ProtocolError("frame_too_large", f"a frame has at most {max_bytes} bytes", close=True)
    tree = _tree(text)
    try:
        return cast("ClientFrame", _structure(tree, _CLIENT_FRAMES, first=first))
    except ProtocolError as error:
        for name, kind in _MARKS.items():
            with suppress(BadValue, ProtocolError):
                error.marks[name] = FRAMES.read(tree.get(name), kind)
        raise


def byte_size(data: str | bytes) -> int:
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode("utf-8", "surrogatepass"))


def decode_server(text: str) -> ServerFrame | None:
    """Read a frame of a server; None for a type that this client does not know."""
    tree = _tree(text)
    if isinstance(tree.get("type"), str) and tree["type"] not in _SERVER_FRAMES:
        return None
    return cast("ServerFrame", _structure(tree, _SERVER_FRAMES))


def tree_of(value: Any) -> Any:
    """A value as a frame has it, in dicts and lists, without fields that are None."""
    if attrs.has(type(value)):
        return {name: tree_of(item) for name, item in _fields(value).items()}
    if isinstance(value, dict):
        return {name: tree_of(item) for name, item in value.items()}
    return [tree_of(item) for item in value] if isinstance(value, (list, tuple)) else value


def encode(frame: ClientFrame | ServerFrame) -> str:
    """The frame's text: JSON in one line, without fields that are None. Lone surrogates become U+FFFD."""
    text = _ENCODER.encode({"type": frame.type, **_fields(frame)})
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _fields(value: Any) -> dict[str, Any]:
    names = _names(type(value))  # type: ignore[arg-type]  # hashable
    return {name: item for name in names if (item := getattr(value, name)) is not None}


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _fields(value)


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(cls))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = read_json(text.encode())
    except (ValueError, RecursionError):
        # From None: the error's text quotes the frame.
        raise ProtocolError("bad_json", "a frame is one JSON object") from None
    if not isinstance(tree, dict):
        raise ProtocolError("bad_frame", "a frame is one JSON object")
    return tree


def _structure(tree: dict[str, Any], types: dict[str, type], *, first: bool = False) -> object:
    tag = tree.get("type")
    if not isinstance(tag, str):
        raise ProtocolError("bad_frame", "type: must be a text")
    cls = types.get(tag)
    if cls is None:
        raise ProtocolError("unknown_type", "there is no frame of this type")
    if first and cls is not Hello:
        raise ProtocolError("hello_first", "the first frame is hello")
    try:
        made: object = FRAMES.read(tree, cls)
    except BadValue as error:
        is_text = error.problems[0].message == BAD_TEXT
        raise ProtocolError("bad_text" if is_text else "bad_frame", str(error)) from None
    return made
