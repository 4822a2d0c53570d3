"""26.C2: what clients of other protocols send is kept apart, and none of it is lost: which chat a transcript belongs
to, what of it the model is given, what is no talk, what is refused, and what happens when the client goes away.
"""

import json
import unicodedata
from pathlib import Path

import httpx2
import pytest
import trio

from tests.support.llm_server import Hang, Reply, Text, Tool, error_reply, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S, until

CASES = Path(__file__).parents[1] / "data" / "cases" / "openai_door"
DOORS = ("/v1/chat/completions", "/api/chat")


def case(name):
    return json.loads((CASES / f"{name}.json").read_bytes())


def body(*said, **more):
    roles = {"u": "user", "a": "assistant", "s": "system"}
    messages = [{"role": roles[each[0]], "content": each[2:]} for each in said]
    return {"model": "klaw", "stream": False, "messages": messages, **more}


async def ask(http, asked, door=DOORS[0], **headers):
    """The chat that a request went to, and the answer."""
    found = await http.post(door, json={"stream": False, **asked}, headers=headers)
    assert found.status_code == 200, found.text
    tree = found.json()
    message = tree["message"] if "message" in tree else tree["choices"][0]["message"]
    return found.headers.get("x-klaw-chat"), message["content"]


async def said_in(http, chat):
    messages = (await http.get(f"/api/v1/chats/{chat}/messages")).json()["messages"]
    return [each["content"] for each in messages]


def given(llm):
    """The conversation of the last request, without its system texts."""
    return [each["content"] for each in llm.requests[-1].messages if each["role"] != "system"]


def joined(name, texts):
    """Texts as a model is given them: two of the user, one behind the other, are one."""
    return ["\n".join(texts[:2]), *texts[2:]] if name == "two_user_messages" else texts


@pytest.mark.parametrize("door", DOORS)
async def test_conversations_that_begin_alike_stay_apart(http, llm, door):
    one, two = case("merge_A2"), case("merge_B2")
    first = {"model": "klaw", "messages": one["messages"][:1]}
    llm.replies += [text_reply("Echo: Hello there")] * 2
    begun = {(await ask(http, first, door))[0] for _ in range(2)}
    assert len(begun) == 2
    went = [(await ask(http, each, door))[0] for each in (one, two)]
    assert set(went) == begun
    assert "I am in Riga." not in json.dumps(llm.requests[-1].body)
    third = {"model": "klaw", "messages": [*two["messages"][:2], {"role": "user", "content": "And who am I?"}]}
    assert (await ask(http, third, door))[0] not in begun
    assert given(llm)[-3:] == ["Hello there", "Echo: Hello there", "And who am I?"]


async def test_two_that_begin_alike_may_ask_at_once(http, llm):
    llm.replies.append(text_reply("Echo: Hello there"))
    await ask(http, {"messages": case("merge_A2")["messages"][:1]})
    went = []

    async def one(name):
        went.append((await ask(http, case(name)))[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "merge_A2")
        nursery.start_soon(one, "merge_B2")
    assert len(set(went)) == 2
    texts = [await said_in(http, chat) for chat in went]
    assert not any("I am in Riga." in each and "Where am I?" in each for each in texts)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["own_history_dropped", "two_user_messages"])
@pytest.mark.parametrize("headers", [{}, {"X-Klaw-Chat": "mine"}, {"X-OpenWebUI-Chat-Id": "mine"}])
async def test_what_a_client_brings_is_kept_and_given_to_the_model(http, llm, door, name, headers):
    brought = [each["content"] for each in case(name)["messages"]]
    chat, answer = await ask(http, case(name), door, **headers)
    assert given(llm) == joined(name, brought)
    assert await said_in(http, chat) == [*brought, answer]
    more = {**case(name)}
    more["messages"] += [{"role": "assistant", "content": f"{answer}\n"}, {"role": "user", "content": "And now?"}]
    assert (await ask(http, more, door, **headers))[0] == chat
    assert given(llm) == joined(name, [*brought, answer, "And now?"])


async def test_rounds_of_a_clients_tools_are_given_to_the_model(http, llm):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = body("u weather?")
    asked["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "SUNNY 21"},
    ]
    asked["messages"].append({"role": "user", "content": "and?"})
    await ask(http, asked)
    assert "SUNNY 21" in given(llm)[-2]


async def variants_in(http, chat):
    """Number and count at each message of a chat that has variants."""
    messages = (await http.get(f"/api/v1/chats/{chat}/messages")).json()["messages"]
    found = [(each["content"], each["variant"]) for each in messages if "variant" in each]
    return [(text, variant["number"], variant["count"]) for text, variant in found]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("headers", [{}, {"X-Klaw-Chat": "mine"}, {"X-OpenWebUI-Chat-Id": "mine"}])
async def test_an_answer_that_is_made_again_and_an_edited_question_are_variants(http, llm, door, headers):
    first, answer = await ask(http, body("u One"), door, **headers)
    asked = (body("u One", f"a {answer}", f"u {each}") for each in ("Two", "Two", "Zwei", "Zwei"))
    expected = [[], [("echo: Two", 2, 2)], [("Zwei", 2, 2)], [("Zwei", 2, 2), ("echo: Zwei", 2, 2)]]
    for each, variants in zip(asked, expected, strict=True):
        chat, again = await ask(http, each, door, **headers)
        texts = [message["content"] for message in each["messages"]]
        assert (chat, given(llm), await said_in(http, chat)) == (first, texts, [*texts, again])
        assert await variants_in(http, chat) == variants


async def test_a_program_that_sends_all_of_a_named_chat_edits_its_first_question(http, llm):
    headers = {"X-OpenWebUI-Chat-Id": "mine"}
    await ask(http, body("u One"), **headers)
    for text, variants in (("1", [("1", 2, 2)]), ("1", [("1", 2, 2), ("echo: 1", 2, 2)])):
        chat, answer = await ask(http, body(f"u {text}"), **headers)
        assert (chat, await said_in(http, chat)) == ("mine", [text, answer])
        assert await variants_in(http, chat) == variants
    assert given(llm) == ["1"]


async def test_what_a_program_sends_before_each_question_is_no_edited_chat(http, llm):
    """Its examples were answered elsewhere: two questions behind them are two conversations."""
    examples = "u 1 + 1", "a 2"
    went = [(await ask(http, body(*examples, f"u {each}")))[0] for each in ("2 + 2", "3 + 3")]
    assert len(set(went)) == 2


async def test_a_named_chat_needs_nothing_of_what_was_said_before(http, llm):
    await ask(http, body("u One"), **{"X-Klaw-Chat": "mine"})
    await ask(http, body("u Two"), **{"X-Klaw-Chat": "mine"})
    assert given(llm) == ["One", "echo: One", "Two"]
    chat, _ = await ask(http, body("u Two", "a echo: Two", "u Three"), **{"X-Klaw-Chat": "mine"})
    assert (chat, given(llm)[-1], len(given(llm))) == ("mine", "Three", 5)
    found = [(await ask(http, body("u One", user="own"), door))[0] for door in DOORS]
    assert [each == "own" for each in found] == [True, False], "Ollama's API has no such field"


async def test_a_question_that_failed_is_asked_again_where_it_stands(http, llm):
    llm.replies.append(error_reply(400))
    assert (await http.post(DOORS[0], json=body("u One"), headers={"X-Klaw-Chat": "mine"})).status_code == 424
    chat, answer = await ask(http, body("u One"), **{"X-Klaw-Chat": "mine"})
    assert (chat, await said_in(http, chat)) == ("mine", ["One", answer])


async def test_a_repeated_key_brings_the_same_answer(http, llm):
    found = [await ask(http, body("u One", "a 1", "u Two"), **{"Idempotency-Key": "k1"}) for _ in range(2)]
    assert found[0] == found[1]
    assert len(llm.requests) == 1


async def test_an_answer_behind_tools_is_known_again(http, llm):
    calling = tool_reply(Tool(id="c1", name="now", arguments="{}"))
    llm.replies += [Reply(steps=(Text("Let me look. "), *calling.steps), finish_reason="tool_calls")]
    llm.replies += [text_reply("It is late.")]
    asked = body("u What time is it?")
    chat, answer = await ask(http, asked)
    assert answer == "Let me look. \n\nIt is late."
    again = body("u What time is it?", f"a {answer}", "u Sure?")
    assert (await ask(http, again))[0] == chat
    assert (await ask(http, body("u What time is it?", "a It is late.", "u Sure?")))[0] != chat


async def test_what_was_forgotten_does_not_come_back_with_the_transcript(http, llm):
    chat, answer = await ask(http, body("u My pin is 4711", "a Noted.", "u Thanks"))
    gone = await http.post("/api/v1/forget", json={"what": f"{chat}#1", "dry_run": False})
    assert gone.status_code == 200, gone.text
    more = body("u My pin is 4711", "a Noted.", "u Thanks", f"a {answer}", "u And?")
    assert (await ask(http, more))[0] == chat
    assert "4711" not in json.dumps(llm.requests[-1].body)


SIDE = (
    case("title_prompt_stored_as_said"),
    body("u Plan a trip to Oslo.", "a By train.", "s Summarize the discussion briefly in 200 words or less"),
    body("u Plan a trip to Oslo.", "a By train.", "u What is its name? No idea.") | {"X-Klaw-Store": "false"},
    body("s You are a title generator. You output ONLY a thread title.", "u Plan a trip to Oslo. By train."),
)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("asked", SIDE)
async def test_a_programs_own_question_is_answered_with_the_conversation_and_not_stored(http, llm, door, asked):
    headers = {"X-Klaw-Store": "false"} if "X-Klaw-Store" in asked else {}
    chat, _ = await ask(http, asked, door, **headers)
    assert chat is None
    seen = json.dumps(llm.requests[-1].body["messages"])
    assert "Oslo" in seen
    assert "By train" in seen
    assert (await http.get("/api/v1/chats")).json()["chats"] == []


async def test_a_title_without_its_conversation_is_about_the_chat_that_is_named(http, llm):
    await ask(http, body("u Plan a trip to Oslo."), **{"X-Conversation-Id": "trip"})
    title = "Provide a concise, 5-word-or-less title for the conversation, using title case conventions."
    await ask(http, body(f"u {title}"), **{"X-Conversation-Id": "trip"})
    assert given(llm) == ["Plan a trip to Oslo.", "echo: Plan a trip to Oslo.", title]
    assert len(await said_in(http, "trip")) == 2


async def test_a_question_of_open_webui_with_a_file_is_a_question(http, llm):
    text = "### Task:\nRespond to the user query using the provided context.\n\nWhere is the key?"
    chat, answer = await ask(http, body(f"u {text}"), **{"X-OpenWebUI-Chat-Id": "files"})
    assert await said_in(http, chat) == [text, answer]


async def test_null_is_not_given_and_what_is_required_and_not_done_is_refused(http):
    assert (await http.post(DOORS[0], json=case("stream_null"))).json()["object"] == "chat.completion"
    nulls = dict.fromkeys(("stream_options", "user", "n", "tools", "tool_choice", "response_format", "stop"))
    assert (await http.post(DOORS[0], json=body("u Hi", **nulls))).status_code == 200
    assert (await http.post(DOORS[1], json=body("u Hi", stream=None, format=None))).status_code == 200
    given = {"n": 2, "response_format": {"type": "json_schema"}, "logprobs": True}
    required = ("required", {"type": "function", "function": {"name": "weather"}})
    wrong = [*given.items(), *(("tool_choice", each) for each in required)]
    for name, value in wrong:
        refused = await http.post(DOORS[0], json=body("u Hi", **{name: value}))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
    refused = await http.post(DOORS[0], json=case("tools_ignored_silently"))  # the model does not call it
    assert (refused.status_code, "tool_choice" in refused.json()["error"]["message"]) == (424, True)
    assert (await http.post(DOORS[1], json=body("u Hi", format="xml"))).status_code == 400
    assert (await http.post(DOORS[0], json=body("u Hi", tool_choice="auto", n=1))).status_code == 200


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_stops_its_turn(http, llm, door, stream):
    llm.replies.append(Reply(steps=(Text("Once upon"), Hang())))
    chat = "story"

    async def goes():
        with trio.CancelScope() as leaving:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                await until(streams)
                leaving.cancel()

    async def talk():
        asked = body("u Tell a story", stream=stream)
        async with http.stream("POST", door, json=asked, headers={"X-Klaw-Chat": chat}) as answer:
            async for _ in answer.aiter_bytes():
                pass

    async def streams():
        return (await http.get(f"/api/v1/chats/{chat}/messages")).json().get("messages") and len(llm.requests) == 1

    async def is_stopped():
        found = await http.get(f"/api/v1/receipt?chat={chat}")
        return found.status_code == 200 and found.json().get("status") == "stopped"

    await goes()
    await until(is_stopped)
    assert (await ask(http, body("u Another"), door, **{"X-Klaw-Chat": chat}))[0] == chat


@pytest.mark.parametrize("form", ["{0}\n\n<user_query>\n{1}\n</user_query>\n", "{0}\n\n{1}"])
@pytest.mark.parametrize("headers", [{}, {"X-OpenWebUI-Chat-Id": "mine"}])
async def test_a_question_with_a_file_goes_on_as_the_question_alone(http, llm, form, headers):
    """So Open WebUI has it in the next request. Another text in its place is another conversation."""
    task = "### Task:\nRespond to the user query using the provided context.\n\n<context>\nTea is green.\n</context>"
    first, answer = await ask(http, body("u " + form.format(task, "What is tea?")), **headers)
    other, _ = await ask(http, body("u is tea?", f"a {answer}", "u And coffee?"), **headers)
    again, _ = await ask(http, body("u What is tea?", f"a {answer}", "u And coffee?"), **headers)
    assert (again, first == other) == (first, False)


async def test_letters_with_marks_are_the_same_in_either_form(http, llm):
    llm.replies.append(text_reply("Ça va, й"))
    first, answer = await ask(http, body("u Hé"))
    parted = body("u He\u0301", f"a {unicodedata.normalize('NFD', answer)}", "u And you?")
    assert (await ask(http, parted))[0] == first


async def test_all_that_a_program_sends_is_shown_or_named_as_left_out(tmp_path, llm):
    """Far more messages than ``context.slidingWindow``; and so many that the context has no room for them."""
    small = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"contextTokens": 4000}}}
    place = write_home(tmp_path, providers={"stub": small}, context={"slidingWindow": 4})
    said = [f"{'ua'[number % 2]} message {number}" for number in range(30)]
    async with served(place) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=HANG_S) as http:
            await ask(http, body(*said, "u And now?"))
            assert given(llm) == [*(each[2:] for each in said), "And now?"]
            await ask(http, body(*(f"{each} {'long ' * 400}" for each in said), "u И что теперь?"))
            shown = given(llm)
            assert 3 < len(shown) < 30
            assert shown[0].startswith("[Earlier messages are left out.]")
