"""Questions to models in the background, and what they cost.

What a piece of work spends is kept for good: ``klaw usage`` shows it by source, and the daily limits know of it also
after a restart. A failed attempt counts as far as it is known, with an estimate if it broke off."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TypeVar

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.supervisor import Vitals
from klaw.domain import tokens
from klaw.domain.names import ChatId, UserId
from klaw.llm.ask_json import ask_json
from klaw.llm.client import LlmClient, Meter, note_spending
from klaw.llm.errors import ProviderTimeout
from klaw.llm.router import Task
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Completion, JsonSchema, Request, Route, ToolDescription
from klaw.prompts import prompt
from klaw.store.engine.writer import Writer

ANSWER_S = 900.0
"""A model that does not answer within this time has failed; that of a small machine reads a long prompt for minutes."""
CONTEXT_SHARE = 0.9

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger("klaw.asking")


@attrs.define
class CallCharge:
    meter: Meter
    at: str = ""
    """When it was noted, ISO-8601 UTC; empty: nothing was spent, or it is not noted here."""


@attrs.frozen(kw_only=True)
class Asker:
    """Asks models in the background, behind everybody who waits for a reply. ``writer`` stores what pieces of work
    cost, if that is wanted; ``charge``: the piece of work, once there is one."""

    llm: LlmClient
    clock: Clock
    writer: Writer | None = None
    charge: CallCharge | None = None

    @asynccontextmanager
    async def charged(self, source: str, user: UserId, chat: ChatId | None = None) -> "AsyncIterator[Asker]":
        """An asker for one piece of work (within one: this); what its calls cost is stored when it ends, also when it
        is cancelled. ``source``: ``topics``, ``facts``, ``reranker``, ``summary`` …"""
        if self.charge is not None:
            yield self
            return
        charge = CallCharge(self.llm.meter())
        try:
            yield attrs.evolve(self, charge=charge)
        finally:
            if self.writer is not None and (record := charge.meter.record()):
                charge.at = iso(self.clock.now())
                await note_spending(  # noqa: ASYNC102 - it shields
                    record, self.writer, charge.at, source, user, chat
                )

    def room(self, task: Task, name: str) -> int:
        """Estimated tokens of material that a question may have. Raises ConfigError: there is no model for the task."""
        route = self.llm.router.route(task=task)
        usable = int(route.context_tokens * CONTEXT_SHARE) - _reply_tokens(route)
        return max(64, usable - tokens.estimate(prompt(name)) - 4 * tokens.PER_MESSAGE)

    async def ask(
        self, task: Task, name: str, material: str, form: str, answer: type[T], read: Callable[[T], R]
    ) -> R | None:
        """Ask for JSON; see ``ask_json``. Raises ProviderError; ConfigError: there is no model for the task."""
        route = self.llm.router.route(task=task)

        async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
            return (await self.call(route, messages, schema=schema)).text

        return await ask_json(say, question(name, material), form, answer, read)

    async def call(
        self,
        route: Route,
        messages: tuple[ChatMessage, ...],
        *,
        schema: JsonSchema | None = None,
        tools: tuple[ToolDescription, ...] = (),
        max_tokens: int | None = None,
        priority: Priority | None = Priority.BACKGROUND,
        vitals: Vitals | None = None,
    ) -> Completion:
        """One call. Raises ProviderError. ``priority`` of the slot; None: the caller holds one."""
        request = Request(
            model=route.model,
            messages=messages,
            tools=tools,
            temperature=self.llm.temperature,
            max_tokens=max_tokens or _reply_tokens(route),
            json_schema=schema,
        )
        meter = self.charge.meter if self.charge is not None else self.llm.meter()
        async with self.llm.slots.slot(priority, vitals=vitals) if priority is not None else nullcontext():
            if vitals is not None:
                vitals.doing("waiting for the model")
            with trio.move_on_after(ANSWER_S):
                return await meter.stream(route, request, lambda _delta: None)
        raise ProviderTimeout(f"no answer within {ANSWER_S:g} s")


def question(name: str, material: str) -> tuple[ChatMessage, ...]:
    """A prompt file as system message, and the material as question."""
    return ChatMessage(role="system", content=prompt(name)), ChatMessage(role="user", content=material)


def _reply_tokens(route: Route) -> int:
    """Tokens kept free for the answer: at most a third of the context."""
    return min(route.max_output_tokens, route.context_tokens // 3)
