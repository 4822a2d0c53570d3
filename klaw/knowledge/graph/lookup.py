"""What a graph says about what a question names: labels, then what is said of them and with them, and one step on."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.domain.context_used import Ran
from klaw.domain.knowledge import Source, UsedPassage
from klaw.errors import GraphError
from klaw.knowledge.graph import sparql, wording
from klaw.knowledge.graph.matching import Match, QuestionTerms, matches
from klaw.knowledge.graph.sparql import Row, is_iri
from klaw.knowledge.graph.wording import Relation

MAX_ANSWER_BYTES = 2_000_000
RELATIONS = 60
"""What is read of one thing, in each direction."""
BEYOND = 20
"""Things that are looked at in turn for what is said of them."""
NAMED = 150
_SCAN_SHARE = 0.6
"""Share of the remaining time that a scan of all labels may take."""

_WORDS = Threads("graph words", 1)
"""Stemming hundreds of labels and values would hold up the event loop."""


class GraphSession(Protocol):
    indexed: bool
    """Whether there is the index of stems that ``sparql.by_stems`` asks."""

    async def ask(self, sparql: str, most: int) -> list[Row]:
        """Run a SELECT and read at most ``most`` rows. Raises GraphError."""
        ...


@attrs.define
class QueryRecorder:
    """Asks a session until a deadline in Trio's time, and records the queries."""

    session: GraphSession
    source: Source
    deadline: float
    queries: list[Ran] = attrs.Factory(list)
    scan_failed: bool = False
    """Looking through all labels took too long, or failed."""

    async def ask(self, sparql: str, most: int, *, share: float = 1.0) -> list[Row]:
        """Run a SELECT, for a share of the time that is left. Raises GraphError."""
        within = max(0.0, (self.deadline - trio.current_time()) * share)
        rows: list[Row] | None = None
        error = GraphError("timeout", f"the graph did not answer within {within:.0f} s")
        with trio.move_on_after(within):
            try:
                rows = await self.session.ask(sparql, most)
            except GraphError as failure:
                error = failure
        code = "" if rows is not None else error.code
        self.queries.append(Ran(source=self.source.id, sparql=sparql, rows=len(rows or ()), error=code))
        if rows is None:
            raise error
        return rows


async def look_up(asking: QueryRecorder, asked: QuestionTerms, most: int, *, scan: bool = True) -> list[UsedPassage]:
    """What a graph says about the things that a question names, and a score from 0 to 1 for how well it names each.
    Without an index or a ``scan`` of all labels, labels are found that stand in the question as they are. Raises
    GraphError: nothing was found, and something could not be asked."""
    rows, failure = await _candidates(asking, asked, scan=scan)
    found = await _WORDS.run(matches, rows, asked, most, abandon=True)
    if not found and failure is not None:
        raise failure
    passages: list[UsedPassage] = []
    for match in found:
        try:
            passage = await _passage(asking, match, asked)
        except GraphError:
            if not passages:
                raise
            break  # what was found so far counts; the failed query is recorded
        if passage.text:  # of a property of the graph itself nothing is said
            passages.append(passage)
    return passages


async def _candidates(
    asking: QueryRecorder, asked: QuestionTerms, *, scan: bool
) -> tuple[list[Row], GraphError | None]:
    if asking.session.indexed:
        return await asking.ask(sparql.by_stems(asked.weights), sparql.CANDIDATES), None
    found: list[Row] = []
    failure: GraphError | None = None
    if asked.phrases:
        found += await asking.ask(sparql.by_labels(asked.phrases, asked.languages), sparql.CANDIDATES)
    if scan:
        try:
            found += await asking.ask(sparql.by_words(asked.needles), sparql.CANDIDATES, share=_SCAN_SHARE)
        except GraphError as error:
            failure, asking.scan_failed = error, True
    return found, failure


async def _passage(asking: QueryRecorder, match: Match, asked: QuestionTerms) -> UsedPassage:
    thing = sparql.named(match.iri) if match.iri else sparql.labelled(match.label, match.language)
    first = sparql.said_of(thing, asked.languages, RELATIONS)
    relations = wording.said_of(await asking.ask(first, RELATIONS))
    with suppress(GraphError):  # of a thing that everything refers to this may take too long
        rows = await asking.ask(sparql.said_with(thing, RELATIONS), RELATIONS, share=0.5)
        relations += wording.said_with(rows, match.iri)
    wanted = frozenset(asked.weights) - match.stems
    seen = [match.iri, *wording.things(relations)]
    labels = await labels_of(asking, seen, asked.languages, {})
    beyond = [iri for iri in wording.neighbours(relations, labels, wanted) if is_iri(iri)] if wanted else []
    with suppress(GraphError):
        more = await _beyond(asking, beyond[:BEYOND], match, asked)
        relations += more
        labels = await labels_of(asking, set(wording.things(more)) - set(seen), asked.languages, labels.names)
    name = labels.names.get(match.iri) or wording.plain(match.label)
    text = wording.fitting_lines(await _WORDS.run(wording.sentences, name, relations, labels, wanted, abandon=True))
    source = asking.source
    return UsedPassage(
        number=0,
        base=source.base,
        source=source.id,
        name=name,
        score=match.score,
        text=text,
        iri=match.iri,
        sparql=first,
    )


async def _beyond(asking: QueryRecorder, things: list[str], match: Match, asked: QuestionTerms) -> list[Relation]:
    if not things:
        return []
    most = 3 * RELATIONS
    rows = await asking.ask(sparql.said_of_all(things, asked.languages, most), most, share=0.5)
    return wording.said_beyond(rows, match.iri)


async def labels_of(
    asking: QueryRecorder, iris: Iterable[str], languages: Sequence[str], known: Mapping[str, str]
) -> wording.Labels:
    names = dict(known)
    unknown = sorted(iri for iri in iris if is_iri(iri))
    for begin in range(0, len(unknown), NAMED):
        with suppress(GraphError):
            query = sparql.labels_of(unknown[begin : begin + NAMED], languages, sparql.READ)
            rows = await asking.ask(query, sparql.READ, share=0.5)
            names |= wording.choose_labels(rows, languages).names
    return wording.Labels(names=names, languages=languages)
