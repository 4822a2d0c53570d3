"""The model behind Klaw while programs of others are tried: the first word of the question says what it answers."""

import json
import re
from typing import Any

from tests.support.llm_server import Hang, Recorded, Reply, Text, Tool, error_reply, text_reply, tool_reply

_ASKED = re.compile(
    r"\b(CALL|JSON|SAY|LEAVE|FAIL|RECALL|IMAGES)\b(?: (\w+)(?: (\{.*?\})(?=\s|$))?|(?: (\{.*\})))?", re.DOTALL
)


def respond(request: Recorded) -> Reply:
    """``CALL name {…}`` calls a tool and then tells its result; ``JSON {…}`` and ``SAY word`` are answered so;
    ``RECALL`` tells what the user said, ``IMAGES`` how many pictures there are, ``FAIL 400`` fails, ``LEAVE`` never
    ends. Else an object of the schema that the request has, or an echo."""
    last, said = request.messages[-1], [_text(each) for each in request.messages if each["role"] == "user"]
    if last["role"] == "tool":
        results = [_text(each) for each in request.messages if each["role"] == "tool"]
        return text_reply(f"RESULT: {results[-1]}")
    question = said[-1] if said else ""
    word, name, arguments, tree = ((found := _ASKED.search(question)) and found.groups()) or ("", "", "", "")
    match word:
        case "CALL":
            offered = [each["function"]["name"] for each in request.body.get("tools") or ()]
            names = [each for each in offered if each == name] or [each for each in offered if each.endswith(name)]
            return tool_reply(Tool("c1", names[0], arguments)) if names else text_reply(f"No such tool in {offered}")
        case "JSON":
            return text_reply(tree)
        case "SAY":
            return text_reply(name)
        case "LEAVE":
            return Reply(steps=(Text("Once "), Hang()))
        case "FAIL":
            return error_reply(int(name))
        case "RECALL":
            return text_reply(" | ".join(said))
        case "IMAGES":
            return text_reply(f"PICTURES: {json.dumps(request.messages).count('data:image')}")
    schema = (request.body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema:
        return text_reply(json.dumps(_example(schema, schema)))
    return text_reply("echo: ", question)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(each.get("text", "") for each in content)


def _example(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    match schema.get("type"):
        case "object":
            return {name: _example(each, root) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [_example(schema["items"], root)]
        case "integer" | "number":
            return 7
        case _:
            return "Riga"
