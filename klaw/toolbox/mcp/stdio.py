"""An MCP server as a child process that speaks over its stdin and stdout. Needs the SDK: imported when one connects.

The SDK has such a transport, too, but it keeps lines of any length, and lets children of a server that ended live on.
"""

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs
import structlog
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from klaw.errors import McpError
from klaw.llm.providers.refusals import shown
from klaw.toolbox.mcp.guard import MAX_MESSAGE_BYTES, Link, Reads, Writes
from klaw.toolbox.program import end_group

EDGE_BYTES = 256
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,15})'
_AT_BEGIN = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_AT_END = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")


@attrs.frozen
class TooLong:
    """A line over the limit; ``answers`` is the id of the request that it answers, if its beginning or end tells."""

    answers: int | None


class BoundedLines:
    """Cuts a stream of bytes into lines; ``limit`` is the longest, without its end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._tail = b""
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """Take the next bytes; yield the lines that they complete."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            if self._too_long:
                found = _AT_BEGIN.match(self._kept) or _AT_END.search(self._tail)
                yield TooLong(int(found[1]) if found else None)
            else:
                yield bytes(self._kept)
            self._kept, self._tail, self._too_long = bytearray(), b"", False
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._tail = (self._tail + piece[-EDGE_BYTES:])[-EDGE_BYTES:]
        self._too_long = self._too_long or len(self._kept) + len(piece) > self._limit
        if self._too_long:
            self._kept = self._kept[:EDGE_BYTES] + piece[: max(0, EDGE_BYTES - len(self._kept))]
        else:
            self._kept += piece


END_S = 2.0
"""How long a server may take to end by itself after its stdin closed."""
TERM_S = 1.0
STOP_S = END_S + TERM_S + 2.0
EXIT_S = 0.5
CHUNK_BYTES = 65_536
TAIL_BYTES = 2_048
LAST_WORDS_S = 0.5
SECRET_CHARS = 6
"""A shorter value of the environment is no secret: masking it would mask common words."""
MAX_GARBAGE = 200
"""Lines in a row that are no messages. A few are usual: servers print a greeting where they must not."""

ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""What a server inherits; Klaw's own environment may hold keys."""

log = structlog.get_logger("klaw.mcp")

_Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]


@attrs.frozen(kw_only=True)
class Program:
    """What to start. ``environment`` is added to ``ENVIRONMENT``."""

    command: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    folder: Path | None = None


@asynccontextmanager
async def child_process(
    program: Program, link: Link, name: str, said: list[str]
) -> AsyncIterator[tuple[Reads, Writes]]:
    """Run the server for the body; in the end it and all that it started are gone, which takes up to ``STOP_S``, also
    when cancelled. ``said`` gets the last line of its standard error. Raises McpError: it cannot be started."""
    child = _Child(await _start(program), program, link, said)
    log.info("mcp_process_started", name=name, pid=child.process.pid)
    to_session, reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writes, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.listen)
        nursery.start_soon(child.read, to_session)
        nursery.start_soon(child.write, from_session)
        try:
            yield reads, writes
        finally:
            link.close()
            # Closed first, so that the reader goes on to empty the pipe: a server that writes could not end.
            reads.close()
            writes.close()
            with trio.move_on_after(STOP_S, shield=True):
                await child.stop()
                log.info("mcp_process_ended", name=name, pid=child.process.pid, exit_code=child.process.returncode)
            nursery.cancel_scope.cancel(reason="the server's process has ended")


async def _start(program: Program) -> trio.Process:
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        return await trio.lowlevel.open_process(
            [program.command, *program.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, **program.environment},
            cwd=program.folder,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise McpError(f"its command cannot be started ({why})") from error


class _Child:
    def __init__(self, process: trio.Process, program: Program, link: Link, said: list[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._secrets = [secret for secret in program.environment.values() if len(secret) >= SECRET_CHARS]
        self._link = link
        self._said = said
        self._tail = b""
        self._silent = trio.Event()

    async def listen(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stderr.receive_some(CHUNK_BYTES):
                self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._silent.set()

    async def read(self, sends: _Incoming) -> None:
        """Pass on the server's messages until its stdout ends, or the session does; then read on for nobody."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            with sends, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._pass_on(sends)
                await self._ended()
            while await self._stdout.receive_some(CHUNK_BYTES):
                pass

    async def write(self, receives: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with receives, suppress(anyio.ClosedResourceError):
            async for item in receives:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                try:
                    await self._stdin.send_all(line)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._ended()
                    return

    async def stop(self) -> None:
        with trio.move_on_after(0.1):  # closing flushes nothing; the deadline is for a task that writes just now
            await self._stdin.aclose()
        with trio.move_on_after(END_S):
            await self.process.wait()
        await end_group(self.process, TERM_S)

    async def _pass_on(self, sends: _Incoming) -> None:
        lines, garbage = BoundedLines(MAX_MESSAGE_BYTES), 0
        while data := await self._stdout.receive_some(CHUNK_BYTES):
            for line in lines.feed(bytes(data)):
                message = _message(line)
                if message is not None:
                    garbage = 0
                    await sends.send(message)
                    continue
                garbage += bool(line)
                if isinstance(line, TooLong) or garbage > MAX_GARBAGE:
                    too_long = isinstance(line, TooLong)
                    self._link.end("it sent a message that is too long" if too_long else "its output is not MCP")
                    return

    async def _ended(self) -> None:
        """Say how the process ended, with its last words, which are masked."""
        with trio.move_on_after(EXIT_S):
            await self.process.wait()
        code, how = self.process.returncode, "it closed its pipe"
        if code is not None:
            how = f"its process ended with code {code}" if code >= 0 else f"its process was ended by signal {-code}"
        with trio.move_on_after(LAST_WORDS_S):  # what it started may hold the pipe
            await self._silent.wait()
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        told = [line for line in lines if line and not line.startswith("Node.js v")]
        self._said += [shown(line, self._secrets) for line in told[-1:]]
        self._link.end(how)


def _message(line: bytes | TooLong) -> SessionMessage | None:
    """The message in a line, or an error in place of an answer that cannot be read, so that its call need not wait."""
    if isinstance(line, TooLong):
        return _broken(line.answers, f"is longer than {MAX_MESSAGE_BYTES // 1024 // 1024} MB and was not read")
    with suppress(ValueError):  # what is long is an answer: to try all kinds of messages takes seven times as long
        return SessionMessage(JSONRPCResponse.model_validate_json(line, by_name=False))
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    with suppress(ValueError, RecursionError):
        value = json.loads(line)
        if isinstance(value, dict) and "method" not in value:
            return _broken(value.get("id"), "is not JSON-RPC")
    return None


def _broken(answers: object, why: str) -> SessionMessage | None:
    if type(answers) is not int:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=f"the answer {why}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answers, error=error))
