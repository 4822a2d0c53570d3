"""Graphs in files: each is read once into a store on disk, which a child process answers from (see ``program``). A
store is made of its file, so it is made again when it is missing, damaged, or of another version of the file."""

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import structlog
import trio

from klaw import atomic_file
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.errors import GraphError
from klaw.knowledge.graph.lookup import MAX_ANSWER_BYTES, GraphSession
from klaw.knowledge.graph.sparql import Row, read_answer

FORMATS = {
    ".ttl": "TURTLE",
    ".nt": "N_TRIPLES",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
    ".json": "JSON_LD",
    ".nq": "N_QUADS",
    ".trig": "TRIG",
}
VERSION = 1
LOAD_S = 1_800.0
SESSIONS = 2
WAIT_S = 5.0
"""Longest wait for one of them."""
STOP_S = 5.0
"""Longest wait for a child that was killed."""
SMALL_BYTES, SMALL_S = 1_000_000, 30.0
"""A question waits so long while a file of up to this size is read."""
_PROGRAM = Path(__file__).with_name("program.py")
_NO_PROCESS = "the system cannot start another program now; ask again a little later"
_DAMAGED = b'{"error": "damaged"}'
_ERRORS = {
    "bad_query": "the query is not valid SPARQL",
    "too_large": "the answer is too long",
    "damaged": "the store of the graph is damaged",
}
_MADE = "klaw.json"
"""In the folder of a store: what it was made of. Written last."""

log = structlog.get_logger("klaw.knowledge")


@attrs.frozen(kw_only=True)
class GraphSize:
    triples: int
    labels: int


class FileGraphResources:
    """Threads, child processes and locks that all graphs in files share."""

    def __init__(self) -> None:
        self.threads = Threads("graph files", 2)
        self.loading = trio.CapacityLimiter(1)
        self.sessions = trio.CapacityLimiter(SESSIONS)
        self.locks: dict[Path, trio.Lock] = {}


@attrs.frozen
class FileGraph:
    files: FileGraphResources
    file: Path
    name: str
    """As it was uploaded; its suffix says the format."""
    stamp: str
    """Changes with the file's bytes."""

    @property
    def folder(self) -> Path:
        return self.file.with_name(f"{self.file.name}.graph")

    async def load(self) -> GraphSize:
        """Make the store unless it is there. Raises GraphError: the file cannot be read; the text says where."""
        async with self.files.locks.setdefault(self.folder, trio.Lock()):
            made = await self.files.threads.run(_made, self.folder)
            if made.get("stamp") != [VERSION, self.stamp]:
                made = await self._make()
            return GraphSize(triples=made["triples"], labels=made["labels"])

    @asynccontextmanager
    async def session(self) -> AsyncIterator[GraphSession]:
        await self.prepare()
        with trio.move_on_after(WAIT_S) as waiting:
            await self.files.sessions.acquire()
        if waiting.cancelled_caught:
            raise GraphError("crowded", "too many graphs are asked at the same time; ask again a little later")
        session = _FileSession(self)
        try:
            yield session
        finally:
            with trio.move_on_after(STOP_S, shield=True):
                await session.stop()
            self.files.sessions.release()

    async def prepare(self) -> None:
        """Make the store if that takes seconds only. Raises GraphError, also ``loading``: it takes longer."""
        made = await self.files.threads.run(_made, self.folder)
        if made.get("stamp") == [VERSION, self.stamp]:
            return
        if await self.files.threads.run(self._size) > SMALL_BYTES:
            raise GraphError("loading", "its file has not been read yet; ask again later")
        with trio.move_on_after(SMALL_S) as limited:
            await self.load()
        if limited.cancelled_caught:
            raise GraphError("timeout", f"its file was not read within {SMALL_S:g} s")

    async def remove(self) -> None:
        async with self.files.locks.setdefault(self.folder, trio.Lock()):
            await self.files.threads.run(_remove, self.folder)
        self.files.locks.pop(self.folder, None)

    def _size(self) -> int:
        try:
            return self.file.stat().st_size
        except OSError:
            raise GraphError("unreadable", "its file no longer exists") from None

    async def _make(self) -> dict[str, Any]:
        form = FORMATS.get(Path(self.name).suffix.lower())
        if form is None:
            raise GraphError("unreadable", f"the file's name must end with one of {', '.join(FORMATS)}")
        beside = self.folder.with_suffix(".graph-new")
        async with self.files.loading:
            await self.files.threads.run(self._size)
            try:
                await self.files.threads.run(_clear, beside)
                made = _loaded(await _run(_command("load", str(self.file), str(beside), form), LOAD_S), form)
                made["stamp"] = [VERSION, self.stamp]
                await self.files.threads.run(_put, beside, self.folder, made)
            except OSError as error:
                log.warning("graph_not_loaded", error=error_class(error))
                raise GraphError("full", "there is no space for the graph, or its folder cannot be written") from None
        log.info("graph_loaded", name=self.file.name, count=made["triples"])
        return made


class _FileSession:
    """A ``GraphSession`` over files. A query that takes too long, or ends the child, costs only the child."""

    indexed = True

    def __init__(self, graph: FileGraph) -> None:
        self._graph = graph
        self._process: trio.Process | None = None

    async def ask(self, sparql: str, most: int) -> list[Row]:
        answer = await self._ask(sparql)
        if answer.startswith(_DAMAGED):
            await self.stop()
            await self._graph.remove()
            await self._graph.prepare()
            answer = await self._ask(sparql)
        return await self._graph.files.threads.run(_read_line, answer, most)

    async def _ask(self, sparql: str) -> bytes:
        try:
            if self._process is None:
                self._process = await trio.lowlevel.open_process(
                    _command("serve", str(self._graph.folder)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={},
                )
                if not await self._line(self._process):  # it says when the store is open
                    return _DAMAGED
            assert self._process.stdin is not None
            await self._process.stdin.send_all(json.dumps(sparql).encode() + b"\n")
            line = await self._line(self._process)
        except trio.BrokenResourceError:
            await self.stop()
            return _DAMAGED
        except OSError:
            raise GraphError("crowded", _NO_PROCESS) from None
        except BaseException:
            with trio.move_on_after(STOP_S, shield=True):
                await self.stop()
            raise
        if not line:
            raise GraphError("too_large", "the query needs more memory or time than it may have")
        return line

    async def _line(self, process: trio.Process) -> bytes:
        assert process.stdout is not None
        line = bytearray()
        while not line.endswith(b"\n"):
            part = await process.stdout.receive_some(65_536)
            line += part
            if not part or len(line) > 2 * MAX_ANSWER_BYTES:
                await self.stop()
                return b""
        return bytes(line)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                await stream.aclose()


def _read_line(line: bytes, most: int) -> list[Row]:
    if line.startswith(b'{"error"'):
        code = str(json.loads(line)["error"])
        raise GraphError(code, _ERRORS[code])
    return read_answer(line, most)


def _loaded(line: bytes | None, form: str) -> dict[str, Any]:
    if line is None:
        raise GraphError("too_large", "the file is too large or too complicated to be read")
    made: dict[str, Any] = json.loads(line)
    if made.get("error") == "full":
        raise GraphError("full", "there is no space for the graph")
    if "error" in made:
        where = f" at line {made['line']}" if made.get("line") else ""
        raise GraphError("unreadable", f"this is not valid {form.replace('_', '-')}{where}")
    return made


def _command(*words: str) -> Sequence[str]:
    return [sys.executable, "-P", str(_PROGRAM), *words]


async def _run(words: Sequence[str], within_s: float) -> bytes | None:
    """What a program prints; None when it is not done in time, or is ended by its limits. Raises GraphError."""
    options: dict[str, Any] = {"capture_stdout": True, "stderr": subprocess.DEVNULL, "env": {}, "check": False}
    with trio.move_on_after(within_s):
        try:
            done = await trio.run_process(words, deliver_cancel=_kill, **options)
        except OSError:
            raise GraphError("crowded", _NO_PROCESS) from None
        return bytes(done.stdout) if done.returncode == 0 else None
    return None


async def _kill(process: trio.Process) -> None:
    process.kill()


def _made(folder: Path) -> dict[str, Any]:
    try:
        made = json.loads((folder / _MADE).read_bytes())
    except (OSError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}


def _clear(folder: Path) -> None:
    _remove(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)


def _put(new: Path, folder: Path, made: Mapping[str, Any]) -> None:
    atomic_file.create(new / _MADE, json.dumps(made).encode())
    _remove(folder)
    new.replace(folder)


def _remove(folder: Path) -> None:
    """Rename first: what is half deleted must not look like a store."""
    gone = folder.with_name(f"{folder.name}-old")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.replace(gone)
        shutil.rmtree(gone, ignore_errors=True)
