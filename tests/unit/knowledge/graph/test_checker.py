"""Which queries of a model are run, and how they are bounded."""

import pytest

from klaw.knowledge.graph.checker import Refused, check

SAFE = {
    "SELECT * WHERE { ?s ?p ?o }": "SELECT * WHERE { ?s ?p ?o }\nLIMIT 50",
    "SELECT * WHERE { ?s ?p ?o } LIMIT 5": "SELECT * WHERE { ?s ?p ?o } LIMIT 5",
    "SELECT * WHERE { ?s ?p ?o } LIMIT 1000 # LIMIT 7": "SELECT * WHERE { ?s ?p ?o } LIMIT 50 # LIMIT 7",
    "SELECT * WHERE { ?s ?p ?o } # all": "SELECT * WHERE { ?s ?p ?o } # all\nLIMIT 50",
    "select ?s { { select ?s { ?s ?p ?o } limit 900 } } limit 900 offset 3": (
        "select ?s { { select ?s { ?s ?p ?o } limit 900 } } LIMIT 50 offset 3"
    ),
    "SELECT ?x { BIND('LIMIT 900' AS ?x) } LIMIT 900": "SELECT ?x { BIND('LIMIT 900' AS ?x) } LIMIT 50",
    "SELECT * { { SELECT * { ?x ?p ?o } LIMIT 900 } }": "SELECT * { { SELECT * { ?x ?p ?o } LIMIT 900 } }\nLIMIT 50",
    "SELECT * { ?s ?p ?o } ORDER BY ?s OFFSET 5": "SELECT * { ?s ?p ?o } ORDER BY ?s OFFSET 5\nLIMIT 50",
    "SELECT * { ?s ?p ?o } LIMIT 5 VALUES ?s { <http://a> }": "SELECT * { ?s ?p ?o } LIMIT 5 VALUES ?s { <http://a> }",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }": "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }\nLIMIT 50",
    "CONSTRUCT WHERE { ?s ?p ?o } LIMIT 51": "CONSTRUCT WHERE { ?s ?p ?o } LIMIT 50",
    "ASK { ?s ?p ?o }": "ASK { ?s ?p ?o }",
    'SELECT * { ?s ?p "\\u0412\\u0430" } LIMIT 1': 'SELECT * { ?s ?p "Ва" } LIMIT 1',
    'SELECT * { ?s ?p "SERVICE <http://x> { } DROP ALL" } LIMIT 1': (
        'SELECT * { ?s ?p "SERVICE <http://x> { } DROP ALL" } LIMIT 1'
    ),
    "SELECT * { # SERVICE\n ?s ?p ?o } LIMIT 1": "SELECT * { # SERVICE\n ?s ?p ?o } LIMIT 1",
    "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> SELECT * { ?s ?p ?o FILTER(xsd:integer(?o) > 3) } LIMIT 1": (
        "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> SELECT * { ?s ?p ?o FILTER(xsd:integer(?o) > 3) } LIMIT 1"
    ),
    "SELECT ?s (COUNT(?o) AS ?n) { ?s ?p ?o } GROUP BY ?s HAVING (COUNT(?o) > 1) ORDER BY DESC(?n) LIMIT 3": (
        "SELECT ?s (COUNT(?o) AS ?n) { ?s ?p ?o } GROUP BY ?s HAVING (COUNT(?o) > 1) ORDER BY DESC(?n) LIMIT 3"
    ),
}


@pytest.mark.parametrize(("written", "run"), SAFE.items())
def test_a_harmless_query_is_run_with_a_limit(written: str, run: str) -> None:
    assert check(written, 50) == run


UPDATES = (
    "INSERT DATA { <a:a> <a:b> <a:c> }",
    "DELETE WHERE { ?s ?p ?o }",
    "DROP ALL",
    "CLEAR GRAPH <a:a>",
    "LOAD <http://127.0.0.1/>",
    "SELECT * { ?s ?p ?o } ; DROP ALL",
    "SELECT * { ?s ?p ?o } DROP ALL",
    "PREFIX a: <a:> INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "# SELECT\nCREATE GRAPH <a:a>",
)
ELSEWHERE = (
    "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
    "SELECT * { { SELECT * { SERVICE SILENT ?x { ?s ?p ?o } } } }",
    "SELECT * { OPTIONAL { { } UNION { seRVice <http://x/> { } } } }",
    "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE <http://x/> { ?s ?p ?o } } }",
    "SELECT * { ?s ?p ?o MINUS { SERVICE <http://x/> { ?s ?p ?o } } }",
    "SELECT (EXISTS { SERVICE <http://x/> { ?s ?p ?o } } AS ?e) { }",
    "SELECT * { ?s ?p ?o } ORDER BY (EXISTS { SERVICE <http://x/> { ?s ?p ?o } })",
    "CONSTRUCT { ?s ?p ?o } WHERE { SERVICE <http://x/> { ?s ?p ?o } }",
    "ASK { SERVICE <http://x/> { ?s ?p ?o } }",
    "SELECT * FROM <http://x> { ?s ?p ?o }",
    "ASK FROM NAMED <http://x> { ?s ?p ?o }",
    "CONSTRUCT FROM <http://x> WHERE { ?s ?p ?o }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { ?s ?p ?o FILTER NOT EXISTS { GRAPH <urn:klaw:index> { ?s ?p ?o } } }",
    "DESCRIBE <http://x>",
    "SELECT * { ?s ?p ?o FILTER(<http://e/f>(?o)) }",
    "PREFIX x: <java:java.lang.> SELECT * { BIND(x:System(1) AS ?a) }",
    "SELECT (<bif:connection_get>('x') AS ?a) { }",
)
HIDING = (
    "SELECT * { \\u0053ERVICE <http://x> { ?s ?p ?o } }",
    "SELECT * { \\U00000053ERVICE <http://x> { ?s ?p ?o } }",
    "SELECT * { \\u005Cu0053ERVICE <http://x> { ?s ?p ?o } }",
    "SELECT * { \\u005cu0053ERVICE <http://x> { ?s ?p ?o } }",
    'SELECT * { ?s ?p "\\u0022 . SERVICE <http://x> { } #" }',
    "SELECT * { ?s ?p <http://x/\\u003E . SERVICE <http://y> { } } #",
    'SELECT * { ?s ?p "\\ud800" }',
    'SELECT * { ?s ?p "\\UFFFFFFFF" }',
    "SELECT * { ?s ?p ?o } #\r SERVICE <http://x> { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o #\r SERVICE <http://x> { ?s ?p ?o }\n }",
    "SELECT * { ?s ?p ?o #\u2028 SERVICE <http://x> { ?s ?p ?o }\n }",
    "SELECT * { ?s ?p ?o #\x0c SERVICE <http://x> { ?s ?p ?o }\n }",
    "SELECT * { ?s ?p ?o #\0 SERVICE <http://x> { ?s ?p ?o }\n }",
)
HUGE = (
    "",
    "SELECT",
    "x",
    "SELECT * { ?s ?p ?o } " * 60_000,
    f"SELECT ({'(' * 100}1{')' * 100} AS ?x) {{ }}",
    f"SELECT * {{ {'{' * 100}{'}' * 100} }}",
    f"SELECT * {{ {'{ SELECT * { ' * 16} ?s ?p ?o {'} }' * 16} }}",
    f"SELECT * {{ ?s ?p ?o FILTER({'!' * 3000}true) }}",
    f"SELECT * {{ {' '.join(f'?a{n} ?b{n} ?c{n} .' for n in range(300))} }}",
    "SELECT * { ?s ?p ?o } VALUES ?s { <http://a> }",
    "SELECT * { ?s ?p ?o } LIMIT -1",
    "SELECT ?x { ?s ?p ?o } GROUP BY ?s",
    "SELECT * { BIND(1 AS ?x) BIND(2 AS ?x) }",
)


@pytest.mark.parametrize("written", [*UPDATES, *ELSEWHERE, *HIDING, *HUGE])
def test_any_other_query_is_not_run(written: str) -> None:
    with pytest.raises(Refused):
        check(written, 50)
