"""A store with a base, and an indexer that reads real files in real child processes."""

import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from klaw.actor.clock import SystemClock, iso
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Supervisor
from klaw.config import safe_open
from klaw.config.tools import KnowledgeConfig, WebToolConfig
from klaw.domain.knowledge import Base, BaseId, Document, DocumentState, Source, SourceId, SourceKind
from klaw.domain.names import UserId
from klaw.knowledge.graph.graphs import Graphs
from klaw.knowledge.indexer import Indexer
from klaw.knowledge.ingest import Ingest
from klaw.knowledge.source_scanner import SourceScanner
from klaw.knowledge.web_pages import WebPages
from klaw.store.kinds.knowledge import bases, documents, sources
from klaw.store.kinds.knowledge.documents import StoredPassage
from klaw.store.originals import Originals
from klaw.store.store import Store
from klaw.toolbox.web_fetch import WebFetcher
from tests.support.stores import running_store
from tests.support.waiting import until

ANNA = UserId("anna")
AT = "2026-11-01T10:00:00.000Z"


def old(path: Path, text: str | bytes, *, age_s: float = 60.0) -> Path:
    """A file that nobody is writing any more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@attrs.define
class World:
    """See the module."""

    root: Path
    store: Store
    indexer: Indexer
    scanner: SourceScanner
    supervisor: Supervisor
    base: Base
    nudges: list[int]

    async def folder(self, name: str = "docs", *, make: bool = True) -> Source:
        """A watched folder."""
        where = self.root / name
        if make:
            where.mkdir(exist_ok=True)
        return await self._put(SourceKind.FOLDER, name, where=str(where))

    async def page(self, url: str) -> Source:
        """A page of the web."""
        return await self._put(SourceKind.WEB, url, where=url)

    async def upload(self, name: str, data: bytes, base: Base | None = None) -> Source:
        """An uploaded file; one that ends with .ttl is a graph."""
        safe_open.replace(self.store_dir, f"knowledge/{_id(name)}", data)
        kind = SourceKind.RDF if name.endswith(".ttl") else SourceKind.FILE
        return await self._put(kind, name, base, sha256=hashlib.sha256(data).hexdigest(), size=len(data))

    async def base_of(self, user: str) -> Base:
        """Another user's."""
        made = Base(id=BaseId(f"kb-{user}"), user=UserId(user), name="Договоры", created_at=AT, updated_at=AT)
        return await self.store.writer.run(bases.put, made)

    @property
    def store_dir(self) -> Path:
        return self.root / "data"

    async def _put(self, kind: SourceKind, name: str, base: Base | None = None, **fields: object) -> Source:
        now, base = iso(time.time()), base or self.base
        made = Source(
            id=SourceId(_id(name)),
            user=base.user,
            base=base.id,
            kind=kind,
            name=name,
            added_by=base.user,
            created_at=now,
            updated_at=now,
            **fields,  # type: ignore[arg-type]
        )
        made = await self.store.writer.run(sources.put, base.user, made)
        self.indexer.nudge()
        return made

    async def documents(self, source: Source) -> dict[str, Document]:
        return {each.name: each for each in await self.store.readers.run(documents.of_source, source.id)}

    async def settled(self, source: Source, *names: str) -> dict[str, Document]:
        """The documents of a source as soon as they are these, and all of them are read."""

        async def found() -> dict[str, Document] | None:
            now = await self.documents(source)
            done = all(each.state is not DocumentState.WAITING for each in now.values())
            return now if done and set(now) == set(names) else None

        if not names:
            await until(self._nothing_of(source))
            return {}
        return await until(found)  # type: ignore[return-value]

    def problems(self) -> dict[str, str]:
        """Of the indexer, except that the system gives no watches: other processes on this machine may hold them."""
        return {code: text for code, text in self.indexer.problems().items() if code != "kb_not_watched"}

    async def done(self) -> None:
        """Return when there is nothing to look at or to read."""
        for loop in (self.indexer, self.indexer._to_read, *self.indexer._users.values()):
            await loop.wait_idle()

    def _nothing_of(self, source: Source):  # type: ignore[no-untyped-def]
        async def found() -> bool:
            return not await self.documents(source)

        return found

    async def passages(self, document: Document) -> list[StoredPassage]:
        return await self.store.readers.run(documents.passages, ANNA, document.id)

    async def count(self, query: str, *bindings: object) -> int:
        return int(await self.store.readers.run(lambda connection: connection.execute(query, bindings).get))


def _id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@asynccontextmanager
async def knowledge_world(
    root: Path,
    *,
    max_files: int = 100,
    scan_s: float = 300.0,
    private: tuple[Path, ...] = (),
    fetcher: WebFetcher | None = None,
) -> AsyncIterator[World]:
    """The indexer runs; the base is there."""
    (root / "data").mkdir(exist_ok=True)
    async with running_store(root / "data") as store, trio.open_nursery() as nursery:
        clock, nudges = SystemClock(), list[int]()
        supervisor = Supervisor(nursery, clock)
        readers, writer = store.readers, store.writer
        graphs = Graphs(KnowledgeConfig(), (80, 443), root / "data")
        ingest = Ingest(data_dir=root / "data", readers=readers, writer=writer, clock=clock, load_graph=graphs.load)
        originals = Originals(root / "data", 1_000_000)
        scanner = SourceScanner(
            readers=readers,
            writer=writer,
            clock=clock,
            ingest=ingest,
            originals=originals,
            allowed=lambda source: "it is secret" if source.name == "secret" else "",
            private=private,
            max_files=max_files,
            scan_s=scan_s,
        )
        pages = WebPages(
            fetcher=lambda: fetcher or WebFetcher(WebToolConfig()),
            originals=originals,
            readers=readers,
            writer=writer,
            clock=clock,
            refresh_s=86_400,
        )
        indexer = Indexer(
            readers=readers,
            clock=clock,
            metrics=Metrics(),
            ingest=ingest,
            scanner=scanner,
            pages=pages,
            embed=lambda: nudges.append(1),
        )
        await supervisor.start(indexer.spec())
        made = Base(id=BaseId("kb-1"), user=ANNA, name="Договоры", created_at=AT, updated_at=AT)
        base = await writer.run(bases.put, made)
        yield World(root, store, indexer, scanner, supervisor, base, nudges)
        await supervisor.stop(indexer.spec().name, "test is over")
