"""What the docs recommend works under the unit: credentials, bubblewrap, Node MCP servers, a workspace elsewhere."""

import json
from typing import Any

import pytest
import trio

from tests.support.llm_server import LlmServer, Recorded, Tool, serve_llm, text_reply, tool_reply
from tests.system.machine import HOME, Machine, until

NODE_SERVER = """
const lines = require("readline").createInterface({ input: process.stdin });
const tool = { name: "greet", description: "Greets.", inputSchema: { type: "object", properties: {} } };
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    initialize: () => ({
      protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "n", version: "1" } }),
    "tools/list": () => ({ tools: [tool] }),
    "tools/call": () => ({ content: [{ type: "text", text: "hello from node" }] }),
    ping: () => ({}),
  };
  const result = (results[method] || (() => ({})))();
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"""


def settings(llm: LlmServer, **more: Any) -> dict[str, Any]:
    models = {"echo": {"tools": True}}
    provider = {"baseUrl": llm.url, "apiKey": "${credential:cloud}", "maxRetries": 0, "models": models}
    return {"providers": {"stub": provider}, "routing": {"default": "stub/echo"}, **more}


@pytest.fixture(autouse=True, scope="module")
def key(machine: Machine) -> None:
    """The provider's key, as docs/operations.md has it."""
    (machine.root / "etc/klaw/cloud.key").write_text("sk-secret-1")
    machine.run("chmod", "600", "/etc/klaw/cloud.key")
    machine.drop_in("klaw.service", "[Service]\nLoadCredential=cloud:/etc/klaw/cloud.key\n")


def calls(name: str, **arguments: Any) -> Any:
    """A model that calls one tool and then says what came of it."""

    def respond(request: Recorded) -> Any:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        if results:
            return text_reply(f"It said: {results[-1]}")
        return tool_reply(Tool("call_1", name, json.dumps(arguments)))

    return respond


async def said(machine: Machine, question: str, chat: str) -> str:
    """Klaw's answer."""
    url = f"ws://127.0.0.1:{machine.port}/ws"
    done = await trio.to_thread.run_sync(lambda: machine.run("klaw", "chat", question, "--chat", chat, "--url", url))
    return done.stdout


async def test_a_key_comes_by_load_credential_and_never_stands_in_a_file_of_klaw(machine: Machine) -> None:
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("A lime.")
        machine.configure(**settings(llm))
        await trio.to_thread.run_sync(machine.restart)
        assert "A lime." in await said(machine, "Name a tree.", "main")
        assert llm.requests[0].headers["authorization"] == "Bearer sk-secret-1"
    assert machine.run("grep", "-r", "sk-secret-1", HOME, check=False).returncode == 1


async def test_programs_run_in_bubblewrap(machine: Machine) -> None:
    async with serve_llm() as llm:
        llm.respond = calls("host_exec", command="ls /var/lib")
        exec_ = {"enabled": True, "allow": ["ls **"], "sandbox": "bubblewrap"}
        machine.configure(**settings(llm, tools={"exec": exec_}))
        await trio.to_thread.run_sync(machine.restart)
        told = await said(machine, "What is there?", "bubblewrap")
        assert "It said:" in told
        assert "does not work here" not in told
        assert "exit code 0" in told or "klaw" in told or "dpkg" in told, told


async def test_an_mcp_server_on_node_runs(machine: Machine) -> None:
    (machine.root / "srv/server.js").write_text(NODE_SERVER)
    async with serve_llm() as llm:
        llm.respond = calls("node__greet")
        node = {"command": "/usr/bin/node", "args": ["/srv/server.js"], "permission": "read"}
        machine.configure(**settings(llm, mcp={"servers": {"node": node}}))
        await trio.to_thread.run_sync(machine.restart)
        await trio.to_thread.run_sync(
            until, lambda: "node__greet" in machine.asked("klaw", "--home", HOME, "mcp", "list")
        )
        assert "hello from node" in await said(machine, "Greet me.", "node")


async def test_a_workspace_elsewhere_can_be_written(machine: Machine) -> None:
    machine.run("mv", f"{HOME}/workspace", "/srv/workspace")  # as it asks for, where one has been in use
    arguments = ["--no-models", "--with", "node-mcp", "--with", "bubblewrap", "--workspace", "/srv/workspace"]
    await trio.to_thread.run_sync(lambda: machine.run("klaw", "service", "install", *arguments))
    async with serve_llm() as llm:
        llm.respond = calls("file_write", path="notes/список.md", content="молоко")
        machine.configure(**settings(llm))
        await trio.to_thread.run_sync(machine.restart)
        assert "It said:" in await said(machine, "Write it down.", "workspace")
    assert (machine.root / "srv/workspace/notes/список.md").read_text() == "молоко"
