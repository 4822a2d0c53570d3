"""Sending files of this machine to a server that may not be able to read them: in pieces, over its socket."""

import argparse
import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from klaw.operations.operation import Operation, OperationError, told
from klaw.operations.uploads import PIECE_BYTES


def each(operation: Operation, arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The command once for every thing that it names, with the file opened where it is one (``file``): as who gave the
    command, also where root then becomes another. Raises OperationError."""
    field = next((each.name for each in attrs.fields(operation.arguments) if told(each).upload), None)
    values = getattr(arguments, f"asked_{field}", None)
    if not values:
        yield arguments
        return
    for value in values:
        yield argparse.Namespace(**{**vars(arguments), **_meant(f"asked_{field}", value)})


def _meant(name: str, value: str) -> dict[str, object]:
    path = Path(value)
    if "://" in value or not os.path.lexists(path):
        return {name: value}
    if path.is_dir():
        return {name: str(path.resolve())}
    try:
        return {name: None, "file": path.open("rb"), "file_name": path.name}
    except OSError as error:
        why = f"{value} cannot be read: {error.strerror or type(error).__name__}"
        raise OperationError("bad_args", why) from None


def send(paths: Paths, file: BinaryIO, user: str | None) -> str:
    """Upload a file; returns the upload's id. Raises NoServer, Refused, OSError."""
    upload, size = None, 0
    with file:
        while (piece := file.read(PIECE_BYTES)) or upload is None:
            data = base64.b64encode(piece).decode("ascii")
            answer = call(paths, "kb_upload", upload=upload, offset=size, data=data, user=user)
            upload, size = str(answer["upload"]), int(answer["size"])
    return upload
