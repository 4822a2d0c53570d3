"""What goes into a query cannot leave its place there, and answers are read strictly."""

import json

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.errors import GraphError
from klaw.knowledge.graph.terms import Blank, Iri, Literal, is_iri, quoted, read_answer, reference


@given(st.text())
def test_a_text_in_a_query_is_that_text(text: str) -> None:
    """Asked of a real engine: whatever is in it, it is one literal."""
    (row,) = pyoxigraph.Store().query(f"SELECT ?x WHERE {{ BIND({quoted(text)} AS ?x) }}")
    expected = "".join("\ufffd" if character == "\0" else character for character in text)
    assert row["x"].value == expected


@pytest.mark.parametrize(
    "iri",
    [
        "http://x/> . ?s ?p ?o",
        "http://x/ y",
        'http://x/"',
        "http://x/\\u003e",
        "http://x/\n",
        "http://x/{",
        "http://x/|",
        "relative",
        "",
        "http://x/" + "a" * 2_000,
        "1http://x",
    ],
)
def test_what_is_no_iri_goes_into_no_query(iri: str) -> None:
    assert not is_iri(iri)
    with pytest.raises(ValueError, match="not a valid IRI"):
        reference(iri)


@pytest.mark.parametrize("language", ["en> .", "en us", "a" * 9, '"'])
def test_what_is_no_language_goes_into_no_query(language: str) -> None:
    with pytest.raises(ValueError, match="language"):
        quoted("x", language)


def results(*rows: object) -> bytes:
    return json.dumps({"head": {"vars": ["x"]}, "results": {"bindings": rows}}).encode()


def test_an_answer_is_read() -> None:
    told = results(
        {"x": {"type": "uri", "value": "http://a"}},
        {"x": {"type": "bnode", "value": "b0"}},
        {"x": {"type": "literal", "value": "Варшава", "xml:lang": "RU"}},
        {"x": {"type": "typed-literal", "value": "1", "datatype": "http://int"}},
        {},
    )
    assert read_answer(told, 10) == [
        {"x": Iri("http://a")},
        {"x": Blank("b0")},
        {"x": Literal("Варшава", "ru")},
        {"x": Literal("1", "", "http://int")},
        {},
    ]
    assert len(read_answer(told, 2)) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"head": {}, "boolean": true}',
        results({str(column): {"type": "uri", "value": "http://a"} for column in range(200)}),
        results("x"),
        results([]),
        results({"x": None}),
        results({"x": {"type": "uri"}}),
        results({"x": {"type": "uri", "value": 7}}),
        results({"x": {"type": ["uri"], "value": "x"}}),
        results({"x": {"type": "triple", "value": {"subject": {}}}}),
        results({"x": {"type": "literal", "value": "x", "xml:lang": 3}}),
        results({"x": {"type": "literal", "value": "x", "datatype": {}}}),
        b'{"head": {"vars": []}, "results": {"bindings": {}}}',
        b'{"head": {"vars": []}, "results": []}',
    ],
)
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(GraphError, match="not a SPARQL result") as told:
        read_answer(body, 10)
    assert told.value.code == "malformed"
