"""A connection to one MCP server through the SDK. Needs the SDK: imported when a server connects.

This is the boundary where the SDK's exceptions become Klaw's. Everything is entered and left in the task that calls
``opened``; calls may come from any task while it is open.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
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
from klaw.actor.failure import error_class, split_cancelled
from klaw.actor.nudge import Nudge
from klaw.errors import McpError
from klaw.toolbox.mcp.guard import Guard
from klaw.toolbox.mcp.http import http_server
from klaw.toolbox.mcp.link import Link, Reads, Writes
from klaw.toolbox.mcp.listing import Listed
from klaw.toolbox.mcp.result import text_of
from klaw.toolbox.mcp.stdio import Program, child_process
from klaw.toolbox.spec import ToolFailure

MAX_PAGES = 20
MAX_LISTED = 2_000
MAX_ERROR_CHARS = 1_000
LISTEN_PAUSE_S = 5.0
NO_MCP = "it does not answer as an MCP server"

_RAW: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


@attrs.frozen(kw_only=True)
class Address:
    """Where a server behind HTTP is."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


class Session:
    """An open connection. Made by ``opened``."""

    def __init__(self, client: Client, link: Link, changed: Nudge) -> None:
        self._client = client
        self._link = link
        self.changed = changed

    @property
    def protocol(self) -> str:
        """The version of the protocol that both speak."""
        return self._client.protocol_version

    async def wait_ended(self) -> str:
        """Wait until the connection is over; returns why."""
        await self._link.ended.wait()
        return self._link.reason

    async def tools(self) -> tuple[Listed, ...]:
        """All tools of the server.

        Raises:
            McpError: it does not tell.
        """
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise McpError(_why(self._link, error, "it does not list its tools")) from error
            except ValidationError as error:
                raise McpError("its list of tools is not MCP") from error
            found += [
                Listed(name=tool.name, description=tool.description or "", schema=tool.input_schema)
                for tool in page.tools
            ]
            if page.next_cursor is None or page.next_cursor == cursor or len(found) >= MAX_LISTED:
                break
            cursor = page.next_cursor
        return tuple(found[:MAX_LISTED])

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str | ToolFailure | None:
        """Call a tool. What goes wrong is a ToolFailure; None when the connection ended meanwhile.

        Cancellation: the server is told, in at most 5 s.
        """
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
        """Notice changes of the list of tools where the protocol wants them asked for. Ends when that is not so."""
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
async def opened(name: str, target: Program | Address) -> AsyncIterator[Session]:
    """Connect to a server for the body.

    Args:
        name: of the server, for the log.
        target: the program to start, or where it is.

    Raises:
        McpError: it cannot be reached, or the connection broke.
        ExceptionGroup: the same, beside errors of the body.
    """
    link, changed = Link(), Nudge()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.nudge()

    try:
        async with Client(
            _transport(name, target, link),
            message_handler=on_message,
            client_info=Implementation(name="klaw", version=__version__),
            cache=None,
        ) as client:
            yield Session(client, link, changed)
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
async def _transport(name: str, target: Program | Address, link: Link) -> AsyncIterator[tuple[Reads, Writes]]:
    inner = (
        child_process(target, link, name)
        if isinstance(target, Program)
        else http_server(target.url, target.headers, link)
    )
    async with inner as (reads, writes):
        guard = Guard(link, reads, writes)
        yield guard.reads, guard.writes


def _reason(link: Link, error: Exception) -> str | None:
    """Why a connection failed, for errors of the SDK and of httpx2; None for others, and for those that say it."""
    leaves = list(_leaves(error))
    if any(isinstance(leaf, McpError) for leaf in leaves):
        return None
    if link.reason:
        return link.reason
    for leaf in leaves:
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


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _why(link: Link, error: MCPError, otherwise: str) -> str:
    """Klaw's own words: what the server wrote is for models only."""
    if link.reason:
        return link.reason
    if link.status is not None:
        return f"it answers with HTTP status {link.status}"
    return f"{otherwise} (code {error.code})"
