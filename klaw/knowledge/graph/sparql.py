"""SPARQL: its terms, answers, and the queries that find things by their labels and tell what is said of them. Pure.

An endpoint is not trusted: every value is checked before use, and goes into a query only through ``quoted`` and
``reference``. The queries are SPARQL 1.1 that every engine knows, without REGEX. Each is ordered before it is cut, so
two engines with the same data give the same rows.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from klaw.domain.text import clean
from klaw.errors import GraphError

MAX_IRI = 2_000
MAX_COLUMNS = 100

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f-\x9f<>\"{}|^`\\\ud800-\udfff]*")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r"[\x00-\x1f\"\\\x7f]")


@attrs.frozen
class Iri:
    value: str


@attrs.frozen
class Blank:
    """A thing without an IRI; ``name`` means something in its own answer only."""

    name: str


@attrs.frozen
class Literal:
    value: str
    language: str = ""
    """``en``, ``pt-br`` …"""
    datatype: str = ""
    """IRI; empty for plain texts."""


Term: TypeAlias = Iri | Blank | Literal
Row: TypeAlias = Mapping[str, Term]


def is_iri(text: str) -> bool:
    """Whether a text is an absolute IRI that may stand in a query."""
    return len(text) <= MAX_IRI and _IRI.fullmatch(text) is not None


def reference(iri: str) -> str:
    """An IRI as it stands in a query. Raises ValueError when it is not valid."""
    if not is_iri(iri):
        raise ValueError("not a valid IRI")
    return f"<{iri}>"


def quoted(text: str, language: str = "") -> str:
    """A text as it stands in a query, which it cannot end. Raises ValueError: this is no language tag."""
    escaped = _ESCAPED.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04X}", clean(text))
    if language and not _LANGUAGE.fullmatch(language):
        raise ValueError("not a valid language tag")
    return f'"{escaped}"{"@" + language if language else ""}'


def read_answer(body: bytes, most: int) -> list[Row]:
    """The first rows of ``application/sparql-results+json``. Raises GraphError: it has another form."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    results = value.get("results") if isinstance(value, dict) else None
    found = results.get("bindings") if isinstance(results, dict) else None
    if not isinstance(found, list):
        raise _malformed("results.bindings is not a list")
    return list(map(_row, found[:most]))


def _row(found: Any) -> Row:
    if not isinstance(found, dict) or len(found) > MAX_COLUMNS:
        raise _malformed("a row is not an object")
    return {name: _term(value) for name, value in found.items()}


def _term(found: Any) -> Term:
    value, kind = (found.get("value"), found.get("type")) if isinstance(found, dict) else (None, None)
    if not isinstance(value, str):
        raise _malformed("a value is not a text")
    if kind == "uri":
        return Iri(value)
    if kind == "bnode":
        return Blank(value)
    if kind not in ("literal", "typed-literal"):
        raise _malformed("a value has no known type")
    language, datatype = found.get("xml:lang", ""), found.get("datatype", "")
    if not isinstance(language, str) or not isinstance(datatype, str):
        raise _malformed("a language or datatype is not a text")
    return Literal(clean(value), language.lower() if _LANGUAGE.fullmatch(language) else "", datatype)


def _malformed(why: str) -> GraphError:
    return GraphError("malformed", f"the answer is not a SPARQL result: {why}")


# -- queries -----------------------------------------------------------------------------------------------------------

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_FOAF = "http://xmlns.com/foaf/0.1/"
_SCHEMA = ("http://schema.org/", "https://schema.org/")
_GEO = "http://www.geonames.org/ontology#"

NAMES = (
    f"{_SKOS}prefLabel",
    f"{RDFS}label",
    *(f"{schema}name" for schema in _SCHEMA),
    f"{_FOAF}name",
    "http://purl.org/dc/terms/title",
    "http://purl.org/dc/elements/1.1/title",
    f"{_GEO}name",
)
"""What says how a thing is called; the first has the last word."""
OTHER_NAMES = (
    f"{_SKOS}altLabel",
    *(f"{schema}alternateName" for schema in _SCHEMA),
    f"{_FOAF}nick",
    f"{_GEO}alternateName",
)
"""A thing is found by these, too."""
LABELS = NAMES + OTHER_NAMES

INDEX = "urn:klaw:index"
"""The graph of a store that says which stems are in which labels."""
STEM = "urn:klaw:stem:"
CANDIDATES = 200
READ = 2_000


def by_words(needles: Sequence[str]) -> str:
    """Things with labels that have any of some pieces of words: all labels are looked through."""
    found = [_contains(needle) for needle in needles]
    count = " + ".join(f"IF({each}, 1, 0)" for each in found)
    return (
        f"SELECT ?e ?l WHERE {{ {_values('?n', LABELS)} ?e ?n ?l . BIND(LCASE(STR(?l)) AS ?t) "
        f"FILTER(isLiteral(?l) && ({' || '.join(found)})) }} "
        f"ORDER BY DESC({count}) STRLEN(?t) ?t STR(?e) LIMIT {CANDIDATES}"
    )


def _contains(needle: str) -> str:
    # Where the question has е, the label may have ё, and the other way round.
    text = 'REPLACE(?t, "ё", "е")' if "е" in needle else "?t"
    return f"CONTAINS({text}, {quoted(needle)})"


def by_labels(phrases: Sequence[str], languages: Sequence[str]) -> str:
    """Things with exactly these labels: quick in every engine."""
    wanted = " ".join(quoted(phrase, language) for phrase in phrases for language in languages)
    return (
        f"SELECT ?e ?l WHERE {{ VALUES ?l {{ {wanted} }} ?e ?n ?l . FILTER({_in('?n', LABELS)}) }} LIMIT {CANDIDATES}"
    )


def by_stems(stems: Iterable[str]) -> str:
    """Things with labels that have any of some stems, by the index of a store."""
    wanted = _values("?s", sorted(map(stem_iri, stems)))
    return (
        f"SELECT ?e ?l WHERE {{ GRAPH <{INDEX}> {{ {wanted} ?e ?s ?l }} }} GROUP BY ?e ?l "
        f"ORDER BY DESC(COUNT(?s)) STRLEN(STR(?l)) LCASE(STR(?l)) STR(?e) LIMIT {CANDIDATES}"
    )


def stem_iri(stem: str) -> str:
    return STEM + stem.encode("utf-8", "replace").hex()


def named(iri: str) -> tuple[str, str]:
    """How a query speaks of a thing: a pattern that must hold, and the term."""
    return "", reference(iri)


def labelled(label: str, language: str) -> tuple[str, str]:
    """Pattern and term of a thing without a name: all things that have the label."""
    return f"?e ?n {quoted(label, language)} . FILTER({_in('?n', LABELS)} && isBlank(?e)) ", "?e"


def said_of(thing: tuple[str, str], languages: Sequence[str], limit: int) -> str:
    """What is said of a thing: ``p`` and ``v``. What is said of a thing without a name (``o``) stands in its place, two
    deep: ``q``, ``r``; so do the members of a list."""
    pattern, term = thing
    blank = f"{term} ?p ?o . FILTER(isBlank(?o)) "
    ways = (
        f"{term} ?p ?v . FILTER(!isBlank(?v)) ",
        f"{blank}?o ?q ?v . FILTER(!isBlank(?v)) ",
        f"{blank}?o ?q ?b . FILTER(isBlank(?b)) ?b ?r ?v . FILTER(!isBlank(?v)) ",
        f"{blank}?o <{RDF}rest>*/<{RDF}first> ?v . FILTER(!isBlank(?v)) ",
    )
    where = " UNION ".join(f"{{ {pattern}{way}}}" for way in ways)
    return _ordered("?p ?o ?q ?r ?v", where, f'{_first(languages)} STR(?p) STR(?v) COALESCE(STR(?q), "")', limit)


def said_with(thing: tuple[str, str], limit: int) -> str:
    """What a thing is the value of: ``p`` of ``s``, and ``q`` where a thing without a name stands between."""
    pattern, term = thing
    ways = f"?s ?p {term} . ", f"?s ?p ?o . FILTER(isBlank(?o)) ?o ?q {term} . "
    where = " UNION ".join(f"{{ {pattern}{way}FILTER(isIRI(?s)) }}" for way in ways)
    return _ordered("?s ?p ?q", where, "STR(?p) STR(?s)", limit)


def said_of_all(iris: Iterable[str], languages: Sequence[str], limit: int) -> str:
    """What is said of several things: ``e``, ``p`` and ``v``."""
    where = f"{{ {_values('?e', iris)} ?e ?p ?v . FILTER(!isBlank(?v)) }}"
    return _ordered("?e ?p ?v", where, f"{_first(languages)} STR(?e) STR(?p) STR(?v)", limit)


def labels_of(iris: Iterable[str], languages: Sequence[str], limit: int) -> str:
    """Names of things: ``x``, by which property ``n``, and ``l``."""
    where = f"{_values('?x', iris)} ?x ?n ?l . FILTER({_in('?n', NAMES)} && LANG(?l) IN ({_listed(languages)}))"
    return f"SELECT ?x ?n ?l WHERE {{ {where} }} LIMIT {limit}"


def _ordered(names: str, where: str, order: str, limit: int) -> str:
    inner = f"SELECT {names} WHERE {{ {where} }} LIMIT {READ}"
    return f"SELECT {names} WHERE {{ {{ {inner} }} }} ORDER BY {order} LIMIT {limit}"


def _first(languages: Sequence[str]) -> str:
    return f"COALESCE(IF(LANG(?v) IN ({_listed(languages)}), 0, 1), 0)"


def _listed(languages: Sequence[str]) -> str:
    return ", ".join(map(quoted, languages))


def _in(name: str, iris: Iterable[str]) -> str:
    """A list in a filter, where engines would join two lists before they look anything up."""
    return f"{name} IN ({', '.join(map(reference, iris))})"


def _values(name: str, iris: Iterable[str]) -> str:
    return f"VALUES {name} {{ {' '.join(map(reference, iris))} }}"
