"""MCP end to end: a WebSocket client, the server process, a model that calls tools, and a real MCP server process."""

import json
import sys

import trio

from klaw.wire.frames import Tool as ToolFrame
from tests.support.llm_server import Recorded, Reply, Tool, serve_llm, text_reply, tool_reply
from tests.support.programs.mcp_client import alive, program
from tests.support.server import klaw_command, served, write_home
from tests.support.talking import talking
from tests.support.waiting import until


def home_with_servers(tmp_path, llm, **servers):
    return write_home(
        tmp_path,
        llm=llm.url,
        providers={"stub": {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}},
        mcp={"servers": servers},
    )


async def klaw(server, *arguments):
    done = await trio.run_process(
        klaw_command(*arguments, "--home", str(server.home)), capture_stdout=True, capture_stderr=True, check=False
    )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


async def until_ready(server, name, times=1):
    await until(lambda: [event["name"] for event in server.events("mcp_ready")].count(name) == times)


def results(request: Recorded):
    return [message["content"] for message in request.messages if message["role"] == "tool"]


async def test_a_turn_calls_a_tool_of_an_mcp_server(tmp_path):
    """The tool is offered, called and answered; what it says is data; its death is told to the model and to people."""

    def respond(request: Recorded) -> Reply:
        said = results(request)
        if not said:
            return tool_reply(
                Tool("c1", "notes__greet", json.dumps({"name": "Анна"}, ensure_ascii=False)),
                Tool("c2", "notes__inject", "{}"),
            )
        return text_reply("Сказано: ", said[0])

    async with (
        serve_llm() as llm,
        served(home_with_servers(tmp_path, llm, notes=program(), gone={"command": "/nowhere"})) as server,
    ):
        llm.respond = respond
        await until_ready(server, "notes")
        async with talking(server.url) as talk:
            assert await talk.answer_to(await talk.ask("Поздоровайся")) == "Сказано: Привет, Анна! (test)"
            frames = [(event.name, event.state) for event in talk.events if isinstance(event, ToolFrame)]
            assert sorted(frames) == [
                (name, state) for name in ("notes__greet", "notes__inject") for state in ("done", "started")
            ]
            first, second = llm.requests
            offered = [tool["function"]["name"] for tool in first.body["tools"]]
            assert "notes__greet" in offered
            assert offered == sorted(offered)
            assert first.body["tools"] == second.body["tools"]
            # What a server says stands in a tool's result and nowhere else, its "instructions" least of all.
            for message in second.messages:
                assert ("IGNORE ALL PREVIOUS" in str(message["content"])) == (message.get("tool_call_id") == "c2")

            llm.respond = lambda request: (
                text_reply(results(request)[-1])
                if request.messages[-1]["role"] == "tool"
                else tool_reply(Tool("c1", "notes__die", "{}"))
            )
            answer = await talk.answer_to(await talk.ask("Умри"))
            assert "The MCP server notes ended during the call" in answer
        await until_ready(server, "notes", times=2)

        code, text = await klaw(server, "mcp", "list")
        assert code == 0
        assert "notes: ready, 16 tools" in text
        assert "gone: not connected: its command cannot be started (No such file or directory)" in text
        assert "last error McpError" in text
        code, text = await klaw(server, "mcp", "list", "nothing")
        assert (code, text) == (1, "klaw: NAME: there is no such MCP server; there are: gone, notes\n")
        _, text = await klaw(server, "status")
        assert "notes: ready, 16 tools" in text
        assert "the MCP server gone is not connected" in text
        _, text = await klaw(server, "actors")
        assert "mcp.notes" in text
        pids = [event["pid"] for event in server.events("mcp_process_started")]
        assert len(pids) == 2
        await server.terminate()
        assert not any(map(alive, pids))
        assert "Анна" not in server.stderr


async def test_a_killed_klaw_leaves_no_server_behind(tmp_path):
    """Its stdin ends, and a server ends with that."""
    async with serve_llm() as llm, served(home_with_servers(tmp_path, llm, notes=program())) as server:
        await until_ready(server, "notes")
        (event,) = server.events("mcp_process_started")
        await server.kill()
        await until(lambda: not alive(event["pid"]))


async def test_without_servers_nothing_of_the_sdk_is_loaded(tmp_path):
    code = (
        "import sys, klaw.app.serve, klaw.toolbox.tools; "
        "sys.exit(any(name.partition('.')[0] in ('mcp', 'mcp_types', 'pydantic') for name in sys.modules))"
    )
    done = await trio.run_process([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
