"""Carries out an operation without a server, over the database."""

from typing import TYPE_CHECKING, Any

from klaw.config.paths import Paths
from klaw.operations.perform import OPERATOR, Call, perform

if TYPE_CHECKING:
    from klaw.actor.clock import Clock
    from klaw.config.schema import EngineConfig
    from klaw.memory.embed.embedder import Embedder


def answer(paths: Paths, asked: Call) -> dict[str, Any]:
    """What the server would answer. Raises OperationError, StorageError, ConfigError."""
    import trio

    from klaw.actor import log
    from klaw.store.store import offline_readers

    async def over_the_database() -> dict[str, Any]:
        async with offline_readers(paths.database) as readers:
            return await perform(asked, OPERATOR, _Parts(readers=readers, paths=paths, budget=None))

    log.configure("error", "auto")
    return trio.run(over_the_database)


class _Parts(dict[str, Any]):
    """Of no server, made when an operation asks for them. Raises ConfigError."""

    def __missing__(self, name: str) -> Any:
        made = self[name] = self._make(name)
        return made

    def _make(self, name: str) -> Any:
        from klaw.actor.clock import SystemClock
        from klaw.actor.metrics import Metrics
        from klaw.config.load import load
        from klaw.memory.recall.recall import Recall
        from klaw.memory.search.search import MemorySearch
        from klaw.memory.topics.search import TopicMetrics, TopicSearch

        readers, paths = self["readers"], self["paths"]
        match name:
            case "clock":
                return SystemClock()
            case "config":
                return load(paths.config_file)[0]
            case "embedder":
                return self._embedder(self["config"], self["clock"])
            case "recall":
                return Recall(readers, self["embedder"], self["config"].auto_rag, self["clock"])
            case "search":
                topics = TopicSearch(readers, self["embedder"], self["clock"], TopicMetrics(Metrics()))
                return MemorySearch(readers, self["embedder"], self["clock"], topics)
        raise KeyError(name)

    def _embedder(self, config: "EngineConfig", clock: "Clock") -> "Embedder":
        from klaw.memory.embed.offline import OfflineEmbedder

        paths, settings, remote = self["paths"], config.embedding, None
        if settings.provider is not None:
            from klaw.llm.client import without_server
            from klaw.memory.embed.remote import remote_of

            remote = remote_of(config, without_server(config, clock), paths.models_dir, clock)
        folder = settings.path or paths.models_dir / settings.model
        return OfflineEmbedder(self["readers"], config, folder, clock, remote)
