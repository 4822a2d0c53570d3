"""Pieces of files, as operations take them."""

import base64
from typing import Annotated

from klaw.convert import Bounds
from klaw.errors import InvalidValue
from klaw.operations import operation as op

PIECE_BYTES = 48_000
"""Bytes of an upload that fit into one request of the admin socket."""

UploadId = Annotated[str, Bounds(8, 64, r"[0-9a-f]*")]


def piece(data: str) -> bytes:
    """Return the bytes of an argument ``data`` in base64. Raises OperationError."""
    return op.understood("data", _bytes, data)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidValue("must be base64") from None
