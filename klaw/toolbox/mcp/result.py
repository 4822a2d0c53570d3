"""What a tool of an MCP server answered, as text for the model. Pure.

The values are checked against the protocol before they come here. Pictures, sounds and files are described: a tool's
result is text.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from klaw.toolbox.spec import ToolFailure

MAX_BLOCKS = 1_000
MAX_SHORT = 300
NO_TEXT = "It answered without any text."


def text_of(result: Mapping[str, Any]) -> str | ToolFailure:
    """The result of ``tools/call`` as text; a ToolFailure when the server says that it is an error."""
    if result.get("resultType") == "input_required":
        return ToolFailure("The tool wants to ask the user something, which is not possible here. Nothing was done.")
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    parts = list(_parts(blocks[:MAX_BLOCKS]))
    if len(blocks) > MAX_BLOCKS:
        parts.append(f"[{len(blocks) - MAX_BLOCKS} more parts are left out]")
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks if isinstance(block, dict)):
        # Servers repeat structured content as text, for clients that know only that.
        parts.append(_json(structured))
    text = "\n".join(part for part in parts if part)
    if result.get("isError"):
        return ToolFailure(text or "The tool failed and did not say why.")
    return text or NO_TEXT


def _parts(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                yield str(block.get("text", ""))
            case "image" | "audio" as kind:
                yield f"[{kind}, {_short(block.get('mimeType'))}, {_bytes(block.get('data'))}: cannot be shown]"
            case "resource_link":
                named = [_short(block[key]) for key in ("name", "uri", "description") if block.get(key)]
                yield f"[link: {', '.join(named)}]"
            case "resource":
                yield _resource(block.get("resource"))
            case other:
                yield f"[content of type {_short(other)}: cannot be shown]"


def _resource(resource: object) -> str:
    if not isinstance(resource, dict):
        return ""
    where = _short(resource.get("uri"))
    if isinstance(resource.get("text"), str):
        return f"[{where}]\n{resource['text']}"
    return f"[{where}, {_short(resource.get('mimeType') or 'binary')}, {_bytes(resource.get('blob'))}: cannot be shown]"


def _bytes(data: object) -> str:
    """Size of what a base64 text holds."""
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.0f} KiB"


def _short(value: object) -> str:
    return " ".join(str(value or "?")[:MAX_SHORT].split())


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "[structured content that cannot be shown]"
