"""What a graph is to those who ask it, whether it is behind an address or in a file."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs
import trio

from klaw.domain.knowledge import SourceId
from klaw.errors import GraphError
from klaw.knowledge.graph.terms import Answer, Rows

MAX_ANSWER_BYTES = 2_000_000
"""A longer answer is not read."""


class Session(Protocol):
    """A conversation with a graph."""

    indexed: bool
    """It has the index of stems that ``queries.by_stems`` asks."""

    async def ask(self, sparql: str, most: int) -> Answer:
        """Ask SELECT, ASK or CONSTRUCT.

        Args:
            sparql: the query.
            most: rows; of more the answer says that it is cut.

        Raises:
            GraphError: it cannot be asked, or does not answer as it should.

        Cancellation: the query is given up; the session cannot be used any more.
        """
        ...


class Graph(Protocol):
    """Something that answers SPARQL 1.1."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Begin to ask. Raises GraphError when it cannot be asked."""
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
class Recorder:
    """Asks a session, and writes down what was asked.

    Args:
        session: that is asked.
        source: whose graph it is.
        deadline: of the whole, on trio's clock.
        queries: what was asked so far.
        scan_failed: looking through all labels took too long, or failed.
    """

    session: Session
    source: SourceId
    deadline: float
    queries: list[GraphQuery] = attrs.Factory(list)
    scan_failed: bool = False

    async def ask(self, sparql: str, most: int, *, share: float = 1.0) -> Answer:
        """See ``Session.ask``.

        Args:
            share: of the time that is left.

        Raises:
            GraphError: also when the time is over.
        """
        begin = trio.current_time()
        answer: Answer | None = None
        error: GraphError | None = None
        with trio.move_on_after(max(0.0, (self.deadline - begin) * share)):
            try:
                answer = await self.session.ask(sparql, most)
            except GraphError as failure:
                error = failure
        if answer is None and error is None:
            error = GraphError("timeout", f"the graph did not answer within {(self.deadline - begin) * share:.0f} s")
        seconds = round(trio.current_time() - begin, 3)
        rows = len(answer.rows) if isinstance(answer, Rows) else int(answer is not None)
        code = error.code if error is not None else ""
        self.queries.append(GraphQuery(source=self.source, sparql=sparql, rows=rows, seconds=seconds, error=code))
        if error is not None:
            raise error
        assert answer is not None
        return answer

    async def rows(self, sparql: str, most: int, *, share: float = 1.0) -> Rows:
        """The rows of a SELECT. Raises GraphError."""
        answer = await self.ask(sparql, most, share=share)
        if not isinstance(answer, Rows):
            self.queries[-1] = attrs.evolve(self.queries[-1], error="malformed")
            raise GraphError("malformed", "the answer is no SPARQL result: it has no rows")
        return answer
