"""The file tools: read, list, find, write and patch text files of the user's part of the workspace."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import attrs

from klaw.actor.threads import Threads
from klaw.convert import Bounds
from klaw.domain.prompt_files import MEMORY_FILE, MEMORY_FOLDER, is_prompt_file
from klaw.errors import ToolRefused
from klaw.toolbox.executor import FOLDER as OUTPUT_FOLDER
from klaw.toolbox.files import access, text
from klaw.toolbox.files.beneath import Root, root_of
from klaw.toolbox.spec import Arguments, Permission, ToolContext, ToolSpec, tool

MAX_ENTRIES = 200
MAX_EDITS = 50
_HEAD_CHARS = 600
"""Room for what is said about the lines, so that the executor never cuts a result of ``file_read``."""

T = TypeVar("T")
_Path = Annotated[str, "relative to the workspace: notes/plan.md"]


def file_tools(workspace: Path, threads: Threads, max_output_chars: int) -> tuple[ToolSpec, ...]:
    files = _Files(workspace, threads)
    return *_reading_tools(files, max_output_chars), *_writing_tools(files)


@attrs.frozen
class _Files:
    """The workspace, in threads."""

    workspace: Path
    threads: Threads
    changing: threading.Lock = attrs.Factory(threading.Lock)
    """Two patches of one file in one round must not both start from its old content."""

    async def read(self, context: ToolContext, function: Callable[[Root], str]) -> str:
        root = root_of(self.workspace, context.user)
        if context.temporary:  # it knows nothing of what other chats left to memory
            root = attrs.evolve(root, closed=root.closed | {MEMORY_FILE.casefold(), MEMORY_FOLDER})
        return await self.threads.run(function, root, abandon=True)

    async def change(self, context: ToolContext, function: Callable[[Root], str]) -> str:
        def alone(root: Root) -> str:
            with self.changing:
                return function(root)

        root = root_of(self.workspace, context.user)
        if context.trail.outside and not context.allowed:
            # Asked once more, where the path is resolved for good: a link may have changed since the user was asked.
            root = attrs.evolve(root, kept=partial(is_prompt_file, context.user))
        return await self.threads.run(alone, root)

    async def lasting(self, context: ToolContext, arguments: Arguments) -> bool:
        def stands(root: Root) -> bool:
            with suppress(ToolRefused):
                return is_prompt_file(context.user, root.where(arguments["path"]))
            return False  # it is refused anyway

        return await self.threads.run(stands, root_of(self.workspace, context.user), abandon=True)


def _reading_tools(files: _Files, max_output_chars: int) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.READ)
    async def file_read(
        context: ToolContext,
        path: _Path,
        offset: Annotated[int, "first line, from 1; -20 for the last 20 lines"] = 1,
        limit: Annotated[int, "lines", Bounds(at_least=1, at_most=10_000)] = 500,
        line_numbers: Annotated[bool, "put its number before each line"] = False,
    ) -> str:
        """Read lines of a text file of the workspace (up to 1 MB)."""

        def run(root: Root) -> str:
            with root.resolve(path) as place:
                data, _ = access.read_place(place, access.MAX_FILE_BYTES)
                if place.path.startswith(f"{OUTPUT_FOLDER}/"):
                    context.trail.outside = True  # perhaps a page: what a tool had brought is kept there
            most = max(1, max_output_chars - _HEAD_CHARS)
            return text.cut(data, path, offset=offset, limit=limit, max_chars=most, numbers=line_numbers)

        return await files.read(context, run)

    @tool(permission=Permission.READ)
    async def file_list(
        context: ToolContext, path: Annotated[str, "folder; empty for the workspace itself"] = ""
    ) -> str:
        """List a folder of the workspace: names, sizes in bytes; folders end with a slash."""
        return await files.read(context, lambda root: _listed(access.list_folder(root, path, MAX_ENTRIES), "empty"))

    @tool(permission=Permission.READ)
    async def file_glob(context: ToolContext, pattern: Annotated[str, "**/*.md, memory/2026-*.md"]) -> str:
        """Find files of the workspace by a pattern of their path: * ? [abc] in a name, ** for any folders."""
        return await files.read(context, lambda root: _listed(access.find(root, pattern, MAX_ENTRIES), "no file fits"))

    return file_read, file_list, file_glob


def _writing_tools(files: _Files) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.WRITE, lasting=files.lasting)
    async def file_write(
        context: ToolContext,
        path: _Path,
        content: str,
        mode: Annotated[
            Literal["create", "replace", "append"],
            "create: only if there is no such file; replace: the whole content; append: at the end",
        ] = "create",
    ) -> str:
        """Write a text file of the workspace (up to 1 MB). Missing folders are made."""

        def run(root: Root) -> str:
            data = text.encode(content)
            done = {"create": "created", "replace": "written", "append": "appended to"}[mode]
            return f"{access.write(root, path, data, mode)}: {done}, {len(data)} bytes"

        return await files.change(context, run)

    @tool(permission=Permission.WRITE, lasting=files.lasting)
    async def file_patch(
        context: ToolContext,
        path: _Path,
        edits: Annotated[
            list[text.TextEdit], "carried out in order, all or none", Bounds(at_least=1, at_most=MAX_EDITS)
        ],
    ) -> str:
        """Change parts of a text file of the workspace. Each search text must be in the file exactly once."""

        def run(root: Root) -> str:
            changed = access.change(
                root, path, lambda data, name: text.encode(text.apply(text.decode(data, name), edits))
            )
            return f"{changed}: {len(edits)} {'edit' if len(edits) == 1 else 'edits'} done"

        return await files.change(context, run)

    return file_write, file_patch


def _listed(found: access.FoundFiles, nothing: str) -> str:
    ends = {"folder": "/", "link": " (link)", "other": " (other)"}
    lines = [f"{entry.path}{ends.get(entry.kind, f' {entry.size}')}" for entry in found.entries]
    if found.more:
        lines.append(f"[{found.more} more]")
    if found.hidden:
        lines.append(f"[{found.hidden} closed to tools]")
    if found.incomplete:
        lines.append("[too many names to look at all of them; name a folder or a narrower pattern]")
    return "\n".join(lines) or f"({nothing})"
