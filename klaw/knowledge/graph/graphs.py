"""All graphs of a running Klaw: who may ask which, what they say about a question, and which do not answer."""

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff, Pauses
from klaw.config.tools import KnowledgeConfig
from klaw.domain.context_used import Ran
from klaw.domain.knowledge import Source, SourceId, SourceKind, UsedPassage
from klaw.domain.names import UserId
from klaw.errors import GraphError
from klaw.knowledge.graph.embedded import FileGraph, FileGraphResources, GraphSize
from klaw.knowledge.graph.lookup import QueryRecorder, look_up
from klaw.knowledge.graph.matching import QuestionTerms, read_question
from klaw.store import originals

if TYPE_CHECKING:
    from klaw.knowledge.graph.endpoint import EndpointGraph, EndpointNetwork

PAUSES = Backoff(5.0, 300.0)
AT_ONCE = 8
_SHOWN_S = 3600.0
"""So long ``problems`` names a failure."""
_FAULTS = frozenset(
    {"unreachable", "timeout", "refused", "busy", "malformed", "too_large", "unreadable", "damaged", "full"}
)
"""Failures after which a graph is left alone for a while."""

log = structlog.get_logger("klaw.knowledge")


@attrs.frozen(kw_only=True)
class GraphSearch:
    passages: tuple[UsedPassage, ...] = ()
    queries: tuple[Ran, ...] = ()
    failed: Mapping[SourceId, str] = attrs.Factory(dict)
    """Sources that did not answer, each with a code."""
    reason: str = ""
    """Why there is nothing: ``no_sources``, ``no_words``, ``no_entities`` or ``failed``."""


@attrs.frozen
class _Trouble:
    text: str
    at: float
    source: SourceId


@attrs.define(eq=False)
class Graphs:
    """The graphs that bases have as sources.

    Args:
        ports: ``tools.web.ports``, for endpoints that are not named in the configuration.
        network: made when it is first needed.
        missing: called with a source whose file must be read (``load``).
    """

    config: KnowledgeConfig
    ports: Container[int]
    data_dir: Path
    network: "EndpointNetwork | None" = None
    missing: Callable[[SourceId], None] = lambda _: None
    now: Callable[[], float] = trio.current_time
    _files: FileGraphResources = attrs.field(factory=FileGraphResources, init=False)
    _places: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(AT_ONCE), init=False)
    _pauses: Pauses[str] = attrs.field(factory=lambda: Pauses(PAUSES), init=False)
    _troubles: dict[str, _Trouble] = attrs.field(factory=dict, init=False)

    # -- one source ------------------------------------------------------------------------------------------------

    async def check(self, source: Source) -> None:
        """Ask an endpoint whether it is one. Raises GraphError when it cannot be asked."""
        async with self._asking(source) as asking:
            await asking.ask("SELECT ?s WHERE { ?s ?p ?o } LIMIT 1", 1)

    async def load(self, source: Source) -> GraphSize:
        """Read a source's file, unless that is done already. Raises GraphError."""
        return await self._file(source).load()

    async def remove(self, source: Source) -> None:
        """Delete what was made of a source's file, and forget its failures."""
        self._works(_key(source))
        if source.kind is SourceKind.RDF:
            await self._file(source).remove()

    def problems(self) -> Mapping[str, str]:
        """Graphs that do not answer, without users' names of sources: everybody sees it."""
        now = self.now()
        self._troubles = {key: each for key, each in self._troubles.items() if now - each.at < _SHOWN_S}
        found = {}
        for key, trouble in self._troubles.items():
            name = key if key in self.config.endpoints else trouble.source
            found[f"graph:{name}"] = f"the graph {name} of a knowledge base cannot be asked: {trouble.text}"
        return found

    # -- a question ------------------------------------------------------------------------------------------------

    async def search(
        self, sources: Sequence[Source], question: str, *, also: str = "", language: str = "", most: int = 5
    ) -> GraphSearch:
        """What graphs say about the things that a question names; words said before (``also``) count less."""
        graphs = [source for source in sources if source.kind in (SourceKind.RDF, SourceKind.SPARQL)]
        if not graphs:
            return GraphSearch(reason="no_sources")
        asked = read_question(question, also, language)
        if not asked.weights:
            return GraphSearch(reason="no_words")
        found: list[GraphSearch] = [GraphSearch() for _ in graphs]

        async def one(place: int) -> None:
            async with self._places:
                found[place] = await self._look_up(graphs[place], asked, most)

        async with trio.open_nursery() as nursery:
            for place in range(len(graphs)):
                nursery.start_soon(one, place)
        passages = sorted((each for part in found for each in part.passages), key=lambda each: -each.score)[:most]
        failed = {source: code for part in found for source, code in part.failed.items()}
        return GraphSearch(
            passages=tuple(passages),
            queries=tuple(each for part in found for each in part.queries),
            failed=failed,
            reason="" if passages else "failed" if len(failed) == len(graphs) else "no_entities",
        )

    async def _look_up(self, source: Source, asked: QuestionTerms, most: int) -> GraphSearch:
        asking: QueryRecorder | None = None
        scan = f"{_key(source)} scan"
        try:
            async with self._asking(source) as asking:
                may_scan = not self._pauses.waits(scan, self.now())
                passages = await look_up(asking, asked, most, scan=may_scan)
                if asking.scan_failed:
                    self._pauses.fail(scan, self.now())
                elif may_scan:
                    self._pauses.succeed(scan)
            return GraphSearch(passages=tuple(passages), queries=tuple(asking.queries))
        except GraphError as error:
            return GraphSearch(queries=tuple(asking.queries) if asking else (), failed={source.id: error.code})

    @asynccontextmanager
    async def _asking(self, source: Source) -> AsyncIterator[QueryRecorder]:
        """A session, whose outcome decides when the source may be asked again. Raises GraphError, also ``paused``."""
        graph, key = self._graph(source), _key(source)
        if self._pauses.waits(key, self.now()):
            trouble = self._troubles.get(key)
            raise GraphError("paused", f"it is asked again in a while: {trouble.text if trouble else 'it failed'}")
        try:
            async with graph.session() as session:
                yield QueryRecorder(session, source, trio.current_time() + self.config.sparql.timeout_s)
        except GraphError as error:
            if error.code == "loading":
                self.missing(source.id)
            if error.code in _FAULTS:
                pause = self._pauses.fail(key, self.now())
                self._troubles[key] = _Trouble(str(error), self.now(), source.id)
                log.warning("graph_failed", name=source.id, reason=error.code, retry_s=pause)
            raise
        self._works(key)

    def _works(self, key: str) -> None:
        self._pauses.succeed(key)
        self._troubles.pop(key, None)

    def _graph(self, source: Source) -> "FileGraph | EndpointGraph":
        return self._file(source) if source.kind is SourceKind.RDF else self._endpoint(source.where, source.user)

    def _file(self, source: Source) -> FileGraph:
        return FileGraph(self._files, self.data_dir / originals.FOLDER / source.id, source.name, source.sha256)

    def _endpoint(self, where: str, user: UserId) -> "EndpointGraph":
        from klaw.knowledge.graph import endpoint  # its HTTP is nothing to have where no endpoint is asked

        if self.network is None:
            self.network = endpoint.EndpointNetwork(self.ports)
        if "://" in where:
            return endpoint.public_endpoint(self.network, where)
        config = self.config.endpoints.get(where)
        if config is None or not {"*", user} & {*config.users}:
            raise GraphError("unknown_endpoint", "there is no endpoint of this name in kb.endpoints that you may use")
        return endpoint.named_endpoint(self.network, where, config)


def _key(source: Source) -> str:
    """Endpoints fail for all who ask them, files one by one."""
    return source.id if source.kind is SourceKind.RDF else source.where
