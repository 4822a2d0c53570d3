"""Exports as JSON of any size, one value at a time; and the way through a chat that is a tree: an edited question, or
an answer that was made again, is a branch."""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import IO, Any

from klaw.imports.events import Broken, Event, Unread
from klaw.imports.export_files import UNREADABLE, OpenedExport

MAX_VALUE_BYTES = 48 << 20
READ_BYTES = 1 << 16
MAX_DEPTH = 5_000
"""Open brackets of a value, those in texts included: the parser's memory grows with the square of their number."""


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""The group: half a surrogate pair."""
_HALF, _FIRST_HALF = re.compile(rb"\\u[dD][89a-fA-F]"), re.compile(rb"\\u[dD][89abAB]")


class _BoundedReader:
    """Counts what is read for one value, and replaces half surrogate pairs, at which the parser would stop: some
    programs cut an emoji in two."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._rest = stream, b""
        self.begin()

    def begin(self) -> None:
        self.left, self._depth = MAX_VALUE_BYTES, 0

    def read(self, count: int = -1) -> bytes:
        # The parser looks through a long text again with each part that it gets: those of a large value are larger.
        data = self._stream.read(max(count, min(MAX_VALUE_BYTES - self.left, self.left)))
        self.left -= len(data)
        if self.left < 0:
            raise Broken(f"a chat or a message has more than {MAX_VALUE_BYTES >> 20} MiB: the rest was not read")
        self._depth += sum(map(data.count, (b"[", b"{"))) - sum(map(data.count, (b"]", b"}")))
        if self._depth > MAX_DEPTH:
            raise Broken("is nested too deep: the rest was not read")
        whole = self._rest + data
        end = _end(whole) if data else len(whole)
        if data and not end:
            self._rest = whole
            return self.read(count)
        self._rest, whole = whole[end:], whole[:end]
        return mended(whole)


def mended(data: bytes) -> bytes:
    """The data with U+FFFD in place of half a surrogate pair."""
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], data) if _HALF.search(data) else data


def _end(data: bytes) -> int:
    """Where data ends, without an escape, or the first half of a pair, that may continue."""
    at = data.rfind(b"\\", -6)
    if at < 0 or not _escapes(data, at):
        return len(data)
    before = at - 6
    return before if before >= 0 and _FIRST_HALF.match(data, before) and _escapes(data, before) else at


def _escapes(data: bytes, at: int) -> bool:
    """Whether the backslash at a place is not itself escaped."""
    return (at + 1 - len(data[: at + 1].rstrip(b"\\"))) % 2 == 1


def items(stream: IO[bytes], alone: frozenset[str] = frozenset()) -> Iterator[Any]:
    """The values of a list; or objects, one behind the other, that have one of the members ``alone``. Raises Broken."""
    ijson = import_module("ijson")
    bounded = _BoundedReader(stream)
    is_object = alone and isinstance(stream, io.BufferedReader) and stream.peek(1).lstrip().startswith(b"{")
    where = "" if is_object else "item"
    found = ijson.items(bounded, where, use_float=True, buf_size=READ_BYTES, multiple_values=bool(is_object))
    for value in _checked(found):
        bounded.begin()
        if not is_object or alone & value.keys():
            yield value


def _checked(found: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from found
    except (import_module("ijson").JSONError, UnicodeDecodeError, OverflowError) as error:
        kind = type(error).__name__
        raise Broken(f"is not valid JSON to its end, or is cut off ({kind}): the rest was not read") from error


def walk(stream: IO[bytes], whole: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """All values of a document with their prefixes, in order: whole ones at ``whole``, elsewhere only scalars. Raises
    Broken."""
    ijson = import_module("ijson")
    bounded = _BoundedReader(stream)
    builder, depth, at = None, 0, ""
    for prefix, event, value in _checked(ijson.parse(bounded, use_float=True, buf_size=READ_BYTES)):
        if builder is None and prefix in whole and event in ("start_map", "start_array"):
            builder, at, depth = ijson.ObjectBuilder(), prefix, 0
        if builder is None:
            bounded.begin()
            if event in ("string", "number", "boolean", "null"):
                yield prefix, value
            continue
        builder.event(event, value)
        depth += event in ("start_map", "start_array")
        depth -= event in ("end_map", "end_array")
        if not depth:
            yield at, builder.value
            builder = None
            bounded.begin()


def chats(
    export: OpenedExport, wanted: str, called: str, chat: Callable[[Any, str], Iterator[Event]], alone: frozenset[str]
) -> Iterator[Event]:
    """The chats of files that are lists of them, or one of them, each read by ``chat``, which is given its place for
    people. One that cannot be read does not stop the rest."""
    for file in export.files(wanted, called):
        number = 0
        try:
            try:
                with file.open() as stream:
                    for number, each in enumerate(_entries(items(stream, alone | {_LIST})), 1):
                        yield from chat(each, f"{file.name}, chat {number}")
            except Broken as error:
                with file.open() as stream:
                    yield from _salvaged(stream, file.name, number, chat, error)
        except UNREADABLE as error:
            yield Unread(f"{file.name}, after chat {number}", str(error))


_LIST = "conversations"
"""Some programs put the list of chats into an object."""


def _entries(found: Iterable[Any]) -> Iterator[Any]:
    for each in found:
        inner = each.get(_LIST) if isinstance(each, dict) else None
        yield from inner if isinstance(inner, list) else [each]


_FIRST = re.compile(
    rb'\s*(?:\[\s*)?\{\s*"(\w{1,40})"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^,{}\[\]"]{0,40})\s*,\s*"(\w{1,40})"\s*:'
)


def _salvaged(
    stream: IO[bytes], name: str, done: int, chat: Callable[[Any, str], Iterator[Event]], error: Broken
) -> Iterator[Event]:
    """The chats behind a damaged one, which is reported: each begins with the same two members as the first. Raises
    ``error``: the file is cut off, or its chats cannot be told apart."""
    first = _FIRST.match(stream.peek(1)) if isinstance(stream, io.BufferedReader) else None
    if first is None:
        raise error
    mark = re.compile(
        rb'\{\s*"%b"\s*:\s*(?:"(?:[^"\\]|\\.){0,2000}"|[^,{}\[\]"]{0,40})\s*,\s*"%b"\s*:' % first.groups()
    )
    for number, (piece, is_last) in enumerate(pieces(stream, mark)):
        if number < max(done, 1):
            continue
        value, behind = decoded(piece)
        if is_last and not piece.rstrip().endswith(b"]" if first[0].lstrip().startswith(b"[") else b"}"):
            raise error
        if value is None or behind.strip() not in ("", ",", "]"):
            yield Unread(f"{name}, chat {number + (value is not None)}", "is too large, or damaged JSON")
        if value is not None and number > done:
            yield from chat(value, f"{name}, chat {number}")


DECODER = json.JSONDecoder(strict=False)


def decoded(piece: bytes) -> tuple[Any, str]:
    """The value at the beginning of a piece of damaged JSON, and the rest; None and all of it: it cannot be read."""
    text = mended(piece).decode(errors="replace")
    try:
        value, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None, text
    return value, text[end:]


PIECE_BYTES, MARK_BYTES = 1 << 20, 8_192
"""Read at once; of a beginning that is cut at its end."""


def pieces(stream: IO[bytes], mark: re.Pattern[bytes]) -> Iterator[tuple[bytes, bool]]:
    """A stream, cut before each ``mark``; with whether it is the last piece. A piece that is too long is left out but
    for its ends."""
    rest, looked = b"", 0
    while data := stream.read(PIECE_BYTES):
        rest, begin = rest + data, 0
        for found in mark.finditer(rest, looked):
            yield rest[begin : found.start()], False
            begin, looked = found.start(), 0
        rest = rest[begin:]
        if len(rest) > MAX_VALUE_BYTES:
            rest = rest[:MARK_BYTES] + rb"\x" + rest[-PIECE_BYTES:]  # no JSON, within a text and without
        looked = max(1, len(rest) - MARK_BYTES)
    yield rest, True


def way(parents: Mapping[str, str | None], made: Mapping[str, float], current: object) -> list[str]:
    """The keys from the root to the leaf that the user saw: behind ``current``, a key on the way, else the one that was
    made last. ``parents`` are in the order of the export; None for a root. A missing parent was lost: the key before it
    is taken instead, so that nothing before it is lost too."""
    before: dict[str, str | None] = {}
    children: dict[str | None, list[str]] = {}
    last, has_root = None, None in parents.values()
    for key, parent in parents.items():
        before[key] = parent
        if parent is not None and (parent not in parents or parent == key):
            before[key], has_root = last if has_root else None, True
        children.setdefault(before[key], []).append(key)
        last = key
    leaf = current if isinstance(current, str) and current in parents else None
    leaf = leaf or _newest((key for key in parents if key not in children), made) or last
    down: set[str] = set()
    while leaf is not None and leaf not in down and (below := _newest(children.get(leaf, ()), made)) is not None:
        down.add(leaf)
        leaf = below
    found: dict[str, None] = {}
    while leaf is not None and leaf not in found:
        found[leaf] = None
        leaf = before[leaf]
    return [*found][::-1]


def _newest(keys: Iterable[str], made: Mapping[str, float]) -> str | None:
    newest = None
    for key in keys:
        if newest is None or made.get(key, 0.0) >= made.get(newest, 0.0):
            newest = key
    return newest
