"""What a graph can do, whether it is in a file or behind an address, and the record of what it was asked."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs
import trio

from klaw.domain.knowledge import SourceId
from klaw.errors import GraphError
from klaw.knowledge.graph.terms import ResultRows

MAX_ANSWER_BYTES = 2_000_000
"""A longer answer is not read."""


class GraphSession(Protocol):
    """An open graph."""

    indexed: bool
    """It has the index of stems that ``queries.by_stems`` asks."""

    async def ask(self, sparql: str, most: int) -> ResultRows:
        """Run a SELECT and read at most ``most`` rows.

        Raises:
            GraphError: it cannot be asked, or its answer cannot be read.

        Cancellation: the query is given up; the session cannot be used any more.
        """
        ...


class Graph(Protocol):
    """Something that answers SPARQL 1.1."""

    def session(self) -> AbstractAsyncContextManager[GraphSession]:
        """Open it. Raises GraphError when it cannot be asked."""
        ...


@attrs.frozen(kw_only=True)
class GraphQuery:
    """A query that ran."""

    source: SourceId
    sparql: str
    rows: int
    seconds: float
    error: str = ""
    """Code of the error that it ended with."""


@attrs.define
class QueryRecorder:
    """Asks a session until a deadline, and records the queries.

    Args:
        deadline: of all queries together, in trio's time.
        scan_failed: looking through all labels took too long, or failed.
    """

    session: GraphSession
    source: SourceId
    deadline: float
    queries: list[GraphQuery] = attrs.Factory(list)
    scan_failed: bool = False

    async def ask(self, sparql: str, most: int, *, share: float = 1.0) -> ResultRows:
        """Run a SELECT.

        Args:
            share: of the time that is left.

        Raises:
            GraphError: as ``GraphSession.ask``; ``timeout`` when the time is over.
        """
        begin = trio.current_time()
        within = max(0.0, (self.deadline - begin) * share)
        answer: ResultRows | None = None
        error = GraphError("timeout", f"the graph did not answer within {within:.0f} s")
        with trio.move_on_after(within):
            try:
                answer = await self.session.ask(sparql, most)
            except GraphError as failure:
                error = failure
        self.queries.append(
            GraphQuery(
                source=self.source,
                sparql=sparql,
                rows=len(answer.rows) if answer else 0,
                seconds=round(trio.current_time() - begin, 3),
                error="" if answer else error.code,
            )
        )
        if answer is None:
            raise error
        return answer
