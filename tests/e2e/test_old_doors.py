"""/v1/completions for old clients, and all of Ollama's API but chats: generate, ps, embed, what clients probe."""

import json

import httpx2
import ollama

from tests.e2e.test_other_clients import PNG, base, client_of, in_thread
from tests.support.llm_server import Reasoning, Reply, Text, Tool, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S


async def chats(http):
    return (await http.get("/api/v1/chats")).json()["chats"]


async def test_an_old_completion_is_a_message_of_a_chat(server, http, llm):
    def talk():
        with client_of(server) as client:
            whole = client.completions.create(model="klaw", prompt="Привет", user="old")
            pieces = client.completions.create(model="klaw", prompt=["Ещё"], user="old", stream=True)
            return whole, list(pieces)

    whole, pieces = await in_thread(talk)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("echo: Привет", "stop")
    assert whole.usage.total_tokens > 0
    assert "".join(each.choices[0].text for each in pieces) == "echo: Ещё"
    assert pieces[-1].choices[0].finish_reason == "stop"
    assert [(each["name"], each["last_seq"]) for each in await chats(http)] == [("old", 4)]


HOLES = (
    {"prompt": "def f(", "suffix": "return 1"},
    {"prompt": "<|fim_prefix|>def f(<|fim_suffix|>):<|fim_middle|>"},
    {"prompt": "<PRE> def f( <SUF>): <MID>"},
    {"prompt": "<｜fim▁begin｜>def f(<｜fim▁hole｜>):<｜fim▁end｜>"},
    {"prompt": "[SUFFIX]):[PREFIX]def f("},
)


async def test_what_an_editor_completes_is_not_stored(http, llm):
    llm.respond = lambda _: Reply(steps=(Text("x"), Text("):")))
    for path in ("/v1/completions", "/api/generate"):
        for stream in (True, False):
            for asked in HOLES:
                found = await http.post(path, json={**asked, "stream": stream, "raw": True})
                assert found.status_code == 200, found.text
                assert "x):" in found.text
                assert "has a hole" in llm.requests[-1].messages[0]["content"]
                assert "def f(" in llm.requests[-1].last_user
    assert await chats(http) == []


async def test_what_an_old_completion_cannot_have_is_refused_by_name(http):
    for field, value in (("echo", True), ("n", 2), ("best_of", 3), ("logprobs", 1)):
        found = await http.post("/v1/completions", json={"prompt": "Hi", field: value})
        assert (found.status_code, found.json()["error"]["param"]) == (400, field)
    for prompt in (None, "", ["a", "b"], [1, 2], 5):
        found = await http.post("/v1/completions", json={"prompt": prompt})
        assert (found.status_code, found.json()["error"]["param"]) == (400, "prompt")
        found = await http.post("/api/generate", json={"prompt": prompt or {}})
        assert (found.status_code, found.json()["error"].partition(":")[0]) == (400, "prompt")


async def test_ollama_generates(server, http, llm):
    llm.respond = lambda _: Reply(steps=(Reasoning("Hm"), Text("При"), Text("вет")))

    def talk():
        with ollama.Client(host=base(server), timeout=HANG_S) as client:
            whole = client.generate(model="klaw", prompt="Hi", system="Be brief", think=True)
            plain = client.generate(model="klaw", prompt="Hi", options={"num_ctx": 100, "num_predict": -1})
            pieces = list(client.generate(model="klaw", prompt="Hi", stream=True, think=True))
            chat = client.chat(model="klaw", messages=[{"role": "user", "content": "Hi"}], think=True)
            return whole, plain, pieces, chat, client.generate(model="klaw"), client.ps().models

    whole, plain, pieces, chat, loaded, running = await in_thread(talk)
    assert (whole.response, whole.thinking, whole.done, whole.done_reason) == ("Привет", "Hm", True, "stop")
    assert (plain.response, plain.thinking) == ("Привет", None)
    assert ("".join(each.response for each in pieces), pieces[0].thinking) == ("Привет", "Hm")
    assert (chat.message.content, chat.message.thinking) == ("Привет", "Hm")
    assert (loaded.response, loaded.done, loaded.done_reason) == ("", True, "load")
    assert [each.model for each in running] == ["klaw:latest"]
    assert "Be brief" in json.dumps(llm.requests[0].messages[0])
    assert len(await chats(http)) == 4


async def test_what_clients_of_ollama_probe(http):
    assert (await http.head("/")).status_code == 200
    version = (await http.get("/api/version")).json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 12)
    about = (await http.post("/api/show", json={"model": "klaw"})).json()
    assert about["model_info"]["klaw.context_length"] > 0
    for method, path in (
        *(("POST", f"/api/{word}") for word in ("pull", "push", "create", "copy")),
        ("DELETE", "/api/delete"),
        ("HEAD", "/api/blobs/sha256:1"),
        ("POST", "/api/blobs/sha256:1"),
    ):
        found = await http.request(method, path, json={"model": "klaw"})
        assert found.status_code == 403
        assert method == "HEAD" or "chooses its models" in found.json()["error"]


async def test_pictures_of_a_prompt_become_files_of_its_message(tmp_path, llm):
    sees = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"images": True, "contextTokens": 100_000}}}

    def talk(server):
        with ollama.Client(host=base(server), timeout=HANG_S) as client:
            return client.generate(model="klaw", prompt="What is it?", images=[PNG]), client.show("klaw")

    async with served(write_home(tmp_path, providers={"stub": sees})) as server:
        _, about = await in_thread(talk, server)
        assert about.capabilities == ["completion", "vision"]
        assert about.modelinfo["klaw.context_length"] == 100_000
    assert any(part["type"] == "image_url" for part in llm.requests[-1].messages[-1]["content"])


async def test_ollama_takes_tools_and_a_form_of_the_answer(tmp_path, llm):
    with_tools = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
    called = Reply(steps=(Tool(id="c1", name="weather", arguments='{"at": "Рига"}'),), finish_reason="tool_calls")
    llm.replies += [called, called, text_reply("Sunny"), text_reply('{"a": 1}'), text_reply("{}")]
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    def talk(server):
        with ollama.Client(host=base(server), timeout=HANG_S) as client:
            said = [{"role": "user", "content": "Weather?"}]
            streamed = list(client.chat(model="klaw", messages=said, tools=[tool], stream=True))[-1]
            first = client.chat(model="klaw", messages=said, tools=[tool])
            said += [first.message, {"role": "tool", "tool_name": "weather", "content": "SUNNY 21"}]
            second = client.chat(model="klaw", messages=said, tools=[tool])
            options = {"temperature": 0.5, "seed": 7, "stop": ["END"], "num_predict": 50}
            third = client.generate(model="klaw", prompt="JSON", format=schema, options=options)
            client.generate(model="klaw", prompt="JSON", format="json")
            for name, more in (
                ("think", {"think": "much"}),
                ("options.seed", {"options": {"seed": 0.5}}),
                ("format", {"format": "xml"}),
            ):
                found = httpx2.post(f"{base(server)}/api/chat", json={"messages": said[:1], **more}, trust_env=False)
                assert (found.status_code, found.json()["error"].partition(":")[0]) == (400, name)
            return streamed, first, second, third, client.show("klaw").capabilities

    async with served(write_home(tmp_path, providers={"stub": with_tools})) as server:
        streamed, first, second, third, capabilities = await in_thread(talk, server)
    for each in (streamed, first):
        call = each.message.tool_calls[0].function
        assert (call.name, call.arguments, each.done_reason) == ("weather", {"at": "Рига"}, "stop")
    assert "SUNNY 21" in llm.requests[2].messages[-1]["content"]
    assert (second.message.content, third.response, capabilities) == ("Sunny", '{"a": 1}', ["completion", "tools"])
    sent = llm.requests[3].body
    assert (sent["temperature"], sent["seed"], sent["stop"]) == (0.5, 7, ["END"])
    assert sent["response_format"]["json_schema"]["schema"] == schema
