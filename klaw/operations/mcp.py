"""The MCP servers of a running Klaw, whose tools models may call."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.text import plural, span
from klaw.operations.operation import Lines, Name, Noun, OperationError, Scope, argument

if TYPE_CHECKING:
    from klaw.toolbox.mcp.servers import McpServers

NOUN = Noun("mcp", "show the MCP servers, whose tools models may call (docs/tools.md)")


@attrs.frozen(kw_only=True)
class Mcp:
    names: tuple[Name, ...] = argument("only these servers (default: all)", default=(), positional=True, metavar="NAME")


def _lines(answer: dict[str, Any]) -> Lines:
    shown = []
    for server in answer["servers"]:
        details = [f"since {server['since']}", server["kind"]]
        details += [f"MCP {server['protocol']}"] if server["protocol"] else []
        details += [f"last error {server['last_error']}"] if server["last_error"] else []
        details.append(f"for {', '.join('everybody' if user == '*' else user for user in server['users'])}")
        shown += [in_short(server), f"  {', '.join(details)}", *(f"  {tool}" for tool in server["tools"])]
        if server["left_out"]:
            shown.append(f"  and {server['left_out']} more that are left out (maxTools)")
    return shown or ["no MCP server is switched on; mcp.servers in engine.json names them (docs/tools.md)"]


def in_short(server: dict[str, Any]) -> str:
    """A server and whether it works, in one line."""
    state = server["state"]
    if state == "waiting":
        state = f"not connected: {server['reason']}"
        if server["retry_in_s"] is not None:
            state += f"; next attempt in {span(server['retry_in_s'])}"
    return f"{server['name']}: {state}, {plural(len(server['tools']), 'tool')}"


def servers_json(mcp: "McpServers") -> list[dict[str, Any]]:
    """The servers that are switched on, as JSON has them."""
    from klaw.actor.clock import iso

    return [{**attrs.asdict(report), "since": iso(report.since)} for report in mcp.report()]


@NOUN.operation("mcp", Mcp, cli="list", show=_lines, scope=Scope.OPERATOR, deadline_s=2)
async def servers(asked: Mcp, mcp: "McpServers") -> dict[str, Any]:
    """List the MCP servers with their state and their tools."""
    found = servers_json(mcp)
    known = [server["name"] for server in found]
    if not set(asked.names) <= set(known):
        text = f"there is no such MCP server; there are: {', '.join(known) or 'none'}"
        raise OperationError("unknown_server", text, field="names")
    return {"servers": [server for server in found if not asked.names or server["name"] in asked.names]}
