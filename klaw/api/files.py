"""Files of messages over HTTP: uploaded before the message that names them, and fetched."""

from contextlib import aclosing
from functools import partial
from typing import cast
from urllib.parse import quote

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.asker import Api
from klaw.api.streams import Stream
from klaw.convert import FRAMES
from klaw.domain.attachment import OTHER, Attachment
from klaw.domain.names import UserId
from klaw.errors import HttpRefusal
from klaw.gateway.answers import frame_of

UPLOAD_S = 600.0
"""A file must have come within this time."""
PIECE_BYTES = 262_144


def routes(api: Api) -> list[Route]:
    """Of a user's files."""
    attachments = api.core.attachments

    async def upload(request: Request) -> Response:
        user, name = api.asker(request).user, request.query_params.get("name", "file")
        with trio.move_on_after(UPLOAD_S):
            async with aclosing(request.stream()) as pieces:
                kept = await attachments.keep(user, name, pieces)
            return JSONResponse({"file": FRAMES.write(frame_of(kept))}, 201)
        raise HttpRefusal(408, f"the file did not come within {UPLOAD_S:g} s")

    async def fetch(request: Request) -> Response:
        user, sha256 = api.asker(request).user, request.path_params["sha256"]
        file = await attachments.find(user, sha256, request.query_params.get("name", sha256))
        answer = Stream(partial(send, user, file), file.type if file.is_picture else OTHER)
        kind = "inline" if file.is_picture else "attachment"
        answer.headers |= {
            "content-length": str(file.bytes),
            "content-disposition": f"{kind}; filename*=UTF-8''{quote(file.name)}",
        }
        return cast("Response", answer)

    async def send(user: UserId, file: Attachment, stream: Stream) -> None:
        for offset in range(0, file.bytes, PIECE_BYTES):
            await stream.put(await attachments.read(user, file.sha256, offset, PIECE_BYTES))

    return [Route("/api/v1/files", upload, methods=["POST"]), Route("/api/v1/files/{sha256}", fetch, methods=["GET"])]
