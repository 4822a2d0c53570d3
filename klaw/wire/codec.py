"""Text to frame and back. Pure: no I/O, no Trio.

``decode_client`` and ``decode_server`` structure strictly (no coercion; unknown fields are ignored, so that a newer
peer may say more) and raise nothing but ``FrameError``. A frame that exists is valid: names, ids, texts were checked.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeVar, cast, get_args

import attrs
import cattrs
from cattrs.errors import ClassValidationError, IterableValidationError
from cattrs.gen import make_dict_structure_fn

from klaw.domain.names import InvalidName, chat_name, client_id
from klaw.errors import ProtocolError
from klaw.wire.frames import (
    HISTORY_LIMIT,
    MAX_REF,
    Approve,
    ClientFrame,
    GetHistory,
    Hello,
    Send,
    ServerFrame,
)

MAX_INT = 2**53 - 1
"""Largest number that every JSON reader keeps exactly; also fits SQLite's integers."""

T = TypeVar("T")


class FrameError(ProtocolError):
    """A frame that cannot be used; ``ref``, ``id`` and ``chat`` tell which, where they could be read."""

    def __init__(self, code: str, message: str, *, close: bool = False) -> None:
        super().__init__(code, message, close=close)
        self.ref: str | None = None
        self.id: str | None = None
        self.chat: str | None = None


def decode_client(text: str, max_bytes: int) -> ClientFrame:
    """Read a frame of a client.

    Args:
        text: the whole frame.
        max_bytes: its longest allowed UTF-8 form.

    Raises:
        FrameError: ``frame_too_large`` (closes), ``bad_json``, ``bad_frame``, ``unknown_type``, ``bad_text``,
            ``empty_text``, ``bad_chat``, ``bad_id``.
    """
    # A text is never shorter in bytes than in characters, so most frames need no encoding to be judged.
    if len(text) * 4 > max_bytes and len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise FrameError("frame_too_large", f"a frame has at most {max_bytes} bytes", close=True)
    tree = _tree(text)
    try:
        return _checked(cast("ClientFrame", _structure(tree, _client_types())))
    except FrameError as error:
        error.ref, error.id, error.chat = (
            _ref_of(tree),
            _name_of(tree, "id", client_id),
            _name_of(tree, "chat", chat_name),
        )
        raise


def decode_server(text: str) -> ServerFrame | None:
    """Read a frame of a server; None for a type that this client does not know yet.

    Raises:
        FrameError: as ``decode_client``.
    """
    tree = _tree(text)
    if isinstance(tree.get("type"), str) and tree["type"] not in _server_types():
        return None
    return cast("ServerFrame", _structure(tree, _server_types()))


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
    pairs = ((name, getattr(value, name)) for name in _names(type(value)))
    return {name: item for name, item in pairs if item is not None}


def _names(cls: type) -> tuple[str, ...]:
    names = _NAMES.get(cls)
    if names is None:
        names = _NAMES[cls] = tuple(field.name for field in attrs.fields(cls))
    return names


_NAMES: dict[type, tuple[str, ...]] = {}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_fields)


# -- JSON ----------------------------------------------------------------------------------------------------------


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = _DECODER.decode(text)
    except (ValueError, RecursionError):
        # From None: the error's text quotes the frame.
        raise FrameError("bad_json", "a frame is one JSON object") from None
    if not isinstance(tree, dict):
        raise FrameError("bad_frame", "a frame is one JSON object")
    return tree


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


# -- structure -----------------------------------------------------------------------------------------------------


class _WrongValue(Exception):
    """What a field must be."""


class _BadText(Exception):
    """A text that cannot be stored or shown."""


def _structure(tree: dict[str, Any], types: dict[str, type]) -> object:
    tag = tree.get("type")
    if not isinstance(tag, str):
        raise FrameError("bad_frame", "type: must be a text")
    cls = types.get(tag)
    if cls is None:
        raise FrameError("unknown_type", "there is no frame of this type")
    try:
        return _converter().structure(tree, cls)
    except Exception as error:  # noqa: BLE001  cattrs wraps what the hooks raise; anything else is raised again
        raise _frame_error(error, "") from None


def _frame_error(error: BaseException, path: str) -> FrameError:
    """The first broken rule, with the field's path; never the value."""
    if isinstance(error, ClassValidationError):
        for inner, note in error.group_exceptions()[0]:
            return _frame_error(inner, f"{path}.{note.name}" if path else note.name)
    if isinstance(error, IterableValidationError):
        for inner, _ in error.group_exceptions()[0]:
            return _frame_error(inner, f"{path}[]")
    if isinstance(error, KeyError):
        return FrameError("bad_frame", f"{path}: is required")
    if isinstance(error, _BadText):
        return FrameError("bad_text", f"{path}: {error}")
    if isinstance(error, _WrongValue):
        return FrameError("bad_frame", f"{path}: {error}")
    raise error


def _read_text(value: object, _: object) -> str:
    if not isinstance(value, str):
        raise _WrongValue("must be a text")
    if not is_clean(value):
        raise _BadText("must not hold NUL or half a surrogate pair")
    return value


def is_clean(text: str) -> bool:
    """Whether a text has neither NUL nor lone surrogates, so that it can be stored and sent."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _read_int(value: object, _: object) -> int:
    if type(value) is not int or not -MAX_INT <= value <= MAX_INT:
        raise _WrongValue("must be a whole number below 2^53")
    return value


def _read_float(value: object, _: object) -> float:
    if type(value) is int or type(value) is float:
        return float(value) if abs(value) <= MAX_INT else _refuse_number()
    return _refuse_number()


def _refuse_number() -> NoReturn:
    raise _WrongValue("must be a number below 2^53")


def _read_bool(value: object, _: object) -> bool:
    if type(value) is not bool:
        raise _WrongValue("must be true or false")
    return value


def _read_counts(value: object, _: object) -> dict[str, int]:
    tree = _read_object(value, None)
    return {_read_text(name, None): _read_int(count, None) for name, count in tree.items()}


def _read_object(value: object, _: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongValue("must be an object")
    return value


def _class_hook(cls: type[T], converter: cattrs.Converter) -> Callable[[object, type[T]], T]:
    inner = make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=True)

    def hook(value: object, _: type[T]) -> T:
        return inner(_read_object(value, None), cls)

    return hook


def _list_hook(cls: Any, converter: cattrs.Converter) -> Callable[[object, Any], list[Any]]:
    item = get_args(cls)[0]

    def hook(value: object, _: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _WrongValue("must be a list")
        return [converter.structure(each, item) for each in value]

    return hook


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(str, _read_text)
    converter.register_structure_hook(int, _read_int)
    converter.register_structure_hook(float, _read_float)
    converter.register_structure_hook(bool, _read_bool)
    converter.register_structure_hook_func(lambda cls: cls == dict[str, int], _read_counts)
    converter.register_structure_hook_func(lambda cls: cls == dict[str, Any], _read_object)
    converter.register_structure_hook_factory(lambda cls: getattr(cls, "__origin__", None) is list, _list_hook)
    converter.register_structure_hook_factory(attrs.has, _class_hook)
    return converter


@cache
def _client_types() -> dict[str, type]:
    return {cls.type: cls for cls in get_args(ClientFrame)}


@cache
def _server_types() -> dict[str, type]:
    return {cls.type: cls for cls in get_args(ServerFrame)}


# -- rules of client frames ----------------------------------------------------------------------------------------


def _checked(frame: ClientFrame) -> ClientFrame:
    """Check what the types do not say, and normalise the chat's name."""
    ref = getattr(frame, "ref", None)
    if ref is not None and not 1 <= len(ref) <= MAX_REF:
        raise FrameError("bad_frame", f"ref: must have 1 to {MAX_REF} characters")
    if isinstance(frame, Send):
        _check_name("bad_id", client_id, frame.id)
        if not frame.text.strip():
            raise FrameError("empty_text", "a message needs a text")
    elif isinstance(frame, Approve):
        _check_name("bad_id", client_id, frame.id)
    elif isinstance(frame, GetHistory):
        if not 1 <= frame.limit <= HISTORY_LIMIT:
            raise FrameError("bad_frame", f"limit: must be from 1 to {HISTORY_LIMIT}")
        if frame.before is not None and frame.after is not None:
            raise FrameError("bad_frame", "before: cannot stand beside after")
    for name in ("before", "after", "seq"):
        if (getattr(frame, name, None) or 0) < 0:
            raise FrameError("bad_frame", f"{name}: must not be negative")
    return _with_checked_chats(frame)


def _with_checked_chats(frame: ClientFrame) -> ClientFrame:
    chat = getattr(frame, "chat", None)
    if chat is not None:
        name = _check_name("bad_chat", chat_name, chat)
        return frame if name == chat else attrs.evolve(cast("Send", frame), chat=name)
    chats = getattr(frame, "chats", None)
    if chats:
        if min(chats.values()) < 0:
            raise FrameError("bad_frame", "chats: a seq must not be negative")
        named = {_check_name("bad_chat", chat_name, name): seq for name, seq in chats.items()}
        return attrs.evolve(cast("Hello", frame), chats=named)
    return frame


def _check_name(code: str, check: Callable[[str], str], name: str) -> str:
    try:
        return check(name)
    except InvalidName as error:
        raise FrameError(code, str(error)) from None


def _ref_of(tree: dict[str, Any]) -> str | None:
    ref = tree.get("ref")
    return ref if isinstance(ref, str) and 1 <= len(ref) <= MAX_REF and is_clean(ref) else None


def _name_of(tree: dict[str, Any], field: str, check: Callable[[str], str]) -> str | None:
    value = tree.get(field)
    try:
        return check(value) if isinstance(value, str) else None
    except InvalidName:
        return None
