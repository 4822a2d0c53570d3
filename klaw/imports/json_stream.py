"""JSON of any size, one value at a time."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, Any

from klaw.imports.events import Broken, Event, Unread
from klaw.imports.files import UNREADABLE, Export

MAX_VALUE_BYTES = 48 << 20
"""Of a value that is taken as a whole, such as a chat."""
READ_BYTES = 1 << 16


class _Bounded:
    """Counts what is read for one value."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.left = MAX_VALUE_BYTES

    def read(self, count: int = -1) -> bytes:
        data = self._stream.read(count)
        self.left -= len(data)
        if self.left < 0:
            raise Broken(f"a chat or a message has more than {MAX_VALUE_BYTES >> 20} MiB: nothing behind it was read")
        return data


def items(stream: IO[bytes]) -> Iterator[Any]:
    """The values of a list.

    Raises:
        Broken: it is no JSON any more, or a value is too large.
    """
    ijson = import_module("ijson")
    bounded = _Bounded(stream)
    found = ijson.items(bounded, "item", use_float=True, buf_size=READ_BYTES)
    while True:
        try:
            value = next(found)
        except StopIteration:
            return
        except (ijson.JSONError, UnicodeDecodeError, OverflowError) as error:
            raise _broken(error) from error
        bounded.left = MAX_VALUE_BYTES
        yield value


def walk(stream: IO[bytes], whole: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """All values of a document with their prefixes, in order: those at ``whole`` as a whole, of the others only texts,
    numbers and the like. Raises as ``items``."""
    ijson = import_module("ijson")
    bounded = _Bounded(stream)
    builder, depth, at = None, 0, ""
    found = ijson.parse(bounded, use_float=True, buf_size=READ_BYTES)
    while True:
        try:
            prefix, event, value = next(found)
        except StopIteration:
            return
        except (ijson.JSONError, UnicodeDecodeError, OverflowError) as error:
            raise _broken(error) from error
        if builder is None and prefix in whole and event in ("start_map", "start_array"):
            builder, at, depth = ijson.ObjectBuilder(), prefix, 0
        if builder is None:
            bounded.left = MAX_VALUE_BYTES
            if event in ("string", "number", "boolean", "null"):
                yield prefix, value
            continue
        builder.event(event, value)
        depth += event in ("start_map", "start_array")
        depth -= event in ("end_map", "end_array")
        if not depth:
            yield at, builder.value
            builder, bounded.left = None, MAX_VALUE_BYTES


def chats(export: Export, wanted: str, called: str, chat: Callable[[Any, str], Iterator[Event]]) -> Iterator[Event]:
    """The chats of files that are lists of them. One that cannot be read does not stop the rest.

    Args:
        export, wanted, called: as of ``Export.files``.
        chat: reads one; told how a person finds it.
    """
    for file in export.files(wanted, called):
        number = 0
        try:
            with file.open() as stream:
                for number, each in enumerate(items(stream), 1):
                    yield from chat(each, f"{file.name}, chat {number}")
        except UNREADABLE as error:
            yield Unread(f"{file.name}, after chat {number}", str(error))


def _broken(error: Exception) -> Broken:
    kind = type(error).__name__
    return Broken(f"is no JSON from some place on, or is cut off ({kind}): nothing behind that was read")
