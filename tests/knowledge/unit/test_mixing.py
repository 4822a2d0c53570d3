"""What documents and graphs say, in one list."""

from klaw.domain.context_used import ContextUsed, Ran
from klaw.domain.knowledge import BaseId, DocumentId, Source, SourceId, SourceKind, UsedPassage
from klaw.domain.search import Decision, FoundPassage, PassageCandidate, PassageOutcome
from klaw.knowledge.dialogue import _with
from klaw.knowledge.graph.graphs import GraphSearch
from tests.support.knowledge import AT

BASE, GRAPH = BaseId("b"), SourceId("g")
SOURCE = Source(
    id=GRAPH, user="anna", base=BASE, kind=SourceKind.RDF, name="g.ttl", added_by="anna", created_at=AT, updated_at=AT
)
ASKED = ContextUsed(query="q", bases=(BASE,))


def passages(*texts: str, **more: object) -> PassageOutcome:
    found = (
        PassageCandidate(
            passage=FoundPassage(
                ordinal=0, text=text, start=0, end=len(text), tokens=5, rowid=at, base=BASE, source=SourceId("s"),
                document=DocumentId("d"), name="d.pdf", title="",
            ),
            decision=Decision.NEAR, text=text, tokens=5, score=1.0, vector_rank=1, distance=0.1, text_rank=1, bm25=-1.0,
        )
        for at, text in enumerate(texts, 1)
    )  # fmt: skip
    return PassageOutcome(candidates=tuple(found), query_words=2, **more)  # type: ignore[arg-type]


def graph(*texts: str, **more: object) -> GraphSearch:
    said = (
        UsedPassage(number=0, base=BASE, source=GRAPH, iri="urn:x", name=text, text=text, score=0.5, sparql="SELECT 1")
        for text in texts
    )
    return GraphSearch(passages=tuple(said), **more)  # type: ignore[arg-type]


def test_they_take_turns_by_rank_and_graphs_have_a_share() -> None:
    made = _with(ASKED, [passages("p1", "p2")], {}, graph("g1", "g2", "g3"), [SOURCE], 1_000)
    assert [each.text for each in made.passages] == ["p1", "g1", "p2", "g2", "g3"]
    assert [(each.document, each.iri) for each in made.passages][:2] == [("d", ""), (None, "urn:x")]
    long = _with(ASKED, [passages("p1")], {}, graph("g1" * 500, "g2"), [SOURCE], 100)
    assert [each.text for each in long.passages] == ["p1"]
    alone = _with(ASKED, [passages()], {}, graph("g1"), [SOURCE], 100)
    assert ([each.text for each in alone.passages], alone.nothing) == (["g1"], "")


def test_why_there_is_nothing_and_what_failed() -> None:
    nothing = _with(ASKED, [passages()], {}, graph(reason="no_entities"), [SOURCE], 100)
    assert nothing.nothing == "no_entities"
    assert _with(ASKED, [passages()], {}, None, [], 100).nothing == "no_passages"
    failed = graph(
        reason="failed",
        failed={GRAPH: "timeout"},
        queries=(Ran(source=GRAPH, sparql="ASK {}", rows=0, error="timeout"),),
    )
    made = _with(ASKED, [passages("p1")], {}, failed, [SOURCE], 100)
    assert made.degraded == ("graph_timeout",)
    assert [(each.sparql, each.error) for each in made.sparql] == [("ASK {}", "timeout")]
    assert _with(ASKED, [passages("p1")], {}, None, [SOURCE], 100).degraded == ("graph_failed",)
