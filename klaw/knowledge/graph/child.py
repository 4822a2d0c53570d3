"""How ``program`` is run, and what its answers say."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from klaw.errors import GraphError
from klaw.knowledge.graph.terms import Answer, read_answer

_PROGRAM = Path(__file__).with_name("program.py")

_ERRORS = {
    "bad_query": "the query is no valid SPARQL",
    "too_large": "the answer is too long",
    "damaged": "the store of the graph is damaged",
    "malformed": "the answer is no RDF",
}


def read_line(line: bytes, most: int) -> Answer:
    """An answer of the child. Raises GraphError."""
    if line.startswith(b'{"error"'):
        code = str(json.loads(line)["error"])
        raise GraphError(code, _ERRORS[code])
    return read_answer(line, most)


def command(*words: str) -> Sequence[str]:
    """The child's command line."""
    return [sys.executable, "-P", str(_PROGRAM), *words]


async def kill(process: trio.Process) -> None:
    """For ``deliver_cancel``."""
    process.kill()
