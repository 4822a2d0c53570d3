"""Files over HTTP: upload one, whose SHA-256 a message may then name, and fetch one; add one to a knowledge base."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from email.message import Message
from functools import partial
from typing import Annotated, Literal, cast
from urllib.parse import quote

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.request_auth import BODY_S, QUERY, Api, connection_of
from klaw.api.streams import Stream
from klaw.backup.folder import BackupRefused, BrokenBackup, archived, chosen
from klaw.convert import FRAMES, Bounds
from klaw.domain.attachment import OTHER, PICTURES, SOUNDS, reading
from klaw.domain.names import UserId
from klaw.errors import HttpRefusal
from klaw.operations.kb.bases import meant
from klaw.operations.kb.sources import AddedSource
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from klaw.operations.uploads import UploadedPiece
from klaw.store.attachments import DISCARD_S
from klaw.store.kinds.knowledge import bases
from klaw.upkeep import LITTLE_SPACE_BYTES
from klaw.wire.frames import FileOfMessage

SLOWEST = 4_096
"""Bytes a second that a body must bring on average, or after ``BODY_S`` it is given up."""
PIECE_BYTES = 65_536
MAX_EXPORT = 1 << 34


@attrs.frozen(kw_only=True)
class UploadQuery:
    name: Annotated[str, Bounds(0, 1_000)] | None = None


@attrs.frozen(kw_only=True)
class SourceQuery(UploadQuery):
    kind: Literal["file", "rdf"] | None = None


@attrs.frozen(kw_only=True)
class UploadAnswer:
    file: FileOfMessage
    reading: str
    """What a model gets of it."""


@attrs.frozen(kw_only=True)
class FetchQuery:
    name: Annotated[str, Bounds(0, 1_000)] = ""
    """What it is called when it is saved."""


def routes(api: Api) -> list[Route]:
    async def upload(request: Request) -> Response:
        user = api.grant(request, body_counts=False).user
        asked = QUERY.read(dict(request.query_params), UploadQuery)
        name = _name_of(request) if asked.name is None else asked.name
        async with aclosing(request.stream()) as stream:
            kept = await api.services.attachments.keep(user, name, _PacedBody(request, stream))
        told = reading(kept, hears=api.parts.voice.hears)
        if kept.is_document:
            told = await api.parts.knowledge.files.take_up(user, kept)
        return JSONResponse({"file": FRAMES.write(FileOfMessage.of(kept)), "reading": told}, 201)

    async def fetch(request: Request) -> Response:
        user = api.grant(request).user
        asked = QUERY.read(dict(request.query_params), FetchQuery)
        file = await api.services.attachments.find(user, request.path_params["sha256"], asked.name)
        read = partial(api.services.attachments.read, user, file.sha256)
        # Only pictures and sounds are shown; everything else is saved, whatever a browser takes it for.
        shown = file.type if file.is_picture or file.is_sound else OTHER
        return cast("Response", download(read, file.bytes, shown, file.name))

    async def add(request: Request) -> Response:
        who = api.caller(request, body_counts=False)
        asked, base = QUERY.read(dict(request.query_params), SourceQuery), request.path_params["base"]
        found = await meant(base, who.user, api.parts)
        await api.core.readers.run(bases.editable, who.user, found.base.id)  # before its bytes are taken
        upload = api.core.new_id()
        try:
            await _take(api, request, who.user, upload)
            name = _name_of(request) if asked.name is None else asked.name
            given = {"base": found.base.id, "upload": upload, "name": name or "file", "kind": asked.kind}
            return JSONResponse(await perform(read(operations()["kb_add"], given), who, api.parts), 201)
        finally:
            with trio.move_on_after(DISCARD_S, shield=True):
                await api.core.originals.discard(who.user, upload)

    about = "Keep a file for a message. It is removed unless a message names it within a day."
    kept = About("file_upload", about, "files", UploadQuery, takes=OTHER, status=201)
    about = "A file. Only pictures and sounds have their own media type; everything else is to be saved."
    given = About("file_fetch", about, "files", FetchQuery, gives=(*PICTURES, *SOUNDS, OTHER))
    about = "Add a file to a knowledge base. It is read afterwards; kb_sources tells how far that is."
    added = About("kb_add_file", about, "kb", SourceQuery, takes=OTHER, answer=AddedSource, written=False, status=201)
    return [
        *_host_routes(api),
        DescribedRoute(f"{PREFIX}/files", upload, "POST", attrs.evolve(kept, answer=UploadAnswer)),
        DescribedRoute(f"{PREFIX}/files/{{sha256}}", fetch, "GET", given),
        DescribedRoute(f"{PREFIX}/kb/{{base}}/files", add, "POST", added),
    ]


async def _take(api: Api, request: Request, user: UserId, upload: str, most: int | None = None) -> int:
    size = 0
    async with aclosing(request.stream()) as stream:
        async for piece in _PacedBody(request, stream):
            size = await api.core.originals.add(user, upload, size, piece, most)
    return size


def _host_routes(api: Api) -> list[Route]:
    """Exports to import, and backups to keep elsewhere."""

    async def export(request: Request) -> Response:
        user = api.grant(request, body_counts=False).user
        length, upload = request.headers.get("content-length", ""), api.core.new_id()
        if not length.isdecimal() or not int(length):
            raise HttpRefusal(400, "the file is empty, or Content-Length does not say how many bytes it has")
        free = (await api.core.files.run(shutil.disk_usage, api.core.paths.data_dir)).free
        if int(length) > min(MAX_EXPORT, free - LITTLE_SPACE_BYTES):
            raise HttpRefusal(413, "there is not enough room on the server's disk for this file")
        try:
            size = await _take(api, request, user, upload, MAX_EXPORT)
        except BaseException:
            with trio.move_on_after(DISCARD_S, shield=True):
                await api.core.originals.discard(user, upload)
            raise
        return JSONResponse({"upload": upload, "size": size}, 201)

    async def backup(request: Request) -> Response:
        if not api.caller(request).operator:
            raise OperationError("forbidden", "only the operator may ask this")
        folder, name = api.core.paths.backups_dir, request.path_params["backup"]
        try:
            root, manifest = await api.core.files.run(chosen, folder, name)
        except (BackupRefused, BrokenBackup) as error:
            raise OperationError("unknown_backup", str(error)) from None
        pieces = archived(root, manifest)

        async def give(stream: Stream) -> None:
            while piece := await api.core.files.run(next, pieces, b""):
                await stream.put(piece)

        answer = Stream(give, "application/x-tar")
        answer.headers["content-disposition"] = f'attachment; filename="klaw-{name}.tar"'
        return cast("Response", answer)

    about = "Upload an export for import_run. Content-Length must say how many bytes it has."
    moved = About("import_upload_export", about, "import", takes=OTHER, answer=UploadedPiece, status=201)
    fetched = About("backup_fetch", "A backup as a TAR archive. For operators.", "backup", gives=("application/x-tar",))
    return [
        DescribedRoute(f"{PREFIX}/import/files", export, "POST", moved),
        DescribedRoute(f"{PREFIX}/backup/{{backup}}/archive", backup, "GET", fetched),
    ]


def download(read: Callable[[int, int], Awaitable[bytes]], size: int, media_type: str, name: str) -> Stream:
    """A file as an answer, shown by a browser unless it is of the type ``OTHER``. ``read`` gives the bytes from an
    offset, at most so many."""

    async def give(stream: Stream) -> None:
        for offset in range(0, size, PIECE_BYTES):
            await stream.put(await read(offset, min(PIECE_BYTES, size - offset)))

    answer = Stream(give, media_type)
    how = "attachment" if media_type == OTHER else "inline"
    answer.headers["content-disposition"] = f"{how}; filename*=UTF-8''{quote(name, safe='')}"
    answer.headers["content-length"] = str(size)
    return answer


class _PacedBody:
    """A body as it comes, not faster than its user may send. Raises HttpRefusal: it comes too slowly."""

    def __init__(self, request: Request, stream: AsyncIterator[bytes]) -> None:
        allowance = connection_of(request).allowance
        assert allowance is not None
        self._stream, self._allowance, self._patience_s = stream, allowance, BODY_S

    def __aiter__(self) -> "_PacedBody":
        return self

    async def __anext__(self) -> bytes:
        since = trio.current_time()
        with trio.move_on_after(self._patience_s) as waiting:
            piece = await anext(self._stream)
        if waiting.cancelled_caught:
            raise HttpRefusal(408, f"the body came too slowly: it takes {SLOWEST} bytes a second")
        waited_s = trio.current_time() - since
        self._patience_s = min(BODY_S, self._patience_s - waited_s + len(piece) / SLOWEST)
        # What may be sent comes back with time.
        while (wait_s := self._allowance.take(len(piece), trio.current_time())) > 0:  # noqa: ASYNC110
            await trio.sleep(wait_s)
        return piece


def _name_of(request: Request) -> str:
    head = Message()
    raw = request.headers.get("content-disposition", "").encode("latin-1")  # many programs send UTF-8 as it is
    head["content-disposition"] = raw.decode("utf-8", "replace")
    return head.get_filename("file")[:1_000]
