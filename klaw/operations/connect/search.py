"""Connecting a search service: by the server if one runs, else by the command itself."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.names import LOCAL_USER
from klaw.errors import ToolRefused
from klaw.operations import operation as op
from klaw.operations.connect.models import ServiceAndKey, files, take_up
from klaw.operations.handler import Caller, DatabaseParts

if TYPE_CHECKING:
    from klaw.toolbox.search_services import SearchService

CONNECT = op.Noun("connect", "connect a search service (docs/tools.md)")
SHOWN_TITLES = 3


@attrs.frozen(kw_only=True)
class SearchToConnect(ServiceAndKey):
    service: Literal["searxng", "brave", "tavily", "exa", "mcp"] = op.required("which; mcp: a tool of an MCP server")
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


_HOW: Any = {"scope": op.Scope.OPERATOR, "offline": True, "bare": True, "deadline_s": 60}


@CONNECT.operation("connect_search", SearchToConnect, route="POST search", changes=True, **_HOW)
async def connect(asked: SearchToConnect, _caller: Caller, parts: DatabaseParts) -> ConnectedSearch:
    """Connect a search service: search once, then offer web_search to models. Its key goes into secrets.env."""
    from klaw.config.edit import UNSET
    from klaw.toolbox.search_services import SEARCH_SERVICES
    from klaw.toolbox.web_search import find_searxng

    service, key, variable = SEARCH_SERVICES.get(asked.service), None, None
    if asked.service == "searxng" and asked.url is None:
        asked = attrs.evolve(asked, url=await find_searxng())
        if asked.url is None:
            raise op.OperationError("bad_args", "is needed: no SearXNG answers on this machine", field="url")
    if asked.service == "mcp" and asked.tool is None:
        raise op.OperationError("bad_args", "is needed: the tool that searches, as server__tool", field="tool")
    if service is not None and service.key_env:
        key, variable = await files().run(_key, asked, service, parts)
    try:
        titles = await _titles(asked, key, parts) if asked.test else None
    except (ToolRefused, ValueError) as error:
        raise op.OperationError("not_connected", str(error)) from None
    own = {"service": asked.service, "url": asked.url, "apiKey": variable and f"${{{variable}}}", "tool": asked.tool}
    changes: dict[str, Any] = {f"tools.web.search.{name}": value or UNSET for name, value in own.items()}
    changes |= {"tools.web.enabled": True} if asked.fetch else {}
    changed = not asked.dry_run
    key_in = variable if changed and variable is not None and parts.environ.get(variable) != key else None
    if changed:
        await take_up(parts, changes, key_in, key)
    return {
        "service": asked.service,
        "url": asked.url,
        "titles": titles,
        "key_in": key_in,
        "changed": changed,
        "in_effect": changed and parts.budget is not None,
    }


def _key(asked: SearchToConnect, service: "SearchService", parts: DatabaseParts) -> tuple[str, str]:
    """The key, and the variable that holds it or gets it. Blocks."""
    from klaw.config.secrets import with_secrets

    key, variable = asked.key, asked.key_env or service.key_env
    if key is not None:
        clash = parts.environ.get(variable, key) != key  # which would win
        return key, f"KLAW_{variable}" if clash else variable
    if asked.key_env or not asked.url:  # no other address gets it unasked
        key = with_secrets(parts.paths.config_file.parent).get(variable)
    if not key:
        text = f"{service.name} wants a key: get one at https://{service.key_page}"
        raise op.OperationError("not_connected", text, field="key")
    return key, variable


async def _titles(asked: SearchToConnect, key: str | None, parts: Any) -> list[str] | None:
    """Search once. None: only a running server could call the tool. Raises ToolRefused, ValueError."""
    from klaw.config.environment import Secret
    from klaw.config.tools import WebSearchConfig
    from klaw.toolbox.search_services import MAX_TITLE, SearchQuery, line_of
    from klaw.toolbox.spec import ToolContext
    from klaw.toolbox.web_search import search, search_by_tool

    query = SearchQuery(text="Wikipedia", count=SHOWN_TITLES, now=parts.clock.now())
    if asked.service != "mcp":
        secret = Secret(key) if key is not None else None
        config = WebSearchConfig(service=asked.service, url=asked.url, api_key=secret)
        return [each.title for each in await search(config, query)]
    if parts.budget is None:
        return None
    context, toolbox = ToolContext(user=LOCAL_USER, chat=None), parts.tools.executor.toolbox
    return [line_of(await search_by_tool(toolbox, context, asked.tool or "", query), MAX_TITLE)]
