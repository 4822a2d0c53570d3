"""The process that reads one document. It may be attacked by what it reads, so it has little: an empty environment, the
document as an open file, and limits of memory, CPU, files and processes.

The request is the first line of standard input, the answer goes to standard output (``output``). It dies with its
parent: the system sends SIGIO, which ends a process, when the other end of its standard input is closed.
"""

import json
import os
import sys
from typing import Any, BinaryIO

from klaw.actor.process import die_with_parent, limit
from klaw.knowledge.reading.output import Output, UnreadableError

NICE = 10
"""Reading is never in a hurry; turns are."""


def read(file: BinaryIO, request: dict[str, Any], output: Output) -> None:
    """Find out what a file is, and read it. Raises UnreadableError, and whatever the libraries raise."""
    from klaw.knowledge.reading import sniff

    found, renamed = sniff.find(file, request["name"])
    output.format(found)
    if renamed:
        output.problem("renamed", f"is {found.upper()} by its content, and was read as that")
    file.seek(0)
    sniff.reader(found)(file, output, request)


def main() -> None:
    """Read one document; see the module."""
    request = json.loads(sys.stdin.buffer.readline())
    limit(request["memory_bytes"], request["cpu_s"], nice=NICE)
    die_with_parent()
    output = Output(os.fdopen(os.dup(1), "wb", buffering=65_536))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # a library that prints must not be taken for us
    failed = None
    try:
        with os.fdopen(request["file"], "rb") as file:
            read(file, request, output)
    except UnreadableError as error:
        failed = error
    except MemoryError:
        failed = UnreadableError("too_much_memory", "needs more memory than a document may have")
    except RecursionError:
        failed = UnreadableError("too_deep", "is nested too deeply")
    except Exception as error:  # noqa: BLE001 - of a broken document anything may be raised; its text may quote it
        failed = UnreadableError("broken", f"is damaged, or not what its name says ({type(error).__name__})")
    output.end(failed)


if __name__ == "__main__":
    main()
