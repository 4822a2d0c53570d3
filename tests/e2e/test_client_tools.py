"""33.2: tools of a client: the model calls them, the client carries them out, and what they gave goes on with the turn;
also what else a program asks of the model."""

import json
import signal
from functools import partial

import pytest
import trio

from klaw.wire.frames import ApprovalFrame, Approve
from tests.support.llm_server import Reply, Text, Tool, Wait, error_reply, text_reply, tool_reply
from tests.support.plugins.doors import client_of, home_of
from tests.support.server import served
from tests.support.talking import talking
from tests.support.waiting import until

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name, about in (("weather", "Weather of a city"), ("memory_search", "A tool that Klaw has too"))
]
RIGA = '{"city": "Рига"}'


async def ask(http, messages, *, headers=None, **more):
    asked = {"model": "klaw", "messages": messages, "tools": TOOLS, **more}
    found = await http.post("/v1/chat/completions", json=asked, headers=headers or {})
    assert found.status_code == 200, found.text
    choice = found.json()["choices"][0]
    return found.headers.get("x-klaw-chat"), choice["message"], choice["finish_reason"]


def user(text):
    return {"role": "user", "content": text}


def results(message, *texts):
    calls = message["tool_calls"]
    return [
        message,
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(calls, texts, strict=True)
        ),
    ]


def dialogue(request):
    """What the model was given, without system texts: texts, calls by name, results."""
    return [
        each.get("content")
        or [(call["function"]["name"], call["function"]["arguments"]) for call in each["tool_calls"]]
        for each in request.messages
        if each["role"] != "system"
    ]


async def test_a_client_carries_out_its_tool_and_the_answer_goes_on(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), text_reply("Sunny in Riga."), text_reply("Yes.")]
    begun = [user("Какая погода в Риге?")]
    chat, calling, reason = await ask(http, begun)
    assert (reason, calling["content"]) == ("tool_calls", None)
    (call,) = calling["tool_calls"]
    assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": RIGA})
    names = [each["function"]["name"] for each in llm.requests[-1].body["tools"]]
    assert {"weather", "memory_search", "client_memory_search"} <= set(names)
    begun += results(calling, "21 °C, солнце")
    again, answer, reason = await ask(http, begun)
    assert (again, answer["content"], reason) == (chat, "Sunny in Riga.", "stop")
    assert dialogue(llm.requests[-1]) == ["Какая погода в Риге?", [("weather", RIGA)], "21 °C, солнце"]
    begun += [answer, user("Are you sure?")]
    assert (await ask(http, begun))[0] == chat
    asked = ["Какая погода в Риге?", [("weather", RIGA)], "21 °C, солнце", "Sunny in Riga.", "Are you sure?"]
    assert dialogue(llm.requests[-1]) == asked


async def test_what_a_tool_gave_is_stored_once_and_brings_the_same_answer(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), error_reply(401), text_reply("Sunny.")]
    chat, calling, _ = await ask(http, [user("Weather?")])
    asked = {"model": "klaw", "messages": [user("Weather?"), *results(calling, "sun")], "tools": TOOLS}
    failed = await http.post("/v1/chat/completions", json=asked)
    assert failed.status_code == 424
    assert (await ask(http, asked["messages"]))[:2] == (chat, {"role": "assistant", "content": "Sunny."})
    assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun"]
    llm.replies.append(text_reply("Still sunny."))  # once more: another variant of the answer
    assert (await ask(http, asked["messages"]))[:2] == (chat, {"role": "assistant", "content": "Still sunny."})
    assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun"]


async def test_klaws_tool_and_the_clients_in_one_round(http, llm):
    both = (Tool("c1", "current_time", "{}"), Tool("c2", "weather", RIGA), Tool("c3", "client_memory_search", "{}"))
    llm.replies += [tool_reply(*both), text_reply("It is late and sunny.")]
    _, calling, _ = await ask(http, [user("Hello")])
    assert [call["function"]["name"] for call in calling["tool_calls"]] == ["weather", "memory_search"]
    _, answer, _ = await ask(http, [user("Hello"), *results(calling, "sun", "nothing")])
    assert answer["content"] == "It is late and sunny."
    last = dialogue(llm.requests[-1])
    assert [name for name, _ in last[1]] == ["current_time", "weather", "client_memory_search"]
    assert last[3:] == ["sun", "nothing"]
    assert len(llm.requests) == 2


async def test_several_rounds_parallel_calls_and_a_stream(http, llm):
    two = (Tool("c1", "weather", RIGA), Tool("c2", "weather", '{"city": "Oslo"}'))
    llm.replies += [tool_reply(*two), tool_reply(Tool("c1", "weather", "{}")), text_reply("All", " sunny.")]
    chat, calling, _ = await ask(http, [user("Compare")], parallel_tool_calls=True)
    said = [user("Compare"), *results(calling, "sun", "rain")]
    _, calling, reason = await ask(http, said)
    assert reason == "tool_calls"
    said += results(calling, "wind")
    asked = {"model": "klaw", "messages": said, "tools": TOOLS, "stream": True}
    found = await http.post("/v1/chat/completions", json=asked)
    chunks = [json.loads(line[6:]) for line in found.text.splitlines() if line.startswith("data: {")]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks) == "All sunny."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert found.headers["x-klaw-chat"] == chat
    last = dialogue(llm.requests[-1])
    assert [last[0], last[2:4], last[5]] == ["Compare", ["sun", "rain"], "wind"]


async def test_a_stream_tells_calls(http, llm):
    llm.replies.append(tool_reply(Tool("c1", "weather", RIGA)))
    asked = {"model": "klaw", "messages": [user("Weather?")], "tools": TOOLS, "stream": True}
    found = await http.post("/v1/chat/completions", json=asked)
    chunks = [json.loads(line[6:]) for line in found.text.splitlines() if line.startswith("data: {")]
    called, end = (each["choices"][0] for each in chunks[-2:])
    (call,) = called["delta"]["tool_calls"]
    assert (call["index"], call["function"]) == (0, {"name": "weather", "arguments": RIGA})
    assert end["finish_reason"] == "tool_calls"


async def test_only_one_call_at_a_time(http, llm):
    two = (Tool("c1", "weather", RIGA), Tool("c2", "weather", '{"city": "Oslo"}'))
    llm.replies += [tool_reply(*two), text_reply("Sunny.")]
    _, calling, _ = await ask(http, [user("Compare")], parallel_tool_calls=False)
    assert len(calling["tool_calls"]) == 1
    assert llm.requests[-1].body["parallel_tool_calls"] is False
    await ask(http, [user("Compare"), *results(calling, "sun")])
    assert "Only one of these tools" in dialogue(llm.requests[-1])[3]


async def test_rounds_that_klaw_does_not_know_are_given_to_the_model(http, llm):
    calls = [{"id": "x1", "type": "function", "function": {"name": "weather", "arguments": RIGA}}]
    calling = {"role": "assistant", "content": "I look.", "tool_calls": calls}
    llm.replies += [text_reply("Sunny."), text_reply("Yes.")]
    said = [user("Hi"), {"role": "assistant", "content": "Hello!"}, user("Weather?"), *results(calling, "sun")]
    chat, answer, _ = await ask(http, said)
    told = ["Hi", "Hello!", "Weather?"]
    assert [dialogue(llm.requests[-1])[place] for place in (0, 1, 2, 4)] == [*told, "sun"]
    assert (await ask(http, [*said, answer, user("Sure?")]))[0] == chat
    assert dialogue(llm.requests[-1])[-2:] == ["Sunny.", "Sure?"]


async def test_a_result_and_a_new_question_at_once(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), text_reply("Sunny.")]
    chat, calling, _ = await ask(http, [user("Weather?")])
    said = [user("Weather?"), *results(calling, "sun"), user("And say it shortly")]
    assert (await ask(http, said))[0] == chat
    assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun", "And say it shortly"]


async def test_a_call_must_come_when_it_is_required(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), text_reply("I would rather talk.")]
    named = {"type": "function", "function": {"name": "weather"}}
    await ask(http, [user("Weather?")], tool_choice=named)
    assert llm.requests[-1].body["tool_choice"] == named
    assert [each["function"]["name"] for each in llm.requests[-1].body["tools"]] == ["weather"]
    asked = {"model": "klaw", "messages": [user("Again")], "tools": TOOLS, "tool_choice": "required"}
    refused = await http.post("/v1/chat/completions", json=asked)
    assert (refused.status_code, "tool_choice" in refused.json()["error"]["message"]) == (424, True)
    llm.replies.append(text_reply("No tools."))
    await ask(http, [user("No tools please")], tool_choice="none")
    assert "weather" not in [each["function"]["name"] for each in llm.requests[-1].body["tools"]]


async def test_what_a_program_asks_of_the_model_is_passed_on(http, llm):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    llm.replies.append(text_reply('{"city": "I saved it [1]"}'))
    more = {"stop": "END", "seed": 7, "logit_bias": {"50": -100}, "temperature": 0.1, "max_completion_tokens": 77}
    _, answer, _ = await ask(http, [user("Where?")], tools=None, response_format=form, **more)
    assert json.loads(answer["content"]) == {"city": "I saved it [1]"}
    body = llm.requests[-1].body
    assert body["response_format"] == {**form, "json_schema": {**form["json_schema"], "strict": False}}
    assert {name: body[name] for name in ("stop", "seed", "temperature", "max_tokens")} == {
        "stop": ["END"],
        "seed": 7,
        "temperature": 0.1,
        "max_tokens": 77,
    }
    assert "tools" not in body
    llm.replies.append(text_reply("{}"))
    await ask(http, [user("Any")], tools=None, response_format={"type": "json_object"})
    assert llm.requests[-1].body["response_format"] == {"type": "json_object"}


WRONG = [
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": TOOLS + TOOLS}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}, "tools": TOOLS}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"functions": [{"name": "x"}]}, "functions"),
    ({"stop": [1]}, "stop"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"temperature": 9}, "temperature"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG, ids=[next(iter(each[0])) for each in WRONG])
async def test_what_cannot_be_is_refused_by_name(http, llm, wrong, field):
    refused = await http.post("/v1/chat/completions", json={"model": "klaw", "messages": [user("Hi")], **wrong})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith(field)
    assert llm.requests == []


async def test_a_call_survives_a_kill_and_its_result_goes_on_once(tmp_path, llm):
    llm.replies.append(tool_reply(Tool("c1", "weather", RIGA)))
    place = home_of(tmp_path, llm)
    async with served(place) as server, client_of(server) as http:
        chat, calling, _ = await ask(http, [user("Weather?")])
        server.process.send_signal(signal.SIGKILL)
    async with served(place) as server, client_of(server) as http:
        assert len(llm.requests) == 1  # nothing is answered without the result
        llm.replies.append(text_reply("Sunny."))
        said = [user("Weather?"), *results(calling, "sun")]
        answers = []

        async def resume():
            answers.append(await ask(http, said))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(resume))
            nursery.start_soon(partial(resume))
        assert answers == [(chat, {"role": "assistant", "content": "Sunny."}, "stop")] * 2
        assert len(llm.requests) == 2
        assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun"]


async def test_what_is_not_to_be_stored_has_tools_too(http, llm):
    alone = {"X-Klaw-Store": "false"}
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), text_reply("Sunny.")]
    _, calling, reason = await ask(http, [user("Weather?")], headers=alone)
    assert (reason, calling["tool_calls"][0]["function"]["name"]) == ("tool_calls", "weather")
    _, answer, _ = await ask(http, [user("Weather?"), *results(calling, "sun")], headers=alone)
    assert answer["content"] == "Sunny."
    assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun"]
    assert (await http.get("/api/v1/chats")).json()["chats"] == []


@pytest.mark.parametrize("name", ["weather", "current_time"])
async def test_what_a_tool_of_a_program_gave_is_from_outside_also_under_klaws_name(tmp_path, llm, name):
    asked = {"section": "user", "key": "name", "value": "Mallory"}
    llm.replies += [tool_reply(Tool("k1", "memory_core_update", json.dumps(asked))), text_reply("No.")]
    call = {"id": "z1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    said = [user("Hi"), *results({"role": "assistant", "content": None, "tool_calls": [call]}, "My name is Mallory")]
    async with served(home_of(tmp_path, llm)) as server, client_of(server) as http, trio.open_nursery() as nursery:
        nursery.start_soon(partial(ask, http, said, headers={"X-Klaw-Chat": "main"}))
        async with talking(server.url) as talk:
            await talk.client.watch("main", 0)
            (wants,) = await talk.until(lambda: [each for each in talk.events if isinstance(each, ApprovalFrame)])
            await talk.client.request(Approve(id=wants.id, allow=False))


async def test_results_without_ids_go_to_the_call_with_their_arguments(http, llm):
    begun = []
    for city in ("Рига", "Oslo"):
        llm.replies.append(tool_reply(Tool("c1", "weather", json.dumps({"city": city}))))
        asked = {"model": "klaw", "messages": [user("Weather?")], "tools": TOOLS, "stream": False}
        found = await http.post("/api/chat", json=asked)
        begun.append((city, found.headers["x-klaw-chat"], found.json()["message"]["tool_calls"][0]["function"]))
    for city, chat, function in begun:
        llm.replies.append(text_reply("Sunny."))
        calling = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        said = [user("Weather?"), calling, {"role": "tool", "tool_name": "weather", "content": f"sun in {city}"}]
        found = await http.post("/api/chat", json={"model": "klaw", "messages": said, "tools": TOOLS, "stream": False})
        assert found.headers["x-klaw-chat"] == chat


async def test_calls_without_an_object_of_a_question_aside_are_the_models_fault(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", broken)) for broken in ('{"x":', "NaN", "[1]")]
    for _ in range(3):
        asked = {"model": "klaw", "messages": [user("Hi")], "tools": TOOLS, "stream": False}
        found = await http.post("/api/chat", json=asked, headers={"X-Klaw-Store": "false"})
        assert (found.status_code, "arguments" in found.json()["error"]) == (424, True)


HALF = "\\ud800"
NO_TEXT = [
    ("/v1/responses", '{"input": "Hi", "metadata": {"a": 1e400}}', (400, "metadata")),
    ("/v1/responses", f'{{"input": "Hi", "truncation": "{HALF}"}}', (400, "truncation")),
    ("/v1/responses", '{"input": "Hi", "tools": 5}', (400, "tools")),
    ("/v1/responses", f'{{"input": [{{"type": "item_reference", "id": "msg_{HALF}.1"}}]}}', (400, "input[0].id")),
    ("/v1/responses", f'{{"input": "Hi", "previous_response_id": "{HALF}"}}', (400, "previous_response_id")),
    ("/v1/completions", '{"prompt": "Hi", "suffix": [5]}', (400, "suffix")),
    ("/v1/chat/completions", '{"messages": [], "reasoning_effort": []}', (400, "messages")),
]


@pytest.mark.parametrize(("path", "body", "told"), NO_TEXT)
async def test_what_is_no_json_and_no_text_is_refused_by_name(http, path, body, told):
    found = await http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (found.status_code, found.json()["error"]["param"]) == told


async def test_half_characters_in_calls_are_replaced(http, llm):
    function = {"name": "weather", "arguments": "{}"}
    told = json.dumps(
        [user("Hi"), *results({"role": "assistant", "tool_calls": [{"id": "", "function": function}]}, "sun")]
    )
    for old, new in (('"id": ""', f'"id": "{HALF}"'), ('"name": "weather"', f'"name": "{HALF}"')):
        body = f'{{"messages": {told.replace(old, new)}}}'
        found = await http.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        assert found.status_code == 200, found.text


async def test_results_that_come_while_the_chat_goes_on_are_not_mistaken_for_what_is_answered(http, llm):
    llm.replies.append(tool_reply(Tool("c1", "weather", RIGA)))
    chat, calling, _ = await ask(http, [user("Weather?")])
    goes_on = trio.Event()
    llm.replies.append(Reply(steps=(Wait(goes_on), Text("Something else"))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(http.post, f"/api/v1/chats/{chat}/messages", json={"text": "A page asks"}))
        await until(lambda: len(llm.requests) == 2)
        llm.replies.append(text_reply("Sunny."))
        asked = {"model": "klaw", "messages": [user("Weather?"), *results(calling, "sun")], "tools": TOOLS}
        found = await http.post("/v1/chat/completions", json=asked)
        goes_on.set()
    assert found.headers["x-klaw-chat"] != chat
    assert found.json()["choices"][0]["message"]["content"] == "Sunny."
    assert dialogue(llm.requests[-1]) == ["Weather?", [("weather", RIGA)], "sun"]


def rounds(count, calls=1):
    said = []
    for number in range(count):
        function = {"name": "weather", "arguments": "{}"}
        made = [{"id": f"x{number}.{place}", "type": "function", "function": function} for place in range(calls)]
        said += results({"role": "assistant", "content": None, "tool_calls": made}, *["sun"] * calls)
    return said


async def test_a_question_of_many_rounds_stays_in_its_chat(http, llm):
    llm.replies += [tool_reply(Tool("c1", "weather", RIGA)), text_reply("Sunny."), text_reply("Yes.")]
    said = [user("Weather?"), *rounds(60)]
    chat, calling, _ = await ask(http, said)
    said += results(calling, "rain")
    again, answer, _ = await ask(http, said)
    assert (again, len(dialogue(llm.requests[-1]))) == (chat, 1 + 2 * 61)
    assert (await ask(http, [*said, answer, user("Sure?")]))[0] == chat
    refused = await http.post("/v1/chat/completions", json={"messages": [user("Hi"), *rounds(1, calls=129)]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


async def test_all_rounds_of_a_long_loop_are_shown(http, llm):
    said = [user("Count")]
    for number in range(230):
        called = {"id": f"c{number}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        calling = {"role": "assistant", "content": None, "tool_calls": [called]}
        said += results(calling, f"r{number}")
    llm.replies.append(text_reply("Done."))
    await ask(http, said)
    assert [each for each in dialogue(llm.requests[-1]) if str(each)[0] == "r"] == [f"r{n}" for n in range(230)]
