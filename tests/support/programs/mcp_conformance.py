"""Klaw as the client that the MCP conformance suite tests: ``python -m tests.support.programs.mcp_conformance URL``.

The suite starts it for each scenario, whose name and context stand in the environment. Its own parts connect: a server
of the configuration as actor, with approvals that a person answers with yes, and logins in a browser that follows the
redirect.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import httpx2
import trio

from klaw.toolbox.mcp.server import McpServer, McpState
from tests.support.programs.mcp_client import Running, running, yes_sayer
from tests.support.waiting import until

REDIRECT = "http://127.0.0.1:18181/oauth/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
LOGINS = 3
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def oauth_of(scenario: str, context: dict, url: str) -> dict:
    """What an operator would write into the configuration for a scenario."""
    if scenario == "auth/basic-cimd":
        return {"clientId": DOCUMENT}
    if "client_id" not in context:
        return {}
    found = {"clientId": context["client_id"]}
    if "client_secret" in context:
        found["clientSecret"] = context["client_secret"]
    if "private_key_pem" in context:
        found["privateKey"] = context["private_key_pem"]
    if scenario.startswith("auth/client-credentials"):
        parts = httpx2.URL(url)
        place = f"{parts.scheme}://{parts.netloc.decode()}/.well-known/oauth-protected-resource"
        found |= {"grant": "client", "issuer": _issuer(place, parts.path)}
    return found


def _issuer(place: str, path: str) -> str:
    for each in (f"{place}{path}", place):
        answer = httpx2.get(each)
        if answer.status_code == 200:
            return answer.json()["authorization_servers"][0].rstrip("/")
    raise SystemExit("no metadata")


async def browse(server: McpServer) -> None:
    """Log in as a person does."""
    login = server.log_in(REDIRECT, device=False)
    await login.wait()
    if not login.over:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(login.address)
        assert server.takes_login(answer.headers["location"]), answer.status_code
        await login.wait()


async def settled(server: McpServer) -> str:
    await until(lambda: server.report().state is not McpState.STARTING)
    return server.report().reason or ""


async def use(here: Running, server: McpServer) -> None:
    logins = 0
    while True:
        reason = await settled(server)
        if not reason:
            for name in here.names():
                result = await here.call(name, **ARGUMENTS.get(name.partition("__")[2], {}))
                print(name, result.text[:200])
            await trio.sleep(0.3)
            reason = server.report().reason or ""
            if not reason:
                return
        print("not connected:", reason)
        if "klaw mcp login" not in reason or logins == LOGINS:
            raise SystemExit(1)
        logins += 1
        await browse(server)


async def main() -> None:
    url, scenario = sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as folder:
        config = {"url": url, "oauth": oauth_of(scenario, context, url)}
        async with running({"s": config}, ready=False, host=yes_sayer(Path(folder))) as here:
            await use(here, here.servers["s"])


trio.run(main)
