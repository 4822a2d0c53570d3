"""`python_clients.py URL NAME`: a library of others does what people do with it. Each case is a line of JSON.

It runs in the library's own environment and imports nothing of Klaw's.
"""

import json
import traceback

import ollama_libraries
import openai_libraries
import other_libraries
from asked import NAME, URL, V1

CLIENTS = {
    "openai": openai_libraries.openai_chat,
    "openai-responses": openai_libraries.openai_responses,
    "langchain-openai": other_libraries.langchain_openai,
    "langchain-ollama": other_libraries.langchain_ollama,
    "openai-agents": lambda: openai_libraries.openai_agents(lambda agents: agents.OpenAIChatCompletionsModel),
    "openai-agents-responses": lambda: openai_libraries.openai_agents(lambda agents: agents.OpenAIResponsesModel),
    "instructor": openai_libraries.instructor,
    "pydantic-ai": openai_libraries.pydantic_ai,
    "llm": other_libraries.llm,
    "llm-ollama": lambda: other_libraries.llm_command("ollama/klaw", lambda folder: None),
    "litellm": lambda: other_libraries.litellm("openai/klaw", V1),
    "litellm-ollama": lambda: other_libraries.litellm("ollama_chat/klaw", URL),
    "litellm-proxy": other_libraries.litellm_proxy,
    "ollama": ollama_libraries.ollama,
    "home-assistant": ollama_libraries.home_assistant,
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
