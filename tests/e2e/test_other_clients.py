"""Clients that others made: the openai package, the llm command, the ollama package."""

import base64
import json
import sys
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import ollama
import openai
import pytest
import trio

from tests.support.llm_server import error_reply, serve_llm, text_reply
from tests.support.plugins.models import models_dir
from tests.support.server import clean_environ, served, write_home
from tests.support.waiting import HANG_S, until


@pytest.fixture
async def llm():
    async with serve_llm() as running:
        yield running


@pytest.fixture
async def server(tmp_path, llm):
    async with served(write_home(tmp_path, llm=llm.url)) as running:
        yield running


def base(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


def client_of(server, **how):
    return openai.OpenAI(base_url=f"{base(server)}/v1", api_key="none", timeout=HANG_S, max_retries=0, **how)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(4))


async def messages_of(server, chat):
    async with httpx2.AsyncClient(base_url=base(server), trust_env=False) as http:
        return (await http.get(f"/api/v1/chats/{chat}/messages")).json()["messages"]


async def test_openai_lands_in_one_chat_though_it_resends_everything(server, llm):
    llm.respond = lambda request: text_reply("You said: ", request.last_user)

    def talk():
        with client_of(server) as client:
            assert [model.id for model in client.models.list()] == ["klaw"]
            said, chats = [{"role": "system", "content": "Answer like a pirate"}], set()
            for question in ("Привет", "What did I say?", "And now?"):
                said.append({"role": "user", "content": question})
                raw = client.chat.completions.with_raw_response.create(model="klaw", messages=said)
                chats.add(raw.headers["x-klaw-chat"])
                answer = raw.parse()
                assert answer.choices[0].message.content == f"You said: {question}"
                assert answer.usage.total_tokens > 0
                said.append({"role": "assistant", "content": answer.choices[0].message.content})
            return chats, raw.headers["x-klaw-receipt"]

    chats, receipt = await in_thread(talk)
    (chat,) = chats
    stored = await messages_of(server, chat)
    assert [each["content"] for each in stored if each["role"] == "user"] == ["Привет", "What did I say?", "And now?"]
    assert "pirate" not in json.dumps(stored)
    assert "Answer like a pirate" in json.dumps([each.messages[0] for each in llm.requests[:1]])
    async with httpx2.AsyncClient(base_url=base(server), trust_env=False) as http:
        assert (await http.get(receipt)).json()["status"] == "done"


async def test_openai_streams_and_counts_in_the_last_chunk(server, llm):
    llm.respond = lambda _: text_reply("При", "вет")

    def talk():
        with client_of(server, default_headers={"X-Klaw-Chat": quote("работа")}) as client:
            asked = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
            return list(
                client.chat.completions.create(
                    model="klaw", messages=asked, stream=True, stream_options={"include_usage": True}
                )
            )

    chunks = await in_thread(talk)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Привет"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0
    assert [each["role"] for each in await messages_of(server, "работа")] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("headers", "user", "chat"),
    [
        ({"X-Klaw-Chat": "one", "X-OpenWebUI-Chat-Id": "two"}, "three", "one"),
        ({"X-OpenWebUI-Chat-Id": "5c0e7e5c-9df4-4c3a-8f6e"}, "three", "5c0e7e5c-9df4-4c3a-8f6e"),
        ({"X-Conversation-Id": "libre"}, "three", "libre"),
        ({}, "three", "three"),
    ],
)
async def test_the_chat_is_chosen_by_what_the_client_says(server, headers, user, chat):
    def talk():
        with client_of(server, default_headers=headers) as client:
            client.chat.completions.create(model="klaw", messages=[{"role": "user", "content": "Hi"}], user=user)

    await in_thread(talk)
    assert len(await messages_of(server, chat)) == 2


async def test_a_title_is_answered_and_not_stored(server, llm):
    llm.respond = lambda _: text_reply("Tea and weather")

    def talk(question):
        with client_of(server, default_headers={"X-Klaw-Chat": "main"}) as client:
            answer = client.chat.completions.create(model="klaw", messages=[{"role": "user", "content": question}])
            return answer.choices[0].message.content

    for question in (
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.",
        "Provide a concise, 5-word-or-less title for the conversation, using title case conventions.",
    ):
        assert await in_thread(talk, question) == "Tea and weather"
    await in_thread(talk, "Hello")
    assert [each["content"] for each in await messages_of(server, "main")] == ["Hello", "Tea and weather"]


async def test_openai_is_told_what_is_wrong(server, llm):
    llm.respond = lambda _: error_reply(400)

    def talk():
        with client_of(server) as client:
            with pytest.raises(openai.BadRequestError) as no_question:
                client.chat.completions.create(model="klaw", messages=[{"role": "assistant", "content": "Hi"}])
            with pytest.raises(openai.APIStatusError) as failed:
                client.chat.completions.create(model="klaw", messages=[{"role": "user", "content": "Hi"}])
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("gpt-9")
            return no_question.value.param, failed.value.status_code, failed.value.code

    assert await in_thread(talk) == ("messages", 424, "llm_refused")


async def test_the_llm_command(tmp_path, server, llm):
    llm.respond = lambda _: text_reply("Hello from Klaw")
    folder = tmp_path / "llm"
    folder.mkdir()
    model = {"model_id": "klaw", "model_name": "klaw", "api_base": f"{base(server)}/v1", "api_key_name": "klaw"}
    (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))
    environ = {**clean_environ(), "LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}
    command = [str(Path(sys.executable).parent / "llm"), "-m", "klaw", "--key", "none", "Say hello"]
    done = await trio.run_process(command, env=environ, capture_stdout=True)
    assert done.stdout.decode().strip() == "Hello from Klaw"


async def test_the_ollama_package(server, llm):
    llm.respond = lambda request: text_reply("You said: ", request.last_user)

    def talk():
        with ollama.Client(host=base(server), timeout=HANG_S) as client:
            assert [each.model for each in client.list().models] == ["klaw:latest"]
            assert client.show("klaw").capabilities == ["completion"]
            asked = [{"role": "user", "content": "Привет"}]
            whole = client.chat(model="klaw", messages=asked)
            asked += [{"role": "assistant", "content": whole.message.content}, {"role": "user", "content": "Ещё"}]
            pieces = list(client.chat(model="klaw", messages=asked, stream=True))
            with pytest.raises(ollama.ResponseError) as wrong:
                client.chat(model="klaw", messages=[])
        streamed = "".join(each.message.content for each in pieces)
        return whole.message.content, streamed, pieces[-1].done, str(wrong.value)

    whole, streamed, done, wrong = await in_thread(talk)
    assert (whole, streamed, done) == ("You said: Привет", "You said: Ещё", True)
    assert "messages" in wrong


async def test_pictures_become_files_of_their_messages(tmp_path, llm):
    llm.respond = lambda _: text_reply("A greenhouse")
    sees = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"images": True, "contextTokens": 100_000}}}
    picture, older = (base64.b64encode(PNG + bytes([last])).decode() for last in (1, 2))

    def part(url):
        return {"type": "image_url", "image_url": {"url": url}}

    def talk(server):
        said = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, part("https://a.example/x.png")]}]
        with client_of(server, default_headers={"X-Klaw-Chat": "garden"}) as client:
            with pytest.raises(openai.BadRequestError, match="not fetched") as refused:
                client.chat.completions.create(model="klaw", messages=said)
            said[0]["content"][1] = part(f"data:image/png;base64,{older}")
            said += [
                {"role": "assistant", "content": "?"},
                {"role": "user", "content": [part(f"data:;base64,{picture}")]},
            ]
            client.chat.completions.create(model="klaw", messages=said)
        with ollama.Client(host=base(server), headers={"X-Klaw-Chat": "home"}, timeout=HANG_S) as client:
            assert client.show("klaw").capabilities == ["completion", "vision"]
            client.chat(model="klaw", messages=[{"role": "user", "content": "Что это?", "images": [picture]}])
        return refused.value.param

    async with served(write_home(tmp_path, llm=llm.url, providers={"stub": sees})) as server:
        assert await in_thread(talk, server) == "messages"
        for chat, texts in (("garden", ["What is it?", ""]), ("home", ["Что это?"])):
            asked = [each for each in await messages_of(server, chat) if each["role"] == "user"]
            assert [each["content"] for each in asked] == texts
            assert all([file["name"] for file in each["files"]] == ["picture.png"] for each in asked)
    bodies = [json.dumps(request.body["messages"]) for request in llm.requests[-2:]]
    assert [(picture in each, older in each) for each in bodies] == [(True, True), (True, False)]


@pytest.mark.usefixtures("embedding_model_dir")
async def test_vectors_are_counted_and_pages_of_an_allowed_origin_may_ask(tmp_path):
    home = write_home(tmp_path, models=models_dir(), gateway={"allowedOrigins": ["https://page.example"]})

    def ask(server):
        with client_of(server) as client:
            return client.embeddings.create(model="klaw", input=["Кошку зовут Мурка", "The cat"])

    async with served(home) as server, httpx2.AsyncClient(base_url=base(server), trust_env=False) as http:

        async def is_ready():
            return (await http.post("/v1/embeddings", json={"input": "x"})).status_code == 200

        await until(is_ready)
        made = await in_thread(ask, server)
        assert len(made.data[0].embedding) == len(made.data[1].embedding) > 100
        assert made.usage.total_tokens == made.usage.prompt_tokens == 11
        two = await http.post("/api/embed", json={"model": "klaw", "input": ["Кошку зовут Мурка", "The cat"]})
        old = await http.post("/api/embeddings", json={"model": "klaw", "prompt": "The cat"})
        vectors = [each.embedding for each in made.data]
        assert [two.json()["embeddings"], old.json()["embedding"]] == [vectors, vectors[1]]
        asked = {"Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization, mcp-session-id, mcp-protocol-version, last-event-id"
        for origin, status in (("https://page.example", 200), ("https://evil.example", 400)):
            allowed = await http.options("/mcp", headers={"Origin": origin, **asked})
            assert (allowed.status_code, allowed.headers.get("access-control-allow-origin") == origin) == (
                status,
                status == 200,
            )
