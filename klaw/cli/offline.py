"""Carries out an operation without a server, over the database."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from klaw.config.paths import Paths
from klaw.operations.handler import OPERATOR
from klaw.operations.perform import Call, perform

if TYPE_CHECKING:
    from klaw.actor.clock import Clock
    from klaw.config.schema import EngineConfig
    from klaw.memory.embed.embedder import Embedder
    from klaw.memory.recall.recall import Recall
    from klaw.memory.search.search import MemorySearch
    from klaw.store.engine.database import Readers


def answer(paths: Paths, asked: Call) -> dict[str, Any]:
    """What the server would answer. Raises OperationError, StorageError, ConfigError."""
    import trio

    from klaw.actor import log
    from klaw.store.store import offline_readers

    async def over_the_database() -> dict[str, Any]:
        async with offline_readers(paths.database) as readers:
            return await perform(asked, OPERATOR, OfflineParts(readers, paths))

    log.configure("error", "auto")
    return trio.run(over_the_database)


class OfflineParts:
    """``DatabaseParts``, each made when an operation takes it. They raise ConfigError."""

    budget = None

    def __init__(self, readers: "Readers", paths: Paths) -> None:
        self.readers, self.paths = readers, paths

    @cached_property
    def clock(self) -> "Clock":
        from klaw.actor.clock import SystemClock

        return SystemClock()

    @cached_property
    def config(self) -> "EngineConfig":
        from klaw.config.load import load

        return load(self.paths.config_file)[0]

    @cached_property
    def embedder(self) -> "Embedder":
        from klaw.memory.embed.offline import OfflineEmbedder

        paths, settings, remote = self.paths, self.config.embedding, None
        if settings.provider is not None:
            from klaw.llm.client import without_server
            from klaw.memory.embed.remote import remote_of

            remote = remote_of(self.config, without_server(self.config, self.clock), paths.models_dir, self.clock)
        folder = settings.path or paths.models_dir / settings.model
        return OfflineEmbedder.of_home(self.readers, self.config, folder, self.clock, remote)

    @cached_property
    def recall(self) -> "Recall":
        from klaw.memory.recall.recall import Recall

        return Recall(self.readers, self.embedder, self.config.auto_rag, self.clock)

    @cached_property
    def search(self) -> "MemorySearch":
        from klaw.actor.metrics import Metrics
        from klaw.memory.search.search import MemorySearch
        from klaw.memory.topics.search import TopicMetrics, TopicSearch

        topics = TopicSearch(self.readers, self.embedder, self.clock, TopicMetrics(Metrics()))
        return MemorySearch(self.readers, self.embedder, self.clock, topics)
