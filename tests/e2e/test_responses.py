"""OpenAI's Responses API, as its SDK speaks it."""

import json

import httpx2
import openai
import pytest

from tests.e2e.test_other_clients import base, client_of, in_thread
from tests.support.llm_server import Hang, Reasoning, Reply, Text, echo_reply, error_reply, serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S


@pytest.fixture
async def llm():
    async with serve_llm() as running:
        running.respond = echo_reply
        yield running


@pytest.fixture
async def server(tmp_path, llm):
    async with served(write_home(tmp_path, llm=llm.url)) as running:
        yield running


@pytest.fixture
async def http(server):
    async with httpx2.AsyncClient(base_url=base(server), trust_env=False, timeout=HANG_S) as client:
        yield client


def given(llm):
    """The conversation of the last request, without its system texts."""
    return [each["content"] for each in llm.requests[-1].messages if each["role"] != "system"]


async def ask(http, text, **more):
    headers = more.pop("headers", {})
    found = await http.post("/v1/responses", json={"model": "klaw", "input": text, **more}, headers=headers)
    assert found.status_code == 200, found.text
    return found.json()


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


async def refused(http, **body):
    found = await http.post("/v1/responses", json={"input": "Hi", **body})
    return found.status_code, found.json()["error"]["param"]


async def test_the_sdk_goes_on_from_a_response(server, llm):
    def talk():
        with client_of(server) as client:
            one = client.responses.create(model="klaw", input="Привет", instructions="Be brief", metadata={"a": "b"})
            two = client.responses.create(model="klaw", input="And now?", previous_response_id=one.id)
            return one, two, client.responses.retrieve(one.id)

    one, two, again = await in_thread(talk)
    assert (one.output_text, one.status, one.metadata) == ("echo: Привет", "completed", {"a": "b"})
    assert one.usage.total_tokens == one.usage.input_tokens + one.usage.output_tokens > 0
    assert (two.previous_response_id, given(llm)) == (one.id, ["Привет", "echo: Привет", "And now?"])
    assert "Be brief" not in json.dumps(llm.requests[-1].body), "instructions are not carried over"
    assert (again.id, again.output) == (one.id, one.output)


async def test_the_sdk_streams(server, llm):
    llm.respond = lambda _: Reply(steps=(Reasoning("Hm, "), Reasoning("a greeting"), Text("При"), Text("вет")))

    def talk():
        with client_of(server) as client:
            events = list(client.responses.create(model="klaw", input="Hi", stream=True))
            with client.responses.stream(model="klaw", input="Hi", reasoning={"summary": "auto"}) as stream:
                told = list(stream)
                return events, told, stream.get_final_response()

    events, told, final = await in_thread(talk)
    assert [each.type.removeprefix("response.") for each in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * (len(events) - 8),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [each.sequence_number for each in events] == list(range(len(events)))
    assert final.output_text == events[-1].response.output_text == "Привет"
    assert [each.type for each in final.output] == ["reasoning", "message"]
    assert final.output[0].summary[0].text == "Hm, a greeting"
    assert "response.reasoning_summary_text.delta" in [each.type for each in told]


async def test_an_earlier_response_is_gone_on_from_in_another_variant(http, llm):
    first = await ask(http, "One")
    for text in ("Two", "Three", "Three"):
        then = await ask(http, text, previous_response_id=first["id"])
        assert given(llm) == ["One", "echo: One", text]
    assert (await http.get("/api/v1/chats")).json()["chats"][0]["last_seq"] == 8
    await ask(http, "Four", previous_response_id=then["id"])
    assert given(llm) == ["One", "echo: One", "Three", "echo: Three", "Four"]
