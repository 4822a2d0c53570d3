"""The terminal device: keys as they are typed, and its state put back at the end. Knows no chat."""

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import trio

from klaw.client.screen import PASTE_OFF, PASTE_ON

_LOCAL_FLAGS = 3
_CONTROL_CHARACTERS = 6
DEFAULT_SIZE = (80, 24)


def is_usable(terminal_type: str | None) -> bool:
    """Whether a terminal of this ``TERM`` understands cursor movements."""
    return terminal_type not in (None, "", "dumb")


def size_of(fd: int) -> tuple[int, int]:
    """Columns and rows of a terminal now; the usual ones if it does not know."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return DEFAULT_SIZE
    return (columns or DEFAULT_SIZE[0], rows or DEFAULT_SIZE[1])


def key_by_key(fd: int) -> None:
    """Let the terminal give each key at once and echo nothing; Ctrl-C and Ctrl-Z stay signals."""
    mode = termios.tcgetattr(fd)
    mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    mode[_CONTROL_CHARACTERS][termios.VMIN] = 1
    mode[_CONTROL_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)


@contextmanager
def borrowed_terminal(fd: int, out: TextIO) -> Iterator[None]:
    """Use a terminal key by key; it is as it was afterwards, whatever happened."""
    before = termios.tcgetattr(fd)
    try:
        key_by_key(fd)
        out.write(PASTE_ON)
        out.flush()
        yield
    finally:
        try:
            out.write(PASTE_OFF)
            out.flush()
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def read_keys(fd: int) -> bytes:
    """What was typed, as soon as there is something; empty when the terminal is gone.

    Cancellation: nothing typed is lost.
    """
    await trio.lowlevel.wait_readable(fd)
    try:
        return os.read(fd, 4096)
    except OSError:
        # A hung-up terminal reads as an input/output error.
        return b""
