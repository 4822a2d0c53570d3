"""A client's tool is called, and the server is killed before the result comes: the turn goes on with it, once."""

import json

import httpx2
import pytest
import trio

from tests.support.llm_server import Hang, Recorded, Reply, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
ASKED = {"model": "klaw", "tools": [{"type": "function", "function": WEATHER}]}
QUESTION = {"role": "user", "content": "What is the weather in Riga?"}


def respond(request: Recorded) -> Reply:
    last = request.messages[-1]
    if last["role"] == "tool":
        return text_reply("So it is: ", last["content"])
    return tool_reply(Tool("c1", "weather", '{"city": "Riga"}'))


async def ask(server, messages, headers):
    """The one choice of an answer."""
    base = server.url.replace("ws://", "http://").removesuffix("/ws")
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=HANG_S, headers=headers) as http:
        found = await http.post("/v1/chat/completions", json={**ASKED, "messages": messages})
    assert found.status_code == 200, found.text
    return found.json()["choices"][0]


async def breaks_off(*asked):
    with pytest.raises(httpx2.TransportError):
        await ask(*asked)


def counted(request, part):
    return json.dumps(request.messages).count(part)


@pytest.mark.parametrize("headers", [{}, {"X-Klaw-Chat": "mine"}, {"X-OpenWebUI-Chat-Id": "mine"}])
@pytest.mark.parametrize("again", [False, True], ids=["before the result", "and in the answer"])
async def test_a_result_that_comes_after_a_kill_goes_on_with_its_turn_once(tmp_path, headers, again):
    async with serve_llm() as llm:
        llm.respond = respond
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
        async with served(write_home(tmp_path, providers={"stub": stub})) as server:
            called = await ask(server, [QUESTION], headers)
            assert called["finish_reason"] == "tool_calls"
            (call,) = called["message"]["tool_calls"]
            assert (call["type"], call["function"]["name"]) == ("function", "weather")
            assert json.loads(call["function"]["arguments"]) == {"city": "Riga"}
            await server.kill()
            await server.start()
            assert len(llm.requests) == 1, "nothing is asked again while the client has the call"
            result = {"role": "tool", "tool_call_id": call["id"], "content": "SUNNY 21"}
            said = [QUESTION, called["message"], result]

            if again:
                llm.replies.append(Reply(steps=(Text("So"), Hang())))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(breaks_off, server, said, headers)
                    await llm.wait_for_requests(2)
                    await server.kill()
                await server.start()
            answers = [await ask(server, said, headers) for _ in range(2)]
            assert [each["message"]["content"] for each in answers] == ["So it is: SUNNY 21"] * 2
            for request in llm.requests[1:]:
                assert (counted(request, "SUNNY 21"), counted(request, '"tool_calls"')) == (1, 1)
                assert request.messages[-1]["role"] == "tool"
            said += [answers[-1]["message"], {"role": "user", "content": "And now?"}]
            llm.replies.append(text_reply("Still."))
            assert (await ask(server, said, headers))["message"]["content"] == "Still."
            last = llm.requests[-1]
            assert [counted(last, each) for each in ("SUNNY 21", "So it is", QUESTION["content"])] == [2, 1, 1]
