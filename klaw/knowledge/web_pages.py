"""Fetches the pages that are sources, and fetches them again when they are old. What was fetched is kept in the data
folder and read like an upload; of a page that is gone or cannot be reached, the last copy stays."""

import json
from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
import structlog

from klaw.actor.backoff import Pauses
from klaw.actor.clock import Clock, iso
from klaw.domain.knowledge import Document, DocumentProblem, DocumentState, Source, SourceId, SourceKind
from klaw.errors import PageGone, ToolRefused
from klaw.knowledge.scan import SourceState, document_of
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds.knowledge import document_steps, documents, sources
from klaw.store.originals import Originals

if TYPE_CHECKING:
    from klaw.toolbox.web_fetch import WebFetcher

FORMATS = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/csv": "csv",
    "application/json": "json",
    "application/epub+zip": "epub",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "": "html",
}

log = structlog.get_logger("klaw.knowledge")


@attrs.define(kw_only=True, eq=False, slots=False)
class WebPages:
    fetcher: Callable[[], "WebFetcher"]
    """Called when the first page is due, because it loads an HTTP client."""
    originals: Originals
    readers: Readers
    writer: Writer
    clock: Clock
    refresh_s: float
    """Age at which a page is fetched again; 0: never."""
    states: dict[SourceId, SourceState] = attrs.field(factory=dict, init=False)
    _failed: Pauses[SourceId] = attrs.field(factory=Pauses, init=False)

    @cached_property
    def _web(self) -> "WebFetcher":
        return self.fetcher()

    def settings_changed(self, refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self.__dict__.pop("_web", None)

    async def look(self, again: Collection[SourceId]) -> bool:
        """Fetch the pages that are due. Returns whether other bytes are kept now. Raises StorageError."""
        found = await self.readers.run(sources.every)
        pages = [source for source in found if source.kind is SourceKind.WEB]
        self.states = {source.id: self.states[source.id] for source in pages if source.id in self.states}
        changed = False
        for source in pages:
            there = await self.readers.run(documents.of_source, source.id)
            document = next((each for each in there if each.name == source.name), None)
            if source.id in again or self._is_due(source, document):
                changed |= await self._fetch(source, document)
        return changed

    def _is_due(self, source: Source, document: Document | None) -> bool:
        if self._failed.waits(source.id, self.clock.now()):
            return False
        state = self.states.get(source.id)
        if not source.sha256 or document is None or (state is not None and state.code != "ok"):
            return True
        age = self.clock.now() - float(_stamp(document).get("at", 0))
        return bool(self.refresh_s) and age >= self.refresh_s

    async def _fetch(self, source: Source, document: Document | None) -> bool:
        """Returns whether there is something to read."""
        if document is None:
            document = document_of(source, source.name)
            await self.writer.run(document_steps.wait, [document])
        before = _stamp(document) if source.sha256 and document.sha256 == source.sha256 else {}
        now = self.clock.now()
        try:
            fetched = await self._web.download(
                source.where,
                takes=FORMATS.__contains__,
                etag=before.get("etag", ""),
                modified=before.get("modified", ""),
            )
        except ToolRefused as error:
            await self._note_failure(source, document, error)
            return False
        self._failed.succeed(source.id)
        self.states[source.id] = SourceState(looked_at=iso(now))
        own = _own(document)
        if fetched is None:
            await self._note(document, stamp=json.dumps({**before, "at": now}), problems=own)
            return False
        kept = await self.originals.write(source.id, fetched.body)
        stamp = json.dumps({"at": now, "etag": fetched.etag[:1000], "modified": fetched.modified[:100]})
        kind = FORMATS[fetched.content_type]
        await self._note(document, stamp=stamp, format=kind, size=kept.size, problems=own)
        if await self.writer.run(sources.kept, source.id, kept.sha256, kept.size, iso(now)) is None:
            await self.originals.remove(source.id)  # it was removed meanwhile
            return False
        log.info("page_fetched", source=source.id, size=kept.size)
        return document.sha256 != kept.sha256

    async def _note_failure(self, source: Source, document: Document, error: ToolRefused) -> None:
        self._failed.fail(source.id, self.clock.now())
        code = "gone" if isinstance(error, PageGone) else "unreachable"
        text = f"{error} The last copy is kept." if source.sha256 else str(error)
        self.states[source.id] = SourceState(code=code, text=text, looked_at=iso(self.clock.now()))
        log.warning("page_not_fetched", source=source.id, code=code)
        problem = DocumentProblem(code=code, text=f"{document.name}: {text}")
        state = document.state if source.sha256 else DocumentState.FAILED
        await self._note(document, problems=(*_own(document), problem), state=state)

    async def _note(self, document: Document, **fields: Any) -> None:
        await self.writer.run(document_steps.note, document.id, fields)


def _own(document: Document) -> tuple[DocumentProblem, ...]:
    return tuple(each for each in document.problems if each.code not in ("gone", "unreachable"))


def _stamp(document: Document) -> dict[str, Any]:
    try:
        found = json.loads(document.stamp)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
