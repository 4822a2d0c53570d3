"""A query that the model writes: checked in a process that can be killed, run within limits, told with its result."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from klaw.config.knowledge import KnowledgeConfig, SparqlConfig
from klaw.errors import GraphError
from klaw.knowledge.graph import generate
from klaw.knowledge.graph.generate import Say, checked
from klaw.knowledge.graph.graphs import Graphs, GraphSearch
from klaw.llm.types import ChatMessage, JsonSchema
from tests.support.graphs import file_source, graphs
from tests.support.waiting import HANG_S

E = "http://example.org/"
MOST_PEOPLE = f"""SELECT ?city ?label ?population WHERE {{
  ?city a <{E}City> ; <{E}population> ?population ; <http://www.w3.org/2000/01/rdf-schema#label> ?label .
  FILTER(LANG(?label) = "en")
}} ORDER BY DESC(?population)"""


def model(*answers: str | None) -> tuple[Say, list[str]]:
    """Says these queries one after the other, None being no JSON at all; what it was asked comes behind."""
    asked: list[str] = []

    async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
        await trio.lowlevel.checkpoint()
        assert schema.name == "query"
        asked.append(messages[-1].content)
        answer = answers[min(len(asked), len(answers)) - 1]
        return "I do not know." if answer is None else json.dumps({"sparql": answer})

    return say, asked


async def written(home: Path, question: str, say: Say, made: Callable[[Path], Graphs] = graphs) -> GraphSearch:
    people, all_graphs = file_source(home), made(home)
    with trio.fail_after(HANG_S):
        found = await all_graphs.search([people], question)
        return await all_graphs.write_query(people, question, found, say)


async def test_a_query_is_written_checked_run_and_told(tmp_path: Path) -> None:
    say, asked = model(MOST_PEOPLE)

    found = await written(tmp_path, "Which city has the largest population?", say)

    first = found.passages[0]
    assert first.text.splitlines()[0] == "city: Paris; label: Paris; population: 2102650"
    assert first.sparql == f"{MOST_PEOPLE}\nLIMIT 50"
    assert (first.label, first.iri, first.source) == ("SPARQL", "", "s1")
    assert first.sparql in [query.sparql for query in found.queries]
    assert found.failed == ()
    (told,) = asked
    assert f"<{E}population> population" in told
    assert f"<{E}City> city" in told  # found by the word of the question
    assert "<question>\nWhich city has the largest population?\n</question>" in told


async def test_yes_and_no_are_said_in_the_language_of_the_question(tmp_path: Path) -> None:
    question = f"ASK {{ <{E}curie> <{E}birthPlace> <{E}warsaw> }}"
    assert (await written(tmp_path, "Was Marie Curie born in Warsaw?", model(question)[0])).passages[0].text == "yes"
    assert (await written(tmp_path, "Мария Кюри родилась в Варшаве?", model(question)[0])).passages[0].text == "да"
    other = f"ASK {{ <{E}curie> <{E}birthPlace> <{E}paris> }}"
    assert (await written(tmp_path, "Мария Кюри родилась в Париже?", model(other)[0])).passages[0].text == "нет"


async def test_a_graph_of_triples_is_told_with_labels(tmp_path: Path) -> None:
    say, _ = model(f"CONSTRUCT {{ ?s <{E}birthPlace> ?o }} WHERE {{ ?s <{E}birthPlace> ?o }}")
    found = await written(tmp_path, "Кто где родился, Мария Кюри и другие?", say)
    assert "s: Мария Кюри; p: место рождения; o: Варшава" in found.passages[0].text.splitlines()


async def test_a_refused_query_is_written_once_more_with_the_reason(tmp_path: Path) -> None:
    say, asked = model("SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }", MOST_PEOPLE)
    found = await written(tmp_path, "Which city has the largest population?", say)
    assert found.passages[0].label == "SPARQL"
    assert "This was not run: SERVICE is not allowed" in asked[1]


@pytest.mark.parametrize(
    ("sparql", "why"),
    [
        ("DROP ALL", "no SPARQL query that reads"),
        ("SELECT * { GRAPH <urn:klaw:index> { ?s ?p ?o } }", "GRAPH is not allowed"),
        ("SELECT * { ?s ?p ?o } " * 60_000, "longer than 8000 characters"),
    ],
)
async def test_a_query_that_is_refused_twice_is_not_run(tmp_path: Path, sparql: str, why: str) -> None:
    say, asked = model(sparql)
    before = await graphs(tmp_path).search([file_source(tmp_path)], "Where was Marie Curie born?")

    found = await written(tmp_path, "Where was Marie Curie born?", say)

    assert len(asked) == 2
    assert found.passages == before.passages  # what was found without the model stays
    assert all("DROP" not in query.sparql and "SERVICE" not in query.sparql for query in found.queries)
    if len(sparql) < 8_000:
        assert [(failure.code, why in failure.text) for failure in found.failed] == [("bad_query", True)]


@pytest.mark.parametrize("answer", [None, ""])
async def test_a_model_that_writes_no_query_costs_nothing(tmp_path: Path, answer: str | None) -> None:
    found = await written(tmp_path, "Where was Marie Curie born?", model(answer)[0])
    assert [passage.label for passage in found.passages] == ["Marie Curie"]
    assert found.failed == ()


@pytest.mark.parametrize(
    "sparql",
    [
        "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o . ?p ?q ?r }",
        "SELECT (COUNT(*) AS ?n) { " + " ".join(f"?a{n} (<http://x>|!<http://x>)* ?b{n} ." for n in range(5)) + " }",
    ],
)
async def test_a_query_that_never_ends_is_ended(tmp_path: Path, sparql: str) -> None:
    people, question = file_source(tmp_path), "Where was Marie Curie born?"
    with trio.fail_after(HANG_S):
        before = await graphs(tmp_path).search([people], question)
        found = await graphs(tmp_path, timeout_s=3).write_query(people, question, before, model(sparql)[0])

    assert [failure.code for failure in found.failed] == ["timeout"]
    assert found.queries[-1].error == "timeout"
    assert [passage.label for passage in found.passages] == ["Marie Curie"]


async def test_rows_are_bounded(tmp_path: Path) -> None:
    config = KnowledgeConfig(sparql=SparqlConfig(timeout_s=60, max_rows=3))
    found = await written(
        tmp_path,
        "Everything about Marie Curie",
        model("SELECT ?s ?p ?o { ?s ?p ?o } LIMIT 1000")[0],
        lambda home: Graphs(config, (443,), home),
    )
    assert found.passages[0].sparql.endswith("LIMIT 3")
    assert len(found.passages[0].text.splitlines()) <= 3


async def test_a_query_that_keeps_a_parser_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "CHECK_S", 2.0)
    with trio.fail_after(HANG_S), pytest.raises(GraphError, match="too complicated"):
        await checked("SELECT * { ?s " + "/".join(["<http://x>"] * 700) + " ?o }", 50)
