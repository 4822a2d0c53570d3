"""The parts of knowledge bases, how they are connected, and the actor that works in their background."""

from collections.abc import Callable
from functools import partial

import attrs

from klaw.core import Core
from klaw.knowledge import folders
from klaw.knowledge.graph.graphs import Graphs
from klaw.knowledge.indexer import Indexer
from klaw.knowledge.ingest import Ingest
from klaw.knowledge.looker import Looker


@attrs.frozen(kw_only=True)
class Knowledge:
    """See ``build``."""

    core: Core
    indexer: Indexer
    graphs: Graphs

    async def start(self) -> None:
        """Start the actor in the background."""
        await self.core.supervisor.start(self.indexer.spec())

    async def stop(self) -> None:
        """Stop it."""
        await self.core.supervisor.stop(self.indexer.spec().name, "shutdown")


def build(core: Core, *, embed: Callable[[], None]) -> Knowledge:
    """Make the parts; nothing runs yet.

    Args:
        core: what they work with.
        embed: told when there are passages to embed.
    """
    readers, writer, clock, config, paths = core.readers, core.writer, core.clock, core.config.kb, core.paths
    graphs = Graphs(config, core.config.tools.web.ports, paths.data_dir)
    ingest = Ingest(data_dir=paths.data_dir, readers=readers, writer=writer, clock=clock, load_graph=graphs.load)
    looker = Looker(
        readers=readers,
        writer=writer,
        clock=clock,
        ingest=ingest,
        allowed=partial(folders.allowed, config=config, paths=paths),
        private=folders.private(paths),
        max_files=config.max_files,
        scan_s=config.scan_s,
    )
    indexer = Indexer(readers=readers, clock=clock, metrics=core.metrics, ingest=ingest, looker=looker, embed=embed)
    core.health.add(indexer.problems, graphs.problems)
    return Knowledge(core=core, indexer=indexer, graphs=graphs)
