"""``klaw models connect``: asks for a model, tries it and connects it."""

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from klaw.cli.admin_call import RefusedByServer
from klaw.cli.operations import Here, ask_for
from klaw.cli.questions import answer, hidden, tell
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.paths import Paths
from klaw.config.services import OTHER
from klaw.domain.text import plural
from klaw.operations.connect.models import EVERYTHING
from klaw.operations.operation import OperationError, argument

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


def ask_for_model(paths: Paths, given: Mapping[str, Any], *, builtin: bool = False) -> dict[str, Any] | None:
    """Ask for what is not ``given`` (fields of ``ModelToConnect``), and try the model. Returns what ``models_connect``
    is told; None: the built-in model, which is offered with ``builtin``, or the person wants none. Raises EOFError,
    KeyboardInterrupt, KlawError."""
    service = _service(ask_for(paths, "models_services")["services"], given["service"], builtin=builtin)
    while service is not None:
        asked, models = _look(paths, service, given)
        asked["model"] = given["model"] or _model(models)
        asked["use"] = given["use"] or answer(
            "Use it for: all, or some of chats, background (summaries and topics), tasks", "all", _uses
        )
        tell("Asking it …")
        try:
            done = ask_for(paths, "models_connect", **asked, dry_run=True)
        except (OperationError, RefusedByServer) as error:
            tell(f"  {error}", "  Nothing was changed.")
            given = {**given, "model": None}
            continue
        tell(*told(done))
        agreed = answer("Use it? yes or no", "yes", str).lower() in ("y", "yes", "д", "да")
        return {**asked, "test": False} if agreed else None
    return None


def _service(known: Sequence[dict[str, Any]], named: str | None, *, builtin: bool) -> dict[str, Any] | None:
    by_id: dict[str, dict[str, Any] | None] = {each["id"]: each for each in known}
    by_id = {LOCAL_PROVIDER: None, **by_id} if builtin else by_id

    def read(text: str) -> dict[str, Any] | None:
        if text in by_id:
            return by_id[text]
        close = difflib.get_close_matches(text[:64].lower(), by_id, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise OperationError("bad_args", f"is none of {', '.join(by_id)}{hint}", field="service")

    if named is not None:
        return read(named)
    shown = [f"{LOCAL_PROVIDER}  the built-in model, only there to try Klaw"] * builtin
    shown += [f"{each['id']}  {each['name']}{' (answers on this machine)' * each['found']}" for each in known]
    default = next(iter(by_id)) if builtin or known[0]["found"] else ""
    return answer("Which service has your model", default, read, shown)


def _look(paths: Paths, service: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Ask for address and key until the service answers. Returns these, and its models."""
    failed, near = False, not service["key_env"]
    while True:
        asked = {"service": service["id"], **{name: given[name] for name in ("url", "key", "key_env")}}
        asked["url"] = asked["url"] or service["url"] or None
        if near and (failed or not (service["found"] or given["url"])):
            asked["url"] = answer("Address of its API, up to /v1", asked["url"] or "", str)
        if not asked["key_env"] and (not near or service["id"] == OTHER):
            where = f"you get one at https://{service['key_page']}" if service["key_page"] else "empty: none"
            known = f"empty: the one in {service['key_env']}" if service["has_key"] and not failed else where
            asked["key"] = hidden(f"Key (not shown; {known})") or None
        try:
            return asked, ask_for(paths, "models_look", **asked)["models"]
        except (OperationError, RefusedByServer) as error:
            tell(f"  {error}")
            if asked["key_env"]:
                raise
            failed = True


def _model(models: Sequence[Mapping[str, Any]]) -> str:
    chats = {each["name"]: each for each in models if not each["embedding"]}

    def read(text: str) -> str:
        """The model of this name, or the only one whose name has all words of the text."""
        words = text.lower().split()
        found = [name for name in chats if words and all(word in name.lower() for word in words)]
        if text not in chats and len(found) != 1:
            tell(*map(_able, [chats[name] for name in found[:SHOWN_MODELS]]), *_more(len(found)))
            raise OperationError("bad_args", f"{len(found)} models have this in their names")
        return text if text in chats else found[0]

    shown = list(chats.values())
    tell(f"{plural(len(shown), 'model')}:", *map(_able, shown[:SHOWN_MODELS]), *_more(len(shown)))
    return answer("Its name, or a part of it", shown[0]["name"] if len(shown) == 1 else "", read)


def _more(count: int) -> list[str]:
    return [f"  … and {count - SHOWN_MODELS} more"] * (count > SHOWN_MODELS)


def _able(model: Mapping[str, Any]) -> str:
    """What a model can do, as far as it is known."""
    length = model["context_tokens"]
    known = [f"{length:,} tokens" if length else "", *(each for each in ("tools", "images", "thinking") if model[each])]
    known = [*filter(None, [*known, model["prices"]])]
    return f"  {model['name']}" + (f": {', '.join(known)}" if known else "")


def _uses(text: str) -> list[str]:
    words = EVERYTHING if text == "all" else text.replace(",", " ").split()
    if not words or not set(words) <= set(EVERYTHING):
        raise OperationError("bad_args", f"all, or some of {', '.join(EVERYTHING)}")
    return list(words)


def told(done: Mapping[str, Any]) -> list[str]:
    """What the test showed, and what a day costs."""
    chats, background = done["cost"]["chats"], done["cost"]["background"]
    lines = []
    if done["answer"] is not None:
        lines.append(f"{done['model']} answers after {done['seconds']:.1f} s: “{done['answer']}”")
    if done["tools"] is not None:
        lines.append("It calls tools." if done["tools"] else "It calls no tools: Klaw's stay unused.")
    if chats is None:
        lines.append("What a day costs is not known: nobody tells its prices.")
    elif chats:
        of_it = f"of it ${background:.2g} for summaries, topics and facts"
        lines.append(f"A day of 50 questions costs about ${chats + background:.2g}, {of_it}.")
    else:
        lines.append("It is free.")
    features = ", ".join(_FEATURES[each] for each in done["switched_on"])
    return [*lines, f"This also switches on: {features}."] if features else lines


_FEATURES = {"summaries": "summaries of long chats", "topics": "topics and facts"}


def connect(asked: Connect, here: Here) -> dict[str, Any]:
    """Carry out ``klaw models connect``."""
    given = {name: getattr(asked, name) for name in ("service", "url", "key_env", "model")}
    given |= {"use": list(asked.use), "key": os.environ.get(asked.key_env or "")}
    if asked.yes:
        if missing := next((name for name in ("service", "model") if not given[name]), None):
            raise OperationError("bad_args", "is needed with --yes", field=missing)
        plan: dict[str, Any] | None = {**given, "use": given["use"] or list(EVERYTHING)}
    elif sys.stdin.isatty():
        try:
            plan = ask_for_model(here.paths, given)
        except (EOFError, KeyboardInterrupt):
            tell("", "Nothing was changed.")
            raise KeyboardInterrupt from None
    else:
        raise OperationError("bad_args", "there is no terminal to ask on: give --yes, and the answers as options")
    if plan is None:
        here.say("Nothing was changed.")
        return {"model": None, "changed": False}
    return finish(here.paths, plan, here.say)


def finish(paths: Paths, plan: Mapping[str, Any], say: Callable[..., None]) -> dict[str, Any]:
    """Connect, and tell what was done."""
    done = ask_for(paths, "models_connect", **plan)
    say(*(told(done) if plan.get("test", True) else []))
    if done["key_in"]:
        say(f"The key is in secrets.env as {done['key_in']}.")
    say(f"Connected: {done['model']}" + (", from now on." if done["in_effect"] else "; the next `klaw serve` uses it."))
    return done
