"""Reads a document in a child process (``child``): its blocks as they come, and at last what it is and what is wrong. A
document can be made so that reading it takes hours or gigabytes, or crashes the library; a process can be limited and
ended. Nothing that is wrong with a document raises here: the report names it, by file and page."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from typing import Annotated, Self

import attrs
import structlog
import trio

from klaw.convert import FRAMES, OMIT
from klaw.domain.knowledge import Block, DocumentProblem
from klaw.domain.text import printable
from klaw.errors import BadValue
from klaw.toolbox.program import signal_group

CHUNK_BYTES = 64 * 1024
MAX_LINE_BYTES = 1_000_000
"""Longest line of the child; that of a block has a fifth of it."""
MAX_PROBLEMS = 100
MAX_RESTARTS = 5
"""Pages of one document that may each end the child."""
STOP_S = 5.0
MAX_SCANNED_S = 4 * 3600.0
"""Beyond the time that a document has, for pages that are pictures."""
LEAST_S, S_FOR_MB = 120.0, 30.0
LEAST_CHARS, CHARS_FOR_BYTE = 2_000_000, 20
"""A sheet is packed to a tenth, and says the names of its columns in each row."""

log = structlog.get_logger("klaw.knowledge")
_CRASHED = "crashed the program that reads it"


@attrs.frozen(kw_only=True)
class ReadingLimits:
    file_bytes: int = 256 * 1024 * 1024
    text_chars: int = 100_000_000
    pages: int = 50_000
    blocks: int = 2_000_000
    seconds: float = 1_800.0
    """How long the child may take in all."""
    page_s: float = 60.0
    """How long the child may take for a page of a PDF."""
    parsing_s: float = 180.0
    """The same for other documents, most of which libraries take in as a whole."""
    memory_bytes: int = 512 * 1024 * 1024
    unpacked_bytes: int = 512 * 1024 * 1024

    def of(self, size: int) -> Self:
        """For a document of so many bytes: a small one takes little time and has little text."""
        more_s = S_FOR_MB * size / 1_000_000
        return attrs.evolve(
            self,
            seconds=min(self.seconds, LEAST_S + more_s),
            parsing_s=min(self.parsing_s, (LEAST_S + more_s) / 2),
            text_chars=min(self.text_chars, LEAST_CHARS + CHARS_FOR_BYTE * size),
        )


@attrs.frozen(kw_only=True)
class ReaderEnd:
    language: str
    pages: int
    failed: Annotated[DocumentProblem | None, OMIT] = None


@attrs.frozen(kw_only=True)
class ReaderLine:
    """A line of the child (``output``) has one of these. A problem's text does not name the document."""

    format: Annotated[str | None, OMIT] = None
    title: Annotated[str | None, OMIT] = None
    look: Annotated[int | None, OMIT] = None
    page: Annotated[int | None, OMIT] = None
    block: Annotated[Block | None, OMIT] = None
    problem: Annotated[DocumentProblem | None, OMIT] = None
    waited: Annotated[float | None, OMIT] = None
    """Seconds that a page took to be read as a picture."""
    end: Annotated[ReaderEnd | None, OMIT] = None


@attrs.frozen(kw_only=True)
class ReadingReport:
    format: str = ""
    """A key of ``child.READERS``; empty: it was not found out."""
    title: str = ""
    language: str = ""
    pages: int = 0
    """Slides and sheets are pages, too; 0 for a format without any."""
    problems: tuple[DocumentProblem, ...] = ()
    failed: bool = False
    """It counts as not read, whatever blocks there were; the last problem says why."""


class ReadingProblems:
    def __init__(self, name: str) -> None:
        self._name = printable(name)
        self._found: list[tuple[DocumentProblem, int | None]] = []
        """With the last page of a row of pages that have the same problem."""

    def add(self, problem: DocumentProblem) -> None:
        if any(known == problem for known, _ in self._found):
            return
        if self._found:
            last, through = self._found[-1]
            end = through or last.page
            if end is not None and problem == attrs.evolve(last, page=end + 1):
                self._found[-1] = last, problem.page
                return
        if len(self._found) < MAX_PROBLEMS:
            self._found.append((problem, None))

    def end_with(self, problem: DocumentProblem) -> None:
        self._found.append((problem, None))

    def worded(self) -> tuple[DocumentProblem, ...]:
        """For people: with the document's name and the pages."""
        return tuple(self._worded(problem, through) for problem, through in self._found)

    def _worded(self, problem: DocumentProblem, through: int | None) -> DocumentProblem:
        where = self._name
        if problem.page is not None:
            where += f", page {problem.page}" if through is None else f", pages {problem.page} to {through}"
        return attrs.evolve(problem, text=f"{where}: {problem.text}")


class DocumentReading:
    """A document while it is read: an asynchronous context manager and iterator of blocks; after the last one
    ``report`` is final.

    Args:
        file: descriptor of a regular file, which stays open.
        name: for messages, and to tell the format by.
    """

    def __init__(self, file: int, *, name: str, limits: ReadingLimits | None = None) -> None:
        self.report = ReadingReport()
        self._file = file
        self._name = name
        self._limits = limits or ReadingLimits()
        self._process: trio.Process | None = None
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._waited_s = 0.0
        self._scanned_s = 0.0
        self._page = 1
        self._touched: int | None = None
        """Page that the child has in hand."""
        self._skipped: list[int] = []
        self._restarts = 0
        self._of_page = 0
        """Blocks of this page that were given out."""
        self._again = 0
        """Blocks of this page that come once more, from another child."""
        self._blocks = 0
        self._chars = 0
        self._problems = ReadingProblems(name)
        self._over = False

    async def __aenter__(self) -> Self:
        size, most = os.fstat(self._file).st_size, self._limits.file_bytes
        if size > most:
            self._fail("too_large", f"has {size >> 20:,} MB; {most >> 20:,} MB are the limit for one document")
            return self
        try:
            await self._start()
        except BaseException:
            with trio.move_on_after(STOP_S, shield=True):
                await self._kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.move_on_after(STOP_S, shield=True):
            await self._kill()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Block:
        while not self._over:
            line = self._lines.popleft() if self._lines else await self._receive()
            if line is None:
                continue
            try:
                message = FRAMES.read(json.loads(line), ReaderLine)
            except (BadValue, ValueError, RecursionError):
                self._fail("broken", _CRASHED)
                continue
            await trio.lowlevel.checkpoint()  # what is done with a block takes its time; others have to get theirs
            if message.block is not None and self._again:
                self._again -= 1
            elif message.block is not None:
                self._count(message.block)
                if not self._over:
                    return message.block
            else:
                self._take(message)
        await self._kill()
        raise StopAsyncIteration

    # -- inside ----------------------------------------------------------------------------------------------------

    def _take(self, message: ReaderLine) -> None:
        if message.format is not None:
            self.report = attrs.evolve(self.report, format=message.format)
        if message.title is not None:
            self.report = attrs.evolve(self.report, title=message.title)
        if message.look is not None:
            self._touched = message.look
        if message.page is not None:
            if message.page != self._page:
                self._of_page = self._again = 0
            self._page = self._touched = message.page
        if message.waited is not None:
            self._scanned_s = min(self._scanned_s + message.waited, MAX_SCANNED_S)
        if message.problem is not None:
            self._problems.add(message.problem)
        if message.end is not None:
            end = message.end
            self.report = attrs.evolve(self.report, language=end.language, pages=end.pages)
            if end.failed is not None:
                self._fail(end.failed.code, end.failed.text)
            elif not self._blocks:
                self._fail("no_text", "has no readable text")
            else:
                self._finish(failed=False)

    def _count(self, block: Block) -> None:
        self._blocks += 1
        self._of_page += 1
        self._chars += len(block.text)
        limits = self._limits
        if self._chars > limits.text_chars:
            self._fail("too_much_text", f"has more than {limits.text_chars // 1_000_000} million characters")
        elif self._blocks > limits.blocks:
            self._fail("too_much_text", f"has more than {limits.blocks:,} parts")

    async def _receive(self) -> bytes | None:
        """The child's next line; None when something else happened."""
        assert self._process is not None
        assert self._process.stdout is not None
        begun = trio.current_time()
        left_s = self._limits.seconds + self._scanned_s - self._waited_s
        silent_s = self._limits.page_s if self.report.format == "pdf" else self._limits.parsing_s
        data = None
        with trio.move_on_after(min(left_s, silent_s)):
            data = await self._process.stdout.receive_some(CHUNK_BYTES)
        self._waited_s += trio.current_time() - begun
        if data is None:
            if self._waited_s >= self._limits.seconds + self._scanned_s:
                self._fail("too_slow", f"takes longer than {self._limits.seconds:.0f} s to be read")
            else:
                await self._stuck("too_slow", f"takes longer than {silent_s:.0f} s")
            return None
        if not data:
            await self._ended()
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._rest) > MAX_LINE_BYTES:
            self._fail("broken", _CRASHED)
        return None

    async def _ended(self) -> None:
        assert self._process is not None
        code: int | None = None
        with trio.move_on_after(STOP_S):
            code = await self._process.wait()
        name = signal.Signals(-code).name if code is not None and code < 0 else ""
        if name == "SIGXCPU":
            self._fail("too_slow", "takes too much time")
            return
        await self._stuck("crashed", _CRASHED + (f" ({name})" if name else ""), guilty=name != "SIGKILL")

    async def _stuck(self, code: str, text: str, *, guilty: bool = True) -> None:
        """The child is gone, or does nothing: another one goes on. It leaves out the page, unless that is not
        ``guilty``: somebody, or a lack of memory in the system, ended the child."""
        if self.report.format != "pdf" or self._touched is None or self._restarts >= MAX_RESTARTS:
            self._fail(code, text)
            return
        log.warning("document_reader_restarts", page=self._touched, reason=code)
        self._restarts += 1
        self._again = self._of_page
        if guilty:
            self._problems.add(DocumentProblem(code=code, text=text, page=self._touched))
            self._skipped.append(self._touched)
            self._again = 0
        await self._kill()
        self._lines.clear()
        self._rest = b""
        self._touched = None
        await self._start()

    def _fail(self, code: str, text: str) -> None:
        self._problems.end_with(DocumentProblem(code=code, text=text))
        self._finish(failed=True)

    def _finish(self, *, failed: bool) -> None:
        self._over = True
        self.report = attrs.evolve(self.report, problems=self._problems.worded(), failed=failed)

    async def _start(self) -> None:
        limits = self._limits
        request = {
            "file": self._file,
            "name": self._name,
            "first_page": self._page,
            "skipped": self._skipped,
            "pages": limits.pages,
            "unpacked_bytes": limits.unpacked_bytes,
            "memory_bytes": limits.memory_bytes,
            "cpu_s": int(limits.seconds) + 1,
        }
        self._process = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-B", "-m", "klaw.knowledge.reading.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            pass_fds=(self._file,),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        try:
            with trio.move_on_after(limits.page_s):
                await self._process.stdin.send_all(json.dumps(request).encode() + b"\n")
        except trio.BrokenResourceError:
            return  # it is gone; that is noticed when it says nothing

    async def _kill(self) -> None:
        process = self._process
        if process is None:
            return
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            await pipe.aclose()
        self._process = None
