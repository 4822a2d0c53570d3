"""``klaw mcp login``, and ``klaw mcp serve``: an MCP server on standard input and output for programs of this machine,
which asks the running Klaw over its admin socket. Standard output holds nothing but the protocol then.
"""

import argparse
import importlib.util
import select
import signal
import sys
import time
from functools import partial
from typing import Any

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.operations import Here, ask, command
from klaw.cli.questions import tell
from klaw.config.paths import Paths
from klaw.domain.names import user_id
from klaw.errors import INSTALL_AGAIN, KlawError
from klaw.operations.mcp import McpLogin
from klaw.operations.operation import Noun, OperationError
from klaw.operations.perform import operations, read, read_tool_call

NOUN = Noun("mcp", "connect MCP servers, whose tools models may call (docs/tools.md)", local=True)
AT_ONCE = 2
"""Calls at the same time; the admin socket has 8 connections."""
LOOK_S = 1.0


@command(NOUN, "mcp_log_in", McpLogin, cli="login", show=lambda answer: [f"Logged in: {answer['name']}."])
def log_in(asked: McpLogin, here: Here) -> dict[str, Any]:
    """Log in to an MCP server, in a browser on this machine or on another one."""
    state = _asked(here, "mcp_login", attrs.asdict(asked))
    if state["address"]:
        tell("Open this address and agree:", f"  {state['address']}")
        tell(*([f"and type the code {state['code']}"] if state["code"] else []))
        tell("If that browser is on another machine, it ends on a page that does not open: paste its address here.")
    while state["address"]:
        pasted = ""
        if select.select([sys.stdin], [], [], LOOK_S)[0] and not (pasted := sys.stdin.readline().strip()):
            time.sleep(LOOK_S)  # its end
        given = {"name": asked.name, **({"answer": pasted} if pasted else {})}
        state = _asked(here, "mcp_login_state", given)
    if state["problem"]:
        raise OperationError("not_logged_in", f"the login failed: {state['problem']}")
    return state


def _asked(here: Here, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    return ask(here.paths, read(operations()[operation], given), given)


def mcp_serve_command(args: argparse.Namespace) -> int:
    """Serve until standard input ends. Raises KlawError: a package is missing."""
    if importlib.util.find_spec("mcp") is None:
        raise KlawError(f"the Python package mcp is missing: {INSTALL_AGAIN}")
    import trio

    from klaw.actor.log import configure

    user_id(args.user)
    configure("error", "console")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that reads standard input would hold up an orderly end
    trio.run(_serve, Paths.resolve(args.home), {"user": args.user, "client": f"mcp:{args.client}"})
    return 0


async def _serve(paths: Paths, asker: dict[str, str]) -> None:
    from mcp.server.stdio import stdio_server

    from klaw.actor.threads import Threads
    from klaw.api.mcp_server import make_server

    threads = Threads("admin socket", AT_ONCE)

    async def ask(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return await threads.run(partial(_ask, paths, asker, name, given))

    server = make_server(ask)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _ask(paths: Paths, asker: dict[str, str], name: str, given: dict[str, Any]) -> dict[str, Any]:
    from klaw.api import mcp_server

    try:
        operation, arguments = read_tool_call(name, given)
        return call(paths, operation.name, timeout_s=operation.deadline_s + 5, asker=asker, **arguments)
    except NoServer as error:
        told: dict[str, Any] = {"code": "unavailable", "detail": str(error)}
    except (RefusedByServer, OperationError) as error:
        errors = [{"field": each.path, "message": each.message} for each in error.problems]
        told = {"code": error.code, "detail": str(error), **({"errors": errors} if errors else {})}
    raise mcp_server.ToolCallRefused(told)
