"""The keys of engine.json for MCP servers: ``mcp.servers``."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import key

_DAY_S = 86_400


@attrs.frozen(kw_only=True)
class McpServerConfig:
    """One MCP server: a program on this machine, or one behind streamable HTTP."""

    command: str | None = key(
        "Program to start: its name, or its path. Either this or url.", None, pattern=r"[^\0]+", hint="not be empty"
    )
    args: tuple[str, ...] = key("Its arguments.", (), pattern=r"[^\0]*", hint="hold no NUL")
    env: Mapping[str, Secret] = key(
        "Its environment, besides PATH, HOME, USER, SHELL, locale, time zone and TMPDIR. It gets nothing else.",
        factory=dict,
        pattern=r"[^\0]*",
        hint="hold no NUL",
        names=r"[A-Za-z_][A-Za-z0-9_]*",
        names_hint="be the name of an environment variable",
    )
    cwd: Path | None = key("Folder that it runs in; the workspace if it is not given.", None)
    url: str | None = key(
        "Address of a server behind streamable HTTP. Either this or command.",
        None,
        pattern=r"https?://[^/\s@?#]+(/[^\s?#]*)?",
        hint="be an http:// or https:// address without user name, password, query or fragment",
    )
    headers: Mapping[str, Secret] = key(
        "Further request headers, for url; here belongs its key.",
        factory=dict,
        pattern=r"[\x20-\x7e]*",
        hint="be printable ASCII text",
        names=r"[0-9A-Za-z!#$%&'*+.^_`|~-]+",
        names_hint="be an HTTP header name",
    )
    enabled: bool = key("Connect it.", True)
    permission: Literal["read", "write", "external", "approval"] = key(
        "What its tools may do at most; approval asks you before each call.", "external"
    )
    tools: tuple[str, ...] = key(
        "Patterns of its own tool names; others are not offered.",
        ("*",),
        pattern=r"\S+( \S+)*",
        hint="be a tool's name, with * for any characters",
        one_or_more=True,
    )
    max_tools: int = key("More tools than these are left out; each costs tokens.", 64, minimum=1, maximum=500)
    users: tuple[str, ...] = key(
        "Users whose chats are offered its tools; * for everybody. They act with your accounts.",
        ("local",),
        pattern=r"\*|[a-z0-9][a-z0-9_-]{0,31}",
        hint="be a user's name, or *",
        one_or_more=True,
    )
    timeout_s: float = key("One call must end within this time.", 60.0, above=0, maximum=_DAY_S)
    start_timeout_s: float = key("It must be connected within this time.", 30.0, above=0, maximum=_DAY_S)


@attrs.frozen(kw_only=True)
class McpConfig:
    """Tools of other programs, through the Model Context Protocol."""

    servers: Mapping[str, McpServerConfig] = key(
        "MCP servers by name; their tools are called name__tool.",
        factory=dict,
        names=r"(?=.{1,32}$)[A-Za-z0-9]+([_-][A-Za-z0-9]+|-+[A-Za-z0-9]+)*",
        names_hint="be up to 32 letters, digits, '-' and single '_', with a letter or digit at both ends",
    )
