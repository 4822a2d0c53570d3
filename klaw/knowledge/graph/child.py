"""How ``program`` is run, and what its answers say."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from klaw.errors import GraphError
from klaw.knowledge.graph.terms import Answer, read_answer

NO_PROCESS = "the system starts no more programs now; ask again a little later"
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


async def run(words: Sequence[str], given: bytes, within_s: float) -> bytes | None:
    """What a program answers; None when it is not done in time, or is ended by its limits.

    Raises:
        GraphError: it could not be started.

    Cancellation: it is killed.
    """
    done = None
    with trio.move_on_after(within_s):
        try:
            done = await trio.run_process(
                words,
                stdin=given,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                env={},
                check=False,
                deliver_cancel=_kill,
            )
        except OSError:
            raise GraphError("crowded", NO_PROCESS) from None
    return bytes(done.stdout) if done is not None and done.returncode == 0 else None


async def _kill(process: trio.Process) -> None:
    process.kill()
