"""All graphs of a running Klaw: who may ask which, what they are asked for a turn, and which of them do not answer."""

from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff, Pauses
from klaw.config.knowledge import KnowledgeConfig
from klaw.domain.knowledge import Source, SourceId, SourceKind
from klaw.domain.names import UserId
from klaw.errors import GraphError
from klaw.knowledge.graph.embedded import FileGraph, Files, Loaded
from klaw.knowledge.graph.graph import Graph, GraphQuery, Recorder
from klaw.knowledge.graph.lookup import GraphPassage, Limits, look_up
from klaw.knowledge.graph.matching import Asked, read_question

if TYPE_CHECKING:
    from klaw.knowledge.graph.endpoint import Web
    from klaw.knowledge.graph.generate import Say

PAUSES = Backoff(5.0, 300.0)
"""Before an endpoint that failed is asked again."""
AT_ONCE = 8
"""Graphs that are asked at the same time."""
_SHOWN_S = 3600.0
"""A failure is told for so long after the last try."""
_FAULTS = frozenset(
    {"unreachable", "timeout", "refused", "busy", "malformed", "too_large", "unreadable", "damaged", "full"}
)
"""Failures after which a graph is left alone for a while."""
_AWAY = frozenset({"unreachable", "refused", "busy"})
"""The same where the query was not ours."""

log = structlog.get_logger("klaw.knowledge")


@attrs.frozen(kw_only=True)
class GraphFailure:
    """A source that did not answer."""

    source: SourceId
    code: str
    text: str
    """For people."""


@attrs.frozen(kw_only=True)
class GraphSearch:
    """What graphs say about a question."""

    passages: tuple[GraphPassage, ...] = ()
    """The best first."""
    queries: tuple[GraphQuery, ...] = ()
    """All that ran."""
    failed: tuple[GraphFailure, ...] = ()
    reason: str = ""
    """Why there is nothing: ``no_sources``, ``no_words``, ``no_entities`` or ``failed``."""


@attrs.frozen
class _Trouble:
    code: str
    text: str
    at: float
    source: SourceId


class Graphs:
    """See the module.

    Args:
        config: ``kb``.
        ports: ``tools.web.ports``, for endpoints that are not named in the configuration.
        data_dir: has ``knowledge/SOURCE``, the files that were uploaded.
        web: how endpoints are reached; made when it is first needed.
        files: what files share.
        missing: told of a file that is to be read again (``load``): what was made of it is gone.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        config: KnowledgeConfig,
        ports: Container[int],
        data_dir: Path,
        *,
        web: "Web | None" = None,
        files: Files | None = None,
        missing: Callable[[SourceId], None] = lambda _: None,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._config = config
        self._ports = ports
        self._folder = data_dir / "knowledge"
        self._web = web
        self._files = files or Files()
        self._missing = missing
        self._now = now
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._pauses: Pauses[str] = Pauses(PAUSES)
        self._troubles: dict[str, _Trouble] = {}

    # -- one source ------------------------------------------------------------------------------------------------

    def allowed(self, where: str, user: UserId) -> None:
        """Whether a user's base may have an endpoint as a source.

        Args:
            where: a name in ``kb.endpoints``, or an address.
            user: the base's owner.

        Raises:
            GraphError: there is no such endpoint for this user, or the address may not be asked.
        """
        self._endpoint(where, user)

    async def check(self, source: Source) -> None:
        """Ask an endpoint whether it is one. Raises GraphError when it cannot be asked."""
        async with self._asking(source) as asking:
            if not isinstance(await asking.ask("ASK { ?s ?p ?o }", 1), bool):
                raise GraphError("malformed", "the answer is no SPARQL result")

    async def load(self, source: Source) -> Loaded:
        """Read a source's file, unless that is done; whoever asks it does so, too. Raises GraphError."""
        return await self._file(source).load()

    async def remove(self, source: Source) -> None:
        """Delete what was made of a source's file, and forget its failures."""
        self._works(_key(source))
        if source.kind is SourceKind.RDF:
            await self._file(source).remove()

    def problems(self) -> Mapping[str, str]:
        """Which graphs do not answer: see ``HasProblems``. What users call their sources is not told: everybody sees
        it."""
        now = self._now()
        self._troubles = {key: each for key, each in self._troubles.items() if now - each.at < _SHOWN_S}
        found = {}
        for key, trouble in self._troubles.items():
            name = key if key in self._config.endpoints else trouble.source
            found[f"graph:{name}"] = f"the graph {name} of a knowledge base cannot be asked: {trouble.text}"
        return found

    # -- a question ------------------------------------------------------------------------------------------------

    async def search(
        self, sources: Sequence[Source], question: str, *, also: str = "", language: str = "", most: int = 5
    ) -> GraphSearch:
        """What graphs say about the things that a question names.

        Args:
            sources: that are graphs; others are passed over.
            question: as the user wrote it.
            also: of the dialogue before, where the question refers to it.
            language: of the base.
            most: things that are told of.

        Cancellation: all queries are given up.
        """
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
        failed = tuple(each for part in found for each in part.failed)
        return GraphSearch(
            passages=tuple(passages),
            queries=tuple(each for part in found for each in part.queries),
            failed=failed,
            reason="" if passages else "failed" if len(failed) == len(graphs) else "no_entities",
        )

    async def _look_up(self, source: Source, asked: Asked, most: int) -> GraphSearch:
        passages: list[GraphPassage] = []
        failed: tuple[GraphFailure, ...] = ()
        asking: Recorder | None = None
        scan = f"{_key(source)} scan"
        try:
            async with self._asking(source) as asking:
                may_scan = not self._pauses.waits(scan, self._now())
                passages = await look_up(asking, asked, Limits(entities=most), scan=may_scan)
                if asking.scan_failed:
                    self._pauses.fail(scan, self._now())
                elif may_scan:
                    self._pauses.succeed(scan)
        except GraphError as error:
            failed = (GraphFailure(source=source.id, code=error.code, text=str(error)),)
        return GraphSearch(passages=tuple(passages), queries=tuple(asking.queries) if asking else (), failed=failed)

    async def write_query(
        self, source: Source, question: str, found: GraphSearch, say: "Say", *, also: str = "", language: str = ""
    ) -> GraphSearch:
        """Have the model write a query for a graph, and run it (``kb.sparql.generate``).

        Args:
            source: that is asked.
            question, also, language: as in ``search``.
            found: what ``search`` found.
            say: asks the model: see ``ask_json``.

        Returns:
            What the query found, before what was found already; a query that is not run is among ``failed``.

        Raises: what ``say`` raises.
        """
        from klaw.knowledge.graph.generate import write_and_ask

        sessions: list[Recorder] = []

        @asynccontextmanager
        async def session() -> AsyncIterator[Recorder]:
            async with self._asking(source, _AWAY) as asking:
                sessions.append(asking)
                yield asking

        passage, failed = None, found.failed
        named = [each for each in found.passages if each.source == source.id]
        asked = read_question(question, also, language)
        try:
            passage = await write_and_ask(session, question, asked, named, say, self._config.sparql.max_rows)
        except GraphError as error:
            failed += (GraphFailure(source=source.id, code=error.code, text=str(error)),)
        ran = tuple(query for each in sessions for query in each.queries)
        passages = (passage, *found.passages) if passage is not None else found.passages
        return attrs.evolve(
            found,
            passages=passages,
            queries=found.queries + ran,
            failed=failed,
            reason="" if passages else found.reason,
        )

    @asynccontextmanager
    async def _asking(self, source: Source, faults: Collection[str] = _FAULTS) -> AsyncIterator[Recorder]:
        """A source that is asked, unless it failed a short time ago; how that ends is noted.

        Args:
            source: that is asked.
            faults: codes of failures that are the graph's own.
        """
        graph, key = self._graph(source), _key(source)
        if self._pauses.waits(key, self._now()):
            trouble = self._troubles.get(key)
            raise GraphError("paused", f"it is asked again in a while: {trouble.text if trouble else 'it failed'}")
        try:
            async with graph.session() as session:
                yield Recorder(session, source.id, trio.current_time() + self._config.sparql.timeout_s)
        except GraphError as error:
            if error.code == "loading":
                self._missing(source.id)
            if error.code in faults:
                pause = self._pauses.fail(key, self._now())
                self._troubles[key] = _Trouble(error.code, str(error), self._now(), source.id)
                log.warning("graph_failed", name=source.id, reason=error.code, retry_s=pause)
            raise
        self._works(key)

    def _works(self, key: str) -> None:
        self._pauses.succeed(key)
        self._troubles.pop(key, None)

    def _graph(self, source: Source) -> Graph:
        return self._file(source) if source.kind is SourceKind.RDF else self._endpoint(source.where, source.user)

    def _file(self, source: Source) -> FileGraph:
        return FileGraph(self._files, self._folder / source.id, source.name, source.sha256)

    def _endpoint(self, where: str, user: UserId) -> Graph:
        from klaw.knowledge.graph import endpoint  # its HTTP is nothing to have where no endpoint is asked

        if self._web is None:
            self._web = endpoint.Web(self._ports)
        if "://" in where:
            return endpoint.public_endpoint(self._web, where)
        config = self._config.endpoints.get(where)
        if config is None or not {"*", user} & {*config.users}:
            raise GraphError("unknown_endpoint", "there is no endpoint of this name in kb.endpoints that you may use")
        return endpoint.named_endpoint(self._web, where, config)


def _key(source: Source) -> str:
    """Endpoints fail for all who ask them, files one by one."""
    return source.id if source.kind is SourceKind.RDF else source.where
