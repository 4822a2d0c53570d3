"""What a graph says about the things that a question names, without a model: first their labels, then what is said of
them and with them, then what is said of what stands there."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import attrs

from klaw.actor.threads import Threads
from klaw.domain import tokens
from klaw.domain.knowledge import SourceId
from klaw.errors import GraphError
from klaw.knowledge.graph import queries, wording
from klaw.knowledge.graph.graph import QueryRecorder
from klaw.knowledge.graph.matching import Match, QuestionTerms, matches
from klaw.knowledge.graph.terms import Row, is_iri
from klaw.knowledge.graph.wording import Relation

BEYOND = 20
"""Things that are looked at in turn for what is said of them."""
NAMED = 150
"""IRIs whose labels are asked for at once."""
_SCAN_SHARE = 0.6
"""Share of the remaining time that a scan of all labels may take."""

_WORDS = Threads("graph words", 1)
"""Stemming hundreds of labels and values would hold up the event loop."""


@attrs.frozen(kw_only=True)
class LookupLimits:
    """How much is asked about."""

    entities: int = 5
    relations: int = 60
    """For one thing, in each direction."""
    depth: int = 2


@attrs.frozen(kw_only=True)
class GraphPassage:
    """What a graph says about one thing."""

    source: SourceId
    iri: str
    """Empty: the thing has no name."""
    label: str
    text: str
    """Short sentences, one in a line."""
    tokens: int
    score: float
    """0 to 1: how well the question names it."""
    sparql: str
    """The query that found it."""


async def look_up(
    asking: QueryRecorder, asked: QuestionTerms, limits: LookupLimits, *, scan: bool = True
) -> list[GraphPassage]:
    """Find what a question names.

    Args:
        limits: how much is asked about.
        scan: look through all labels where there is no index. Else only labels are found that stand in the question
            as they are.

    Raises:
        GraphError: nothing was found, and something could not be asked.
    """
    rows, failure = await _candidates(asking, asked, scan=scan)
    found = await _WORDS.run(matches, rows, asked, limits.entities, abandon=True)
    if not found and failure is not None:
        raise failure
    passages: list[GraphPassage] = []
    for match in found:
        try:
            passage = await _passage(asking, match, asked, limits)
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
    """Labels that may fit; and what failed."""
    if asking.session.indexed:
        return [*(await asking.ask(queries.by_stems(asked.weights), queries.CANDIDATES)).rows], None
    found: list[Row] = []
    failure: GraphError | None = None
    if asked.phrases:
        found += (await asking.ask(queries.by_labels(asked.phrases, asked.languages), queries.CANDIDATES)).rows
    if scan:
        try:
            found += (await asking.ask(queries.by_words(asked.needles), queries.CANDIDATES, share=_SCAN_SHARE)).rows
        except GraphError as error:
            failure, asking.scan_failed = error, True
    return found, failure


async def _passage(asking: QueryRecorder, match: Match, asked: QuestionTerms, limits: LookupLimits) -> GraphPassage:
    thing = queries.named(match.iri) if match.iri else queries.labelled(match.label, match.language)
    first = queries.said_of(thing, asked.languages, limits.relations)
    relations = wording.said_of((await asking.ask(first, limits.relations)).rows)
    with suppress(GraphError):  # of a thing that everything refers to this may take too long
        answer = await asking.ask(queries.said_with(thing, limits.relations), limits.relations, share=0.5)
        relations += wording.said_with(answer.rows, match.iri)
    wanted = frozenset(asked.weights) - match.stems
    seen = [match.iri, *wording.things(relations)]
    labels = await labels_of(asking, seen, asked.languages, {})
    if limits.depth > 1 and wanted:
        beyond = [iri for iri in wording.neighbours(relations, labels, wanted) if is_iri(iri)][:BEYOND]
        with suppress(GraphError):
            more = await _beyond(asking, beyond, match, asked, limits)
            relations += more
            labels = await labels_of(asking, set(wording.things(more)) - set(seen), asked.languages, labels.names)
    name = labels.names.get(match.iri) or wording.plain(match.label)
    text = wording.fitting_lines(await _WORDS.run(wording.sentences, name, relations, labels, wanted, abandon=True))
    return GraphPassage(
        source=asking.source,
        iri=match.iri,
        label=name,
        text=text,
        tokens=tokens.estimate(text),
        score=match.score,
        sparql=first,
    )


async def _beyond(
    asking: QueryRecorder, things: list[str], match: Match, asked: QuestionTerms, limits: LookupLimits
) -> list[Relation]:
    if not things:
        return []
    most = 3 * limits.relations
    answer = await asking.ask(queries.said_of_all(things, asked.languages, most), most, share=0.5)
    return wording.said_beyond(answer.rows, match.iri)


async def labels_of(
    asking: QueryRecorder, iris: Iterable[str], languages: Sequence[str], known: Mapping[str, str]
) -> wording.Labels:
    """How things are called; without an answer the names of their IRIs stand there."""
    names = dict(known)
    unknown = sorted(iri for iri in iris if is_iri(iri))
    for begin in range(0, len(unknown), NAMED):
        with suppress(GraphError):
            sparql = queries.labels_of(unknown[begin : begin + NAMED], languages, queries.READ)
            answer = await asking.ask(sparql, queries.READ, share=0.5)
            names |= wording.choose_labels(answer.rows, languages).names
    return wording.Labels(names=names, languages=languages)
