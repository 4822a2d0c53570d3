"""Libraries that speak OpenAI's API themselves, or are given a client of it."""

import json

from asked import (
    CALL,
    CITY,
    CITY_CALL,
    DATA,
    FAIL,
    IMAGES,
    KEY,
    NAME,
    PET,
    PNG,
    V1,
    WEATHER,
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


def openai_chat(base=V1, model="klaw"):
    import openai

    client = openai.OpenAI(base_url=base, api_key=KEY, max_retries=0, timeout=300)
    create = client.chat.completions.create

    def ask(messages, **more):
        messages = user(messages) if isinstance(messages, str) else messages
        return create(model=model, messages=messages, **more).choices[0].message

    def stream():
        chunks = list(create(model=model, messages=user("one two"), stream=True))
        same("".join(each.choices[0].delta.content or "" for each in chunks if each.choices), "echo: one two")

    def usage():
        same(create(model=model, messages=user("Hi")).usage.total_tokens > 0, True)
        options = {"include_usage": True}
        last = list(create(model=model, messages=user("Hi"), stream=True, stream_options=options))[-1]
        same(last.usage.total_tokens > 0, True)

    def tools():
        called = ask(CALL, tools=[WEATHER])
        (call,) = called.tool_calls
        same((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Riga"}))
        said = [*user(CALL), called.model_dump(exclude_none=True)]
        said.append({"role": "tool", "tool_call_id": call.id, "content": "SUNNY 21"})
        answer = ask(said, tools=[WEATHER])
        has(answer.content, "RESULT: ", "SUNNY 21")
        has(ask([*said, *assistant(answer.content), *user("RECALL")], tools=[WEATHER]).content, "CALL weather")

    def structured():
        is_city(
            client.chat.completions.parse(model=model, messages=user(CITY), response_format=city())
            .choices[0]
            .message.parsed
        )
        has(json.loads(ask(CITY, response_format={"type": "json_object"}).content), "Riga")

    def leaves():
        answer = create(model=model, messages=user(f"LEAVE {NAME}."), stream=True)
        next(iter(answer))
        answer.close()

    return {
        "chat": lambda: same(ask("Hello").content, "echo: Hello"),
        "stream": stream,
        "recalled": lambda: has(ask([*user(PET), *assistant(ask(PET).content), *user("RECALL")]).content, PET),
        "tools": tools,
        "structured": structured,
        "pictures": lambda: same(ask(user(IMAGES)).content, "PICTURES: 1"),
        "usage": usage,
        "error": lambda: fails(lambda: ask(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: ask(text).content),
        "leaves": leaves,
    }


def openai_responses():
    import openai

    client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=300)

    def ask(asked, **more):
        return client.responses.create(model="klaw", input=asked, **more)

    def stream():
        events = list(ask("one two", stream=True))
        same("".join(each.delta for each in events if each.type == "response.output_text.delta"), "echo: one two")
        same(events[-1].type, "response.completed")

    def tools():
        tool = {"type": "function", "strict": None, **WEATHER["function"]}
        first = ask(CALL, tools=[tool])
        (call,) = (each for each in first.output if each.type == "function_call")
        same((call.name, json.loads(call.arguments)), ("weather", {"city": "Riga"}))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "SUNNY 21"}
        has(ask([result], tools=[tool], previous_response_id=first.id).output_text, "SUNNY 21")
        said = [*user(CALL), *(each.model_dump(exclude_none=True) for each in ask(CALL, tools=[tool]).output)]
        said.append({**result, "call_id": said[-1]["call_id"]})
        has(ask(said, tools=[tool]).output_text, "SUNNY 21")

    def pictures():
        parts = [{"type": "input_text", "text": "IMAGES"}, {"type": "input_image", "image_url": DATA}]
        same(ask(user(parts)).output_text, "PICTURES: 1")

    def leaves():
        answer = ask(f"LEAVE {NAME}.", stream=True)
        for event in answer:
            if event.type == "response.output_text.delta":
                break
        answer.close()

    return {
        "chat": lambda: same(ask("Hello", instructions="Be short").output_text, "echo: Hello"),
        "stream": stream,
        "recalled": lambda: has(ask("RECALL", previous_response_id=ask(PET).id).output_text, PET),
        "tools": tools,
        "structured": lambda: is_city(
            client.responses.parse(model="klaw", input=CITY, text_format=city()).output_parsed
        ),
        "pictures": pictures,
        "usage": lambda: same(ask("Hi").usage.total_tokens > 0, True),
        "error": lambda: fails(lambda: ask(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: ask(text).output_text),
        "leaves": leaves,
    }


def openai_agents(model_of):
    import asyncio

    import agents
    import openai

    agents.set_tracing_disabled(True)

    def agent(**more):
        client = openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)  # belongs to one event loop
        model = model_of(agents)(model="klaw", openai_client=client)
        return agents.Agent(name="a", instructions="Be short", model=model, **more)

    def run(asked, **more):
        return agents.Runner.run_sync(agent(**more), asked)

    async def streamed():
        result = agents.Runner.run_streamed(agent(), "one two")
        events = [each async for each in result.stream_events()]
        texts = [
            each.data.delta
            for each in events
            if getattr(getattr(each, "data", 0), "type", "") == "response.output_text.delta"
        ]
        same("".join(texts), "echo: one two")

    return {
        "chat": lambda: same(run("Hello").final_output, "echo: Hello"),
        "stream": lambda: asyncio.run(streamed()),
        "recalled": lambda: has(run([*run(PET).to_input_list(), *user("RECALL")]).final_output, PET),
        "tools": lambda: has(run(CALL, tools=[agents.function_tool(weather)]).final_output, "SUNNY in Riga"),
        "structured": lambda: is_city(run(CITY, output_type=city()).final_output),
        "usage": lambda: same(run("Hi").context_wrapper.usage.total_tokens > 0, True),
        "error": lambda: fails(lambda: run(FAIL), "status 400"),
    }


def instructor():
    import instructor as library
    import openai

    client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)

    def ask(mode, question):
        made = library.from_openai(client, mode=mode)
        return made.chat.completions.create(model="klaw", messages=user(question), response_model=city(), max_retries=0)

    def structured():
        is_city(ask(library.Mode.TOOLS, CITY_CALL))
        for mode in (library.Mode.JSON, library.Mode.JSON_SCHEMA, library.Mode.MD_JSON):
            is_city(ask(mode, CITY))

    def stream():
        made = library.from_openai(client, mode=library.Mode.JSON)
        is_city(
            list(made.chat.completions.create_partial(model="klaw", messages=user(CITY), response_model=city()))[-1]
        )

    return {
        "stream": stream,
        "tools": lambda: is_city(ask(library.Mode.TOOLS, CITY_CALL)),
        "structured": structured,
        "usage": lambda: same(ask(library.Mode.JSON, CITY)._raw_response.usage.total_tokens > 0, True),
        "error": lambda: fails(lambda: ask(library.Mode.JSON, FAIL), "status 400"),
    }


def pydantic_ai():
    import asyncio

    from pydantic_ai import Agent, BinaryContent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("klaw", provider=OpenAIProvider(base_url=V1, api_key=KEY))

    async def streamed():
        async with Agent(model).run_stream("one two") as result:
            same([each async for each in result.stream_text()][-1], "echo: one two")

    def recalled():
        agent = Agent(model, instructions="Be short")
        has(agent.run_sync("RECALL", message_history=agent.run_sync(PET).all_messages()).output, PET)

    def usage():
        found = Agent(model).run_sync("Hi").usage
        same((found() if callable(found) else found).total_tokens > 0, True)

    final = 'CALL final_result {"city": "Riga", "people": 7}'
    return {
        "chat": lambda: same(Agent(model).run_sync("Hello").output, "echo: Hello"),
        "stream": lambda: asyncio.run(streamed()),
        "recalled": recalled,
        "tools": lambda: has(Agent(model, tools=[weather]).run_sync(CALL).output, "SUNNY in Riga"),
        "structured": lambda: is_city(Agent(model, output_type=city()).run_sync(final).output),
        "pictures": lambda: same(
            Agent(model).run_sync(["IMAGES", BinaryContent(PNG, media_type="image/png")]).output, "PICTURES: 1"
        ),
        "usage": usage,
        "error": lambda: fails(lambda: Agent(model).run_sync(FAIL), "status 400"),
    }
