"""A connection to one MCP server through the SDK. Needs the SDK: imported when a server connects.

This is the boundary where the SDK's exceptions become Klaw's. Everything is entered and left in the task that calls
``opened``; calls may come from any task while it is open.
"""

import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import trio
from mcp import MCPError
from mcp.client import Client, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from klaw import __version__
from klaw.actor.failure import error_class, leaves, split_cancelled
from klaw.actor.mailbox import Nudge
from klaw.config.document import join_path
from klaw.config.tools import McpServerConfig
from klaw.domain.attachment import HEAD_BYTES, MAX_PICTURE_BYTES, PICTURES, sniff
from klaw.errors import ConfigError, McpError
from klaw.llm.types import Image
from klaw.toolbox.mcp.guard import GuardedStream, Link, Reads, StreamGuard, Writes, http_server
from klaw.toolbox.mcp.listing import ListedTool, fitted
from klaw.toolbox.mcp.stdio import Program, child_process
from klaw.toolbox.spec import PicturedText, ToolFailure

MAX_PAGES = 20
MAX_LISTED = 2_000
MAX_ERROR_CHARS = 1_000
LISTEN_PAUSE_S = 5.0
NO_MCP = "it does not answer as an MCP server"

_RAW: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


Transport: TypeAlias = Callable[[Link, list[str]], AbstractAsyncContextManager[tuple[Reads, Writes]]]
"""Connects to a server. The list gets its program's last line on standard error, before the link is over."""


def transport_of(name: str, config: McpServerConfig, workspace: Path) -> Transport:
    """Raises McpError, which names the key of a secret that cannot be read."""
    path = join_path("mcp.servers", name)
    try:
        if config.command is None:
            headers = {key: value.reveal(join_path(f"{path}.headers", key)) for key, value in config.headers.items()}
            return lambda link, _said: http_server(config.url or "", headers, link)
        environment = {key: value.reveal(join_path(f"{path}.env", key)) for key, value in config.env.items()}
    except ConfigError as error:
        raise McpError(str(error)) from None
    folder = config.cwd or (workspace if workspace.is_dir() else None)
    program = Program(command=config.command, arguments=config.args, environment=environment, folder=folder)
    return lambda link, said: child_process(program, link, name, said)


class McpSession:
    def __init__(self, client: Client, link: Link, changed: Nudge) -> None:
        self._client = client
        self._link = link
        self.changed = changed
        self.protocol = client.protocol_version

    async def wait_ended(self) -> str:
        """Returns why the connection ended."""
        await self._link.ended.wait()
        return self._link.reason

    async def tools(self) -> tuple[ListedTool, ...]:
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise McpError(_why(self._link, error, "it does not list its tools")) from error
            except ValidationError as error:
                raise McpError("its list of tools is not MCP") from error
            found += [
                ListedTool(name=t.name, description=t.description or "", schema=t.input_schema) for t in page.tools
            ]
            if page.next_cursor is None or page.next_cursor == cursor or len(found) >= MAX_LISTED:
                break
            cursor = page.next_cursor
        return tuple(found[:MAX_LISTED])

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str | PicturedText | ToolFailure | None:
        """Call a tool. What goes wrong is a ToolFailure; None when the connection ended meanwhile."""
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        try:
            # Not call_tool: that would check the result by a schema that the server wrote.
            result = await self._client.session.send_request(request, _RAW)  # type: ignore[type-var]  # a plain dict
            return text_of(result)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and self._link.ended.is_set():
                return None
            return ToolFailure(f"The server answered with an error: {error.message[:MAX_ERROR_CHARS]}")
        except ValidationError:
            return ToolFailure("The server answered something that is not the result of a tool.")

    async def follow_changes(self) -> None:
        """Notice changes of the list of tools, where the protocol wants a subscription; else return."""
        if self._client.session.discover_result is None:
            return  # servers of before 2026 say it unasked
        capability = self._client.server_capabilities.tools
        if capability is None or not capability.list_changed:
            return
        while True:
            try:
                async with self._client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        self.changed.nudge()
            except SubscriptionLost:
                pass
            except MCPError:
                return
            await trio.sleep(LISTEN_PAUSE_S)
            self.changed.nudge()


@asynccontextmanager
async def opened(transport: Transport, said: list[str]) -> AsyncIterator[McpSession]:
    """Connect to a server for the body. Raises McpError, also beside errors of the body in an ExceptionGroup."""
    link, changed = Link(), Nudge()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.nudge()

    try:
        async with Client(
            _guarded(transport(link, said), link),
            message_handler=on_message,
            client_info=Implementation(name="klaw", version=__version__),
            cache=None,
        ) as client:
            yield McpSession(client, link, changed)
    except Exception as error:
        if (reason := _reason(link, error)) is None:
            raise
        raise McpError(reason) from error
    except BaseExceptionGroup as group:
        failure, rest = split_cancelled(group)
        if failure is None or rest is None or (reason := _reason(link, failure)) is None:
            raise
        raise BaseExceptionGroup("beside a cancellation", [McpError(reason), rest]) from group


@asynccontextmanager
async def _guarded(
    inner: AbstractAsyncContextManager[tuple[Reads, Writes]], link: Link
) -> AsyncIterator[tuple[Reads, Writes]]:
    async with inner as (reads, writes):
        guard = StreamGuard(link, reads, writes)
        yield GuardedStream(guard, reads), GuardedStream(guard, writes)


def _reason(link: Link, error: Exception) -> str | None:
    """Why a connection failed, for errors of the SDK and of httpx2; None for others, and for those that say it."""
    inner = leaves(error)
    if any(isinstance(leaf, McpError) for leaf in inner):
        return None
    if link.reason:
        return link.reason
    for leaf in inner:
        match leaf:
            case MCPError():
                return _why(link, leaf, NO_MCP)
            case ValidationError():
                return NO_MCP
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return "it cannot be reached"
            case httpx2.HTTPError():
                return f"the connection broke ({error_class(leaf)})"
            case RuntimeError():  # the SDK's answer to a version that it does not know
                return "it speaks no version of MCP that Klaw knows"
    return None


def _why(link: Link, error: MCPError, otherwise: str) -> str:
    """Klaw's own words: what the server wrote is for models only."""
    if link.reason:
        return link.reason
    if link.status is not None:
        return f"it answers with HTTP status {link.status}"
    return f"{otherwise} (code {error.code})"


MAX_PICTURES = 4
MAX_SHORT = 300
NO_TEXT = "It answered without any text."


def text_of(result: Mapping[str, Any]) -> str | PicturedText | ToolFailure:
    """The result of ``tools/call`` as text, with its pictures."""
    if result.get("resultType") == "input_required":
        return ToolFailure("The tool wants to ask the user something, which is not possible here. Nothing was done.")
    content = fitted(result).get("content")
    blocks = content if isinstance(content, list) else []
    pictures: list[Image] = []
    parts = list(_parts(blocks, pictures))
    structured = result.get("structuredContent")
    # Servers repeat structured content as text, for clients that know only that.
    if structured is not None and not any(block.get("type") == "text" for block in blocks if isinstance(block, dict)):
        try:
            parts.append(json.dumps(structured, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            parts.append("[structured content that cannot be shown]")
    text = "\n".join(part for part in parts if part)
    if result.get("isError"):
        return ToolFailure(text or "The tool failed and did not say why.")
    return PicturedText(text=text, pictures=tuple(pictures)) if pictures else text or NO_TEXT


def _parts(blocks: list[Any], pictures: list[Image]) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                yield str(block.get("text", ""))
            case "image" if _taken(block.get("data"), pictures):
                yield f"[picture {len(pictures)}, {pictures[-1].media_type}, {_bytes(block.get('data'))}]"
            case "image" | "audio" as kind:
                yield f"[{kind}, {_short(block.get('mimeType'))}, {_bytes(block.get('data'))}: cannot be shown]"
            case "resource_link":
                named = [_short(block[key]) for key in ("name", "uri", "description") if block.get(key)]
                yield f"[link: {', '.join(named)}]"
            case "resource":
                yield _resource(block.get("resource"), pictures)
            case other:
                yield f"[content of type {_short(other)}: cannot be shown]"


def _taken(data: object, pictures: list[Image]) -> bool:
    if not isinstance(data, str) or len(pictures) >= MAX_PICTURES or len(data) * 3 // 4 > MAX_PICTURE_BYTES:
        return False
    with suppress(binascii.Error, ValueError):
        file = base64.b64decode(data, validate=True)
        if (kind := sniff(file[:HEAD_BYTES])) in PICTURES:
            pictures.append(Image(data=file, media_type=kind))  # type: ignore[arg-type]  # one of them
            return True
    return False


def _resource(resource: object, pictures: list[Image]) -> str:
    if not isinstance(resource, dict):
        return ""
    where = _short(resource.get("uri"))
    if isinstance(resource.get("text"), str):
        return f"[{where}]\n{resource['text']}"
    if _taken(resource.get("blob"), pictures):
        return f"[picture {len(pictures)}: {where}, {pictures[-1].media_type}, {_bytes(resource.get('blob'))}]"
    return f"[{where}, {_short(resource.get('mimeType') or 'binary')}, {_bytes(resource.get('blob'))}: cannot be shown]"


def _bytes(data: object) -> str:
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.0f} KiB"


def _short(value: object) -> str:
    return " ".join(str(value or "?")[:MAX_SHORT].split())
