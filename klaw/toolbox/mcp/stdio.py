"""An MCP server as a child process that speaks over its stdin and stdout. Needs the SDK: imported when one connects.

The SDK has such a transport, too, but it keeps lines of any length, and lets children of a server that ended live on.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import attrs
import structlog
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from klaw.errors import McpError
from klaw.llm.providers.refusals import shown
from klaw.toolbox.exec.process import signal_group
from klaw.toolbox.mcp.guard import MAX_MESSAGE_BYTES, Link, Reads, Writes

EDGE_BYTES = 256
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,15})'
_AT_BEGIN = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_AT_END = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")


@attrs.frozen
class TooLong:
    """A line over the limit; ``answers`` is the id of the request that it answers, if that can be told."""

    answers: int | None


class BoundedLines:
    """Cuts a stream of bytes into lines; ``limit`` is the longest, without its end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._skipped = 0
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """Take the next bytes; yield the lines that they complete."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if not self._skipped and len(self._kept) + len(piece) <= self._limit:
            self._kept += piece
            return
        if not self._skipped:
            self._tail = bytes(self._kept[-EDGE_BYTES:])
            self._kept += piece[: max(0, EDGE_BYTES - len(self._kept))]
            del self._kept[EDGE_BYTES:]
            self._skipped = 1
        self._tail = (self._tail + piece)[-EDGE_BYTES:]

    def _take(self) -> bytes | TooLong:
        line: bytes | TooLong = TooLong(self._answers()) if self._skipped else bytes(self._kept)
        self._kept, self._skipped, self._tail = bytearray(), 0, b""
        return line

    def _answers(self) -> int | None:
        found = _AT_BEGIN.match(bytes(self._kept)) or _AT_END.search(self._tail)
        return int(found[1]) if found else None


END_S = 2.0
"""For a server to end by itself after its stdin closed."""
TERM_S = 1.0
"""The same after SIGTERM."""
REAP_S = 2.0
STOP_S = END_S + TERM_S + REAP_S
CHUNK_BYTES = 65_536
TAIL_BYTES = 2_048
"""The end of standard error that is kept."""
LAST_WORDS_S = 0.5
SECRET_CHARS = 6
"""A shorter value of the environment is no secret: masking it would mask common words."""
MAX_GARBAGE = 200
"""Lines in a row that are no messages. A few are usual: servers print a greeting where they must not."""

ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""What a server inherits; Klaw's own environment may hold keys."""

log = structlog.get_logger("klaw.mcp")


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
    """Run the server for the body; in the end it and all that it started are gone.

    Args:
        name: for the log.
        said: gets the last line of its standard error when it has ended.

    Raises:
        McpError: it cannot be started.

    Cancellation: waits up to ``STOP_S`` for the process to end.
    """
    process = await _start(program)
    log.info("mcp_process_started", name=name, pid=process.pid)
    to_session, reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writes, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    last_words = _LastWords(process, program.environment.values(), said)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(last_words.listen)
        nursery.start_soon(_read, process, to_session, link, last_words)
        nursery.start_soon(_write, process, from_session, link, last_words)
        try:
            yield reads, writes
        finally:
            link.close()
            # Closed first, so that the reader goes on to empty the pipe: a server that writes could not end.
            reads.close()
            writes.close()
            with trio.move_on_after(STOP_S, shield=True):
                code = await _stop(process)
                log.info("mcp_process_ended", name=name, pid=process.pid, exit_code=code)
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


class _LastWords:
    """The last line that a program writes to standard error, without its ``secrets``."""

    def __init__(self, process: trio.Process, secrets: Iterable[str], said: list[str]) -> None:
        self._process = process
        self._secrets = [secret for secret in secrets if len(secret) >= SECRET_CHARS]
        self._said = said
        self._tail = b""
        self._over = trio.Event()

    async def listen(self) -> None:
        assert self._process.stderr is not None
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._process.stderr.receive_some(CHUNK_BYTES):
                self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._over.set()

    async def end(self) -> str:
        """How the process ended; ``said`` is filled then."""
        reason = await _describe_end(self._process)
        with trio.move_on_after(LAST_WORDS_S):  # what it started may hold the pipe
            await self._over.wait()
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        told = [line for line in lines if line and not line.startswith("Node.js v")]
        self._said += [shown(line, self._secrets) for line in told[-1:]]
        return reason


async def _read(
    process: trio.Process, sends: MemoryObjectSendStream[SessionMessage | Exception], link: Link, last_words: _LastWords
) -> None:
    """Pass on the server's messages until its stdout ends, or the session does; then read on for nobody."""
    assert process.stdout is not None
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        with sends, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await _pass_on(process.stdout, sends, link)
            link.end(await last_words.end())
        while await process.stdout.receive_some(CHUNK_BYTES):
            pass


async def _pass_on(
    stdout: trio.abc.ReceiveStream, sends: MemoryObjectSendStream[SessionMessage | Exception], link: Link
) -> None:
    lines, garbage = BoundedLines(MAX_MESSAGE_BYTES), 0
    while data := await stdout.receive_some(CHUNK_BYTES):
        for line in lines.feed(bytes(data)):
            message = _message(line)
            if message is None:
                garbage += bool(line)
                if isinstance(line, TooLong) or garbage > MAX_GARBAGE:
                    too_long = isinstance(line, TooLong)
                    link.end("it sent a message that is too long" if too_long else "its output is not MCP")
                    return
            else:
                garbage = 0
                await sends.send(message)


def _message(line: bytes | TooLong) -> SessionMessage | None:
    """The message in a line; for one that is too long an error in its place. None when there is no telling."""
    if isinstance(line, TooLong):
        if line.answers is None:
            return None
        text = f"the answer is longer than {MAX_MESSAGE_BYTES // 1024 // 1024} MB and was not read"
        error = ErrorData(code=INTERNAL_ERROR, message=text)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.answers, error=error))
    with suppress(ValueError):  # what is long is an answer: to try all kinds of messages takes seven times as long
        return SessionMessage(JSONRPCResponse.model_validate_json(line, by_name=False))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return _broken_answer(line)


def _broken_answer(line: bytes) -> SessionMessage | None:
    """An error in place of what must be an answer and is none: its call shall not wait for its deadline."""
    if b'"id"' not in line:
        return None
    with suppress(ValueError, RecursionError):
        value = json.loads(line)
        if isinstance(value, dict) and type(value.get("id")) is int and "method" not in value:
            error = ErrorData(code=INTERNAL_ERROR, message="the answer is not JSON-RPC")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=value["id"], error=error))
    return None


async def _write(
    process: trio.Process, receives: MemoryObjectReceiveStream[SessionMessage], link: Link, last_words: _LastWords
) -> None:
    assert process.stdin is not None
    with receives, suppress(anyio.ClosedResourceError):
        async for item in receives:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await process.stdin.send_all(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                link.end(await last_words.end())
                return


async def _describe_end(process: trio.Process) -> str:
    """How the process ended; it has a moment to do so after its pipe closed."""
    await _wait_exited(process.pid, 0.5)
    # WNOHANG: it does not block.
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222
    if ended is None:
        return "it closed its pipe"
    if ended.si_code == os.CLD_EXITED:
        return f"its process ended with code {ended.si_status}"
    return f"its process was ended by signal {ended.si_status}"


async def _stop(process: trio.Process) -> int | None:
    """End the process and its group. It is reaped last: until then nothing else can have its number."""
    assert process.stdin is not None
    with trio.move_on_after(0.1):  # closing flushes nothing; the deadline is for a task that writes just now
        await process.stdin.aclose()
    if not await _wait_exited(process.pid, END_S):
        signal_group(process.pid, signal.SIGTERM)
        await _wait_exited(process.pid, TERM_S)
    signal_group(process.pid, signal.SIGKILL)
    return await process.wait()


async def _wait_exited(pid: int, seconds: float) -> bool:
    """Whether the process ended in that time. It is not reaped."""
    pidfd = os.pidfd_open(pid)
    try:
        with trio.move_on_after(seconds) as waiting:
            await trio.lowlevel.wait_readable(pidfd)
    finally:
        trio.lowlevel.notify_closing(pidfd)
        os.close(pidfd)
    return not waiting.cancelled_caught
