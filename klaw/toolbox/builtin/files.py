"""The file tools: read, list, find, write and patch text files of the user's part of the workspace."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from klaw.actor.threads import Threads
from klaw.toolbox.files import patch, reading, text, writing
from klaw.toolbox.files.beneath import Root
from klaw.toolbox.files.names import FileRefused
from klaw.toolbox.files.owner import root_of
from klaw.toolbox.spec import Limit, Permission, ToolContext, ToolFailure, ToolSpec, tool

MAX_ENTRIES = 200
"""Of a folder or a search."""
MAX_EDITS = 50
_HEAD_CHARS = 600
"""Room for what is said about the lines, so that the executor never cuts a result of ``file_read``."""

T = TypeVar("T")
_Path = Annotated[str, "relative to the workspace: notes/plan.md"]


def file_tools(workspace: Path, threads: Threads, max_output_chars: int) -> tuple[ToolSpec, ...]:
    """The tools on one workspace.

    Args:
        workspace: its folder; it need not exist.
        threads: where blocking work is done.
        max_output_chars: ``tools.maxOutputChars``.
    """
    # Calls of one round run at once: two patches of one file must not both start from its old content.
    changing = threading.Lock()

    async def read(context: ToolContext, function: Callable[[Root], str]) -> str | ToolFailure:
        return await threads.run(_refusing, function, root_of(workspace, context.user), abandon=True)

    async def change(context: ToolContext, function: Callable[[Root], str]) -> str | ToolFailure:
        def alone(root: Root) -> str:
            with changing:
                return function(root)

        return await threads.run(_refusing, alone, root_of(workspace, context.user))

    @tool(permission=Permission.READ)
    async def file_read(
        context: ToolContext,
        path: _Path,
        offset: Annotated[int, "first line, from 1; -20 for the last 20 lines"] = 1,
        limit: Annotated[int, "lines", Limit(at_least=1, at_most=10_000)] = 500,
        line_numbers: Annotated[bool, "put its number before each line"] = False,
    ) -> str | ToolFailure:
        """Read lines of a text file of the workspace (up to 1 MB)."""

        def run(root: Root) -> str:
            lines = text.cut(
                reading.read_bytes(root, path),
                path,
                offset=offset,
                limit=limit,
                max_chars=max(1, max_output_chars - _HEAD_CHARS),
                numbers=line_numbers,
            )
            return _shown(lines)

        return await read(context, run)

    @tool(permission=Permission.READ)
    async def file_list(
        context: ToolContext, path: Annotated[str, "folder; empty for the workspace itself"] = ""
    ) -> str | ToolFailure:
        """List a folder of the workspace: names, sizes in bytes; folders end with a slash."""
        return await read(context, lambda root: _listed(reading.list_folder(root, path, MAX_ENTRIES), "empty"))

    @tool(permission=Permission.READ)
    async def file_glob(
        context: ToolContext, pattern: Annotated[str, "**/*.md, memory/2026-*.md"]
    ) -> str | ToolFailure:
        """Find files of the workspace by a pattern of their path: * ? [abc] in a name, ** for any folders."""
        return await read(context, lambda root: _listed(reading.find(root, pattern, MAX_ENTRIES), "no file fits"))

    @tool(permission=Permission.WRITE)
    async def file_write(
        context: ToolContext,
        path: _Path,
        content: str,
        mode: Annotated[
            Literal["create", "replace", "append"],
            "create: only if there is no such file; replace: the whole content; append: at the end",
        ] = "create",
    ) -> str | ToolFailure:
        """Write a text file of the workspace (up to 1 MB). Missing folders are made."""

        def run(root: Root) -> str:
            data = text.encode(content)
            done = {"create": "created", "replace": "written", "append": "appended to"}[mode]
            return f"{writing.write(root, path, data, mode)}: {done}, {len(data)} bytes"

        return await change(context, run)

    @tool(permission=Permission.WRITE)
    async def file_patch(
        context: ToolContext,
        path: _Path,
        edits: Annotated[list[patch.Edit], "carried out in order, all or none", Limit(at_least=1, at_most=MAX_EDITS)],
    ) -> str | ToolFailure:
        """Change parts of a text file of the workspace. Each search text must be in the file exactly once."""

        def run(root: Root) -> str:
            changed = writing.change(
                root, path, lambda data, name: text.encode(patch.apply(text.decode(data, name), edits))
            )
            return f"{changed}: {len(edits)} {'edit' if len(edits) == 1 else 'edits'} done"

        return await change(context, run)

    return file_read, file_list, file_glob, file_write, file_patch


def _refusing(function: Callable[[Root], str], root: Root) -> str | ToolFailure:
    try:
        return function(root)
    except FileRefused as refused:
        return ToolFailure(f"{refused}.")


def _shown(lines: text.Lines) -> str:
    if not lines.total:
        return "(the file is empty)"
    notes = []
    if lines.first > 1 or lines.last < lines.total:
        notes.append(f"lines {lines.first} to {lines.last} of {lines.total}")
    if lines.last < lines.total:
        notes.append(f"go on with offset {lines.last + 1}")
    if lines.cut_line:
        notes.append(f"line {lines.first} is longer than can be shown")
    if lines.damaged:
        notes.append("bytes that are no UTF-8 are shown as \ufffd")
    return f"{lines.text}\n[{'; '.join(notes)}]" if notes else lines.text


def _listed(found: reading.Found, nothing: str) -> str:
    lines = [_line(entry) for entry in found.entries]
    if found.more:
        lines.append(f"[{found.more} more]")
    if found.hidden:
        lines.append(f"[{found.hidden} closed to tools]")
    if found.incomplete:
        lines.append("[too many names to look at all of them; name a folder or a narrower pattern]")
    return "\n".join(lines) or f"({nothing})"


def _line(entry: reading.Entry) -> str:
    match entry.kind:
        case "folder":
            return f"{entry.path}/"
        case "file":
            return f"{entry.path} {entry.size}"
        case _:
            return f"{entry.path} ({entry.kind})"
