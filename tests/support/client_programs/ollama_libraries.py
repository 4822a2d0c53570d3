"""Libraries that speak Ollama's API."""

import json

from asked import (
    CALL,
    CITY,
    FAIL,
    NAME,
    PET,
    PNG,
    URL,
    assistant,
    at_once,
    city,
    fails,
    has,
    is_city,
    same,
    user,
    weather,
)


def ollama():
    import ollama as library

    client = library.Client(host=URL)

    def ask(messages, **more):
        messages = user(messages) if isinstance(messages, str) else messages
        return client.chat(model="klaw", messages=messages, **more)

    def chat():
        same([each.model for each in client.list().models], ["klaw:latest"])
        has(client.show("klaw").capabilities, "completion")
        same(ask("Hello").message.content, "echo: Hello")
        same(client.generate(model="klaw", prompt="Hello").response, "echo: Hello")
        same([each.model for each in client.ps().models], ["klaw:latest"])

    def stream():
        pieces = list(ask("one two", stream=True))
        same(("".join(each.message.content for each in pieces), pieces[-1].done), ("echo: one two", True))
        same("".join(each.response for each in client.generate("klaw", "one two", stream=True)), "echo: one two")

    def tools():
        for streams in (False, True):
            called = ask(CALL, tools=[weather], stream=streams)
            message = next(each.message for each in called if each.message.tool_calls) if streams else called.message
            (call,) = message.tool_calls
            same((call.function.name, dict(call.function.arguments)), ("weather", {"city": "Riga"}))
            result = {"role": "tool", "content": "SUNNY 21", "tool_name": "weather"}
            has(ask([*user(CALL), message, result], tools=[weather]).message.content, "SUNNY 21")

    def structured():
        is_city(json.loads(ask(CITY, format=city().model_json_schema()).message.content))
        is_city(json.loads(ask(CITY, format="json").message.content))

    def usage():
        found = ask("Hi")
        same(found.prompt_eval_count > 0 and found.eval_count > 0 and found.done_reason == "stop", True)

    def leaves():
        answer = ask(f"LEAVE {NAME}.", stream=True)
        next(answer)
        answer.close()

    def recalled():
        has(ask([*user(PET), ask(PET).message, *user("RECALL")]).message.content, PET)

    return {
        "chat": chat,
        "stream": stream,
        "recalled": recalled,
        "tools": tools,
        "structured": structured,
        "pictures": lambda: same(
            ask([{"role": "user", "content": "IMAGES", "images": [PNG]}]).message.content, "PICTURES: 1"
        ),
        "usage": usage,
        "error": lambda: fails(lambda: ask(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: ask(text).message.content),
        "leaves": leaves,
    }


def home_assistant():
    """The calls of Home Assistant's Ollama integration, with the version of ``ollama`` that it pins."""
    import asyncio

    import ollama as library

    system = library.Message(role="system", content="You are a voice assistant for Home Assistant.")
    parameters = {"type": "object", "properties": {"name": {"type": "string"}}, "required": []}
    turn_on = {"name": "HassTurnOn", "description": "Turns on a device", "parameters": parameters}
    tool = {"type": "function", "function": turn_on}

    async def answered(said, tools, form):
        client, text, calls = library.AsyncClient(host=URL), "", []
        how = {"stream": True, "keep_alive": -1, "options": {"num_ctx": 8192}, "think": False, "format": form}
        async for each in await client.chat(model="klaw:latest", messages=[system, *said], tools=tools, **how):
            text += each["message"].get("content") or ""
            calls += each["message"].get("tool_calls") or []
        return text, calls

    def ask(*said, tools=None, form=None):
        return asyncio.run(answered([library.Message(**each) for each in said], tools, form))

    def recalled():
        has(ask(*user(PET), *assistant(ask(*user(PET))[0]), *user("RECALL"))[0], PET)
        talk = [each for number in range(20) for each in (*user(f"n{number}"), *assistant(f"echo: n{number}"))]
        has(ask(*talk, *user("RECALL"))[0], "n19")

    def tools():
        question = user('CALL HassTurnOn {"name": "Lux"}')
        text, calls = ask(*question, tools=[tool])
        same([(each.function.name, dict(each.function.arguments)) for each in calls], [("HassTurnOn", {"name": "Lux"})])
        called = {"role": "assistant", "content": text, "tool_calls": calls}
        has(ask(*question, called, {"role": "tool", "content": '{"success": true}'}, tools=[tool])[0], "success")

    return {
        "chat": lambda: same(
            [each.model for each in asyncio.run(library.AsyncClient(host=URL).list()).models], ["klaw:latest"]
        ),
        "stream": lambda: same(ask(*user("one two"))[0], "echo: one two"),
        "recalled": recalled,
        "tools": tools,
        "structured": lambda: is_city(json.loads(ask(*user(CITY), form=city().model_json_schema())[0])),
        "error": lambda: fails(lambda: ask(*user(FAIL)), "status 400"),
    }
