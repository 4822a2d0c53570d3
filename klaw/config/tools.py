"""The keys of engine.yaml for tools and MCP servers. What reaches out of Klaw is off."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS, DAY_S, HEADERS, HOUR_S, key, section


@attrs.frozen(kw_only=True)
class WebToolConfig:
    """The tool web_fetch, which reads pages of the public web."""

    enabled: bool = key("Offer web_fetch to models.", False)
    ports: tuple[int, ...] = key("Ports that may be connected to.", (80, 443), within=(1, 65_535))
    max_bytes: int = key("A longer page is cut here, packed or unpacked.", 2_000_000, within=(1024, 20_000_000))
    timeout_s: float = key("A page must come within this time, redirects included.", 30.0, up_to=HOUR_S)
    idle_s: float = key("No byte from the server for this long is a time-out.", 10.0, up_to=HOUR_S)


@attrs.frozen(kw_only=True)
class ExecToolConfig:
    """The tool host_exec, which runs programs on this machine after the user allowed it."""

    enabled: bool = key("Offer host_exec to models.", False)
    allow: tuple[str, ...] = key(
        "Commands that run without asking, word by word; * in a word is any one name of a path, a last word ** is any"
        " further words.",
        (),
        pattern=r"[A-Za-z0-9_./+-]+( [^|&;<>`$'\"\\\x00-\x1f]*)?",
        hint="begin with a program's name, and have no quotes and nothing that only a shell understands",
    )
    sandbox: Literal["auto", "bubblewrap", "none"] = key(
        "Run commands in a sandbox: auto = where bubblewrap works, bubblewrap = only there, none = never.", "auto"
    )
    network: bool = key("In the sandbox commands may use the network.", False)
    timeout_s: float = key("A command is killed after this time.", 60.0, up_to=HOUR_S)
    approval_s: float = key(
        "A question to the user that is not answered in this time counts as no.", 120.0, up_to=HOUR_S
    )


@attrs.frozen(kw_only=True)
class ToolsConfig:
    """Tools that a model may call."""

    disabled: tuple[str, ...] = key(
        "Tools that are never offered: names, or patterns such as github__*.",
        (),
        pattern=r"[A-Za-z0-9_*?-]{1,64}",
        hint="be a tool's name, with * for any characters",
    )
    timeout_s: float = key("A call must end within this time, if its tool has no other.", 60.0, up_to=DAY_S)
    max_output_chars: int = key(
        "The model sees this many characters of a tool's output; a longer one goes to a file of the workspace.",
        16_000,
        within=(200, 10_000_000),
    )
    web: WebToolConfig = section(WebToolConfig)
    exec: ExecToolConfig = section(ExecToolConfig)


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
    url: str | None = key("Address of a server behind streamable HTTP. Either this or command.", None, **ADDRESS)
    headers: Mapping[str, Secret] = key("Further request headers, for url; here belongs its key.", **HEADERS)
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
    max_tools: int = key("More tools than these are left out; each costs tokens.", 64, within=(1, 500))
    users: tuple[str, ...] = key(
        "Users whose chats are offered its tools; * for everybody. They act with your accounts.",
        ("local",),
        pattern=r"\*|[a-z0-9][a-z0-9_-]{0,31}",
        hint="be a user's name, or *",
        one_or_more=True,
    )
    timeout_s: float = key("One call must end within this time.", 60.0, up_to=DAY_S)
    start_timeout_s: float = key("It must be connected within this time.", 30.0, up_to=DAY_S)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.command is not None and self.url is not None:
            yield "", "has both command and url; give only one of them"
        elif self.command is None and self.url is None:
            yield "", "needs command (a program) or url (a server behind HTTP)"
        elif self.command is not None and self.headers:
            yield "headers", "means nothing beside command"
        elif self.url is not None:
            for name, value in {"args": self.args, "env": self.env, "cwd": self.cwd}.items():
                if value:
                    yield name, "means nothing beside url"


@attrs.frozen(kw_only=True)
class McpConfig:
    """Tools of other programs, through the Model Context Protocol."""

    servers: Mapping[str, McpServerConfig] = key(
        "MCP servers by name; their tools are called name__tool.",
        factory=dict,
        names=r"(?=.{1,32}$)[A-Za-z0-9]+([_-][A-Za-z0-9]+|-+[A-Za-z0-9]+)*",
        names_hint="be up to 32 letters, digits, '-' and single '_', with a letter or digit at both ends",
    )
