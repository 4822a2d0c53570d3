"""Connecting a search service: by the server if one runs, else by the command itself."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.names import LOCAL_USER
from klaw.errors import ToolRefused
from klaw.operations import operation as op
from klaw.operations.connect import VARIABLE, files, take_up, variable_name
from klaw.operations.handler import Caller, DatabaseParts

if TYPE_CHECKING:
    from klaw.toolbox.search_services import SearchQuery, SearchService

CONNECT = op.Noun("connect", "connect a search service (docs/tools.md)")
SHOWN_TITLES = 3


@attrs.frozen(kw_only=True)
class SearchToConnect:
    service: Literal["searxng", "brave", "tavily", "exa", "mcp"] = op.required("which; mcp: a tool of an MCP server")
    url: Annotated[str, Bounds(1, 2_000)] | None = op.argument(
        "its address, if it is another than usual; of SearXNG, if none answers on this machine", metavar="URL"
    )
    key: Annotated[str, Bounds(1, 4_000)] | None = attrs.field(
        default=None, repr=False, metadata={"argument": op.Argument(help="its key, which is kept in secrets.env")}
    )
    key_env: Annotated[str, Check(variable_name, Bounds(pattern=VARIABLE))] | None = op.argument(
        "the environment variable that holds the key", metavar="VARIABLE"
    )
    tool: Annotated[str, Bounds(1, 64)] | None = op.argument("for mcp: the tool that searches, as server__tool")
    fetch: bool = op.argument("also let models read pages (web_fetch)", default=False)
    test: bool = op.argument("search once first; if that fails, nothing is changed", default=True)
    dry_run: bool = op.argument("change nothing", default=False)


class ConnectedSearch(TypedDict):
    """``titles``: of the first results of the test, None without one; ``key_in``: the variable of ``secrets.env`` that
    got the key; ``in_effect``: a server uses it already."""

    service: str
    url: str | None
    titles: list[str] | None
    key_in: str | None
    changed: bool
    in_effect: bool


@CONNECT.operation(
    "connect_search", SearchToConnect, route="POST search", changes=True, deadline_s=60, offline=True, bare=True,
    scope=op.Scope.OPERATOR,
)  # fmt: skip
async def connect(asked: SearchToConnect, _caller: Caller, parts: DatabaseParts) -> ConnectedSearch:
    """Connect a search service: search once, then offer web_search to models. Its key goes into secrets.env."""
    from klaw.config.edit import UNSET
    from klaw.config.environment import Secret
    from klaw.config.tools import WebSearchConfig
    from klaw.toolbox.search_services import SEARCH_SERVICES, SearchQuery
    from klaw.toolbox.web_search import WebSearch, find_searxng

    service, url, key, variable = SEARCH_SERVICES.get(asked.service), asked.url, None, None
    if asked.service == "searxng":
        url = url or await find_searxng()
        if url is None:
            raise op.OperationError(
                "not_connected", "no SearXNG answers on this machine: give its address", field="url"
            )
    elif service is not None:
        key, variable = await files().run(_key, asked, service, parts)
    elif asked.tool is None:
        raise op.OperationError("bad_args", "is needed: the tool that searches, as server__tool", field="tool")
    titles, query = None, SearchQuery(text="Wikipedia", count=SHOWN_TITLES, now=parts.clock.now())
    if asked.test:
        try:
            if service is not None:
                secret = Secret(key) if key else None
                tried = WebSearch(WebSearchConfig(service=asked.service, url=url, api_key=secret))
                titles = [each.title for each in await tried.search(query)]
            else:
                titles = await _by_tool(asked.tool or "", query, parts)
        except (ToolRefused, ValueError) as error:
            raise op.OperationError("not_connected", str(error)) from None
    own = {"service": asked.service, "url": url, "apiKey": f"${{{variable}}}" if variable else None, "tool": asked.tool}
    changes: dict[str, Any] = {f"tools.web.search.{name}": value or UNSET for name, value in own.items()}
    key_in = variable if variable and not asked.dry_run and parts.environ.get(variable) != key else None
    if not asked.dry_run:
        await take_up(parts, changes | ({"tools.web.enabled": True} if asked.fetch else {}), key_in, key)
    changed = not asked.dry_run
    in_effect = changed and parts.budget is not None
    return {
        "service": asked.service, "url": url, "titles": titles, "key_in": key_in, "changed": changed,
        "in_effect": in_effect,
    }  # fmt: skip


def _key(asked: SearchToConnect, service: "SearchService", parts: DatabaseParts) -> tuple[str, str]:
    """The key, and the variable that holds it or gets it. Blocks."""
    from klaw.config.secrets import with_secrets

    variable = asked.key_env or service.key_env
    key = asked.key
    if key is not None:
        clash = parts.environ.get(variable, key) != key  # which would win
        return key, f"KLAW_{variable}" if clash else variable
    if asked.key_env or not asked.url:  # no other address gets it unasked
        key = with_secrets(parts.paths.config_file.parent).get(variable)
    if not key:
        text = f"{service.name} wants a key: get one at https://{service.key_page}"
        raise op.OperationError("not_connected", text, field="key")
    return key, variable


async def _by_tool(tool: str, query: "SearchQuery", parts: Any) -> list[str] | None:
    """How a tool's answer begins; None: no server runs that could call it."""
    from klaw.toolbox.search_services import MAX_TITLE, line_of
    from klaw.toolbox.spec import ToolContext
    from klaw.toolbox.web_search import search_by_tool

    if parts.budget is None:
        return None
    context = ToolContext(user=LOCAL_USER, chat=None)
    return [line_of(await search_by_tool(parts.tools.executor.toolbox, context, tool, query), MAX_TITLE)]
