"""``klaw mcp``: the MCP servers of a running Klaw."""

import argparse
from typing import Any

from klaw.cli.admin_call import NoServer, Refused, call, fail, line, print_json, span
from klaw.config.paths import Paths
from klaw.errors import KlawError


def list_command(args: argparse.Namespace) -> int:
    """Prints the servers; 1 when no Klaw runs, or one that was named does not exist."""
    try:
        answer = call(Paths.resolve(args.home), "mcp")
    except (NoServer, Refused) as error:
        return fail(error)
    servers = answer["servers"]
    known = [server["name"] for server in servers]
    for name in args.names:
        if name not in known:
            return fail(KlawError(f"there is no MCP server {name}; there are: {', '.join(known) or 'none'}"))
    if args.names:
        servers = [server for server in servers if server["name"] in args.names]
    if args.json:
        print_json({"servers": servers})
    elif servers:
        print("\n".join(lines(servers)))
    else:
        print("no MCP server is switched on; mcp.servers in engine.json names them (docs/tools.md)")
    return 0


def lines(servers: list[dict[str, Any]]) -> list[str]:
    """The servers as text."""
    shown = []
    for server in servers:
        shown.append(line(f"{server['name']}: {in_short(server, named=False)}"))
        details = [f"since {server['since']}", server["kind"]]
        if server["protocol"]:
            details.append(f"MCP {server['protocol']}")
        if server["last_error"]:
            details.append(f"last error {server['last_error']}")
        details.append(f"for {', '.join('everybody' if user == '*' else user for user in server['users'])}")
        shown.append(line(f"  {', '.join(details)}"))
        shown += [line(f"  {tool}") for tool in server["tools"]]
        if server["left_out"]:
            shown.append(f"  and {server['left_out']} more that are left out (maxTools)")
    return shown


def in_short(server: dict[str, Any], *, named: bool = True) -> str:
    """A server and whether it works, in one line."""
    state = server["state"]
    if state == "waiting":
        state = f"not connected: {server['reason']}"
        if server["retry_in_s"] is not None:
            state += f"; next attempt in {span(server['retry_in_s'])}"
    count = len(server["tools"])
    text = f"{state}, {count} tool{'' if count == 1 else 's'}"
    return f"{server['name']}: {text}" if named else text
