"""Graphs in RDF files: read by a child process into a store on disk, and asked through another."""

import json
import os
import signal
from itertools import chain
from pathlib import Path

import pyoxigraph
import pytest
import trio

from klaw.domain.knowledge import SourceKind
from klaw.errors import GraphError
from klaw.knowledge.graph import embedded
from klaw.knowledge.graph.embedded import FileGraph, FileGraphResources
from klaw.knowledge.graph.graphs import GraphSearch
from tests.support.graphs import PEOPLE, file_source, graphs, source
from tests.support.waiting import HANG_S, until


def told(found: GraphSearch) -> dict[str, str]:
    return {passage.name: passage.text for passage in found.passages}


async def test_a_question_is_answered_with_sentences(tmp_path: Path) -> None:
    found = await graphs(tmp_path).search([file_source(tmp_path)], "Where was Marie Curie born?")

    (passage,) = found.passages
    assert (passage.iri, passage.name, passage.source) == ("http://example.org/curie", "Marie Curie", "s1")
    assert passage.text.splitlines() == [
        "Marie Curie — also called: Мария Склодовская",
        "Marie Curie — award: prize: Nobel Prize in Chemistry; year: 1911",
        "Marie Curie — award: prize: Nobel Prize in Physics; year: 1903",
        "Marie Curie — birthplace: Warsaw",
        "Marie Curie — child: Irène Joliot-Curie",
        "Marie Curie — date of birth: 1867-11-07",
        "Marie Curie — description: Polish and French physicist and chemist.",
        "Marie Curie — occupation: chemist, physicist",
        "Marie Curie — spouse: Pierre Curie",
        "Marie Curie — type: person",
    ]
    assert 0 < passage.score <= 1
    assert "<http://example.org/curie>" in passage.sparql
    assert passage.sparql in [query.sparql for query in found.queries]
    assert all(not query.error for query in found.queries)


async def test_the_language_of_the_question_is_that_of_the_answer(tmp_path: Path) -> None:
    found = told(await graphs(tmp_path).search([file_source(tmp_path)], "В какой стране родилась Мария Кюри?"))

    assert found["Мария Кюри"].splitlines()[0] == "Варшава — страна: Польша"  # what is asked for, one step further
    assert "Мария Кюри — место рождения: Варшава" in found["Мария Кюри"]
    assert "Мария Кюри — описание: Польский и французский физик и химик." in found["Мария Кюри"]
    assert "birth" not in found["Мария Кюри"]


@pytest.mark.parametrize(
    ("question", "label", "sentence"),
    [
        ("Who was born in Warsaw?", "Warsaw", "Marie Curie — birthplace: Warsaw"),
        ("Какой рост был у Королёва?", "Сергей Королёв", "Сергей Королёв — рост: 1.72 metre"),
        ("What did Korolev write?", "Sergei Korolev", "Handbook of Field Radios — creator: Sergei Korolev"),
        (
            "Which chapters has the handbook of field radios?",
            "Handbook of Field Radios",
            "Handbook of Field Radios — chapters: Aerials, Batteries, Ёмкости",
        ),
        (
            "What is the address of the North Depot?",
            "Depot North",
            "Depot North — address: geo, latitude: 59.93; geo, longitude: 30.31; street address: Harbour Road 5",
        ),
        (
            "Нобелевская премия по химии",
            "Нобелевская премия по химии",
            "Мария Кюри — награда, премия: Нобелевская премия по химии",
        ),
    ],
)
async def test_what_is_said(tmp_path: Path, question: str, label: str, sentence: str) -> None:
    assert sentence in told(await graphs(tmp_path).search([file_source(tmp_path)], question))[label].splitlines()


async def test_nothing_is_told_where_nothing_is_named(tmp_path: Path) -> None:
    all_graphs, people = graphs(tmp_path), file_source(tmp_path)
    for question, reason in (
        ("thanks!", "no_words"),
        ("спасибо", "no_words"),
        ("quantum chromodynamics", "no_entities"),
    ):
        found = await all_graphs.search([people], question)
        assert (found.passages, found.reason, found.failed) == ((), reason, {})
    assert (await all_graphs.search([source(SourceKind.FOLDER, "/srv")], "Warsaw")).reason == "no_sources"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("p.ttl", "TURTLE"),
        ("p.nt", "N_TRIPLES"),
        ("p.RDF", "RDF_XML"),
        ("p.owl", "RDF_XML"),
        ("p.jsonld", "JSON_LD"),
        ("p.json", "JSON_LD"),
        ("p.nq", "N_QUADS"),
        ("p.trig", "TRIG"),
    ],
)
async def test_every_format_gives_the_same(tmp_path: Path, name: str, form: str) -> None:
    triples = list(pyoxigraph.parse(path=PEOPLE))
    if form in ("N_QUADS", "TRIG"):  # all graphs of a file are one
        triples = [
            pyoxigraph.Quad(
                *list(each)[:3], pyoxigraph.NamedNode(f"http://example.org/{len(each.predicate.value) % 3}")
            )
            for each in triples
        ]
    content = pyoxigraph.serialize(triples, format=getattr(pyoxigraph.RdfFormat, form))
    made, question = file_source(tmp_path, content, known_as="s2", name=name), "Where was Marie Curie born?"
    all_graphs = graphs(tmp_path)

    loaded = await all_graphs.load(made)

    assert loaded.triples == len(triples)
    assert told(await all_graphs.search([made], question)) == told(
        await all_graphs.search([file_source(tmp_path)], question)
    )


async def test_a_file_is_read_once_and_again_when_its_store_is_damaged_or_old(
    tmp_path: Path, log_events: list[dict]
) -> None:
    def reads() -> int:
        return sum(event["event"] == "graph_loaded" for event in log_events)

    people, folder = file_source(tmp_path), tmp_path / "knowledge" / "s1.graph"
    await graphs(tmp_path).load(people)
    expected = told(await graphs(tmp_path).search([people], "Warsaw, the city"))
    assert expected
    assert reads() == 1
    assert folder.stat().st_mode & 0o077 == 0

    for spoil in (
        lambda: [each.unlink() for each in folder.glob("*.sst")],
        lambda: [each.write_bytes(os.urandom(500)) for each in folder.glob("MANIFEST*")],
        lambda: (folder / "klaw.json").write_text("{"),
        lambda: (folder / "klaw.json").write_text(json.dumps({"stamp": [0, people.sha256]})),
        lambda: [each.unlink() for each in folder.iterdir()],
    ):
        before = reads()
        spoil()
        assert told(await graphs(tmp_path).search([people], "Warsaw, the city")) == expected
        assert reads() == before + 1

    await graphs(tmp_path).remove(people)
    assert [each.name for each in folder.parent.iterdir()] == ["s1"]


async def test_a_kill_while_a_file_is_read_leaves_no_half_store(tmp_path: Path) -> None:
    """The child is killed, as by a power cut: what was there stays, and the next question reads the file again."""
    things = file_source(tmp_path, b"", name="things.nt")
    beside, kept = tmp_path / "knowledge" / "s1.graph-new", tmp_path / "knowledge" / "s1"
    kept.unlink()
    os.mkfifo(kept)  # its reader waits
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:

            async def load() -> None:
                with pytest.raises(GraphError) as refused:
                    await graphs(tmp_path).load(things)
                assert refused.value.code == "too_large"

            nursery.start_soon(load)
            pid = await until(lambda: _child_of(os.getpid(), str(beside)))
            os.kill(pid, signal.SIGKILL)
    assert not (tmp_path / "knowledge" / "s1.graph").exists()
    kept.unlink()
    kept.write_bytes(b'<http://x> <http://www.w3.org/2000/01/rdf-schema#label> "thing" .')
    loaded = await graphs(tmp_path).load(things)
    assert (loaded.triples, loaded.labels) == (1, 1)


def _child_of(parent: int, argument: str) -> int | None:
    """The child process that has an argument."""
    children = [each.read_text().split() for each in Path(f"/proc/{parent}/task").glob("*/children")]
    for each in chain.from_iterable(children):
        try:
            if argument in Path(f"/proc/{each}/cmdline").read_text().split("\0"):
                return int(each)
        except OSError:
            continue
    return None


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("p.ttl", b"<http://a> <http://b> .\nnonsense", "this is not valid TURTLE at line 1"),
        ("p.nt", b'<http://a> <http://b> "c" .\n<http://a> x', "this is not valid N-TRIPLES at line 2"),
        ("p.rdf", b"<rdf>", "this is not valid RDF-XML"),
        ("p.jsonld", b'{"@context": "http://127.0.0.1:9/context", "@id": "http://a"}', "this is not valid JSON-LD"),
        ("p.json", b"\xff\xfe\0", "this is not valid JSON-LD"),
        ("p.docx", b"", "the file's name must end with one of .ttl"),
    ],
)
async def test_what_is_no_rdf_is_refused_with_its_line(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    broken = file_source(tmp_path, content, name=name)
    with pytest.raises(GraphError) as refused:
        await graphs(tmp_path).load(broken)
    assert refused.value.code == "unreadable"
    assert str(refused.value).startswith(text)
    found = await graphs(tmp_path).search([broken, file_source(tmp_path, known_as="s2")], "Where was Marie Curie born?")
    assert [*found.failed] == ["s1"]
    assert "Marie Curie" in told(found)  # the other source answers


async def test_an_xml_bomb_ends_its_reader_only(tmp_path: Path) -> None:
    entities = "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    bomb = (
        f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "{"x" * 1000}">{entities}]>'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        '<rdf:Description rdf:about="http://x"><e:p>&i;</e:p></rdf:Description></rdf:RDF>'
    )
    with pytest.raises(GraphError) as refused:
        await graphs(tmp_path).load(file_source(tmp_path, bomb.encode(), name="bomb.rdf"))
    assert refused.value.code in ("too_large", "unreadable")


async def test_a_large_file_that_is_not_read_yet_holds_no_question_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "SMALL_BYTES", 10)
    people = file_source(tmp_path)
    missing: list[str] = []
    found = await graphs(tmp_path, missing=missing.append).search([people], "Where was Marie Curie born?")
    assert found.failed == {"s1": "loading"}
    assert missing == ["s1"]  # the indexer is told
    await graphs(tmp_path).load(people)  # what the indexer does
    assert (await graphs(tmp_path).search([people], "Where was Marie Curie born?")).passages


ENDLESS = (
    "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o . ?p ?q ?r }",
    "SELECT (COUNT(*) AS ?n) { " + " ".join(f"?a{n} (<http://x>|!<http://x>)* ?b{n} ." for n in range(5)) + " }",
)


@pytest.mark.parametrize("sparql", ENDLESS)
async def test_a_query_that_never_ends_is_ended_and_the_session_goes_on(tmp_path: Path, sparql: str) -> None:
    graph = FileGraph(FileGraphResources(), tmp_path / "knowledge" / file_source(tmp_path).id, "people.ttl", "1")
    with trio.fail_after(HANG_S):
        async with graph.session() as session:
            with trio.move_on_after(1) as limited:
                await session.ask(sparql, 10)
            assert limited.cancelled_caught
            assert await session.ask("SELECT ?s WHERE { ?s ?p ?o } LIMIT 1", 1)
            pid = _child_of(os.getpid(), str(graph.folder))
            assert pid is not None
    assert _child_of(os.getpid(), str(graph.folder)) is None


async def test_a_query_that_needs_too_much_memory_or_gives_too_much_costs_itself_only(tmp_path: Path) -> None:
    graph = FileGraph(FileGraphResources(), tmp_path / "knowledge" / file_source(tmp_path).id, "people.ttl", "1")
    with trio.fail_after(HANG_S):
        async with graph.session() as session:
            with pytest.raises(GraphError) as refused:
                await session.ask("SELECT * WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }", 10)
            assert refused.value.code == "too_large"
            with pytest.raises(GraphError) as refused:
                await session.ask("SELECT * WHERE {", 10)
            assert refused.value.code == "bad_query"
            answer = await session.ask("SELECT ?p ?o WHERE { <http://example.org/curie> ?p ?o }", 100)
            assert ([*answer[0]], len(answer)) == (["p", "o"], 16)
