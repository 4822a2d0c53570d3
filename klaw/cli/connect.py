"""``klaw models connect``: asks for a model, tries it and connects it: through the running server, or without one
by changing the configuration itself."""

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.operations import Here
from klaw.cli.questions import answer, hidden, tell
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.paths import Paths
from klaw.config.services import OTHER
from klaw.domain.text import plural
from klaw.errors import KlawError
from klaw.operations.connect import EVERYTHING
from klaw.operations.operation import OperationError, argument
from klaw.operations.perform import operations, plain, read

SHOWN_MODELS = 20


@attrs.frozen(kw_only=True)
class Connect:
    service: str | None = argument("ollama, openrouter, anthropic …, or other: OpenAI's API elsewhere", positional=True)
    url: str | None = argument("address of its API, if it is another than usual", metavar="URL")
    key_env: str | None = argument(
        "environment variable that holds the key, which is kept in secrets.env", metavar="VARIABLE"
    )
    model: str | None = argument("as the service calls it", metavar="NAME")
    use: tuple[str, ...] = argument(
        "chats, background (summaries and topics), tasks (default: all)",
        default=(),
        metavar="USE",
        option="--for",
        words=True,
    )
    yes: bool = argument("ask nothing", default=False)


@attrs.frozen(kw_only=True)
class Ways:
    """How services are asked and a model is connected: operations of ``klaw.operations.connect`` by their names, as
    JSON. They raise OperationError and RefusedByServer."""

    ask: Callable[..., dict[str, Any]]
    of_server: bool


def ways_of(paths: Paths) -> Ways:
    """Those of the running server, else of this command."""
    try:
        call(paths, "log")
    except NoServer:
        return Ways(ask=partial(_by_itself, paths), of_server=False)
    return Ways(ask=partial(_by_server, paths), of_server=True)


def _by_server(paths: Paths, operation: str, **given: Any) -> dict[str, Any]:
    return call(paths, operation, timeout_s=operations()[operation].deadline_s + 5, **given)


def _by_itself(paths: Paths, operation: str, **given: Any) -> dict[str, Any]:
    import trio

    from klaw.actor import log
    from klaw.config.edit import change_file
    from klaw.config.load import load
    from klaw.operations import connect

    asked = read(operations()[operation], {name: each for name, each in given.items() if each is not None}).asked
    log.configure("error", "auto")  # what fails is told

    async def change(changes: Mapping[str, Any]) -> None:
        change_file(paths.config_file, changes)

    async def carry_out() -> Any:
        file, (config, _) = paths.config_file, load(paths.config_file)
        try:
            if isinstance(asked, connect.ModelToConnect):
                return await connect.connected(asked, config, file, change, {})  # a server may not have this shell's
            if isinstance(asked, connect.ServiceToAsk):
                return await connect.offered(asked, config, file)
            return await connect.known_services(file)
        except KlawError as error:
            raise OperationError(error.code or "failed", str(error), field=error.argument) from None

    answered: dict[str, Any] = plain(trio.run(carry_out))
    return answered


# -- the questions ----------------------------------------------------------------------------------------------------


def ask_for(ways: Ways, given: Mapping[str, Any], *, builtin: bool = False) -> dict[str, Any] | None:
    """Ask for what is not ``given`` (fields of ``ModelToConnect``), and try the model. Returns what ``models_connect``
    is told; None: the built-in model, which is offered with ``builtin``, or the person wants none. Raises EOFError,
    KeyboardInterrupt, KlawError."""
    service = _service(ways, given["service"], builtin=builtin)
    if service is None:
        return None
    while True:
        asked, models = _look(ways, service, given)
        asked["model"] = given["model"] or _model(models)
        asked["use"] = given["use"] or _uses()
        tell("Asking it …")
        try:
            done = ways.ask("models_connect", **asked, dry_run=True)
        except (OperationError, RefusedByServer) as error:
            tell(f"  {error}", "  Nothing was changed.")
            given = {**given, "model": None}
            continue
        tell(*told(done))
        if answer("Use it? yes or no", "yes", str).lower() in ("y", "yes", "д", "да"):
            return {**asked, "test": False}
        return None


def _service(ways: Ways, named: str | None, *, builtin: bool) -> dict[str, Any] | None:
    known = {each["id"]: each for each in ways.ask("models_services")["services"]}
    names = [LOCAL_PROVIDER] * builtin + list(known)

    def read(text: str) -> dict[str, Any] | None:
        if text not in names:
            close = difflib.get_close_matches(text[:64].lower(), names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise OperationError("bad_args", f"is none of {', '.join(names)}{hint}", field="service")
        return known.get(text)

    if named is not None:
        return read(named)
    found = {name: " (answers on this machine)" * each["found"] for name, each in known.items()}
    shown = [f"{LOCAL_PROVIDER}  the built-in model, only there to try Klaw"] * builtin
    shown += [f"{name}  {each['name']}{found[name]}" for name, each in known.items()]
    return answer("Which service has your model", names[0] if builtin or any(found.values()) else "", read, shown)


def _look(ways: Ways, service: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Ask for address and key until the service answers. Returns these, and its models."""
    failed, near = False, not service["key_env"]
    while True:
        asked = {"service": service["id"], **{name: given[name] for name in ("url", "key", "key_env")}}
        asked["url"] = asked["url"] or service["url"] or None
        if near and (failed or not (service["found"] or given["url"])):
            asked["url"] = answer("Address of its API, up to /v1", asked["url"] or "", str)
        if not asked["key_env"] and (not near or service["id"] == OTHER):
            asked["key"] = hidden(_key_question(service, failed=failed)) or None
        try:
            return asked, ways.ask("models_look", **asked)["models"]
        except (OperationError, RefusedByServer) as error:
            tell(f"  {error}")
            if asked["key_env"]:
                raise
            failed = True


def _key_question(service: Mapping[str, Any], *, failed: bool) -> str:
    if service["has_key"] and not failed:
        return f"Key (not shown; empty: the one in {service['key_env']})"
    where = f"you get one at https://{service['key_page']}" if service["key_page"] else "empty: none"
    return f"Key (not shown; {where})"


def _model(models: Sequence[Mapping[str, Any]]) -> str:
    chats = [each for each in models if not each["embedding"]]

    def read(text: str) -> str:
        found = matching(chats, text)
        if len(found) != 1:
            tell(*_listed(found))
            raise OperationError("bad_args", f"{len(found)} models have this in their names")
        return str(found[0]["name"])

    tell(f"{plural(len(chats), 'model')}:", *_listed(chats))
    return answer("Its name, or a part of it", str(chats[0]["name"]) if len(chats) == 1 else "", read)


def matching(models: Sequence[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """The models whose names have all words of a text; only one if that is its name."""
    whole = [each for each in models if each["name"] == text]
    return whole or [
        each for each in models if text and all(word in each["name"].lower() for word in text.lower().split())
    ]


def _listed(models: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {each['name']}{_able(each)}" for each in models[:SHOWN_MODELS]]
    return lines + [f"  … and {len(models) - SHOWN_MODELS} more"] * (len(models) > SHOWN_MODELS)


def _able(model: Mapping[str, Any]) -> str:
    """What a model can do, as far as it is known."""
    length = model["context_tokens"]
    known = [f"{length:,} tokens"] if length else []
    known += [word for word in ("tools", "images", "thinking") if model[word]]
    known += [model["prices"]] if model["prices"] else []
    return f": {', '.join(known)}" if known else ""


def _uses() -> list[str]:
    def read(text: str) -> list[str]:
        words = EVERYTHING if text == "all" else text.replace(",", " ").split()
        if not words or not set(words) <= set(EVERYTHING):
            raise OperationError("bad_args", f"all, or some of {', '.join(EVERYTHING)}")
        return list(words)

    return answer("Use it for: all, or some of chats, background (summaries and topics), tasks", "all", read)


def told(done: Mapping[str, Any]) -> list[str]:
    """What the test showed, and what a day costs."""
    cost, features = done["cost"], [_FEATURES[each] for each in done["switched_on"]]
    lines = []
    if done["answer"] is not None:
        lines.append(f"{done['model']} answers after {done['seconds']:.1f} s: “{done['answer']}”")
    if done["tools"] is not None:
        lines.append("It calls tools." if done["tools"] else "It calls no tools: Klaw's stay unused.")
    if cost["chats"] is None:
        lines.append("What a day costs is not known: nobody tells its prices.")
    elif cost["chats"]:
        whole, background = cost["chats"] + cost["background"], cost["background"]
        of_it = f"of it ${background:.2g} for summaries, topics and facts"
        lines.append(f"A day of 50 questions costs about ${whole:.2g}, {of_it}.")
    else:
        lines.append("It is free.")
    return [*lines, f"With it, {' and '.join(features)} are switched on."] if features else lines


_FEATURES = {"summaries": "summaries of long chats", "topics": "topics and facts"}


def connect(asked: "Connect", here: Here) -> dict[str, Any]:
    """Carry out ``klaw models connect``."""
    ways = ways_of(here.paths)
    given = {name: getattr(asked, name) for name in ("service", "url", "key_env", "model")}
    given |= {"use": list(asked.use), "key": os.environ.get(asked.key_env or "")}
    if asked.yes:
        missing = next((name for name in ("service", "model") if not given[name]), None)
        if missing:
            raise OperationError("bad_args", "is needed with --yes", field=missing)
        plan: dict[str, Any] | None = {**given, "use": given["use"] or list(EVERYTHING)}
    elif sys.stdin.isatty():
        try:
            plan = ask_for(ways, given)
        except (EOFError, KeyboardInterrupt):
            tell("", "Nothing was changed.")
            raise KeyboardInterrupt from None
    else:
        raise OperationError("bad_args", "there is no terminal to ask on: give --yes, and the answers as options")
    if plan is None:
        here.say("Nothing was changed.")
        return {"model": None, "changed": False}
    return finish(ways, plan, here.say)


def finish(ways: Ways, plan: Mapping[str, Any], say: Callable[..., None]) -> dict[str, Any]:
    """Connect, and tell what was done."""
    done = ways.ask("models_connect", **plan)
    say(*(told(done) if plan.get("test", True) else []))
    if done["key_in"]:
        say(f"The key is in secrets.env as {done['key_in']}.")
    say(f"Connected: {done['model']}" + (", from now on." if ways.of_server else "; the next `klaw serve` uses it."))
    return done
