"""`python_clients.py URL NAME`: a library of others does what people do with it. Each case is a line of JSON.

It runs in the library's own environment and imports nothing of Klaw's; what is asked is understood by ``model.py``.
"""

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

URL, NAME = sys.argv[1:]
V1, KEY, MANY, BIN = f"{URL}/v1", "none", 50, Path(sys.executable).parent
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
)
DATA = "data:image/png;base64," + base64.b64encode(PNG).decode()
CALL, CITY, FAIL = 'CALL weather {"city": "Riga"}', 'JSON {"city": "Riga", "people": 7}', "FAIL 400"
CITY_CALL = 'CALL City {"city": "Riga", "people": 7}'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": PARAMETERS}}
PET = f"My pet is called {NAME}-{time.time_ns()}"
IMAGES = [{"type": "text", "text": "IMAGES"}, {"type": "image_url", "image_url": {"url": DATA}}]


def user(content):
    return [{"role": "user", "content": content}]


def assistant(content):
    return [{"role": "assistant", "content": content}]


def weather(city: str) -> str:
    """Tells the weather."""
    return f"SUNNY in {city}"


def same(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def has(found, *parts):
    for part in parts:
        assert part in str(found), f"{part!r} is not in {str(found)[:500]!r}"


def fails(act, *parts):
    """The exception has these parts in its text."""
    try:
        act()
    except Exception as error:
        return has(f"{type(error).__name__} {error}", *parts)
    raise AssertionError("it did not fail")


def at_once(ask):
    with ThreadPoolExecutor(MANY) as threads:
        same(list(threads.map(lambda number: ask(f"SAY n{number}"), range(MANY))), [f"n{n}" for n in range(MANY)])


def city():
    from pydantic import create_model

    return create_model("City", city=(str, ...), people=(int, ...))


def is_city(found):
    found = found if isinstance(found, dict) else found.model_dump()
    same((found["city"], found["people"]), ("Riga", 7))


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
        is_city(client.chat.completions.parse(model=model, messages=user(CITY), response_format=city()).choices[0].message.parsed)
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
        "structured": lambda: is_city(client.responses.parse(model="klaw", input=CITY, text_format=city()).output_parsed),
        "pictures": pictures,
        "usage": lambda: same(ask("Hi").usage.total_tokens > 0, True),
        "error": lambda: fails(lambda: ask(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: ask(text).output_text),
        "leaves": leaves,
    }


def langchain(make, *, structured):
    """``structured``: the ways to an object of a class, and the question that each of them needs."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool

    model = make()
    bound = model.bind_tools([tool(weather)])

    def tools():
        said = [HumanMessage(CALL), bound.invoke(CALL)]
        (call,) = said[-1].tool_calls
        same((call["name"], call["args"]), ("weather", {"city": "Riga"}))
        said.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
        has(bound.invoke(said).content, "SUNNY in Riga")

    def leaves():
        answer = model.stream(f"LEAVE {NAME}.")
        next(answer)
        answer.close()

    def recalled():
        said = [HumanMessage(PET), AIMessage(model.invoke(PET).content), HumanMessage("RECALL")]
        has(model.invoke(said).content, PET)

    def objects():
        for method, question in structured.items():
            is_city(model.with_structured_output(city(), method=method).invoke(question))

    return {
        "chat": lambda: same(model.invoke("Hello").content, "echo: Hello"),
        "stream": lambda: same("".join(each.content for each in model.stream("one two")), "echo: one two"),
        "recalled": recalled,
        "tools": tools,
        "structured": objects,
        "pictures": lambda: same(model.invoke([HumanMessage(IMAGES)]).content, "PICTURES: 1"),
        "usage": lambda: same(model.invoke("Hi").usage_metadata["total_tokens"] > 0, True),
        "error": lambda: fails(lambda: model.invoke(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: model.invoke(text).content),
        "leaves": leaves,
    }


def langchain_openai():
    from langchain_openai import ChatOpenAI

    ways = {"json_schema": CITY, "json_mode": f"{CITY} in JSON", "function_calling": CITY_CALL}
    return langchain(lambda: ChatOpenAI(model="klaw", base_url=V1, api_key=KEY, max_retries=0), structured=ways)


def langchain_ollama():
    from langchain_ollama import ChatOllama

    ways = {"json_schema": CITY, "json_mode": CITY, "function_calling": CITY_CALL}
    return langchain(lambda: ChatOllama(model="klaw", base_url=URL), structured=ways)


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
        texts = [each.data.delta for each in events if getattr(getattr(each, "data", 0), "type", "") == "response.output_text.delta"]
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
        return made.chat.completions.create(
            model="klaw", messages=user(question), response_model=city(), max_retries=0
        )

    def structured():
        is_city(ask(library.Mode.TOOLS, CITY_CALL))
        for mode in (library.Mode.JSON, library.Mode.JSON_SCHEMA, library.Mode.MD_JSON):
            is_city(ask(mode, CITY))

    def stream():
        made = library.from_openai(client, mode=library.Mode.JSON)
        is_city(list(made.chat.completions.create_partial(model="klaw", messages=user(CITY), response_model=city()))[-1])

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


def llm_command(model, prepare):
    """Simon Willison's ``llm``; a conversation goes on with ``--continue``."""
    folder = Path(tempfile.mkdtemp())
    environ = {**os.environ, "LLM_USER_PATH": str(folder), "OLLAMA_HOST": URL, "NO_COLOR": "1"}
    prepare(folder)
    (folder / "picture.png").write_bytes(PNG)
    (folder / "tools.py").write_text('def weather(city: str) -> str:\n    """Tells it."""\n    return "SUNNY in " + city\n')

    def run(*options):
        command = [str(BIN / "llm"), "-m", model, *options]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout.strip() + done.stderr

    def recalled():
        run(PET)
        has(run("-c", "RECALL"), PET)

    return {
        "chat": lambda: same(run("--no-stream", "Hello"), "echo: Hello"),
        "stream": lambda: same(run("one two"), "echo: one two"),
        "recalled": recalled,
        "tools": lambda: has(run("--functions", str(folder / "tools.py"), CALL), "SUNNY in Riga"),
        "structured": lambda: is_city(json.loads(run("--schema", "city, people int", CITY))),
        "pictures": lambda: same(run("-a", str(folder / "picture.png"), "IMAGES"), "PICTURES: 1"),
        "usage": lambda: has(run("-u", "Hi"), "Token usage"),
        "error": lambda: fails(lambda: run(FAIL), "status 400"),
    }


def llm():
    model = {"model_id": "klaw", "model_name": "klaw", "api_base": V1, "vision": True, "supports_tools": True}
    model |= {"supports_schema": True, "api_key_name": "klaw"}

    def prepare(folder):
        (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))
        (folder / "keys.json").write_text('{"klaw": "none"}')

    return llm_command("klaw", prepare)


def litellm(model, base):
    import litellm as library

    library.suppress_debug_info = True

    def ask(messages, **more):
        messages = user(messages) if isinstance(messages, str) else messages
        return library.completion(model=model, messages=messages, api_base=base, api_key=KEY, max_retries=0, **more)

    def said(messages, **more):
        return ask(messages, **more).choices[0].message

    def stream():
        chunks = list(ask("one two", stream=True))
        same("".join(each.choices[0].delta.content or "" for each in chunks), "echo: one two")

    def tools():
        called = said(CALL, tools=[WEATHER])
        (call,) = called.tool_calls
        same(json.loads(call.function.arguments), {"city": "Riga"})
        result = {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": "SUNNY 21"}
        has(said([*user(CALL), called.model_dump(exclude_none=True), result], tools=[WEATHER]).content, "SUNNY 21")

    def leaves():
        answer = iter(ask(f"LEAVE {NAME}.", stream=True))
        next(answer)
        del answer

    return {
        "chat": lambda: same(said("Hello").content, "echo: Hello"),
        "stream": stream,
        "recalled": lambda: has(said([*user(PET), *assistant(said(PET).content), *user("RECALL")]).content, PET),
        "tools": tools,
        "structured": lambda: is_city(json.loads(said(CITY, response_format=city()).content)),
        "pictures": lambda: same(said(user(IMAGES)).content, "PICTURES: 1"),
        "usage": lambda: same(ask("Hi").usage.total_tokens > 0, True),
        "error": lambda: fails(lambda: said(FAIL), "status 400"),
        "at once": lambda: at_once(lambda text: said(text).content),
    }


def litellm_proxy():
    """An OpenAI client of LiteLLM's proxy, which asks Klaw."""
    folder = Path(tempfile.mkdtemp())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parameters = {"model": "openai/klaw", "api_base": V1, "api_key": KEY, "max_retries": 0}
    config = {"model_list": [{"model_name": "klaw", "litellm_params": parameters}], "router_settings": {"num_retries": 0}}
    (folder / "config.yaml").write_text(json.dumps(config))
    command = [str(BIN / "litellm"), "--config", str(folder / "config.yaml"), "--port", str(port), "--host", "127.0.0.1"]
    with (folder / "log").open("w") as log:
        environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    import atexit

    atexit.register(proxy.kill)
    while proxy.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.2)
    return openai_chat(f"http://127.0.0.1:{port}/v1")


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
            message = [each.message for each in called if each.message.tool_calls][0] if streams else called.message
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
        "chat": lambda: same([each.model for each in asyncio.run(library.AsyncClient(host=URL).list()).models], ["klaw:latest"]),
        "stream": lambda: same(ask(*user("one two"))[0], "echo: one two"),
        "recalled": recalled,
        "tools": tools,
        "structured": lambda: is_city(json.loads(ask(*user(CITY), form=city().model_json_schema())[0])),
        "error": lambda: fails(lambda: ask(*user(FAIL)), "status 400"),
    }


CLIENTS = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "langchain-openai": langchain_openai,
    "langchain-ollama": langchain_ollama,
    "openai-agents": lambda: openai_agents(lambda agents: agents.OpenAIChatCompletionsModel),
    "openai-agents-responses": lambda: openai_agents(lambda agents: agents.OpenAIResponsesModel),
    "instructor": instructor,
    "pydantic-ai": pydantic_ai,
    "llm": llm,
    "llm-ollama": lambda: llm_command("ollama/klaw", lambda folder: None),
    "litellm": lambda: litellm("openai/klaw", V1),
    "litellm-ollama": lambda: litellm("ollama_chat/klaw", URL),
    "litellm-proxy": litellm_proxy,
    "ollama": ollama,
    "home-assistant": home_assistant,
}

if __name__ == "__main__":
    for case, act in CLIENTS[NAME]().items():
        why = None
        try:
            act()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:1_000]
            traceback.print_exc()
        print(json.dumps({"case": case, "why": why}), flush=True)
