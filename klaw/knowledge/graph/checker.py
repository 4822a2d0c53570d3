"""Checks a query that a model wrote, in a process of its own, which can be killed: a short query may keep a parser busy
for years. Run as a program: a JSON object on standard input, one on standard output.

Two parsers that have nothing in common, rdflib's and Oxigraph's, must both take the query for what it is. What only
hides something from a reader (escapes of ASCII characters, control characters) is refused before either sees it, so
what they saw is what the graph is asked.
"""

import json
import re
import resource
import sys
from collections.abc import Iterator
from typing import Any

MEMORY_BYTES = 1_500_000_000
CPU_S = 10
MAX_CHARS = 8_000
MAX_DEPTH = 30
"""Of brackets, wherever they stand."""
MAX_PARTS = 3_000
"""Of what the parser made of it."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LIMIT = re.compile(r"\bLIMIT\s+\d+", re.IGNORECASE)
_KINDS = {"SelectQuery": "select", "ConstructQuery": "construct", "AskQuery": "ask"}
_REFUSED = {
    "ServiceGraphPattern": "SERVICE is not allowed",
    "GraphGraphPattern": "GRAPH is not allowed",
    "DatasetClause": "FROM is not allowed",
    "DescribeQuery": "DESCRIBE is not allowed: use SELECT",
}


class Refused(Exception):
    """The query is not run; the text says why."""


def check(sparql: str, most: int) -> str:
    """The query as it is run.

    Args:
        sparql: what the model wrote.
        most: rows: a higher LIMIT is lowered, a missing one added.

    Raises:
        Refused: it is not run.
    """
    text = _plain(sparql)
    kind, limit, values = _parse(text)
    if kind == "ask" or (limit is not None and limit <= most):
        return text
    if limit is None and values:
        raise Refused("write VALUES inside of WHERE, and a LIMIT at the end")
    return _limited(text, most, has_limit=limit is not None)


def _plain(sparql: str) -> str:
    if len(sparql) > MAX_CHARS:
        raise Refused(f"it is longer than {MAX_CHARS} characters")
    text = _ESCAPE.sub(_unescaped, sparql.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if _CONTROL.search(text) or "\\u" in text.lower():
        raise Refused("it has control characters, or escapes that hide something")
    depth = deepest = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise Refused("it is nested too deeply")
    return text


def _unescaped(found: re.Match[str]) -> str:
    code = int(found[1] or found[2], 16)
    if code < 0xA0 or code > sys.maxunicode:  # ASCII needs no escape but to hide something
        raise Refused("it has escapes that hide something: write the characters themselves")
    return chr(code)


def _parse(text: str) -> tuple[str, int | None, bool]:
    """Kind, LIMIT, and whether VALUES stands at the end."""
    import pyoxigraph
    from pyparsing import ParseBaseException
    from rdflib.plugins.sparql.algebra import translateQuery
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        parsed = parseQuery(text)
        tree = parsed[1]
        limits = tree.limitoffset
        limit = int(limits.limit) if limits and limits.limit is not None else None
        values = bool(tree.valuesClause)
        _walk(parsed, [MAX_PARTS])
        _walk(translateQuery(parsed).algebra, [10 * MAX_PARTS])
    except Refused:
        raise
    except ParseBaseException as error:
        raise Refused(f"it is no SPARQL query that reads (line {error.lineno}, column {error.column})") from None
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except Exception as error:  # noqa: BLE001  whatever a parser stumbles over is not run
        raise Refused(f"it is no valid SPARQL query ({type(error).__name__})") from None
    kind = _KINDS.get(tree.name)
    if kind is None:
        raise Refused("only SELECT, ASK and CONSTRUCT are allowed")
    try:
        made = type(pyoxigraph.Store().query(text)).__name__  # not the answer, which must die in this thread
    except (SyntaxError, OSError, RuntimeError, ValueError):
        raise Refused("it is no valid SPARQL query") from None
    expected = {"select": "QuerySolutions", "construct": "QueryTriples", "ask": "QueryBoolean"}[kind]
    if made != expected:
        raise Refused("it is not clear what kind of query it is")
    return kind, limit, values


def _walk(value: Any, left: list[int]) -> None:
    """Look at every part. Raises Refused."""
    from rdflib.plugins.sparql.parserutils import CompValue

    waiting = [value]
    while waiting:
        part = waiting.pop()
        left[0] -= 1
        if left[0] < 0:
            raise Refused("it has too many parts")
        if isinstance(part, CompValue):
            if part.name in _REFUSED:
                raise Refused(_REFUSED[part.name])
            if part.name == "Function" and isinstance(part.iri, str) and not part.iri.startswith(_XSD):
                raise Refused("only functions of SPARQL itself are allowed")
        waiting.extend(_inside(part))


def _inside(part: Any) -> Iterator[Any]:
    from pyparsing import ParseResults

    if isinstance(part, dict):
        yield from part.values()
    elif isinstance(part, list | tuple | ParseResults | set):
        yield from part


def _limited(text: str, most: int, *, has_limit: bool) -> str:
    """The same query with another LIMIT: the parser says where that is."""
    candidates = [f"{text}\nLIMIT {most}"]
    if has_limit:
        places = reversed(list(_LIMIT.finditer(text)))
        candidates = [f"{text[: each.start()]}LIMIT {most}{text[each.end() :]}" for each in places]
    for candidate in candidates:
        try:
            _, limit, _ = _parse(candidate)
        except Refused:
            continue
        if limit == most:
            return candidate
    raise Refused(f"write LIMIT {most} at the end")


def main() -> None:
    """See the module."""
    for what, limit in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (limit, limit))
    asked = json.loads(sys.stdin.buffer.read())
    try:
        answer = {"sparql": check(asked["sparql"], asked["most"])}
    except Refused as why:
        answer = {"refused": str(why)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
