"""OpenAI's Responses API, as its SDK speaks it."""

import json

import httpx2
import pytest
import trio

from tests.e2e.test_http import http as token_http
from tests.e2e.test_http import token_for, until_served
from tests.e2e.test_other_clients import base, client_of, in_thread
from tests.support.llm_server import Raw, Reasoning, Reply, Text, Tool, Wait, error_reply, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S


def given(llm):
    """The conversation of the last request, without its system texts."""
    return [each["content"] for each in llm.requests[-1].messages if each["role"] != "system"]


async def ask(http, said, **more):
    headers = more.pop("headers", {})
    found = await http.post("/v1/responses", json={"model": "klaw", "input": said, **more}, headers=headers)
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
    assert (again.id, again.output, again.usage) == (one.id, one.output, one.usage)


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


async def test_a_response_begins_while_the_model_is_waited_for(http, llm):
    loads = trio.Event()
    llm.replies += [Reply(before_head=[Wait(loads)], steps=(Text("Hi"),)), error_reply(400)]
    told = []
    with trio.fail_after(HANG_S):
        async with http.stream("POST", "/v1/responses", json={"input": "Hi", "stream": True}) as found:
            assert (found.status_code, bool(found.headers["x-klaw-receipt"])) == (200, True)
            async for line in found.aiter_lines():
                told += [line] if line.startswith("data: ") else []
                if "response.in_progress" in line:
                    loads.set()
    last = json.loads(told[-1][6:])
    assert (last["type"], last["response"]["id"]) == ("response.completed", json.loads(told[0][6:])["response"]["id"])
    failed = (await http.post("/v1/responses", json={"input": "Hi", "stream": True})).text
    assert [line[7:] for line in failed.splitlines() if line.startswith("event: ")] == [
        *("response.created", "response.in_progress", "response.failed")
    ]


async def test_an_earlier_response_is_gone_on_from_in_another_variant(http, llm):
    first = await ask(http, "One")
    for text in ("Two", "Three", "Three"):
        then = await ask(http, text, previous_response_id=first["id"])
        assert given(llm) == ["One", "echo: One", text]
    assert (await http.get("/api/v1/chats")).json()["chats"][0]["last_seq"] == 8
    await ask(http, "Four", previous_response_id=then["id"])
    assert given(llm) == ["One", "echo: One", "Three", "echo: Three", "Four"]


async def test_several_may_go_on_from_one_response_at_once(http, llm):
    first, found = await ask(http, "One"), {}

    async def go_on(text):
        found[text] = await ask(http, text, previous_response_id=first["id"])

    async with trio.open_nursery() as nursery:
        for text in ("Two", "Three"):
            nursery.start_soon(go_on, text)
    said = [[each["content"] for each in request.messages if each["role"] != "system"] for request in llm.requests]
    assert sorted(said[1:]) == [["One", "echo: One", "Three"], ["One", "echo: One", "Two"]]
    for text, response in found.items():  # one of them stands in a variant that is not shown
        await ask(http, "And?", previous_response_id=response["id"])
        assert given(llm) == ["One", "echo: One", text, f"echo: {text}", "And?"]


async def test_what_is_unknown_or_not_supported_is_refused_by_name(http):
    for field in ("background", "conversation", "prompt", "top_logprobs"):
        assert await refused(http, **{field: True}) == (400, field)
    assert await refused(http, previous_response_id="resp_none") == (404, "previous_response_id")
    wrong = {
        "input": 5,
        "input[0].type": [{"type": "computer_call"}],
        "input[0].id": [{"type": "item_reference", "id": "msg_none.0"}],
        "input[0].content[0].type": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
    }
    for path, value in wrong.items():
        assert await refused(http, input=value) == (400, path)
    assert await refused(http, input=[]) == (400, "input")
    picture = {"type": "input_image", "image_url": "https://a.example/x.png"}
    assert await refused(http, input=[{"role": "user", "content": [picture]}]) == (400, "input")
    result = {"type": "function_call_output", "call_id": "c1", "output": [picture]}
    assert await refused(http, input=[result]) == (400, "input[0].output")
    assert await refused(http, tools=[{"type": "code_interpreter"}]) == (400, "tools[0].type")
    assert await refused(http, text=5) == (400, "text")
    assert (await http.get("/v1/responses/resp_none")).status_code == 404
    assert (await http.delete("/v1/responses/resp_none")).status_code == 405


async def test_a_response_of_somebody_else_is_unknown(tmp_path, llm):
    async with served(write_home(tmp_path / "home", llm=llm.url)) as server:
        tokens = [token_for(server, user)[1] for user in ("anna", "boris")]
        async with token_http(server, tokens[0]) as anna, token_http(server, tokens[1]) as boris:
            await until_served(anna)
            first = await ask(anna, "One")
            assert await refused(boris, previous_response_id=first["id"]) == (404, "previous_response_id")
            assert (await boris.get(f"/v1/responses/{first['id']}")).status_code == 404


async def test_what_is_not_to_be_stored_stands_in_a_temporary_chat(http, llm):
    first = await ask(http, "Red", store=False)
    said = [{"role": "user", "content": "Red"}, {"role": "assistant", "content": "echo: Red"}]
    question = {"role": "user", "content": "Blue"}
    await ask(http, [*said, question], store=False)
    assert given(llm) == ["Red", "echo: Red", "Blue"]
    await ask(http, "Green", store=False, previous_response_id=first["id"])
    chats = (await http.get("/api/v1/chats")).json()["chats"]
    assert [(each["temporary"], each["last_seq"]) for each in chats] == [(True, 6)]
    await ask(http, [*said, question])  # what is to be kept goes into a chat that is kept
    kept = await ask(http, "Yellow", headers={"X-Klaw-Chat": "kept"})
    assert sorted(each["temporary"] for each in (await http.get("/api/v1/chats")).json()["chats"]) == [0, 0, 1]
    for more in ({"user": "kept"}, {"previous_response_id": kept["id"]}):
        assert await refused(http, store=False, **more) == (400, "store")


async def test_items_are_read_and_referred_to(http, llm):
    first = await ask(http, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]}])
    items = [{"role": "user", "content": "One"}, {"type": "reasoning", "id": "rs_x", "summary": []}]
    items += [{"type": "item_reference", "id": first["output"][0]["id"]}]
    await ask(http, [*items, {"role": "user", "content": "Two"}])
    assert given(llm) == ["One", "echo: One", "Two"]
    assert len((await http.get("/api/v1/chats")).json()["chats"]) == 1


async def test_how_a_response_failed_or_was_cut_off_is_told(server, http, llm):
    llm.replies += [error_reply(400), Reply(steps=(Text("Once upon"),), finish_reason="length")]
    failed = await http.post("/v1/responses", json={"input": "Hi"})
    assert (failed.status_code, failed.json()["error"]["code"]) == (424, "llm_refused")
    cut = await ask(http, "Hi")
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (await http.get(f"/v1/responses/{cut['id']}")).json()["status"] == "incomplete"
    llm.replies += [Reply(steps=(Text("Once "), Raw(b"data: {broken\n\n")))]
    events = (await http.post("/v1/responses", json={"input": "Hi", "stream": True})).text
    last = json.loads(events.strip().rpartition("data: ")[2])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")


async def test_a_command_is_answered_and_gone_on_from(http, llm):
    told = await ask(http, "/help", headers={"Idempotency-Key": "k.1"})
    assert "/new" in text_of(told)
    await ask(http, "Hi", previous_response_id=told["id"])
    assert given(llm) == ["Hi"]


WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}


def calls_weather():
    return Reply(
        steps=(Text("Let me look. "), Tool(id="c1", name="weather", arguments='{"at":"Рига"}')),
        finish_reason="tool_calls",
    )


@pytest.mark.parametrize("way", ["previous", "whole", "references"])
async def test_the_sdk_carries_out_its_tools(server, llm, way):
    llm.replies += [calls_weather(), text_reply("Sunny")]

    def talk():
        with client_of(server) as client:
            with client.responses.stream(model="klaw", input="Weather?", tools=[WEATHER]) as stream:
                told = [each.type.removeprefix("response.") for each in stream]
                first = stream.get_final_response()
            call = first.output[-1]
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "SUNNY 21"}
            question, more = {"role": "user", "content": "Weather?"}, {}
            if way == "previous":
                more, asked = {"previous_response_id": first.id}, [result]
            elif way == "whole":
                asked = [question, *(each.to_dict() for each in first.output), result]
            else:
                asked = [question, *({"type": "item_reference", "id": each.id} for each in first.output), result]
            second = client.responses.create(model="klaw", input=asked, tools=[WEATHER], **more)
            third = client.responses.create(model="klaw", input="Thanks", previous_response_id=second.id)
            return told, first, client.responses.retrieve(first.id), second, third

    told, first, again, second, third = await in_thread(talk)
    assert told[-6:] == [
        *("output_item.done", "output_item.added", "function_call_arguments.delta", "function_call_arguments.done"),
        *("output_item.done", "completed"),
    ]
    assert [each.type for each in first.output] == ["message", "function_call"]
    assert (first.output[1].name, json.loads(first.output[1].arguments)) == ("weather", {"at": "Рига"})
    assert [each.id for each in again.output] == [each.id for each in first.output]
    assert second.output_text == "Sunny"
    roles = [each["role"] for each in llm.requests[1].messages if each["role"] != "system"]
    assert roles == ["user", "assistant", "tool"]
    assert "SUNNY 21" in llm.requests[1].messages[-1]["content"]
    assert third.output_text == "echo: Thanks"
    async with httpx2.AsyncClient(base_url=base(server), trust_env=False) as http:
        assert len((await http.get("/api/v1/chats")).json()["chats"]) == 1


async def test_results_that_come_again_bring_the_same_answer(http, llm):
    llm.replies += [calls_weather(), text_reply("Sunny.")]
    first = await ask(http, "Погода?", tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "SUNNY 21"}
    told = [await ask(http, [result], previous_response_id=first["id"]) for _ in range(2)]
    assert [(each["id"], text_of(each)) for each in told] == [(told[0]["id"], "Sunny.")] * 2
    assert len(llm.requests) == 2


async def test_results_come_with_a_new_question(http, llm):
    llm.replies += [calls_weather()]
    first = await ask(http, "Weather?", tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "SUNNY 21"}
    assert await refused(http, input=[{**result, "call_id": "c9"}], previous_response_id=first["id"]) == (400, "input")
    await ask(http, [result, {"role": "user", "content": "And now?"}], previous_response_id=first["id"])
    assert "SUNNY 21" in json.dumps(llm.requests[-1].messages)
    assert "And now?" in llm.requests[-1].last_user


async def test_what_is_asked_of_the_model_is_passed_on_or_refused_by_name(http, llm):
    llm.respond = lambda _: text_reply('{"a": 1}')
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    told = await ask(http, "Hi", text={"format": form}, max_output_tokens=50, temperature=0.5, top_p=0.5)
    sent = llm.requests[-1].body
    assert (sent["temperature"], sent["top_p"], text_of(told)) == (0.5, 0.5, '{"a": 1}')
    assert sent["response_format"]["json_schema"]["schema"] == schema
    assert (told["text"], told["temperature"], told["max_output_tokens"]) == ({"format": form}, 0.5, 50)
    wrong = {
        "text.format": {"text": {"format": {"type": "grammar"}}},
        "max_output_tokens": {"max_output_tokens": 0},
        "reasoning.effort": {"reasoning": {"effort": "extreme"}},
        "tool_choice": {"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]},
    }
    for path, body in wrong.items():
        assert await refused(http, **body) == (400, path)


async def test_of_many_rounds_of_one_question_the_model_sees_all(http, llm):
    llm.replies.append(calls_weather())
    said = [{"role": "user", "content": "Count"}]
    for number in range(750):
        said.append({"type": "function_call", "call_id": f"c{number}", "name": "weather", "arguments": "{}"})
        said.append({"type": "function_call_output", "call_id": f"c{number}", "output": f"result {number}"})
    called = await ask(http, said, tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": called["output"][-1]["call_id"], "output": "result 750"}
    await ask(http, [result], tools=[WEATHER], previous_response_id=called["id"])
    assert [each for each in given(llm) if each and each.startswith("result ")] == [
        f"result {number}" for number in range(751)
    ]
