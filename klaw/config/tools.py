"""The keys of engine.yaml for tools, MCP servers and knowledge bases. What reaches out of Klaw is off."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS, DAY_S, HEADERS, HOUR_S, TOKENS_MAX, USERS, key, section

_WANT_KEY = frozenset({"brave", "tavily", "exa"})


@attrs.frozen(kw_only=True)
class WebSearchConfig:
    """The tool web_search, which asks a search service. Nothing is asked before a model calls it."""

    service: Literal["searxng", "brave", "tavily", "exa", "mcp"] | None = key(
        "The service that is asked; mcp = a tool of an MCP server. Without one there is no web_search.", None
    )
    url: str | None = key("Its address, for searxng; for others one in the place of their own.", None, **ADDRESS)
    api_key: Secret | None = key(
        "Its key, for brave, tavily and exa.",
        None,
        pattern=r"[\x21-\x7e]+",
        hint="be printable ASCII text without spaces",
    )
    tool: str | None = key(
        "For mcp: the tool that searches, as server__tool.",
        None,
        pattern=r"[A-Za-z0-9_-]{1,64}",
        hint="be a tool's name",
    )
    max_results: int = key("Results of one search at most.", 8, within=(1, 20))
    per_day: int = key("Searches of one user in a day of their own time zone.", 100, within=(1, 1_000_000))
    timeout_s: float = key("The service must have answered within this time.", 20.0, up_to=HOUR_S)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        needed = {"searxng": ("url", self.url), "mcp": ("tool", self.tool)}
        name, value = needed.get(self.service or "", ("apiKey", self.api_key if self.service in _WANT_KEY else ""))
        if value is None:
            yield name, f"is needed for {self.service}; `klaw connect search` asks for it"


@attrs.frozen(kw_only=True)
class WebToolConfig:
    """The tool web_fetch, which reads pages of the public web, and web_search."""

    enabled: bool = key("Offer web_fetch to models.", False)
    ports: tuple[int, ...] = key("Ports that may be connected to.", (80, 443), within=(1, 65_535))
    max_bytes: int = key("A longer page is cut here, packed or unpacked.", 2_000_000, within=(1024, 20_000_000))
    max_document_bytes: int = key(
        "A larger PDF, DOCX or other document is not read.", 20_000_000, within=(1024, 200_000_000)
    )
    timeout_s: float = key("A page must come within this time, redirects included.", 30.0, up_to=HOUR_S)
    idle_s: float = key("No byte from the server for this long is a time-out.", 10.0, up_to=HOUR_S)
    search: WebSearchConfig = section(WebSearchConfig)


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
    approval_s: float = key("A question to the user that stays unanswered so long counts as no.", 120.0, up_to=HOUR_S)


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
        "Characters of a tool's output that a model sees; longer ones go to a file.", 16_000, within=(200, 10_000_000)
    )
    web: WebToolConfig = section(WebToolConfig)
    exec: ExecToolConfig = section(ExecToolConfig)


@attrs.frozen(kw_only=True)
class McpOAuthConfig:
    """How Klaw logs in to an MCP server; where servers register clients by themselves, nothing of it is needed."""

    grant: Literal["browser", "client"] = key(
        "Who logs in: browser = a person (klaw mcp login), client = Klaw itself, as clientId.", "browser"
    )
    client_id: str | None = key(
        "Id that the authorization server knows Klaw by; an https:// address is one of a metadata document.",
        None,
        pattern=r"[\x21-\x7e]+",
        hint="be printable ASCII text without spaces",
    )
    client_secret: Secret | None = key("Goes with clientId.", None, pattern=r"[\x20-\x7e]+", hint="not be empty")
    private_key: Secret | None = key(
        "PEM key that Klaw signs with, in place of clientSecret.", None, pattern=r"[^\0]+", hint="not be empty"
    )
    issuer: str | None = key("Authorization server that clientId belongs to; no other one is asked.", None, **ADDRESS)
    scopes: tuple[str, ...] = key(
        "What to ask for; else what the server names.", (), pattern=r"[\x21\x23-\x5b\x5d-\x7e]+", hint="be a scope"
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.client_id is None and (self.client_secret or self.private_key or self.grant == "client"):
            yield "clientId", "is needed too"
        if self.grant == "client" and (self.issuer is None or not (self.client_secret or self.private_key)):
            yield "", "needs issuer, and clientSecret or privateKey, with grant: client"


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
    oauth: McpOAuthConfig = section(McpOAuthConfig)
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
    users: tuple[str, ...] = key("Users who get its tools; * for everybody. They act with your accounts.", **USERS)
    timeout_s: float = key("One call must end within this time.", 60.0, up_to=DAY_S)
    start_timeout_s: float = key("It must be connected within this time.", 30.0, up_to=DAY_S)
    roots: tuple[Path, ...] = key("Folders that it is told it may work in.", ())
    sampling: bool = key("It may have your models write something; you are asked each time.", False)
    sampling_tokens: int = key("Tokens a day for that.", 20_000, within=(1, TOKENS_MAX))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.command is not None and self.url is not None:
            yield "", "has both command and url; give only one of them"
        elif self.command is None and self.url is None:
            yield "", "needs command (a program) or url (a server behind HTTP)"
        elif self.command is not None and (self.headers or self.oauth != McpOAuthConfig()):
            yield "headers" if self.headers else "oauth", "means nothing beside command"
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


@attrs.frozen(kw_only=True)
class EndpointConfig:
    """One SPARQL 1.1 endpoint."""

    url: str = key("Its address.", **ADDRESS)
    user: str | None = key("User name for basic authentication.", None, pattern=r"[^\0-\x1f:]+", hint="have no ':'")
    password: Secret | None = key("Goes with user.", None, pattern=r"[^\0-\x1f]+", hint="not be empty")
    headers: Mapping[str, Secret] = key("Further request headers; here belongs a key.", **HEADERS)
    private: bool = key("It may be on this machine or its network.", False)
    users: tuple[str, ...] = key("Users who may add it to bases; * for everybody. They use your account.", **USERS)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if (self.user is None) != (self.password is None):
            yield "", "needs both user and password, or none of them"


@attrs.frozen(kw_only=True)
class SparqlConfig:
    """What graphs are asked: SPARQL endpoints and RDF files."""

    timeout_s: float = key("One graph must have answered within this time.", 10.0, up_to=60)


@attrs.frozen(kw_only=True)
class KnowledgeConfig:
    """Knowledge bases: documents and graphs that chats are answered from."""

    max_tokens: int = key("Tokens of passages in the context of a chat linked to a base.", 1500, within=(100, 100_000))
    pairs: int = key("Questions and answers before the current one that such a chat's model sees.", 5, within=(0, 100))
    rewrite: bool = key("Let the model put a question that refers to earlier ones into words of its own.", False)
    max_file_bytes: int = key("Bytes of one uploaded file.", 200_000_000, within=(1, 10_000_000_000))
    max_user_bytes: int = key("Bytes of a user's files in bases.", 5_000_000_000, within=(1, 1_000_000_000_000_000))
    folders: tuple[str, ...] = key(
        "Users may add folders below these, and below their own workspace; the operator may add any.",
        (),
        pattern=r"/[^\x00-\x1f]*",
        hint="be an absolute path",
    )
    sparql: SparqlConfig = section(SparqlConfig)
    endpoints: Mapping[str, EndpointConfig] = key(
        "SPARQL endpoints by name: those with credentials, or in your network.",
        factory=dict,
        names=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        names_hint="be up to 64 letters, digits, '.', '_' or '-'",
    )
    max_files: int = key("Files of one watched folder.", 20_000, within=(1, 1_000_000))
    scan_s: float = key("A watched folder is scanned this often, also without news.", 300.0, within=(1, DAY_S))
    web_refresh_hours: float = key("A web page is fetched again when it is so old; 0 never.", 24.0, within=(0, 8784))
