"""Reading JSONL logs from their end, line by line, in bounded memory. A malformed line is skipped with one warning."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

_BLOCK = 64 * 1024

log = structlog.get_logger("klaw.journal")


def lines_backwards(path: Path) -> Iterator[bytes]:
    """The file's lines, last first, without line breaks; empty lines are left out."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            step = min(_BLOCK, position)
            position -= step
            file.seek(position)
            block = file.read(step) + rest
            rest, *lines = block.split(b"\n")
            for line in reversed(lines):
                if line:
                    yield line
        if rest:
            yield rest


def records_backwards(path: Path) -> Iterator[dict[str, Any]]:
    """The file's JSON objects, last first."""
    for line in lines_backwards(path):
        try:
            record = json.loads(line)
        except ValueError as error:  # also covers UnicodeDecodeError
            log.warning("malformed_line", file=path.name, error=type(error).__name__)
            continue
        if isinstance(record, dict):
            yield record
        else:
            log.warning("malformed_line", file=path.name, error="NotAnObject")
