"""The parts of knowledge bases, how they are connected, and the actor that works in their background."""

from functools import partial
from typing import TYPE_CHECKING

import attrs

from klaw.config.keys import HOUR_S
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.knowledge import folders
from klaw.knowledge.dialogue import CitationMetrics, Dialogue
from klaw.knowledge.graph.graphs import Graphs
from klaw.knowledge.indexer import Indexer
from klaw.knowledge.ingest import Ingest
from klaw.knowledge.message_files import MessageFiles
from klaw.knowledge.search import KnowledgeSearch
from klaw.knowledge.source_scanner import SourceScanner
from klaw.knowledge.web_pages import WebPages
from klaw.llm.client import LlmClient
from klaw.memory.background_llm import Asker
from klaw.memory.embed.embedder import Embedder

if TYPE_CHECKING:
    from klaw.toolbox.web_fetch import WebFetcher

MAX_PAGE_BYTES = 20_000_000
"""Longest page, also a PDF, that can be a source: it is in memory while it is fetched."""


@attrs.frozen(kw_only=True)
class Knowledge:
    core: Core
    indexer: Indexer
    graphs: Graphs
    passages: KnowledgeSearch
    dialogue: Dialogue
    files: MessageFiles

    async def start(self) -> None:
        await self.core.supervisor.start(self.indexer.spec())

    async def stop(self) -> None:
        await self.core.supervisor.stop(self.indexer.spec().name, "shutdown")


def build(core: Core, llm: LlmClient, embedder: Embedder) -> Knowledge:
    """Make the parts; nothing runs yet. The embedder is nudged when there are passages to embed."""
    readers, writer, clock, config, paths = (
        core.readers,
        core.writer,
        core.clock,
        core.live(lambda now: now.kb),
        core.paths,
    )
    graphs = Graphs(
        config,
        _Ports(core),
        paths.data_dir,
        missing=lambda source: indexer.read_again(source),  # noqa: PLW0108 - it is made below
    )
    ingest = Ingest(data_dir=paths.data_dir, readers=readers, writer=writer, clock=clock, load_graph=graphs.load)
    scanner = SourceScanner(
        readers=readers,
        writer=writer,
        clock=clock,
        ingest=ingest,
        originals=core.originals,
        allowed=partial(folders.allowed, config=config, paths=paths),
        private=folders.private(paths),
        max_files=config.max_files,
        scan_s=config.scan_s,
    )
    pages = WebPages(
        fetcher=partial(_fetcher, core),
        originals=core.originals,
        readers=readers,
        writer=writer,
        clock=clock,
        refresh_s=config.web_refresh_hours * HOUR_S,
    )
    indexer = Indexer(
        readers=readers,
        clock=clock,
        metrics=core.metrics,
        ingest=ingest,
        scanner=scanner,
        pages=pages,
        embed=embedder.nudge,
    )
    core.health.add(indexer.problems, graphs.problems)
    passages = KnowledgeSearch(readers, embedder, core.live(lambda now: now.auto_rag), clock)
    dialogue = Dialogue(
        readers=readers,
        passages=passages,
        graphs=graphs,
        asker=Asker(llm=llm, clock=clock),
        config=config,
        metrics=CitationMetrics(core.metrics),
    )

    async def settings_changed(_before: EngineConfig) -> None:
        core.originals.max_bytes = config.max_file_bytes
        scanner.max_files, scanner.scan_s = config.max_files, config.scan_s
        pages.settings_changed(config.web_refresh_hours * HOUR_S)
        indexer.nudge()

    core.changing.told.append(settings_changed)
    files = MessageFiles(core=core, indexer=indexer)
    return Knowledge(core=core, indexer=indexer, graphs=graphs, passages=passages, dialogue=dialogue, files=files)


@attrs.frozen
class _Ports:
    """``tools.web.ports`` as it is now."""

    core: Core

    def __contains__(self, port: object) -> bool:
        return port in self.core.config.tools.web.ports


def _fetcher(core: Core) -> "WebFetcher":
    from klaw.toolbox.web_fetch import WebFetcher

    return WebFetcher(attrs.evolve(core.config.tools.web, max_bytes=MAX_PAGE_BYTES))
