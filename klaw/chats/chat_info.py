"""Slash commands that tell of a chat and of the server, or choose the chat's model."""

import difflib
from collections.abc import Mapping
from typing import Any

import attrs

from klaw.agent.agent import Agent
from klaw.chats import commands
from klaw.chats.commands import Command
from klaw.config.llm import LOCAL_PROVIDER
from klaw.domain.message import NewMessage
from klaw.domain.names import ChatId
from klaw.errors import ConfigError
from klaw.llm.client import Llm
from klaw.llm.prices import Prices, Rate
from klaw.llm.registry import ModelFacts, configured_models
from klaw.store.kinds import messages, turns
from klaw.store.kinds.messages import Session

DEFAULT = "default"
"""The word that takes a choice back."""
MAX_MODEL_NAME = 200


@attrs.frozen
class Chosen:
    """What came of ``/model NAME``. With ``changed`` the chat uses ``name`` from now on, None being the default."""

    text: str
    changed: bool = False
    name: str | None = None


async def choose(llm: Llm, wanted: str) -> Chosen:
    """Check a name that a user gave, and word the answer."""
    default = llm.core.config.routing.default
    await llm.registry.know(wanted, default)
    if wanted.lower() == DEFAULT:
        return Chosen(f"This chat uses the default model from now on: {_line(llm, default)}.", True, None)
    problem = _problem(llm, wanted)
    if problem is not None:
        return Chosen(f"{problem} The model stays as it is; /models lists what is configured.")
    note = "" if llm.registry.facts(wanted).context_tokens else " Nothing is known of it, but it may work."
    return Chosen(f"This chat uses {_line(llm, wanted)} from now on.{note}", True, wanted)


async def show_model(llm: Llm, name: str | None) -> str:
    """Which model a chat uses. ``name`` None: the default."""
    await llm.registry.know(name or llm.core.config.routing.default)
    where = "chosen for this chat; /model default takes that back" if name else "the default; /model NAME changes it"
    return f"Model: {_line(llm, name or llm.core.config.routing.default)} ({where})."


async def list_models(llm: Llm, current: str | None) -> str:
    """All that the configuration names, and the chat's own one."""
    routing = llm.core.config.routing
    used = current or routing.default
    names = configured_models(llm.core.config)
    await llm.registry.know(*names, used)
    lines = ["Models (prices in US dollars for a million tokens):"]
    for name in [*names, *([used] if used not in names else [])]:
        marks = [mark for mark, holds in (("this chat", name == used), ("default", name == routing.default)) if holds]
        lines.append(f"  {_line(llm, name)}" + (f"  <- {', '.join(marks)}" if marks else ""))
    if llm.core.config.providers:
        lines.append(f"Any other model of {_providers(llm)} works as well: /model PROVIDER/MODEL.")
    return "\n".join(lines)


@attrs.frozen
class Done:
    """What came of a command: the answer, its metadata, and messages to store before it."""

    text: str
    before: tuple[NewMessage, ...] = ()
    metadata: dict[str, Any] = attrs.Factory(dict)


async def show(command: Command, agent: Agent, chat: ChatId, state: str, others: Mapping[str, str]) -> str:
    """Answer a command that changes nothing.

    Args:
        command: /status, /context, /models or /help.
        agent: what the answer is read from.
        chat: where it was given.
        state: what the chat does now.
        others: commands of other parts with their meanings.
    """
    core = agent.core
    if command is Command.HELP:
        return commands.help_text(others)
    if command is Command.CONTEXT:
        turn = await core.readers.run(turns.last, chat)
        return commands.context_text(turn.receipt if turn else None)
    session = await core.readers.run(messages.session, chat)
    assert session is not None  # the command itself is a message of it
    if command is Command.MODELS:
        return await list_models(agent.llm, session.model)
    described = {
        "name": session.name,
        "state": state,
        "messages": session.last_seq,
        "segment": session.segment,
        "model": session.model or core.config.routing.default,
    }
    return commands.status_text(described, core.health.problems())


async def model(llm: Llm, session: Session | None, wanted: str) -> Done:
    """Show the chat's model, or change it from the next turn on: the answer's metadata is what the store reads."""
    if not wanted:
        return Done(await show_model(llm, session.model if session is not None else None))
    chosen = await choose(llm, wanted)
    return Done(chosen.text, metadata={"model": chosen.name} if chosen.changed else {})


# -- inside ----------------------------------------------------------------------------------------------------------


def _problem(llm: Llm, wanted: str) -> str | None:
    """Why a name cannot be used, in words for its user; None if it can."""
    if len(wanted) > MAX_MODEL_NAME or any(not letter.isprintable() or letter.isspace() for letter in wanted):
        return f"The name of a model has no spaces and at most {MAX_MODEL_NAME} characters."
    provider, slash, model = wanted.partition("/")
    if not provider or not slash or not model:
        return f"A model is named provider/model.{_suggestion(llm, wanted)}"
    if provider == LOCAL_PROVIDER and not llm.router.uses_local:
        return "The built-in model is not running: no route of the configuration names it."
    try:
        llm.router.route(wanted, key="/model")
    except ConfigError:
        if provider == LOCAL_PROVIDER:
            return f"The built-in model is {LOCAL_PROVIDER}/{llm.core.config.local_model.model}."
        known = _providers(llm, LOCAL_PROVIDER)
        return f"There is no provider {provider!r}; known are {known}.{_suggestion(llm, wanted)}"
    return None


def _providers(llm: Llm, *more: str) -> str:
    return ", ".join(sorted([*more, *llm.core.config.providers]))


def _suggestion(llm: Llm, wanted: str) -> str:
    known = configured_models(llm.core.config)
    asked = wanted.lower()
    inside = [name for name in known if name.lower().endswith(f"/{asked}")]
    close = inside or difflib.get_close_matches(asked, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _line(llm: Llm, name: str) -> str:
    facts = llm.registry.facts(name)
    parts = [
        f"{facts.context_tokens:,} tokens of context" if facts.context_tokens else "context length unknown",
        _prices(facts),
        *(word for word, has in (("tools", facts.tools), ("images", facts.images)) if has),
    ]
    return f"{name}: {', '.join(parts)}"


def _prices(facts: ModelFacts) -> str:
    if facts.prices is None:
        return "price unknown"
    if _is_free(facts.prices):
        return "free"
    cached = f", {_rate(facts.prices.cached_input)} cached" if facts.prices.cached_input else ""
    return f"{_rate(facts.prices.input)} in{cached}, {_rate(facts.prices.output)} out"


def _is_free(prices: Prices) -> bool:
    parts = (prices.input, prices.output, prices.cached_input, prices.cache_write)
    return all(part is None or (not part.base and not part.tiers) for part in parts)


def _rate(rate: Rate) -> str:
    more = " (more for long prompts)" if rate.tiers else ""
    return f"${rate.base.normalize():f}{more}"
