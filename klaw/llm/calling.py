"""Asking for tool calls by a JSON schema: the request for a model that cannot call tools by itself. Pure.

The model writes one object, ``{"reply": {"answer": TEXT}}`` or ``{"reply": {"calls": [{"name": …, "arguments": …}]}}``;
``klaw.llm.replying`` reads it. The member around it is there because OpenAI wants no choice at the top of a schema.
"""

import json
from collections.abc import Sequence
from typing import Any

import attrs

from klaw.llm.adapt import rounds_as_text
from klaw.llm.subset import Rules, Schema, arguments_schema
from klaw.llm.types import ChatMessage, JsonSchema, Request, ToolCall, ToolDescription

SCHEMA_NAME = "reply"
MAX_CALLS = 4
"""Calls in one reply, where the engine can count: models that need this way repeat themselves rather than need more."""

HOW = """\
# Tools

You can use tools before you answer. Write one JSON object and nothing else, either

{"reply":{"calls":[{"name":NAME,"arguments":{PARAMETER:VALUE}}]}}

to use tools (you are shown their results then, and write again), or

{"reply":{"answer":TEXT}}

to answer the user."""
LEFT_OUT = {
    Rules.STRICT: "Parameters that are optional may be null.",
    Rules.LLAMA: "Parameters that are optional may be left out.",
}
AS_TEXT = "Its arguments are written as a text that holds a JSON object."


def ask_by_schema(request: Request, rules: Rules, *, constrained: bool) -> Request:
    """The request with its tools in the system message, earlier rounds as plain text, and a schema for the answer.

    Args:
        request: with tools.
        rules: what the engine takes.
        constrained: whether the API takes a schema; without, the model is only told what to write.
    """
    messages = rounds_as_text(request.messages, calls_text)
    stable = len(messages) if request.stable_messages == len(request.messages) else 0
    told = _with_tools(messages, tools_text(request.tools, rules))
    return attrs.evolve(
        request,
        messages=told,
        tools=(),
        json_schema=JsonSchema(name=SCHEMA_NAME, schema=reply_schema(request.tools, rules)) if constrained else None,
        stable_messages=stable and stable + len(told) - len(messages),
    )


def reply_schema(tools: Sequence[ToolDescription], rules: Rules) -> Schema:
    """What the model may write."""
    counted = rules is Rules.LLAMA
    answer = {"type": "string", **({"minLength": 1} if counted else {})}
    calls = {
        "type": "array",
        "items": {"anyOf": [_call_schema(tool, rules) for tool in tools]},
        **({"minItems": 1, "maxItems": MAX_CALLS} if counted else {}),
    }
    return _object(reply={"anyOf": [_object(answer=answer), _object(calls=calls)]})


def tools_text(tools: Sequence[ToolDescription], rules: Rules) -> str:
    """How the model is told of its tools. The same tools give the same bytes."""
    return "\n\n".join([f"{HOW} {LEFT_OUT[rules]}", *(_tool_text(tool, rules) for tool in tools)])


def calls_text(calls: Sequence[ToolCall]) -> str:
    """Earlier calls, as the model would have written them."""
    told = [{"name": call.name, "arguments": _decoded(call.arguments)} for call in calls]
    return json.dumps({"reply": {"calls": told}}, ensure_ascii=False, separators=(",", ":"))


def _decoded(arguments: str) -> object:
    try:
        decoded: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return decoded


def _with_tools(messages: Sequence[ChatMessage], text: str) -> tuple[ChatMessage, ...]:
    """The text stands at the end of what stays the same in the next turn; prompt caches know it with that."""
    if not messages or messages[0].role != "system":
        return (ChatMessage(role="system", content=text, stable_chars=len(text)), *messages)
    first = messages[0]
    before, after = first.content[: first.stable_chars], first.content[first.stable_chars :]
    stable = f"{before.rstrip()}\n\n{text}\n\n".lstrip()
    return (attrs.evolve(first, content=f"{stable}{after.lstrip()}", stable_chars=len(stable)), *messages[1:])


def _call_schema(tool: ToolDescription, rules: Rules) -> Schema:
    name = {"type": "string", "enum": [tool.name]}
    arguments = arguments_schema(tool.parameters, rules)
    return _object(name=name) if arguments is None else _object(name=name, arguments=arguments)


def _object(**members: Any) -> Schema:
    return {"type": "object", "properties": members, "required": [*members], "additionalProperties": False}


def _tool_text(tool: ToolDescription, rules: Rules) -> str:
    lines = [f"## {tool.name}", tool.description.strip()]
    schema = arguments_schema(tool.parameters, rules)
    if schema == {"type": "string"} or schema == {"type": "object"}:
        # Nothing shorter would be right: the schema holds what the lines below cannot say.
        lines += [AS_TEXT] if schema["type"] == "string" else []
        lines.append(json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":")))
    elif schema is not None:
        lines += _members(tool.parameters, tool.parameters, "")
    return "\n".join(filter(None, lines))


def _members(schema: Any, root: Schema, path: str) -> list[str]:
    """A line for each parameter, with those inside lists and objects."""
    lines: list[str] = []
    schema = _followed(schema, root)
    required = schema.get("required")
    required = required if isinstance(required, list | tuple) else ()
    for name, own in schema["properties"].items():
        member = _followed(own, root)
        notes = [_kind(member, root), *([] if name in required else ["optional"]), *_limits(member)]
        said = member.get("description")
        lines.append(f"- {path}{name} ({', '.join(notes)}){f': {said}' if isinstance(said, str) else ''}")
        inner, step = member, f"{path}{name}"
        while _may_be(inner, "array"):
            inner, step = _followed(inner.get("items"), root), f"{step}[]"
        if _may_be(inner, "object"):
            lines += _members(inner, root, f"{step}.")
    return lines


def _kind(schema: Schema, root: Schema) -> str:
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " | ".join(dict.fromkeys(_kind(_followed(option, root), root) for option in options))
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        return " | ".join(_kind({**schema, "type": one}, root) for one in kind)
    if kind == "array" or "items" in schema:
        return f"list of {_kind(_followed(schema.get('items'), root), root)}"
    return str(kind or "object")


def _limits(schema: Schema) -> list[str]:
    names = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "default")
    return [f"{name} {json.dumps(schema[name], ensure_ascii=False)}" for name in names if name in schema]


def _may_be(schema: Schema, kind: str) -> bool:
    if any(name in schema for name in ("enum", "const", "anyOf", "oneOf")):
        return False
    kinds = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else "")
    return kind == kinds or (isinstance(kinds, list | tuple) and kind in kinds)


def _followed(schema: Any, root: Schema) -> Any:
    """A subschema that was found to fit (see ``subset``), so its references lead somewhere."""
    while isinstance(schema, dict) and "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            found = found[step.replace("~1", "/").replace("~0", "~")]
        schema = found
    return schema if isinstance(schema, dict) else {}
