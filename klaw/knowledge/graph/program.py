"""Reads RDF and answers SPARQL in a process of its own, which can be killed: pyoxigraph cannot be interrupted, and a
short query may run for years. Run as a program; it reaches no network.

    program.py load FILE FOLDER FORMAT    make a store of a file; one line on standard output says what came of it
    program.py serve FOLDER               answer queries: a line of JSON for each line of JSON
"""

import io
import json
import os
import resource
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyoxigraph as ox

MEMORY_BYTES = 700_000_000
"""Limit of data: a file of a million triples takes 230 MB. Addresses are not limited: RocksDB reserves many."""
LOAD_CPU_S, SERVE_CPU_S = 1_800, 120
"""If Klaw is killed meanwhile, it ends by this."""
MAX_ANSWER_BYTES = 2_000_000
SLICE = 100_000
BASE = "http://file.invalid/"
"""What relative IRIs of a file are relative to."""


class _BoundedBuffer(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MAX_ANSWER_BYTES:
            raise OverflowError
        return super().write(data)


def load(file: str, folder: str, form: str) -> dict[str, Any]:
    """Make a store of all graphs of a file, and an index of the stems in labels. Returns counts, or what is wrong."""
    from klaw.knowledge.graph import matching
    from klaw.knowledge.graph.sparql import INDEX, LABELS, stem_iri
    from klaw.store.engine.tokenizer import words

    index, names = ox.NamedNode(INDEX), frozenset(map(ox.NamedNode, LABELS))
    count = {"triples": 0, "labels": 0}

    def quads() -> Iterator[ox.Quad]:
        for quad in ox.parse(path=file, format=getattr(ox.RdfFormat, form), base_iri=BASE):
            count["triples"] += 1
            yield ox.Quad(quad.subject, quad.predicate, quad.object)
            if quad.predicate in names and isinstance(quad.object, ox.Literal):
                count["labels"] += 1
                for stem in set(map(matching.form, words(quad.object.value[: matching.MAX_LABEL]))):
                    yield ox.Quad(quad.subject, ox.NamedNode(stem_iri(stem)), quad.object, index)

    try:
        store, left = ox.Store(folder), quads()
        while slice_ := list(islice(left, SLICE)):  # all at once would be held in memory
            store.bulk_extend(slice_)
        store.flush()
    except SyntaxError as error:
        return {"error": "unreadable", "line": error.lineno}
    except OSError as error:
        return {"error": "full" if "No space" in str(error) else "unreadable", "line": None}
    return count


def serve(folder: str) -> None:
    """Say that the store is open, then answer until standard input ends."""
    try:
        store = ox.Store.read_only(folder)
    except OSError:
        return
    _say(b'{"ready": true}')
    for line in sys.stdin.buffer:
        _say(_answer(store, json.loads(line)))


def _answer(store: ox.Store, query: str) -> bytes:
    try:
        kept = _BoundedBuffer()
        found: Any = store.query(query)
        found.serialize(kept, ox.QueryResultsFormat.JSON)
    except SyntaxError:
        return b'{"error": "bad_query"}'
    except OverflowError:
        return b'{"error": "too_large"}'
    except OSError:
        return b'{"error": "damaged"}'
    return kept.getvalue()


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def main(words: list[str]) -> None:
    cpu_s = LOAD_CPU_S if words[0] == "load" else SERVE_CPU_S
    for what, limit in ((resource.RLIMIT_DATA, MEMORY_BYTES), (resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (limit, limit))
    if words[0] == "load":
        os.nice(10)
        _say(json.dumps(load(*words[1:])).encode())
    else:
        serve(words[1])


if __name__ == "__main__":
    main(sys.argv[1:])
