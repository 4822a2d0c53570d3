"""MCP servers: what there is, adding, removing, testing and logging in; and what users can use of them in chats."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict
from urllib.parse import urlsplit

import attrs

from klaw.actor.clock import iso
from klaw.config.document import join_path
from klaw.config.keys import ADDRESS, USERS
from klaw.convert import Bounds
from klaw.domain.text import plural, span
from klaw.errors import McpError
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Lines, minute
from klaw.operations.operation import Name, Noun, OperationError, Scope, Slash, argument, required

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from klaw.operations.answers import McpServerAnswer
    from klaw.toolbox.mcp.host import Login
    from klaw.toolbox.mcp.server import McpServer

NOUN = Noun("mcp", "connect MCP servers, whose tools models may call (docs/tools.md)")
CHANGED = "The configuration file was changed: what it says now is in effect after `klaw config reload`."
SHOWN = 40
"""Resources, templates or prompts that a chat lists of one server."""
TEST_S = 60.0
LOGIN_NEWS_S = 50.0
CALLBACK = "/oauth/callback"
"""Where browsers come back to from a login; ``klaw.api.page`` has the route."""
Text = Annotated[str, Bounds(1, 2_000)]


ServersName = Annotated[str, Bounds(1, 32, pattern=r"[A-Za-z0-9]+([_-][A-Za-z0-9]+|-+[A-Za-z0-9]+)*")]
UserOrAll = Annotated[str, Bounds(1, 32, pattern=USERS["pattern"])]
Variable = Annotated[str, Bounds(3, 300, pattern=r"[0-9A-Za-z_-]+=[A-Za-z_][A-Za-z0-9_]*")]
Address = Annotated[str, Bounds(1, 2_000, pattern=ADDRESS["pattern"])]


# -- what there is ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class McpServers:
    names: Annotated[tuple[Name, ...], Bounds(0, 100)] = argument(
        "only these servers (default: all)", default=(), positional=True, metavar="NAME"
    )


class McpAnswer(TypedDict):
    servers: "list[McpServerAnswer]"
    config_changed: bool


def _lines(answer: dict[str, Any]) -> Lines:
    shown = []
    for server in answer["servers"]:
        details = [f"since {minute(server['since'])}", server["kind"]]
        details += [f"MCP {server['protocol']}"] if server["protocol"] else []
        details += [f"last error {server['last_error']}"] if server["last_error"] else []
        details.append(f"for {', '.join('everybody' if user == '*' else user for user in server['users'])}")
        shown += [in_short(server), f"  {', '.join(details)}", *(f"  {tool}" for tool in server["tools"])]
        if server["left_out"]:
            shown.append(f"  and {server['left_out']} more that are left out (maxTools)")
        if server["logged"]:
            counts = ", ".join(f"{count} {level}" for level, count in server["logged"].items())
            shown.append(f"  logged: {counts}; the last: {server['said']}")
    shown = shown or ["no MCP server is switched on; `klaw mcp add` connects one (docs/tools.md)"]
    return shown + ([CHANGED] if answer.get("config_changed") else [])


def in_short(server: dict[str, Any]) -> str:
    state = server["state"]
    if state == "waiting":
        state = f"not connected: {server['reason']}"
        state += f": {server['said']}" if server.get("said") else ""
        if server["retry_in_s"] is not None and "klaw mcp login" not in state:
            state += f"; next attempt in {span(server['retry_in_s'])}"
    elif server["reason"]:
        state += f", but {server['reason']}"
    has = [plural(len(server["tools"]), "tool")]
    has += [plural(server[f"{kind}s"], kind) for kind in ("resource", "prompt") if server[f"{kind}s"]]
    return f"{server['name']}: {state}, {', '.join(has)}"


def servers_json(mcp: "Iterable[McpServer]") -> list[dict[str, Any]]:
    return [{**attrs.asdict(report), "since": iso(report.since)} for report in (server.report() for server in mcp)]


@NOUN.operation("mcp", McpServers, cli="list", show=_lines, scope=Scope.OPERATOR, deadline_s=2)
async def servers(asked: McpServers, _caller: Caller, parts: Parts) -> McpAnswer:
    """List the MCP servers with their state and their tools."""
    chosen = [_found(name, parts) for name in asked.names] or parts.tools.mcp
    return {"servers": servers_json(chosen), "config_changed": parts.core.config_changed()}


def _found(name: str, parts: Parts) -> "McpServer":
    found = next((each for each in parts.tools.mcp if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in parts.tools.mcp) or "none"
        raise OperationError("unknown_server", f"there is no such MCP server; there are: {known}", field="names")
    return found


# -- adding and removing ----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ServerName:
    name: ServersName = required("the server")


@attrs.frozen(kw_only=True)
class NewMcpServer(ServerName):
    command: Annotated[tuple[Text, ...], Bounds(0, 100)] = argument(
        "the program and its arguments, behind --", default=(), positional=True, metavar="COMMAND"
    )
    url: Address | None = argument("address of a server behind streamable HTTP", metavar="URL")
    header_env: tuple[Variable, ...] = argument(
        "a request header and the variable with its value, as in Authorization=TICKETS_TOKEN (Bearer is added)",
        default=(),
        metavar="HEADER=VARIABLE",
    )
    env: tuple[Variable, ...] = argument(
        "a variable of the program and the one that holds it", default=(), metavar="NAME=VARIABLE"
    )
    permission: Literal["read", "write", "external", "approval"] | None = argument(
        "what its tools may do at most; approval asks you before each call (default: external)"
    )
    users: tuple[UserOrAll, ...] = argument("users who get its tools; * for everybody (default: local)", default=())


class ChangedServer(TypedDict):
    """``in_effect``: a running server has taken it up."""

    name: str
    in_effect: bool


def _added(answer: dict[str, Any]) -> Lines:
    then = f"`klaw mcp test {answer['name']}` tries it" if answer["in_effect"] else "the next `klaw serve` connects it"
    return [f"Added: {answer['name']}; {then}."]


_HOW: Any = {"scope": Scope.OPERATOR, "offline": True, "bare": True, "changes": True, "deadline_s": 60}


@NOUN.operation("mcp_add", NewMcpServer, cli="add", show=_added, **_HOW)
async def add(asked: NewMcpServer, _caller: Caller, parts: DatabaseParts) -> ChangedServer:
    """Add an MCP server, in effect at once: a program on this machine, or one behind HTTP.

    Keys stay in environment variables, or in secrets.env beside the configuration."""
    program = bool(asked.command)
    if program == (asked.url is not None) or (asked.header_env if program else asked.env):
        text = "give a program behind -- and perhaps --env, or --url and perhaps --header-env"
        raise OperationError("unknown_transport", text, field="url")
    if asked.name in parts.config.mcp.servers:
        raise OperationError("known_server", "there is such a server already; remove it first", field="name")
    bearer = dict.fromkeys(("Authorization", "authorization"), "Bearer ")
    headers = {name: f"{bearer.get(name, '')}${{{variable}}}" for name, variable in _pairs(asked.header_env)}
    made = {
        **({"command": asked.command[0], "args": [*asked.command[1:]]} if asked.command else {}),
        **({"url": asked.url} if asked.url is not None else {}),
        **({"headers": headers} if headers else {}),
        **({"env": env} if (env := {name: f"${{{each}}}" for name, each in _pairs(asked.env)}) else {}),
        **({"permission": asked.permission} if asked.permission else {}),
        **({"users": [*asked.users]} if asked.users else {}),
    }
    return await _changed(asked.name, made, parts)


def _pairs(given: "Sequence[str]") -> list[tuple[str, str]]:
    return [(name, variable) for name, _, variable in (each.partition("=") for each in given)]


async def _changed(name: str, value: Any, parts: DatabaseParts) -> ChangedServer:
    done = await parts.change({join_path("mcp.servers", name): value})
    return {"name": name, "in_effect": done.in_effect}


@NOUN.operation("mcp_remove", ServerName, cli="remove", show=lambda answer: [f"Removed: {answer['name']}."], **_HOW)
async def remove(asked: ServerName, _caller: Caller, parts: DatabaseParts) -> ChangedServer:
    """Remove an MCP server with its login, in effect at once."""
    from klaw.config.edit import UNSET

    _configured(asked.name, parts)
    done = await _changed(asked.name, UNSET, parts)
    _login_file(asked.name, parts).remove()
    return done


def _configured(name: str, parts: DatabaseParts) -> None:
    if name not in parts.config.mcp.servers:
        known = ", ".join(parts.config.mcp.servers) or "none"
        raise OperationError("unknown_server", f"there is no such MCP server; there are: {known}", field="name")


def _login_file(name: str, parts: DatabaseParts) -> Any:
    from klaw.toolbox.mcp.host import LoginFile

    return LoginFile(parts.paths.config_file.parent, name)


# -- testing and logging in -------------------------------------------------------------------------------------------


class TestedServer(TypedDict):
    """``problem``: what is wrong; empty: it is connected, and the rest says what it has."""

    name: str
    problem: str
    protocol: str
    tools: list[str]
    resources: list[str]
    templates: list[str]
    prompts: list[str]


def _tested(answer: dict[str, Any]) -> Lines:
    if answer["problem"]:
        return [f"{answer['name']} is not connected: {answer['problem']}."]
    lines = [f"{answer['name']} is connected, MCP {answer['protocol']}."]
    for kind in ("tools", "resources", "templates", "prompts"):
        lines += [f"{kind}:", *(f"  {each}" for each in answer[kind])] if answer[kind] else []
    return lines


@NOUN.operation("mcp_test", ServerName, cli="test", show=_tested, scope=Scope.OPERATOR, deadline_s=TEST_S + 5)
async def test(asked: ServerName, _caller: Caller, parts: Parts) -> TestedServer:
    """Connect an MCP server, and list what it has; or say what is wrong."""
    server = _found(asked.name, parts)
    problem = ""
    try:
        await server.probe(TEST_S)
    except McpError as error:
        problem = str(error)
    report = server.report()
    keys = {kind: [each.key for each in found] for kind, found in server.entries.items()}
    if report.state != "ready":
        problem = ": ".join(filter(None, (report.reason or "it is still being started", report.said)))
    return {
        "name": asked.name,
        "problem": problem,
        "protocol": report.protocol or "",
        "tools": list(report.tools),
        "resources": keys.get("resources", []),
        "templates": keys.get("resourceTemplates", []),
        "prompts": keys.get("prompts", []),
    }


@attrs.frozen(kw_only=True)
class McpLogin(ServerName):
    device: bool = argument("with a code, on any device", default=False)


@attrs.frozen(kw_only=True)
class BegunLogin(ServerName):
    answer: Annotated[str, Bounds(1, 8_000)] | None = argument(
        "the address that the browser was sent to", metavar="URL"
    )


class LoginState(TypedDict):
    """``address``: what a person has to open, with ``code`` if one has to be typed there; empty: it is over, and
    ``problem`` says why it failed, if it did."""

    name: str
    address: str
    code: str
    problem: str


_LOGIN: Any = {"scope": Scope.OPERATOR, "changes": True, "deadline_s": LOGIN_NEWS_S + 5}


@NOUN.operation("mcp_login", McpLogin, route="POST {name}/login", **_LOGIN)
async def log_in(asked: McpLogin, _caller: Caller, parts: Parts) -> LoginState:
    """Begin to log in to an MCP server."""
    server, address = _found(asked.name, parts), parts.listeners.address() or ""
    if server.config.url is None:
        raise OperationError("bad_args", "is a program on this machine, which needs no login", field="name")
    port = urlsplit(address).port or parts.config.gateway.port
    scheme = "https" if address.startswith("wss:") else "http"
    return await _state_of(server, server.log_in(f"{scheme}://127.0.0.1:{port}{CALLBACK}", device=asked.device))


@NOUN.operation("mcp_login_state", BegunLogin, route="POST {name}/login/state", **_LOGIN)
async def login_state(asked: BegunLogin, _caller: Caller, parts: Parts) -> LoginState:
    """Tell how far a login to an MCP server is; go on with it, if the answer of the browser is given."""
    server = _found(asked.name, parts)
    if server.login is None:
        raise OperationError("no_login", "no login to it was begun", field="name")
    if asked.answer is not None and not server.login.answer(asked.answer):
        raise OperationError("unknown_login", "is not the address that this login leads to", field="answer")
    return await _state_of(server, server.login)


async def _state_of(server: "McpServer", login: "Login") -> LoginState:
    """Once something is known of it."""
    import trio

    with trio.move_on_after(LOGIN_NEWS_S) as waiting:
        await login.wait()
    if waiting.cancelled_caught:
        raise OperationError("unavailable", "the server, or its authorization server, does not answer in time")
    address, code = ("", "") if login.over else (login.address, login.code)
    return {"name": server.name, "address": address, "code": code, "problem": login.problem}


@NOUN.operation("mcp_logout", ServerName, cli="logout", show=lambda answer: [f"Logged out: {answer['name']}."], **_HOW)
async def log_out(asked: ServerName, _caller: Caller, parts: DatabaseParts) -> ChangedServer:
    """Forget the login to an MCP server, in effect at once."""
    _configured(asked.name, parts)
    _login_file(asked.name, parts).remove()
    running = [each for each in parts.tools.mcp if each.name == asked.name] if isinstance(parts, Parts) else []
    for server in running:
        server.reconnect()
    return {"name": asked.name, "in_effect": bool(running)}


# -- in chats ---------------------------------------------------------------------------------------------------------


class ServerOffer(TypedDict):
    """What can be attached to a message of a server, and which prompts can be given, as a person writes it."""

    name: str
    resources: list[str]
    templates: list[str]
    prompts: list[str]


class Offers(TypedDict):
    servers: list[ServerOffer]


def _offered(answer: dict[str, Any]) -> Lines:
    lines = []
    for server in answer["servers"]:
        for kind, title in (("resources", "to attach"), ("templates", "with names to fill in"), ("prompts", "prompts")):
            found = server[kind]
            lines += [f"{server['name']}, {title}:", *(f"  {each}" for each in found[:SHOWN])] if found else []
            lines += [f"  … and {len(found) - SHOWN} more"] * (len(found) > SHOWN)
    return lines or ["No MCP server offers resources or prompts here."]


@NOUN.operation(
    "mcp_offers",
    op.OfUser,
    route="GET offers",
    show=_offered,
    slash=Slash(word="/mcp", help="show what MCP servers offer: @SERVER:RESOURCE attaches, /SERVER:PROMPT asks"),
)
async def offers(_asked: op.OfUser, caller: Caller, parts: Parts) -> Offers:
    """List the resources that the user can attach, and the prompts that they can give, of MCP servers."""
    found: list[ServerOffer] = []
    for server in parts.tools.mcp:
        entries = server.entries if server.is_for(caller.user) else {}
        if any(entries.values()):
            given = {kind: [f"@{server.name}:{each.key}" for each in entries[kind]] for kind in entries}
            asked = [
                " ".join([f"/{server.name}:{each.key}", *(f"{argument}=…" for argument in each.arguments)])
                for each in entries.get("prompts", ())
            ]
            given = {"resources": given["resources"], "templates": given["resourceTemplates"], "prompts": asked}
            found.append(ServerOffer(name=server.name, **given))  # type: ignore[typeddict-item]
    return {"servers": found}


@attrs.frozen(kw_only=True)
class WrittenAnswerTo:
    text: Annotated[str, Bounds(1, 8_000)] = argument("the answer", default=attrs.NOTHING)


class AnswerTaken(TypedDict):
    taken: bool


@NOUN.operation(
    "mcp_answer",
    WrittenAnswerTo,
    scope=Scope.CHAT,
    changes=True,
    show=lambda answer: ["Sent." if answer["taken"] else "Nothing is asked here that takes an answer."],
    slash=Slash(word="/answer", help="answer what an MCP server asks: /answer NAME: VALUE; NAME: VALUE", rest="text"),
)
async def answer(asked: WrittenAnswerTo, caller: Caller, parts: Parts) -> AnswerTaken:
    """Answer the question of an MCP server in a chat."""
    return {"taken": parts.tools.approvals.answer_text(caller.here, asked.text)}
