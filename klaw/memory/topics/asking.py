"""One question to a model that has to be answered in JSON, with one more try when the answer cannot be used."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from klaw.domain import tokens
from klaw.domain.names import ChatId, UserId
from klaw.errors import ProviderTimeout
from klaw.llm.client import LlmClient, Meter
from klaw.llm.provider import Route
from klaw.llm.router import Task
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, JsonSchema, Request
from klaw.memory.spending import Spending
from klaw.memory.topics.answers import BadAnswer
from klaw.prompts import prompt

ANSWER_S = 600.0
"""A model that does not answer within this time has failed."""
CONTEXT_SHARE = 0.9
MAX_QUOTED_CHARS = 4_000
"""Of an answer that could not be used the model is shown so much."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Asker:
    """What questions in the background share.

    Args:
        llm: where they go, behind everybody who waits for a reply.
        temperature: ``llm.temperature``.
        spending: keeps what pieces of work cost, see ``charged``.
        meter: makes the calls of one piece of work.
    """

    llm: LlmClient
    temperature: float | None = None
    spending: Spending | None = None
    meter: Meter | None = None

    @asynccontextmanager
    async def charged(self, source: str, user: UserId, chat: ChatId | None = None) -> "AsyncIterator[Asker]":
        """An asker for one piece of work, whose cost is kept under a source; see ``Spending.of``. Without ``spending``
        it is this one."""
        if self.spending is None:
            yield self
            return
        async with self.spending.of(source, user, chat) as charge:
            yield attrs.evolve(self, meter=charge.meter)

    def room(self, task: Task, name: str) -> int:
        """About how many tokens of material a question may have.

        Args:
            task: what it is for.
            name: of its prompt.

        Raises:
            ConfigError: there is no model for the task.
        """
        route = self.llm.router.route(task=task)
        usable = int(route.context_tokens * CONTEXT_SHARE) - _reply_tokens(route)
        return max(64, usable - tokens.estimate(prompt(name)) - 4 * tokens.PER_MESSAGE)

    async def ask(
        self,
        task: Task,
        name: str,
        material: str,
        schema: JsonSchema,
        read: Callable[[str], T],
        *,
        priority: Priority = Priority.BACKGROUND,
    ) -> T:
        """Ask, and ask once more, with the error, when the answer cannot be read.

        Args:
            task: what it is for.
            name: of the prompt file.
            material: what it is about.
            schema: what the answer must be.
            read: makes a value of the answer; raises BadAnswer.
            priority: who waits.

        Raises:
            BadAnswer: neither answer could be read.
            ProviderError: the model failed.
            ConfigError: there is no model for the task.

        Cancellation: the call is given up.
        """
        messages: tuple[ChatMessage, ...] = (
            ChatMessage(role="system", content=prompt(name)),
            ChatMessage(role="user", content=material),
        )
        answer = await self._call(task, messages, schema, priority)
        try:
            return read(answer)
        except BadAnswer as error:
            again = f"This answer cannot be used: {error}. Answer again, with JSON of the form that was asked for only."
        quoted = answer[:MAX_QUOTED_CHARS].strip() or "(nothing)"
        messages += (ChatMessage(role="assistant", content=quoted), ChatMessage(role="user", content=again))
        return read(await self._call(task, messages, schema, priority))

    async def _call(self, task: Task, messages: tuple[ChatMessage, ...], schema: JsonSchema, priority: Priority) -> str:
        route = self.llm.router.route(task=task)
        request = Request(
            model=route.model,
            messages=messages,
            temperature=self.temperature,
            max_tokens=_reply_tokens(route),
            json_schema=schema,
        )
        async with self.llm.slots.slot(priority):
            with trio.move_on_after(ANSWER_S):
                meter = self.meter or self.llm.meter()
                return (await meter.stream(route, request, lambda _delta: None)).text
        raise ProviderTimeout(f"no answer within {ANSWER_S:g} s")


def _reply_tokens(route: Route) -> int:
    """What is kept free for the answer: never more than a third of the context."""
    return min(route.max_output_tokens, route.context_tokens // 3)
