"""``klaw connect search``: asks for a search service, tries it and connects it."""

import os
import sys
from typing import Any

import attrs

from klaw.cli.admin_call import RefusedByServer
from klaw.cli.operations import Here, ask_for, command
from klaw.cli.questions import answer, hidden, tell
from klaw.operations.lines import ShownLines
from klaw.operations.operation import Noun, OperationError, argument

NOUN = Noun("connect", "connect a search service (docs/tools.md)", local=True)


@attrs.frozen(kw_only=True)
class ConnectSearch:
    service: str | None = argument("searxng, brave, tavily, exa, or mcp: a tool of an MCP server", positional=True)
    url: str | None = argument("address of SearXNG, if it is not found on this machine", metavar="URL")
    key_env: str | None = argument(
        "environment variable that holds the key, which is kept in secrets.env", metavar="VARIABLE"
    )
    tool: str | None = argument("for mcp: the tool that searches, as server__tool")
    fetch: bool = argument("also let models read the pages (web_fetch)", default=False)
    yes: bool = argument("ask nothing", default=False)


@command(NOUN, "connect", ConnectSearch, cli="search", show=lambda answer: ShownLines((), found=answer["changed"]))
def search(asked: ConnectSearch, here: Here) -> dict[str, Any]:
    """Let models search the web. Asks for the service and its key, searches once, and shows what it found. The key goes
    into secrets.env. From then on models that you chat with decide what the service is asked."""
    plan = {name: value for name, value in attrs.asdict(asked).items() if name != "yes"}
    plan["key"] = os.environ.get(asked.key_env or "")
    if not (asked.yes and asked.service) and not sys.stdin.isatty():
        raise OperationError("bad_args", "there is no terminal to ask on: give --yes, and the answers as options")
    if not (asked.yes and asked.service):
        try:
            plan = _ask(plan, here)
        except (EOFError, KeyboardInterrupt):
            tell("", "Nothing was changed.")
            raise KeyboardInterrupt from None
    if not plan:
        here.say("Nothing was changed.")
        return {"service": None, "changed": False}
    done = ask_for(here.paths, "connect_search", **plan)
    here.say(*([] if "test" in plan else _found(done)))
    if done["key_in"]:
        here.say(f"The key is in secrets.env as {done['key_in']}.")
    when = "from now on" if done["in_effect"] else "with the next `klaw serve`"
    here.say(f"Connected: models that call tools can search the web, {when}.")
    return done


def _ask(plan: dict[str, Any], here: Here) -> dict[str, Any]:
    """Ask for what is not given until a search succeeds; empty: the person does not want it."""
    from klaw.toolbox.search_services import SEARCH_SERVICES

    shown = [f"{name}  {each.name}{', your own' * (not each.key_env)}" for name, each in SEARCH_SERVICES.items()]
    shown.append("mcp  a tool of an MCP server")
    plan = {**plan, "service": plan["service"] or answer("Which search service", "searxng", str, shown)}
    service, failed = SEARCH_SERVICES.get(plan["service"]), False
    while True:
        if service is None and (failed or not plan["tool"]):
            plan["tool"] = answer("Its tool, as server__tool", plan["tool"] or "", str)
        elif service is not None and not service.key_env and failed:
            plan["url"] = answer("Its address", plan["url"] or "http://127.0.0.1:8080", str)
        elif service is not None and service.key_env and not plan["key_env"]:
            plan["key"] = hidden(f"Key (not shown; you get one at https://{service.key_page})") or None
        tell("Searching …")
        try:
            done = ask_for(here.paths, "connect_search", **plan, dry_run=True)
        except (OperationError, RefusedByServer) as error:
            tell(f"  {error}", "  Nothing was changed.")
            if plan["key_env"] or plan["service"] not in (*SEARCH_SERVICES, "mcp"):
                raise
            failed = True
            continue
        tell(*_found(done))
        if not _yes("Use it?"):
            return {}
        return {**plan, "test": False, "fetch": _yes("May models also read the pages that it finds (web_fetch)?")}


def _yes(question: str) -> bool:
    return answer(f"{question} yes or no", "yes", str).lower() in ("y", "yes", "д", "да")


def _found(done: dict[str, Any]) -> list[str]:
    if done["titles"] is None:
        return ["The tool can only be tried while the server runs."]
    found = [f"  {each}" for each in done["titles"]] or ["  (nothing was found)"]
    return [f"{done['url'] or done['service']} answers:", *found]
