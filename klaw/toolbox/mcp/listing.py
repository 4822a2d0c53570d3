"""A server's list of tools, made to fit the protocol: one broken entry does not take the others with it. Pure."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import attrs

from klaw.domain.text import clean_output, has_forbidden

MAX_NAME = 200
MAX_DESCRIPTION = 1_200
"""Characters, about 350 tokens: every request to the model carries all descriptions."""


@attrs.frozen(kw_only=True)
class Listed:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Any
    """JSON schema of the arguments, unchecked."""


def fitted(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of ``tools/list`` with only what Klaw reads of each tool, and without entries that are no tools."""
    entries = result.get("tools")
    tools = [_tool(entry) for entry in entries if _is_tool(entry)] if isinstance(entries, list) else []
    cursor = result.get("nextCursor")
    return {
        **{key: value for key, value in result.items() if key not in ("tools", "nextCursor")},
        "tools": tools,
        **({"nextCursor": cursor} if isinstance(cursor, str) else {}),
    }


def chosen(listed: Sequence[Listed], patterns: Sequence[str], most: int) -> tuple[tuple[Listed, ...], int]:
    """The tools that the configuration wants, by name, and how many of them there is no room for."""
    by_name = {tool.name: tool for tool in reversed(listed)}
    wanted = [by_name[name] for name in sorted(by_name) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return tuple(wanted[:most]), max(0, len(wanted) - most)


def described(server: str, text: str) -> str:
    """A tool's description for models: bounded, and with where it comes from."""
    plain = clean_output(text[: MAX_DESCRIPTION * 2]).strip()
    if len(plain) > MAX_DESCRIPTION:
        plain = plain[: MAX_DESCRIPTION - 1].rstrip() + "…"
    origin = f"(From the MCP server {server}.)"
    return f"{plain}\n{origin}" if plain else origin


def _is_tool(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    name = entry.get("name")
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and not has_forbidden(name)


def _tool(entry: Mapping[str, Any]) -> dict[str, Any]:
    description, title, schema = entry.get("description"), entry.get("title"), entry.get("inputSchema")
    told = next((text for text in (description, title) if isinstance(text, str) and text.strip()), "")
    return {"name": entry["name"], "description": told, "inputSchema": _schema(schema)}


def _schema(schema: object) -> dict[str, Any]:
    given = schema if isinstance(schema, dict) else {}
    made = {key: value for key, value in given.items() if key not in ("$schema", "properties", "required")}
    made["type"] = "object"
    if isinstance(given.get("properties"), dict):
        made["properties"] = {
            key: value for key, value in given["properties"].items() if isinstance(value, dict | bool)
        }
    if isinstance(given.get("required"), list):
        made["required"] = [name for name in given["required"] if isinstance(name, str)]
    return made
