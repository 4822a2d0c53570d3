"""Actor ``memory.files``: keeps the pieces of each user's MEMORY.md and memory/*.md in the index.

It looks at the files every ``SCAN_S`` and when it is nudged. A look costs a stat of each file. The files are their own
source: nothing of them is in the logs; a new database gets them by the next look. No link is followed, so that none
leads into another user's workspace.

A file is cut into pieces of about 400 tokens each, with the headings above them: its lines become blocks (paragraph,
list, table, fenced code), and a piece is as many blocks of one section as fit. A block that is too long by itself is
cut between list items, paragraphs' sentences or lines of code, a fence being closed and opened again.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import islice
from pathlib import Path

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.config.safe_open import NotPlain
from klaw.domain import tokens
from klaw.domain.names import UserId
from klaw.domain.prompt_files import MEMORY_FILE as TOP
from klaw.domain.prompt_files import MEMORY_FOLDER as FOLDER
from klaw.domain.text import has_forbidden
from klaw.errors import StorageError
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import memory_files
from klaw.store.kinds.memory_files import FileChunk, MemoryFile

ACTOR_NAME = "memory.files"
SCAN_S = 20.0
MAX_BYTES = 1024 * 1024
MAX_LOOKED_AT = 20_000
"""Names in a user's folder; a program can make any number."""
MAX_FILES = 2_000
"""Files of one user; the newest names are taken (they begin with dates)."""

log = structlog.get_logger("klaw.memory")


class MemoryFiles(Nudge):
    """The actor and its handle; a nudge: files may have changed. ``embed`` is called when there are new pieces."""

    def __init__(self, workspace: Path, writer: Writer, readers: Readers, embed: Callable[[], None]) -> None:
        super().__init__()
        self._workspace, self._writer, self._readers, self._embed = workspace, writer, readers, embed

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=2)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        threads = Threads("memory files", 1)
        task_status.started()
        while True:
            vitals.doing("looking at memory files")
            try:
                if await self.look(threads):
                    self._embed()
            except StorageError as error:
                log.warning("memory_files_not_indexed", error=error_class(error))
            vitals.doing("idle")
            await self.wait_for_news(SCAN_S)

    async def look(self, threads: Threads) -> int:
        """Bring the index up to the files. Returns how many files had changed. Raises StorageError."""
        known = {(each.user, each.path): each for each in await self._readers.run(memory_files.files)}
        users = await self._readers.run(memory_files.users)
        found = {(each.user, each.path): each for each in await threads.run(find, self._workspace, users, abandon=True)}
        changed = 0
        for key, file in found.items():
            if key in known and known[key].stamp == file.stamp:
                continue
            text = await threads.run(read, self._workspace, file, abandon=True)
            if text is None:
                continue  # it is being changed or cannot be read: the next look sees it again
            pieces = await threads.run(chunks_of, text)
            await self._writer.run(memory_files.put, file, pieces)
            changed += 1
        for key, file in known.items():
            if key not in found:
                await self._writer.run(memory_files.remove, file)
                changed += 1
        if changed:
            log.info("memory_files_indexed", files=changed)
        return changed


def find(workspace: Path, users: list[UserId]) -> list[MemoryFile]:
    return [file for user in users for below in ("", FOLDER) for file in _files_in(workspace, user, below)]


def _files_in(workspace: Path, user: UserId, below: str) -> list[MemoryFile]:
    try:
        with safe_open.opened_folder(workspace, below_of_user(user, below)) as folder:
            stamps = {name: _stamp_of(name, folder) for name in (_names(folder) if below else [TOP])}
    except (FileNotFoundError, NotPlain):
        return []
    except OSError as error:
        log.warning("memory_files_unreadable", error=error_class(error))
        return []
    paths = {f"{below}/{name}" if below else name: stamp for name, stamp in stamps.items()}
    return [MemoryFile(user=user, path=path, stamp=stamp) for path, stamp in paths.items() if stamp is not None]


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return nlargest(MAX_FILES, (entry.name for entry in islice(entries, MAX_LOOKED_AT) if _is_memory(entry.name)))


def read(workspace: Path, file: MemoryFile) -> str | None:
    """A file's text; None when it is not the one of the stamp any more, or cannot be read. Blocks."""
    try:
        with safe_open.opened(workspace, below_of_user(file.user, file.path)) as opened:
            if _stamp(opened.info) != file.stamp:
                return None
            return opened.head(MAX_BYTES).decode("utf-8", "replace").replace("\0", "\ufffd")
    except OSError:
        return None


def _is_memory(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(".") and not has_forbidden(name)


def _stamp_of(name: str, folder: int) -> str | None:
    try:
        return _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None


def _stamp(found: os.stat_result) -> str | None:
    """Changes with the file; None for what is no regular file of a usable size."""
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        return None
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_size}"


# -- pieces ----------------------------------------------------------------------------------------------------------

TARGET_TOKENS = 400
"""Estimated, of a piece. The embedding model reads 512 at once."""
MAX_CHUNKS = 2_000
"""Pieces of one file that are searched; the rest is not."""
MAX_TITLE = 80
"""Characters that a heading gives to the path of its pieces; a longer one is text of its section too."""

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"( *)(?:[-*+]|\d{1,9}[.)])(?:[ \t]+|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")


@attrs.frozen
class _Block:
    line: int
    lines: tuple[str, ...]
    kind: str

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def chunks_of(text: str, target: int = TARGET_TOKENS) -> list[FileChunk]:
    """The pieces of a file in order, of ``target`` estimated tokens each; none of an empty one."""
    found: list[FileChunk] = []
    for heading, blocks in _sections(text.lstrip("\ufeff").splitlines()):
        for part in _packed((piece for block in blocks for piece in _cut(block, target)), target):
            body = "\n\n".join(block.text for block in part)
            found.append(FileChunk(line=part[0].line, heading=heading, text=body))
            if len(found) == MAX_CHUNKS:
                return found
    return found


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, list[_Block]]]:
    path: list[tuple[int, str]] = []
    blocks: list[_Block] = []
    heading = ""
    alone: list[_Block] = []  # the last heading, while nothing stands below it, not even another heading
    for block in _blocks(lines):
        level, title = _title(block)
        if level == 0:
            blocks.append(block)
            continue
        is_below = bool(path) and level > path[-1][0]
        if blocks or (alone and not is_below):
            yield heading, blocks or alone
            alone = []
        path = [*((depth, name) for depth, name in path if depth < level), (level, title)]
        heading = " > ".join(name[:MAX_TITLE] for _, name in path if name)
        alone = [_Block(block.line, (title,), "text")] if title else alone
        blocks = list(alone) if len(title) > MAX_TITLE else []
    if blocks or alone:
        yield heading, blocks or alone


def _title(block: _Block) -> tuple[int, str]:
    """Level (1 to 6) and text of a heading; 0 for another block."""
    if block.kind != "heading":
        return 0, ""
    match = _HEADING.match(block.lines[0])
    if match:
        return len(match[1]), (match[2] or "").strip()
    return (1 if block.lines[-1].lstrip().startswith("=") else 2), block.lines[0].strip()


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        end, kind = _end_of_block(lines, at)
        yield _Block(at + 1, tuple(line.rstrip() for line in lines[at:end]), kind)
        at = end


def _end_of_block(lines: Sequence[str], at: int) -> tuple[int, str]:
    fence = _FENCE.match(lines[at])
    if fence:
        return _end_of_fence(lines, at, fence[1]), "code"
    if _HEADING.match(lines[at]):
        return at + 1, "heading"
    if _ITEM.match(lines[at]):
        return _end_of_list(lines, at), "list"
    end = at + 1
    while end < len(lines) and lines[end].strip():
        if _UNDERLINE.match(lines[end]) and end == at + 1 and not lines[at].lstrip().startswith("|"):
            return end + 1, "heading"
        if _FENCE.match(lines[end]) or _HEADING.match(lines[end]) or _ITEM.match(lines[end]):
            break
        end += 1
    return end, "text"


def _end_of_fence(lines: Sequence[str], at: int, mark: str) -> int:
    for end in range(at + 1, len(lines)):
        if _closes(lines[end].strip(), mark):
            return end + 1
    return len(lines)


def _closes(line: str, mark: str) -> bool:
    match = _FENCE.match(line)
    return match is not None and match[1].startswith(mark) and not match[2].strip()


def _end_of_list(lines: Sequence[str], at: int) -> int:
    """A list goes on over its items, what is indented below them, and single empty lines between those."""
    end = at + 1
    while end < len(lines):
        line = lines[end]
        if not line.strip():
            after = lines[end + 1] if end + 1 < len(lines) else ""
            if not (_ITEM.match(after) or after.startswith(("  ", "\t"))) or not after.strip():
                break
        elif _HEADING.match(line) or (_FENCE.match(line) and not line.startswith(" ")):
            break
        elif (inner := _FENCE.match(line.strip())) is not None:
            end = _end_of_fence(lines, end, inner[1]) - 1
        end += 1
    return end


def _cut(block: _Block, target: int) -> Iterator[_Block]:
    if tokens.estimate(block.text) <= target:
        yield block
        return
    fence = _FENCE.match(block.lines[0]) if block.kind == "code" else None
    if fence and len(block.lines) > 1 and tokens.estimate(block.lines[0]) <= target // 4:
        body = block.lines[1:-1] if _closes(block.lines[-1], fence[1]) else block.lines[1:]
        for part in _parts(_Block(block.line + 1, body, "code"), target):
            yield _Block(part.line, (block.lines[0], part.text, fence[1]), "code")
    else:
        yield from _parts(block, target)


def _parts(block: _Block, target: int) -> Iterator[_Block]:
    """A block that is too long, cut between lines (of a list: items), and where a line is too long, within it."""
    margin = min((len(match[1]) for line in block.lines if (match := _ITEM.match(line))), default=0)
    units: list[tuple[int, list[str]]] = []
    for number, line in enumerate(block.lines, block.line):
        item = _ITEM.match(line)
        if units and (not line or (block.kind == "list" and (item is None or len(item[1]) > margin))):
            units[-1][1].append(line)
        else:
            units.append((number, [line]))
    for group in _packed((_Block(at, tuple(lines), block.kind) for at, lines in units), target):
        if len(group) > 1 or tokens.estimate(group[0].text) <= target:
            yield _Block(group[0].line, tuple(line for unit in group for line in unit.lines), block.kind)
        else:
            yield from _sentences(group[0], target)


def _sentences(block: _Block, target: int) -> Iterator[_Block]:
    """A block that is too long, cut between sentences, else between words, else where it is full."""
    sentences = _SENTENCE_END.split(block.text)
    pieces = (_Block(block.line, (piece,), block.kind) for each in sentences for piece in _pieces(each, target))
    for group in _packed(pieces, target):
        yield _Block(block.line, (" ".join(piece.text for piece in group),), block.kind)


def _pieces(text: str, target: int) -> Iterator[str]:
    room = target * 2  # the densest script has two characters a token
    while len(text) > room and tokens.estimate(text) > target:
        space = text.rfind(" ", room // 2, room)
        cut = space if space > 0 else room
        yield text[:cut]
        text = text[cut:].lstrip(" ")
    yield text


def _packed(blocks: Iterable[_Block], target: int) -> Iterator[list[_Block]]:
    """Blocks in groups that have at most so many tokens, unless a block alone has more."""
    part: list[_Block] = []
    size = 0
    for block in blocks:
        cost = tokens.estimate(block.text)
        if part and size + cost > target:
            yield part
            part, size = [], 0
        part.append(block)
        size += cost
    if part:
        yield part
