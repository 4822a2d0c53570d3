"""A connection to one MCP server through the SDK. Needs the SDK: imported when a server connects.

This is the boundary where the SDK's exceptions become Klaw's. Everything is entered and left in the task that calls
``opened``; calls may come from any task while it is open.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
import trio
from mcp import MCPError
from mcp.client import Client, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    URL_ELICITATION_REQUIRED,
    ElicitationRequiredErrorData,
    EmptyResult,
    Implementation,
    PaginatedRequestParams,
    SetLevelRequest,
    SetLevelRequestParams,
)
from pydantic import ValidationError

from klaw import __version__
from klaw.actor.failure import error_class, leaves, split_cancelled
from klaw.actor.mailbox import Nudge
from klaw.config.document import join_path
from klaw.config.tools import McpServerConfig
from klaw.errors import ConfigError, McpError
from klaw.llm.providers.refusals import shown
from klaw.toolbox.mcp.guard import LIST_CHANGES, GuardedStream, Link, Reads, StreamGuard, Writes, http_server
from klaw.toolbox.mcp.host import Login
from klaw.toolbox.mcp.listing import ENTRIES, OUTPUT, ListedEntry, ListedTool
from klaw.toolbox.mcp.oauth import LoginStorage, provider_of
from klaw.toolbox.mcp.requests import ServerRequests
from klaw.toolbox.mcp.results import text_of, texts_of
from klaw.toolbox.mcp.stdio import Program, child_process
from klaw.toolbox.spec import PicturedText, ToolFailure

MAX_PAGES = 20
MAX_LISTED = 2_000
MAX_ERROR_CHARS = 1_000
LISTEN_PAUSE_S = 5.0
NO_MCP = "it does not answer as an MCP server"

LOG_LEVEL: Literal["warning"] = "warning"
"""What servers are asked to log."""

Transport: TypeAlias = Callable[[Link, list[str]], AbstractAsyncContextManager[tuple[Reads, Writes]]]
"""Connects to a server. The list gets its program's last line on standard error, before the link is over."""


def transport_of(
    name: str, config: McpServerConfig, workspace: Path, link: Link, storage: LoginStorage | None, login: Login | None
) -> Transport:
    """``storage``: of its login, None if there can be none. Blocks. Raises McpError, which names the key of a secret
    that cannot be read."""
    path = join_path("mcp.servers", name)
    try:
        if config.command is None:
            headers = {key: value.reveal(join_path(f"{path}.headers", key)) for key, value in config.headers.items()}
            url, auth = config.url or "", None
            if storage is not None and "authorization" not in map(str.lower, headers):
                auth = provider_of(path, url, config.oauth, storage, link, login)
            return lambda link, _said: http_server(url, headers, link, auth)
        environment = {key: value.reveal(join_path(f"{path}.env", key)) for key, value in config.env.items()}
    except ConfigError as error:
        raise McpError(str(error)) from None
    folder = config.cwd or (workspace if workspace.is_dir() else None)
    program = Program(command=config.command, arguments=config.args, environment=environment, folder=folder)
    return lambda link, said: child_process(program, link, name, said)


class McpSession:
    def __init__(self, client: Client, link: Link, changed: Nudge, requests: ServerRequests | None) -> None:
        self._client = client
        self._link = link
        self._requests = requests
        self.changed = changed
        self.protocol = client.protocol_version

    async def wait_ended(self) -> str:
        """Returns why the connection ended."""
        await self._link.ended.wait()
        return self._link.reason

    async def tools(self) -> tuple[ListedTool, ...]:
        found = await self._listed("tools", self._client.session.list_tools)
        return tuple(
            ListedTool(
                name=each.name,
                description=each.description or "",
                schema=each.input_schema,
                output=(each.meta or {}).get(OUTPUT),
            )
            for each in found
        )

    async def entries(self) -> dict[str, tuple[ListedEntry, ...]]:
        """Its resources, templates of resources and prompts, as far as it has such, by the keys of ``ENTRIES``. Raises
        McpError."""
        session, able = self._client.session, self._client.server_capabilities
        lists: dict[str, tuple[object, Callable[..., Any]]] = {
            "resources": (able.resources, session.list_resources),
            "resourceTemplates": (able.resources, session.list_resource_templates),
            "prompts": (able.prompts, session.list_prompts),
        }
        found = {kind: await self._listed(kind, ask) if has else [] for kind, (has, ask) in lists.items()}
        return {
            kind: tuple(_entry(each.model_dump(by_alias=True), ENTRIES[kind]) for each in found[kind]) for kind in found
        }

    async def _listed(self, kind: str, ask: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await ask(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise McpError(_why(self._link, error, f"it does not list its {kind}")) from error
            except ValidationError as error:
                raise McpError(f"its list of {kind} is not MCP") from error
            found += getattr(page, _LISTED.get(kind, kind))
            if page.next_cursor is None or page.next_cursor == cursor or len(found) >= MAX_LISTED:
                break
            cursor = page.next_cursor
        return found[:MAX_LISTED]

    async def read(self, uri: str) -> PicturedText:
        """The content of a resource. Raises McpError."""
        found = await self._asked(self._client.read_resource(uri))
        return texts_of(found["contents"])

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> PicturedText:
        """The messages that a prompt makes. Raises McpError."""
        found = await self._asked(self._client.get_prompt(name, dict(arguments)))
        return texts_of(found["messages"])

    async def _asked(self, asking: Awaitable[Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = (await asking).model_dump(by_alias=True, mode="json", exclude_none=True)
        except MCPError as error:
            raise McpError(f"it refuses: {shown(error.message, ())}") from error
        except (ValidationError, RuntimeError) as error:
            raise McpError("what it answers is not MCP") from error
        return found

    async def call(
        self, tool: str, arguments: Mapping[str, Any], schema: Any, doing: Callable[[str], None]
    ) -> str | PicturedText | ToolFailure | None:
        """Call a tool, whose structured result must fit a schema. ``doing`` gets how far it is. What goes wrong is a
        ToolFailure; None when the connection ended meanwhile."""

        async def show(progress: float, total: float | None, message: str | None) -> None:
            del message  # it is the server's
            doing(f"{progress:g} of {total:g}" if total is not None else f"{progress:g}")

        try:
            result = await self._client.call_tool(tool, dict(arguments), progress_callback=show)
            return text_of(result.model_dump(by_alias=True, mode="json", exclude_unset=True), schema)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and self._link.ended.is_set():
                return None
            if self._link.wants:
                return ToolFailure.of(f"The server refuses this call: {self._link.wants}")
            if error.code == URL_ELICITATION_REQUIRED and self._requests is not None:
                return await self._open_first(error.error.data, self._requests)
            return ToolFailure(f"The server answered with an error: {error.message[:MAX_ERROR_CHARS]}")
        except ValidationError:
            return ToolFailure("The server answered something that is not the result of a tool.")

    async def _open_first(self, data: Any, requests: ServerRequests) -> ToolFailure:
        for each in ElicitationRequiredErrorData.model_validate(data).elicitations:
            if (await requests.elicit(None, each)).action != "accept":
                return ToolFailure("The user has to open a page for this, and did not agree. Nothing was done.")
        return ToolFailure("The user is opening a page for this. Call the tool again when they say that they are done.")

    async def follow_changes(self) -> None:
        """Notice changes of its lists, where the protocol wants a subscription; else return."""
        if self._client.session.discover_result is None:
            return  # servers of before 2026 say it unasked
        able = self._client.server_capabilities
        lists = {"tools": able.tools, "resources": able.resources, "prompts": able.prompts}
        wanted: Any = {f"{kind}_list_changed": True for kind, has in lists.items() if has and has.list_changed}
        if not wanted:
            return
        while True:
            try:
                async with self._client.listen(**wanted) as subscription:
                    async for _ in subscription:
                        self.changed.nudge()
            except SubscriptionLost:
                pass
            except MCPError:
                return
            await trio.sleep(LISTEN_PAUSE_S)
            self.changed.nudge()


@asynccontextmanager
async def opened(
    transport: Transport, link: Link, said: list[str], requests: ServerRequests | None = None
) -> AsyncIterator[McpSession]:
    """Connect to a server for the body. Raises McpError, also beside errors of the body in an ExceptionGroup."""
    changed = Nudge()

    async def on_message(message: IncomingMessage) -> None:
        if getattr(message, "method", "") in LIST_CHANGES:
            changed.nudge()

    try:
        async with Client(
            _guarded(transport(link, said), link),
            message_handler=on_message,
            elicitation_callback=requests.elicit if requests else None,
            sampling_callback=requests.sample if requests and requests.config.sampling else None,
            list_roots_callback=requests.roots if requests and requests.config.roots else None,
            log_level=LOG_LEVEL,
            client_info=Implementation(name="klaw", version=__version__),
            cache=None,
        ) as client:
            if client.server_capabilities.logging and client.session.discover_result is None:
                with suppress(MCPError):
                    level = SetLevelRequest(params=SetLevelRequestParams(level=LOG_LEVEL))
                    await client.session.send_request(level, EmptyResult)
            yield McpSession(client, link, changed, requests)
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


_LISTED = {"resourceTemplates": "resource_templates"}


def _entry(found: Mapping[str, Any], key: str) -> ListedEntry:
    arguments = found.get("arguments") or ()
    return ListedEntry(
        key=found[key],
        name=found["name"],
        description=found.get("description") or "",
        required=tuple(each["name"] for each in arguments if each["required"]),
        arguments=tuple(each["name"] for each in arguments),
    )


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
