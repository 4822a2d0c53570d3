"""Reads one document and stores its passages, in steps of a few milliseconds with pauses between them. What the child
process that reads it (``reading``) gives is stored as it comes, so a long document takes no more memory."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Concatenate, ParamSpec, TypeVar

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.threads import Threads
from klaw.domain.knowledge import (
    Block,
    Document,
    DocumentId,
    DocumentProblem,
    DocumentState,
    Passage,
    Source,
    SourceKind,
)
from klaw.errors import KlawError
from klaw.knowledge import scan
from klaw.knowledge.graph.embedded import GraphSize
from klaw.knowledge.reading.child import SUFFIXES
from klaw.knowledge.reading.passages import Cutter
from klaw.knowledge.reading.reader import DocumentReading, ReadingLimits
from klaw.store.engine.database import Readers
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.kinds.knowledge import document_steps
from klaw.store.kinds.knowledge.document_steps import SLICE_S, Digest, Same

P = ParamSpec("P")
T = TypeVar("T")

SETTLE_S = 2.0
"""A file that was changed less than this ago may be half written."""
HASH_BYTES = 4 << 20
CUT_CHARS = 64_000
BUFFERED = 400
"""Passages that are stored at a time."""
STEP_PASSAGES = 64
"""Most in one step of the writer."""
MAX_PAUSE_S = 0.1
LIMITS = ReadingLimits()

log = structlog.get_logger("klaw.knowledge")


class GoneError(Exception):
    """The document was removed meanwhile."""


class NotYetError(Exception):
    """The file is not there, or is being changed: it is read later, or removed by the next look."""


@attrs.define(kw_only=True, eq=False)
class Ingest:
    data_dir: Path
    readers: Readers
    writer: Writer
    clock: Clock
    load_graph: Callable[[Source], Awaitable[GraphSize]]
    """Raises KlawError: the file is no graph."""
    pause_share: float = 1.0
    """A pause behind a step is so many times as long as the step."""
    _threads: Threads = attrs.field(factory=lambda: Threads("documents of bases", 2), init=False)

    async def read(self, source: Source, document: Document) -> Document:
        """Read a document unless its bytes are those of before. Raises GoneError, NotYetError, StorageError."""
        begun = trio.current_time()
        if source.kind is SourceKind.RDF:
            now = await self._read_graph(source, document)
        else:
            now = await self._read_file(source, document)
        log.info(
            "document_read",
            document=now.id,
            state=now.state.value,
            kind=now.format,
            passages=now.passages,
            code=now.problems[-1].code if now.problems else None,
            seconds=round(trio.current_time() - begun, 2),
        )
        return now

    async def remove(self, document: DocumentId) -> None:
        while await self._step(document_steps.remove_some, document):
            pass

    async def give_up(self, document: Document) -> Document | None:
        """Leave a document at which Klaw failed alone until it changes. None: it is gone. Raises StorageError."""
        try:
            return await self._fail(document, "failed", "could not be read by an error of Klaw; the log says where")
        except GoneError:
            return None

    # -- files -----------------------------------------------------------------------------------------------------

    async def _read_file(self, source: Source, document: Document) -> Document:
        in_folder = source.kind is SourceKind.FOLDER
        if in_folder and PurePosixPath(document.name).suffix.lower().removeprefix(".") not in SUFFIXES:
            return await self._fail(document, "unsupported", "files of this kind are not read")
        try:
            file, info = await self._threads.run(_open, self.data_dir, source, document)
        except FileNotFoundError as error:
            if in_folder:
                raise NotYetError from error
            return await self._fail(document, "missing", "is missing from the data folder: add it again")
        except OSError as error:
            return await self._fail(document, "unreadable", f"cannot be read: {error.strerror or error}")
        try:
            if in_folder and 0 <= self.clock.now() - info.st_mtime < SETTLE_S:
                raise NotYetError
            stamp = scan.stamp(info) if in_folder else document.stamp
            sha256 = document.sha256 if source.kind is SourceKind.MESSAGES else source.sha256
            if in_folder:
                sha256 = "" if info.st_size > LIMITS.file_bytes else await self._hash(file)
            same = bool(sha256 and document.digest) and sha256 == document.sha256
            document = attrs.evolve(document, stamp=stamp, size=info.st_size, sha256=sha256)
            if same:
                return await self._finish(attrs.evolve(document, state=DocumentState.READ))
            async with DocumentReading(file, name=_name(source, document), limits=LIMITS.of(info.st_size)) as reading:
                read = await self._store(document, reading)
            # Changed, or replaced. A file of a message is called by its content, and renamed when it is sent.
            renamed = source.kind is SourceKind.MESSAGES
            if not renamed and scan.stamp(await self._threads.run(os.fstat, file)) != scan.stamp(info):
                raise NotYetError
            return await self._finish(read)
        finally:
            os.close(file)

    async def _hash(self, file: int) -> str:
        sha, at = hashlib.sha256(), 0
        while data := await self._threads.run(os.pread, file, HASH_BYTES, at):
            await self._threads.run(sha.update, data)
            at += len(data)
        return sha.hexdigest()

    async def _store(self, document: Document, reading: DocumentReading) -> Document:
        cutter, digest, count, words = Cutter(), Digest(), 0, 0
        blocks: list[Block] = []
        passages: list[Passage] = []
        had: Same | None = None
        chars = 0
        async for block in reading:
            blocks.append(block)
            chars += len(block.text)
            words += len(block.text.split())
            if chars < CUT_CHARS:
                continue
            passages += await self._threads.run(_cut, cutter, blocks)
            blocks, chars = [], 0
            if len(passages) >= BUFFERED:
                if had is None:
                    document = attrs.evolve(document, title=reading.report.title)
                    had = await self._begin(document)
                await self._fill(document.id, had, passages, digest)
                count += len(passages)
                passages = []
        report = reading.report
        if report.failed:
            return await self._failed(document, report.format, report.problems)
        if had is None:
            document = attrs.evolve(document, title=report.title)
            had = await self._begin(document)
        passages += await self._threads.run(_cut, cutter, blocks)
        passages += cutter.finish()
        await self._fill(document.id, had, passages, digest)
        count += len(passages)
        await self._trim(document.id, count)
        return attrs.evolve(
            document,
            format=report.format,
            language=report.language,
            state=DocumentState.READ,
            pages=report.pages,
            words=words,
            passages=count,
            digest=digest.hex(),
            problems=report.problems,
        )

    # -- graphs ----------------------------------------------------------------------------------------------------

    async def _read_graph(self, source: Source, document: Document) -> Document:
        document = attrs.evolve(document, stamp="", sha256=source.sha256, size=source.size, format="rdf")
        try:
            graph = await self.load_graph(source)
        except KlawError as error:
            problem = DocumentProblem(code=error.code or "unreadable", text=f"{document.name}: {error}")
            return await self._finish(attrs.evolve(document, state=DocumentState.FAILED, problems=(problem,)))
        title = f"{graph.triples:,} triples, {graph.labels:,} names"
        return await self._finish(attrs.evolve(document, state=DocumentState.READ, title=title, problems=()))

    # -- steps -----------------------------------------------------------------------------------------------------

    async def _begin(self, document: Document) -> Same:
        """Returns the passages that the document has already."""
        while (title := await self.writer.run(document_steps.begin, document)) != document.title:
            if title is None:
                raise GoneError
            await self._trim(document.id, 0)
        had: Same = {}
        last = 0
        while True:
            more, last = await self.readers.run(document_steps.same, document.id, after=last)
            for key, rowids in more.items():
                had.setdefault(key, []).extend(rowids)
            if not last:
                return had

    async def _fill(self, document: DocumentId, had: Same, passages: Sequence[Passage], digest: Digest) -> None:
        digest.add(passages)
        left = list(document_steps.claimed(had, passages))
        while left:
            stored = await self._step(document_steps.fill, document, left[:STEP_PASSAGES], SLICE_S)
            if not stored:
                raise GoneError
            left = left[stored:]

    async def _trim(self, document: DocumentId, keep: int) -> None:
        while await self._step(document_steps.trim, document, keep, SLICE_S):
            pass

    async def _fail(self, document: Document, code: str, text: str) -> Document:
        problem = DocumentProblem(code=code, text=f"{document.name}: {text}")
        return await self._finish(await self._failed(document, "", (problem,)))

    async def _failed(self, document: Document, kind: str, problems: tuple[DocumentProblem, ...]) -> Document:
        """The row of a document of which nothing can be used; the passages that it had are removed."""
        if await self.writer.run(document_steps.begin, document) is None:
            raise GoneError
        await self._trim(document.id, 0)
        empty = attrs.evolve(document, title="", language="", digest="", pages=0, words=0, passages=0)
        return attrs.evolve(empty, format=kind, state=DocumentState.FAILED, problems=problems)

    async def _finish(self, document: Document) -> Document:
        now = attrs.evolve(document, read_at=iso(self.clock.now()))
        if not await self.writer.run(document_steps.finish, now):
            raise GoneError
        return now

    async def _step(self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One step of the writer, and a pause: nobody is to wait for two in a row."""
        begun = trio.current_time()
        value = await self.writer.run(function, *args, **kwargs)
        await trio.sleep(min(trio.current_time() - begun, MAX_PAUSE_S) * self.pause_share)
        return value


def _open(data_dir: Path, source: Source, document: Document) -> tuple[int, os.stat_result]:
    with scan.original(data_dir, source, document) as file:
        return os.dup(file.fd), file.info


def _cut(cutter: Cutter, blocks: Sequence[Block]) -> list[Passage]:
    return [passage for block in blocks for passage in cutter.add(block)]


def _name(source: Source, document: Document) -> str:
    """The name that the format is recognised by."""
    return f"page.{document.format}" if source.kind is SourceKind.WEB else document.name
