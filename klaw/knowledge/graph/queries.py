"""The SPARQL that finds things by their labels and tells what is said about them. Pure.

Only SPARQL 1.1 that every engine knows; no REGEX. Each query is ordered before it is cut, so that two engines with the
same data give the same rows.
"""

from collections.abc import Iterable, Sequence

from klaw.knowledge.graph.terms import quoted, reference

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
"""Labels that are looked at closely."""
READ = 2_000
"""Triples of one thing that are put in order."""


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
    """A stem's name in the index."""
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
    """What is said of other things (``s``) and this one is the value of: ``p``, and ``q`` where a thing without a name
    stands between."""
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
    """Texts in other languages last."""
    return f"COALESCE(IF(LANG(?v) IN ({_listed(languages)}), 0, 1), 0)"


def _listed(languages: Sequence[str]) -> str:
    return ", ".join(map(quoted, languages))


def _in(name: str, iris: Iterable[str]) -> str:
    """A list in a filter, where engines would join two lists before they look anything up."""
    return f"{name} IN ({', '.join(map(reference, iris))})"


def _values(name: str, iris: Iterable[str]) -> str:
    return f"VALUES {name} {{ {' '.join(map(reference, iris))} }}"
