"""Writing a document that comes in parts: to standard output, or into a new private file."""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from klaw.client.text_width import harmless
from klaw.operations.operation import OperationError


def write(texts: Iterator[str], path: str | None) -> None:
    """Write all parts; what goes to a terminal is made harmless to it. An error in between removes the file.

    Raises:
        OperationError: the file cannot be made or written.
        KlawError: whatever ``texts`` raises; the first part is asked for before a file is made.
    """
    texts = chain([next(texts)], texts)
    if path is None:
        _write(texts, _shown if sys.stdout.isatty() else _raw)
        sys.stdout.flush()
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            try:
                _write(texts, file.write)
                file.flush()
            except BaseException:
                Path(path).unlink()
                raise
    except OSError as error:
        why = f"--to {path}: cannot be written: {error.strerror or type(error).__name__}"
        raise OperationError("bad_args", why) from None


def _write(texts: Iterator[str], take: Callable[[str], object]) -> None:
    for text in texts:
        take(text)


def _shown(text: str) -> None:
    sys.stdout.write(harmless(text))


def _raw(text: str) -> None:
    """In UTF-8, whatever the terminal's language is."""
    sys.stdout.buffer.write(text.encode())
