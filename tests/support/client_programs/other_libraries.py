"""Libraries and commands that speak several APIs."""

import atexit
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from asked import (
    BIN,
    CALL,
    CITY,
    CITY_CALL,
    FAIL,
    IMAGES,
    KEY,
    NAME,
    PET,
    PNG,
    URL,
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
from openai_libraries import openai_chat


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


def llm_command(model, prepare):
    """Simon Willison's ``llm``; a conversation goes on with ``--continue``."""
    folder = Path(tempfile.mkdtemp())
    environ = {**os.environ, "LLM_USER_PATH": str(folder), "OLLAMA_HOST": URL, "NO_COLOR": "1"}
    prepare(folder)
    (folder / "picture.png").write_bytes(PNG)
    (folder / "tools.py").write_text(
        'def weather(city: str) -> str:\n    """Tells it."""\n    return "SUNNY in " + city\n'
    )

    def run(*options):
        command = [str(BIN / "llm"), "-m", model, *options]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
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
    config = {
        "model_list": [{"model_name": "klaw", "litellm_params": parameters}],
        "router_settings": {"num_retries": 0},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    command = [
        str(BIN / "litellm"),
        "--config",
        str(folder / "config.yaml"),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    with (folder / "log").open("w") as log:
        environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env=environ)

    atexit.register(proxy.kill)
    while proxy.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.2)
    return openai_chat(f"http://127.0.0.1:{port}/v1")
