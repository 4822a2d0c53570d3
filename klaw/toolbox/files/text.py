"""Files as text: decoding, and cutting out lines. Pure."""

import attrs

from klaw.toolbox.files.names import FileRefused

_LOOK_BYTES = 8192
"""A NUL among the first bytes tells that a file is no text."""


@attrs.frozen(kw_only=True)
class Lines:
    """Some lines of a file."""

    text: str
    first: int
    """Number of the first line shown, from 1; 0 when none is."""
    last: int
    total: int
    damaged: bool
    """Bytes that are no UTF-8 are shown as U+FFFD."""


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_LOOK_BYTES]


def decode(data: bytes, path: str) -> str:
    """The text of a file that is going to be changed, with its line ends.

    Raises:
        FileRefused: it is no UTF-8 text; a change would damage it.
    """
    try:
        if is_binary(data):
            raise FileRefused(f"{path}: is binary, not text")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileRefused(f"{path}: byte {error.start} is no UTF-8; a change would damage the file") from None


def encode(text: str) -> bytes:
    """Raises FileRefused: it holds a NUL, or is not valid Unicode."""
    if "\0" in text:
        raise FileRefused("content: must not hold a NUL character")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise FileRefused("content: is not valid Unicode text") from None


def cut(data: bytes, path: str, *, offset: int, limit: int, numbers: bool) -> Lines:
    """Lines of a file for reading.

    Args:
        data: the whole file.
        path: for messages.
        offset: number of the first line wanted, from 1; negative counts from the end (-20: the last 20).
        limit: at most so many lines.
        numbers: put each line's number before it.

    Raises:
        FileRefused: it is binary, or the offset lies behind the end.
    """
    if is_binary(data):
        raise FileRefused(f"{path}: is binary, not text")
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = len(lines)
    start = max(0, total + offset) if offset < 0 else max(0, offset - 1)
    if start >= total and start > 0:
        raise FileRefused(f"offset: line {offset} does not exist, {path} has {total} lines")
    shown = lines[start : start + max(1, limit)]
    width = len(str(start + len(shown)))
    body = [f"{number:>{width}}: {line}" for number, line in enumerate(shown, start + 1)] if numbers else shown
    return Lines(
        text="\n".join(line.removesuffix("\r") for line in body),
        first=start + 1 if shown else 0,
        last=start + len(shown),
        total=total,
        damaged="\ufffd" in text and "\ufffd".encode() not in data,
    )
