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
    cut_line: bool
    """The last line shown is not whole, because it alone is longer than what may be shown."""


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
        raise FileRefused(f"{path}: byte {error.start} is not UTF-8; a change would damage the file") from None


def encode(text: str) -> bytes:
    """Raises FileRefused: it holds a NUL, or is not valid Unicode."""
    if "\0" in text:
        raise FileRefused("content: must not hold a NUL character")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise FileRefused("content: is not valid Unicode text") from None


def cut(data: bytes, path: str, *, offset: int, limit: int, max_chars: int, numbers: bool) -> Lines:
    """Lines of a file for reading.

    Args:
        data: the whole file.
        path: for messages.
        offset: number of the first line wanted, from 1; negative counts from the end (-20: the last 20).
        limit: at most so many lines.
        max_chars: at most so many characters; whole lines, unless the first alone is longer.
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
    wanted = [line.removesuffix("\r") for line in lines[start : start + max(1, limit)]]
    if numbers:
        width = len(str(start + len(wanted)))
        wanted = [f"{number:>{width}}: {line}" for number, line in enumerate(wanted, start + 1)]
    shown = _fitting(wanted, max_chars)
    cut_line = bool(shown) and len(shown[0]) > max_chars
    return Lines(
        text="\n".join(shown)[:max_chars],
        first=start + 1 if shown else 0,
        last=start + len(shown),
        total=total,
        damaged="\ufffd" in text and "\ufffd".encode() not in data,
        cut_line=cut_line,
    )


def _fitting(lines: list[str], max_chars: int) -> list[str]:
    """As many lines from the first on as fit, and at least one."""
    room = max_chars
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 and count > 0:
            return lines[:count]
    return lines
