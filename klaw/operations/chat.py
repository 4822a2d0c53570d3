"""One chat: its messages, what it does, what its last answer was made from, and which model answers in it."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast, get_args

import attrs

from klaw.config.llm import LOCAL_PROVIDER
from klaw.convert import Bounds
from klaw.domain.context_used import KEY
from klaw.domain.message import MOST_ON_PAGE, ThinkingLevel
from klaw.domain.names import ChatId, name_of
from klaw.domain.text import plural
from klaw.errors import ConfigError
from klaw.operations import chats as all_chats
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, HasReaders, Parts
from klaw.operations.lines import LAYERS, Lines, told_prices
from klaw.operations.server import listed

if TYPE_CHECKING:
    from klaw.domain.message import Message
    from klaw.llm.client import Llm
    from klaw.operations.answers import DegradedSince
    from klaw.store.kinds.messages import ChatRow
    from klaw.wire.frames import MessagePage

NOUN = op.Noun("chat", "show one chat, choose its model and how much that thinks")
DEFAULT = "default"
"""The word that takes a choice back."""
MAX_MODEL_NAME = 200
PAGE_CHARS = 500_000
"""A page of messages is cut at this many characters of content, so that it stays near 1 MiB as JSON."""


@attrs.frozen(kw_only=True)
class ChatsMessages(all_chats.OfChat):
    before: Annotated[int, Bounds(0)] | None = op.argument("the newest messages before this number", metavar="SEQ")
    after: Annotated[int, Bounds(0)] | None = op.argument("the oldest messages after this number", metavar="SEQ")
    limit: Annotated[int, Bounds(1, MOST_ON_PAGE)] = op.argument(
        f"messages on a page, 1 to {MOST_ON_PAGE} (default: 50)", default=50, metavar="N"
    )
    variants: bool = op.argument("also messages that another variant has replaced", default=False)


@attrs.frozen(kw_only=True)
class ModelChoice:
    name: str | None = op.argument("PROVIDER/MODEL, or default; without it the model is only shown")


@attrs.frozen(kw_only=True)
class ThinkingChoice:
    level: str | None = op.argument("off, low, medium, high, or default; without it the choice is only shown")


class ChatNow(TypedDict):
    """What a chat does; ``code`` and ``message`` say why its last message has no answer."""

    name: str
    state: str
    turn: str | None
    doing: str | None
    code: str | None
    message: str | None
    messages: int
    segment: int
    model: str
    degraded: "list[DegradedSince]"


class ChatModel(TypedDict):
    name: str
    context_tokens: int | None
    tools: bool
    images: bool
    prices: str


class ChatModels(TypedDict):
    """``providers``: their names; a model of theirs may be chosen, too. ``hears``, ``speaks``: a model is set that
    writes down sounds, that reads aloud."""

    models: list[ChatModel]
    this_chat: str
    default: str
    providers: list[str]
    hears: bool
    speaks: bool


class Stopping(TypedDict):
    chat: str
    running: bool


# -- how it is shown --------------------------------------------------------------------------------------------------


def _status(answer: dict[str, Any]) -> Lines:
    messages, fresh = plural(answer["messages"], "message"), answer["segment"]
    return [
        f"Chat {answer['name']}: {answer['state']}, {messages}"
        + (f", {plural(fresh, 'fresh start')}." if fresh else "."),
        f"Model: {answer['model']}.",
        *([f"Problem: {each['text']}" for each in answer["degraded"]] or ["All good."]),
    ]


def context_lines(answer: dict[str, Any]) -> Lines:
    receipt = answer["receipt"]
    if receipt is None:
        return ["Nothing was answered in this chat yet."]
    if "window" not in receipt:
        return ["No context was put together for the last answer: it was stopped, or failed, before that."]
    window, budget = receipt["window"], receipt["budget"]
    factor = budget["correction"]  # of Klaw's estimate; the person knows the model's own tokens
    used, usable = (round(budget[name] * factor) for name in ("used_tokens", "usable_tokens"))
    return [
        f"The last answer was made from {used} of {usable} tokens:",
        *(
            f"  {LAYERS.get(layer['name'], layer['name']):<13} {round(layer['tokens'] * factor):>6}"
            for layer in receipt["layers"]
        ),
        *(
            [f"The model saw messages {window['first_seq']} to {window['last_seq']} in full."]
            if window["messages"]
            else []
        ),
        _recall(receipt["recall"]),
        *([_topics(receipt["topics"])] if "topics" in receipt else []),
    ]


def _recall(recall: Mapping[str, Any]) -> str:
    if recall["guard"] == "disabled":
        return "Recall is switched off."
    if recall["guard"] == "all_in_context":
        return "The whole conversation fitted, so nothing had to be looked up."
    degraded = f" (missing: {', '.join(recall['degraded'])})" if recall["degraded"] else ""
    kept = f"messages {', '.join(map(str, recall['kept']))}" if recall["kept"] else "nothing relevant"
    return f"Recalled: {kept}{degraded}."


def _topics(topics: Mapping[str, Any]) -> str:
    shown = sorted(
        (each for each in topics["candidates"] if each["decision"] == "chosen"), key=lambda each: each["place"]
    )
    if not shown:
        return "Topics: none fitted."
    named = ", ".join(str(each["id"]) for each in shown)
    return f"Topics: {named}, chosen by the {topics['chosen_by']}; /topics lists them."


def _model(answer: dict[str, Any]) -> Lines:
    told = _line(answer["model"])
    if not answer["changed"]:
        where = "chosen for this chat; /model default takes that back"
        return [f"Model: {told} ({where if answer['chosen'] else 'the default; /model NAME changes it'})."]
    note = [] if answer["model"]["context_tokens"] else ["Klaw does not know this model; it may still work."]
    return [f"This chat now uses {answer['model']['name']}.", *note]


def _thinking(answer: dict[str, Any]) -> Lines:
    level, model = answer["chosen"] or answer["configured"], answer["model"]
    if answer["changed"] and answer["chosen"]:
        told = f"Thinking is {level} in this chat from now on."
    elif answer["changed"]:
        told = f"This chat uses the default from now on: {_LEVELS.get(level, level)}."
    elif answer["chosen"]:
        told = f"Thinking: {level} (chosen for this chat; /think default takes that back)."
    else:
        told = f"Thinking: {_LEVELS.get(level, level)} (the default; /think {'|'.join(_CHOICES)} changes it)."
    if answer["thinks"]:
        return [told]
    return [f"{told} Klaw does not know that {model} can think and does not ask it to: if it can, set its `thinking`."]


_LEVELS = {None: "as much as the model likes"}
_CHOICES: tuple[str, ...] = get_args(ThinkingLevel)


def _models(answer: dict[str, Any]) -> Lines:
    lines = ["Models (prices in US dollars for a million tokens):"]
    for each in answer["models"]:
        marks = [mark for mark in ("this chat", "default") if each["name"] == answer[mark.replace(" ", "_")]]
        lines.append(f"  {_line(each)}" + (f"  <- {', '.join(marks)}" if marks else ""))
    if answer["providers"]:
        providers = ", ".join(answer["providers"])
        lines.append(f"Any other model of {providers} works as well: /model PROVIDER/MODEL.")
    return lines


def _line(model: dict[str, Any]) -> str:
    length = model["context_tokens"]
    has = [word for word in ("tools", "images") if model[word]]
    context = f"{length:,} tokens of context" if length else "context length unknown"
    return f"{model['name']}: {', '.join([context, model['prices'], *has])}"


# -- the operations ---------------------------------------------------------------------------------------------------


_STATUS = op.Slash(word="/status", help="show what this chat and the server do now", of_chat="chat")
_CONTEXT = op.Slash(word="/context", help="show what the last answer was made from")
_MODEL = op.Slash(
    word="/model",
    help="show this chat's model; /model NAME changes it, /model default takes it back",
    rest="name",
    metadata=lambda answer: {"model": answer["chosen"]} if answer["changed"] else {},
)
_THINK = op.Slash(
    word="/think",
    help="show how much the model thinks here; /think off, low, medium or high changes it, default takes it back",
    rest="level",
    metadata=lambda answer: {"thinking": answer["chosen"]} if answer["changed"] else {},
)
_MODELS = op.Slash(word="/models", help="list the models with their context length and prices")


@all_chats.NOUN.operation("chats_messages", ChatsMessages, route="GET {chat}/messages")
async def messages(asked: ChatsMessages, caller: Caller, parts: Parts) -> "MessagePage":
    """Show messages of a chat, oldest first: the newest, those before a message, or those after one."""
    from klaw.wire import frames
    from klaw.wire.codec import tree_of

    if asked.before is not None and asked.after is not None:
        raise op.OperationError("bad_args", "cannot stand beside after", field="before")
    chat = op.chat_of(asked.chat, caller.user)
    await session_of(chat, parts)
    # One more than asked for tells whether there is more.
    bounds = asked.before, asked.after
    read = await parts.readers.run(stored.branches.page, chat, asked.limit + 1, *bounds, variants=asked.variants)
    if asked.after is not None:
        page = op.fitting(read.messages[: asked.limit], _size, PAGE_CHARS)
    else:
        page = op.fitting(read.messages[-asked.limit :][::-1], _size, PAGE_CHARS)[::-1]
    page = await parts.readers.run(stored.message_files.with_readings, caller.user, page)
    shown = [
        frames.StoredMessage.of(each, variant=read.variants.get(each.seq), replaced=each.seq in read.gone or None)
        for each in page
    ]
    more = len(read.messages) > len(page)
    told = frames.MessagePage(chat=name_of(chat), messages=shown, more=more, branched=read.branched or None)
    return cast("MessagePage", tree_of(told))


def _size(message: "Message") -> int:
    return len(message.content) + sum(len(str(message.metadata.get(name, ""))) for name in ("calls", KEY))


@all_chats.NOUN.operation("chats_stop", all_chats.OfChat, changes=True, route="POST {chat}/stop")
async def stop_answer(asked: all_chats.OfChat, caller: Caller, parts: Parts) -> Stopping:
    """Stop the running answer of a chat; ``running`` tells whether there was one."""
    chat = op.chat_of(asked.chat, caller.user)
    running = await parts.chats.stop(caller.user, name_of(chat))
    if not running:
        await session_of(chat, parts)
    return {"chat": name_of(chat), "running": running}


@all_chats.NOUN.operation("chats_status", all_chats.OfChat, route="GET {chat}/status", show=_status, slash=_STATUS)
async def status(asked: all_chats.OfChat, caller: Caller, parts: Parts) -> ChatNow:
    """Show what a chat does now, why its last message has no answer, its model, and what does not work."""
    from klaw.chats.directory import at_rest

    chat = op.chat_of(asked.chat, caller.user)
    session = await session_of(chat, parts)
    now = at_rest(parts.chats.chat_status(chat), await parts.chats.unanswered(chat))
    return {
        "name": session.name,
        "state": now["state"],
        "turn": now.get("turn"),
        "doing": now.get("doing"),
        "code": now.get("code"),
        "message": now.get("message"),
        "messages": session.last_seq,
        "segment": session.segment,
        "model": session.model or parts.llm.core.config.routing.default,
        "degraded": listed(parts.core.health),
    }


@NOUN.operation("chat_context", op.Nothing, show=context_lines, scope=op.Scope.CHAT, slash=_CONTEXT)
async def context(_asked: op.Nothing, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Show what the last answer of the chat where this is asked was made from."""
    last = await parts.readers.run(stored.turns.last, caller.here)
    return {"receipt": last.receipt if last else None}


@NOUN.operation("chat_model", ModelChoice, show=_model, scope=op.Scope.CHAT, changes=True, slash=_MODEL)
async def model(asked: ModelChoice, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Show the model of the chat where this is asked, or choose it: the slash command's answer stores the choice."""
    default, wanted = parts.llm.core.config.routing.default, asked.name
    chosen = (await session_of(caller.here, parts)).model if wanted is None else None
    if wanted is not None and wanted.lower() != DEFAULT:
        check_model(parts.llm, wanted)
        chosen = wanted
    await parts.llm.registry.know(chosen or default, hurry=True)
    return {"model": _known(parts.llm, chosen or default), "chosen": chosen, "changed": wanted is not None}


@NOUN.operation("chat_thinking", ThinkingChoice, show=_thinking, scope=op.Scope.CHAT, changes=True, slash=_THINK)
async def thinking(asked: ThinkingChoice, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Show how much the model of the chat where this is asked thinks, or choose it: the slash command's answer stores
    the choice."""
    session = await session_of(caller.here, parts)
    chosen: str | None = session.thinking
    if asked.level is not None:
        chosen = asked.level.lower() if asked.level.lower() != DEFAULT else None
        if chosen is not None and chosen not in _CHOICES:
            text = f"/think takes {', '.join(_CHOICES)} or {DEFAULT}. Nothing was changed."
            raise op.OperationError("bad_args", text, field="level")
    route = parts.llm.router.route(session.model, key="/model")
    return {
        "model": route.name,
        "thinks": route.thinking is not None,
        "configured": route.thinking.level if route.thinking is not None else None,
        "chosen": chosen,
        "changed": asked.level is not None,
    }


@NOUN.operation("chat_models", op.Nothing, show=_models, scope=op.Scope.CHAT, slash=_MODELS)
async def models(_asked: op.Nothing, caller: Caller, parts: Parts) -> ChatModels:
    """List all models that the configuration names, and that of the chat where this is asked."""
    return await _models_of(caller.here, parts)


@all_chats.NOUN.operation("chats_models", all_chats.OfChat, route="GET {chat}/models")
async def models_of(asked: all_chats.OfChat, caller: Caller, parts: Parts) -> ChatModels:
    """List the models that may answer in a chat, which may be a new one, and which does."""
    return await _models_of(op.chat_of(asked.chat, caller.user), parts)


async def _models_of(chat: ChatId, parts: Parts) -> ChatModels:
    from klaw.llm.router import configured_models

    config, session = parts.llm.core.config, await parts.readers.run(stored.messages.session, chat)
    used = (session.model if session is not None else None) or config.routing.default
    names = list(dict.fromkeys([*configured_models(config, chat=True), used]))
    await parts.llm.registry.know(*names, hurry=True)
    return {
        "models": [_known(parts.llm, name) for name in names],
        "this_chat": used,
        "default": config.routing.default,
        "providers": sorted(config.providers),
        "hears": parts.voice.hears,
        "speaks": parts.voice.speaks,
    }


async def session_of(chat: ChatId, parts: HasReaders) -> "ChatRow":
    """A chat's row. Raises OperationError (``unknown_chat``)."""
    session = await parts.readers.run(stored.messages.session, chat)
    if session is None:
        raise op.OperationError("unknown_chat", "there is no such chat", field="chat")
    return session


def check_model(llm: "Llm", wanted: str) -> None:
    """Raises OperationError: a name cannot be used."""
    from klaw.llm.router import configured_models

    config, known, asked = llm.core.config, configured_models(llm.core.config), wanted[:MAX_MODEL_NAME].lower()
    inside = [name for name in known if name.lower().endswith(f"/{asked}")]
    close = inside or difflib.get_close_matches(asked, known, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    provider, _, name = wanted.partition("/")
    problem = None
    if len(wanted) > MAX_MODEL_NAME or any(not letter.isprintable() or letter.isspace() for letter in wanted):
        problem = f"The name of a model has no spaces and at most {MAX_MODEL_NAME} characters."
    elif not provider or not name:
        problem = f"A model is named provider/model.{meant}"
    elif provider == LOCAL_PROVIDER and not llm.router.uses_local:
        problem = "The built-in model is not running: no route of the configuration names it."
    else:
        try:
            llm.router.route(wanted, key="/model")
        except ConfigError:
            providers = ", ".join(sorted([LOCAL_PROVIDER, *config.providers]))
            problem = f"There is no provider {provider!r}; known are {providers}.{meant}"
            if provider == LOCAL_PROVIDER:
                problem = f"The built-in model is {LOCAL_PROVIDER}/{config.local_model.model}."
    if problem is not None:
        text = f"{problem} The model stays as it is; /models lists what is configured."
        raise op.OperationError("unknown_model", text, field="name")


def _known(llm: "Llm", name: str) -> ChatModel:
    facts, prices = llm.registry.facts(name), llm.registry.charged(name)
    return {
        "name": name,
        "context_tokens": facts.context_tokens,
        "tools": bool(facts.tools),
        "images": bool(facts.images),
        "prices": told_prices(prices) if prices is not None else "price unknown",
    }
